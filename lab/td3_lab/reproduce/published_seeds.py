"""Seeds that others published, by our measures: `python -m td3_lab.reproduce.published_seeds FOLDER`.

It writes results/published.csv. Anywhere in FOLDER are the files `TD3_TASK-v1_SEED.npy` of `learning_curves` in the
author's repository, sfujim/TD3, the tables `TASK-v3.csv` (or v2) of TD3 in Tianshou's MuJoCo benchmark, and the files
`TASK.evaluations.npz` of TD3 in Stable-Baselines3's trained agents, DLR-RM/rl-trained-agents.
"""

import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from td3.errors import RunError
from td3.files import write_atomically
from td3.policy import Array
from td3.report.paper import PAPER
from td3.statistics import interquartile_sample, sample_like
from td3_lab.reproduce.figures import Curve, areas, at_steps, last_evaluations, read_curve
from td3_lab.reproduce.rows import ABLATED_STEPS, BEGINNING, BULLET_TASKS, ROWS, SHORT

NAMES = {"tianshou": "Tianshou", "paper": "the paper"}
"""Sources whose ten seeds ours are compared with."""
SEEDS = 10
SPACING = 5_000
"""Env steps between evaluations."""
UNCOUNTED = 25_000
"""Random steps that Tianshou does not count as env steps; here they are added."""
FIRST = {"tianshou": UNCOUNTED + SPACING}
"""The env step of the first evaluation that is compared, where it is not 0."""
LAST_TEN = "last ten evaluations"
MEASURES: dict[str, Callable[[Curve], Array]] = {
    LAST_TEN: last_evaluations,
    "their IQM": lambda curve: interquartile_sample(last_evaluations(curve)),
    "area": areas,
}
OVER_TIME = (BEGINNING, SHORT, ABLATED_STEPS)
"""Env steps at which the tasks of 1,000,000 env steps are compared, besides their end."""
EARLY_STEPS = (40_000, 45_000, 50_000, 75_000, 100_000, 125_000)
"""Env steps at which single evaluations of HalfCheetah are compared with Tianshou's."""
BULLET_ENDS = (100_000, 200_000, SHORT)
"""Env steps up to which Stable-Baselines3's evaluations are averaged."""
BULLET_SPACING = 10_000


class _Figure(NamedTuple):
    """One line of the table: a measure of a source's seeds, up to an env step."""

    source: str
    task: str
    env_steps: int
    measure: str
    seeds: Array

    def __str__(self) -> str:
        spread = f"{self.seeds.std(ddof=1):.3f}" if len(self.seeds) > 1 else ""
        fields = self.source, self.task, self.env_steps, self.measure, len(self.seeds), f"{self.seeds.mean():.3f}"
        return ",".join(map(str, (*fields, spread)))


def write_published_seeds(folder: Path, table: Path) -> None:
    """Number, mean and standard deviation (n - 1) of each source's seeds, by measure and env step.

    For the IQM: of as many numbers as it keeps, so that their interval is the IQM's.
    """
    lines = ["source,task,env_steps,measure,seeds,mean,std", *map(str, _figures(folder, table.parent)), ""]
    write_atomically(table, "\n".join(lines).encode())


def _ends(results: Path, task: str) -> list[int]:
    """The env steps up to which rows of a task are compared: where each ends or is to end, long ones also before."""
    rows = [row for row in ROWS if row.family == task and (row.table == "table1" or row.preset == "paper")]
    ends = {row.steps for row in rows}
    ends |= {int(curve.steps[-1]) for row in rows if (curve := read_curve(results / row.name)) is not None}
    return sorted(ends.union(*(OVER_TIME for row in rows if row.steps > SHORT)))


def _figures(folder: Path, results: Path) -> Iterator[_Figure]:
    for source, read in (("paper", _paper), ("tianshou", _tianshou)):
        for task in PAPER:
            curve = read(folder, task)
            for end in _ends(results, task):
                _require_end(curve, end, f"{NAMES[source]} for {task}")
                until = compared_part(curve, source, end)
                yield from (_Figure(source, task, end, measure, of(until)) for measure, of in MEASURES.items())
    early = at_steps(_tianshou(folder, "HalfCheetah"), EARLY_STEPS)
    for step, seeds in zip(early.steps, early.returns.T, strict=True):
        yield _Figure("tianshou", "HalfCheetah", int(step), "evaluation", seeds)
    for env in BULLET_TASKS.values():
        curve = _stable_baselines3(folder, env)
        _require_end(curve, BULLET_ENDS[-1], f"Stable-Baselines3 for {env}")
        for end in BULLET_ENDS:
            until = at_steps(curve, np.arange(BULLET_SPACING, end + 1, BULLET_SPACING))
            yield _Figure("sb3", env.partition("-")[0], end, LAST_TEN, last_evaluations(until))


def _require_end(curve: Curve, end: int, whose: str) -> None:
    if end not in curve.steps:
        raise RunError(f"the curves of {whose} have no evaluation at env step {end:,}: copy the whole files.")


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


def _stable_baselines3(folder: Path, env: str) -> Curve:
    files = [*folder.rglob(f"{env}.evaluations.npz")]
    if len(files) != 1:
        raise RunError(
            f"{folder} does not have one file {env}.evaluations.npz: copy `evaluations.npz` of td3/{env}_1 in "
            "DLR-RM/rl-trained-agents into it under that name."
        )
    with np.load(files[0], allow_pickle=False) as stored:
        return Curve(stored["timesteps"], stored["results"].mean(1)[None], {})


def published_seeds(results: Path, source: str, task: str, end: int) -> dict[str, Array]:
    """Numbers with the mean and deviation of a source's seeds, by measure; empty where they are not stored.

    Welch's interval depends on mean, deviation and number of the seeds alone, so these give the same one.
    """
    table = results / "published.csv"
    stored = csv.DictReader(table.read_text().splitlines()) if table.exists() else ()
    wanted = source, task, str(end)
    lines = [line for line in stored if (line["source"], line["task"], line["env_steps"]) == wanted]
    return {
        line["measure"]: sample_like(int(line["seeds"]), float(line["mean"]), float(line["std"] or 0)) for line in lines
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m td3_lab.reproduce.published_seeds FOLDER")
    try:
        write_published_seeds(Path(sys.argv[1]), Path("results/published.csv"))
    except RunError as error:
        sys.exit(f"td3: {error}")
