"""Runs, groups of runs and logs of other libraries, compared from Python: `td3.compare(base="jobs/a_*", new=...)`."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from td3.errors import RunError, missing_extra
from td3.policy import Array
from td3.report.across_tasks import normalized, read_scales, scores_by_task
from td3.report.groups import read_groups
from td3.report.notebook import figure_html
from td3.report.records import RunRecords
from td3.report.render import named_runs, write_report
from td3.report.summary import MARGIN, describe_runs, figures
from td3.report.tables import as_csv, as_latex, write_text
from td3.run.directory import Run
from td3.statistics import interquartile_mean, iqm_interval

COLORS = ("#0072b2", "#d55e00", "#00805c", "#b0578c", "#8a6d00", "#3f9bd0")
"""Those of the report."""
Runs = Run | str | os.PathLike[str] | Iterable[Run | str | os.PathLike[str]]
"""A run, its folder, a pattern such as jobs/a_*, or several of these."""


class RunComparison:
    """Groups of runs: their numbers, plot, report and tables."""

    def __init__(
        self,
        runs: list[RunRecords],
        normalize: Mapping[str, tuple[float, float]] | None = None,
        margin: float = MARGIN,
    ) -> None:
        words = [f"{task}={low},{high}" for task, (low, high) in (normalize or {}).items()]
        self.runs, self.normalize, self.margin = runs, read_scales(words), margin

    def figures(self) -> dict[str, Any]:
        """All numbers, as `td3 report --json` prints them."""
        return figures(self.runs, self.margin, self.normalize)

    def scores(self) -> dict[str, Array]:
        """`{name: scores [run, task]}`, as rliable takes them, in the order of `tasks`; normalized if that was given.

        A score is a seed's mean return over the last tenth of the env steps that all groups have.
        """
        arrays = {}
        for name, by_task in scores_by_task(self.runs).items():
            values = normalized(by_task, self.normalize) if self.normalize else by_task
            counts = {task: len(scores) for task, scores in values.items()}
            if len({*counts.values()}) > 1:
                listed = ", ".join(f"{count} on {task}" for task, count in counts.items())
                raise RunError(f"{name} has different numbers of seeds ({listed}), and an array [run, task] has one.")
            arrays[name] = np.stack([*values.values()], 1) if values else np.empty((0, 0))
        return arrays

    @property
    def tasks(self) -> list[str]:
        """The tasks that all groups have results on: the columns of `scores`."""
        return list(next(iter(scores_by_task(self.runs).values()), {}))

    def report(self, out: Path | str = "report.html") -> Path:
        """Write the report, and return its path."""
        write_report(self.runs, Path(out), self.margin, self.normalize)
        return Path(out)

    def csv(self, path: Path | str) -> Path:
        """Write the results and comparisons as CSV."""
        write_text(Path(path), as_csv(self.runs, self.margin, self.figures()["tasks"]))
        return Path(path)

    def latex(self, path: Path | str) -> Path:
        """Write the results as a LaTeX table."""
        write_text(Path(path), as_latex(self.runs, self.margin, self.figures()["tasks"]))
        return Path(path)

    def plot(self, ax: Any = None) -> Any:
        """Draw the learning curves with matplotlib: the interquartile mean over seeds and its 95 % interval.

        Returns the axes: `ax` if it was given, for runs of one task, or else an array of one for each task.
        """
        try:
            from matplotlib import pyplot
        except ImportError:
            raise missing_extra("plotting", "plots") from None
        tasks = list(dict.fromkeys(records.config.env for records in self.runs))
        if ax is None:
            _, grid = pyplot.subplots(1, len(tasks), figsize=(5 * len(tasks), 3.6), squeeze=False, layout="constrained")
            drawn: list[Any] = list(grid[0])
        elif len(tasks) > 1:
            raise RunError(f"these runs are of {len(tasks)} tasks, and ax is for one: call plot() without it.")
        else:
            drawn = [ax]
        for axes, task in zip(drawn, tasks, strict=True):
            self._draw(axes, task)
        return drawn[0] if len(drawn) == 1 else np.array(drawn)

    def _draw(self, axes: Any, task: str) -> None:
        named = [run for run in named_runs(self.runs) if run.records.config.env == task and run.records.evaluated]
        for records, name, color in named:
            steps, returns = records.curves
            rgb = COLORS[int(color[len("var(--c") : -1])]
            axes.plot(steps, interquartile_mean(returns), color=rgb, label=name)
            if len(returns) > 1:
                axes.fill_between(steps, *iqm_interval(returns), color=rgb, alpha=0.2, linewidth=0)
        units = " or ".join(dict.fromkeys(run.records.config.unit for run in named))
        axes.set(title=task, xlabel=units or "env steps", ylabel="return")
        if len(named) > 1:
            axes.legend()

    def __str__(self) -> str:
        """What `td3 report` prints."""
        return "\n".join(describe_runs(self.figures()))

    def __repr__(self) -> str:
        """The groups."""
        return f"RunComparison({', '.join(records.title for records in self.runs)})"

    def _repr_html_(self) -> str:
        """Learning curves and the printed report, for notebooks."""
        return figure_html(self.runs, str(self))


def compare(
    *runs: Runs,
    normalize: Mapping[str, tuple[float, float]] | None = None,
    margin: float = MARGIN,
    **named: Runs,
) -> RunComparison:
    """Runs compared: `td3.compare(base="jobs/a_*", new=["jobs/b_0", "jobs/b_1"])`; the first group is the reference.

    Runs without a name are one group where their settings differ only in seed. Folders with logs of Stable-Baselines3
    (`evaluations.npz`, `monitor.csv`) and CleanRL (TensorBoard events) are read too. `normalize` has the scores that
    count as 0 and 1 on each task, `{"Hopper-v5": (20, 3564)}`; runs are equivalent within `margin`, a share of the
    reference's return.
    """
    pairs = [("", path) for each in runs for path in _paths(each)]
    pairs += [(name, path) for name, each in named.items() for path in _paths(each)]
    if not pairs:
        raise RunError("td3.compare needs runs: td3.compare(base='jobs/a_*', new='jobs/b_*')")
    return RunComparison(read_groups(pairs), normalize, margin)


def _paths(runs: Runs) -> list[str]:
    several = [runs] if isinstance(runs, Run | str | os.PathLike) else list(runs)
    return [str(run.path if isinstance(run, Run) else os.fspath(run)) for run in several]
