"""The paper's own ten seeds by our measures: `python -m td3.reproduce.paper_seeds FOLDER` writes results/paper.csv.

FOLDER is `learning_curves` of the author's repository, sfujim/TD3: a file of 201 evaluations for each task and seed.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from td3.errors import RunError
from td3.files import write_atomically
from td3.policy import Array
from td3.report.paper import PAPER
from td3.reproduce.figures import Curve, areas, last_evaluations

SEEDS = 10
STEPS = np.arange(0, 1_000_001, 5_000)
ENDS = (200_000, 300_000, 500_000, 865_000, 1_000_000)
"""The last env steps of rows that are compared with the paper."""
MEASURES = {"last ten evaluations": last_evaluations, "area": areas}
COLUMNS = ("task", "env_steps", "measure", "mean", "std")


def write_paper_seeds(folder: Path, table: Path) -> None:
    """Mean and standard deviation (n - 1) over the paper's seeds of both measures, up to each of these env steps."""
    lines = [",".join(COLUMNS)]
    for task in PAPER:
        returns = _read(folder, task)
        for end in ENDS:
            steps = STEPS[end >= STEPS]
            curve = Curve(steps, returns[:, : len(steps)], {})
            for measure, of in MEASURES.items():
                lines.append(f"{task},{end},{measure},{of(curve).mean():.3f},{of(curve).std(ddof=1):.3f}")
    write_atomically(table, "\n".join([*lines, ""]).encode())


def _read(folder: Path, task: str) -> Array:
    """`[seed, evaluation]` of one task."""
    files = sorted(folder.rglob(f"TD3_{task}-v1_*.npy"))
    curves = [np.load(file, allow_pickle=False) for file in files]
    if len(curves) != SEEDS or any(curve.shape != STEPS.shape for curve in curves):
        raise RunError(
            f"{folder} does not have {SEEDS} curves TD3_{task}-v1_SEED.npy of {len(STEPS)} evaluations: give the "
            "folder `learning_curves` of sfujim/TD3."
        )
    return np.stack(curves)


def paper_seeds(results: Path, task: str, end: int) -> dict[str, Array]:
    """Numbers with the mean and deviation of the paper's seeds, by measure; empty where they are not stored.

    Welch's interval depends on mean, deviation and number of the seeds alone, so these give the same one.
    """
    alike = np.arange(SEEDS) - np.arange(SEEDS).mean()
    alike /= alike.std(ddof=1)
    table = results / "paper.csv"
    stored = csv.DictReader(table.read_text().splitlines()) if table.exists() else ()
    lines = [line for line in stored if (line["task"], int(line["env_steps"])) == (task, end)]
    return {line["measure"]: float(line["mean"]) + float(line["std"]) * alike for line in lines}


if __name__ == "__main__":
    write_paper_seeds(Path(sys.argv[1]), Path("results/paper.csv"))
