"""Seeds that others published, by our measures: `python -m td3.reproduce.published_seeds FOLDER`.

It writes results/published.csv. Anywhere in FOLDER are the files `TD3_TASK-v1_SEED.npy` of `learning_curves` in the
author's repository, sfujim/TD3, and the tables `TASK-v3.csv` (or v2) of TD3 in Tianshou's MuJoCo benchmark.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from td3.errors import RunError
from td3.files import write_atomically
from td3.policy import Array
from td3.report.paper import PAPER
from td3.reproduce.figures import Curve, areas, at_steps, last_evaluations

NAMES = {"tianshou": "Tianshou", "paper": "the paper"}
SEEDS = 10
SPACING = 5_000
"""Env steps between evaluations."""
UNCOUNTED = 25_000
"""Random steps that Tianshou does not count as env steps; here they are added."""
FIRST = {"tianshou": UNCOUNTED + SPACING}
"""The env step of the first evaluation that is compared, where it is not 0."""
ENDS = (200_000, 300_000, 500_000, 865_000, 1_000_000)
"""The last env steps of rows that are compared."""
MEASURES = {"last ten evaluations": last_evaluations, "area": areas}


def write_published_seeds(folder: Path, table: Path) -> None:
    """Mean and standard deviation (n - 1) over each source's seeds of both measures, up to each of these env steps."""
    lines = ["source,task,env_steps,measure,mean,std"]
    for source, read in (("paper", _paper), ("tianshou", _tianshou)):
        for task in PAPER:
            curve = read(folder, task)
            for end in ENDS:
                until = compared_part(curve, source, end)
                for measure, of in MEASURES.items():
                    found = of(until)
                    lines.append(f"{source},{task},{end},{measure},{found.mean():.3f},{found.std(ddof=1):.3f}")
    write_atomically(table, "\n".join([*lines, ""]).encode())


def compared_part(curve: Curve, source: str, end: int) -> Curve:
    """The evaluations that are compared with a source's up to an env step."""
    return at_steps(curve, np.arange(FIRST.get(source, 0), end + 1, SPACING))


def _paper(folder: Path, task: str) -> Curve:
    seeds = [np.load(file, allow_pickle=False) for file in sorted(folder.rglob(f"TD3_{task}-v1_*.npy"))]
    if len(seeds) != SEEDS or any(seed.shape != (201,) for seed in seeds):
        raise RunError(
            f"{folder} does not have {SEEDS} curves TD3_{task}-v1_SEED.npy of 201 evaluations: copy the folder "
            "`learning_curves` of sfujim/TD3 into it."
        )
    return Curve(np.arange(0, 1_000_001, SPACING), np.stack(seeds), {})


def _tianshou(folder: Path, task: str) -> Curve:
    files = [*folder.rglob(f"{task}-v[23].csv")]
    rows = list(csv.reader(files[0].read_text().splitlines())) if len(files) == 1 else []
    if not rows or len(rows[0]) != 3 + SEEDS:  # env steps, mean, deviation, and the seeds
        raise RunError(
            f"{folder} does not have one table {task}-v3.csv or {task}-v2.csv with {SEEDS} seeds: copy those of TD3 in "
            "Tianshou's MuJoCo benchmark into it."
        )
    numbers = np.array([[float(cell) for cell in row] for row in rows[1:]])
    return Curve(numbers[:, 0] + UNCOUNTED, numbers[:, 3:].T, {})


def published_seeds(results: Path, source: str, task: str, end: int) -> dict[str, Array]:
    """Numbers with the mean and deviation of a source's seeds, by measure; empty where they are not stored.

    Welch's interval depends on mean, deviation and number of the seeds alone, so these give the same one.
    """
    alike = np.arange(SEEDS) - np.arange(SEEDS).mean()
    alike /= alike.std(ddof=1)
    table = results / "published.csv"
    stored = csv.DictReader(table.read_text().splitlines()) if table.exists() else ()
    wanted = source, task, str(end)
    lines = [line for line in stored if (line["source"], line["task"], line["env_steps"]) == wanted]
    return {line["measure"]: float(line["mean"]) + float(line["std"]) * alike for line in lines}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m td3.reproduce.published_seeds FOLDER")
    try:
        write_published_seeds(Path(sys.argv[1]), Path("results/published.csv"))
    except RunError as error:
        sys.exit(f"td3: {error}")
