"""The plots of docs/results_*.md, drawn from the stored curves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from td3.report.paper import published
from td3.statistics import mean_interval
from td3_lab.reproduce.figures import LAST, VALUED_STEPS, Curve, at_steps, read_curve, read_values
from td3_lab.reproduce.published_seeds import (
    BULLET_ENDS,
    BULLET_SPACING,
    LAST_TEN,
    NAMES,
    SPACING,
    compared_part,
    published_seeds,
)
from td3_lab.reproduce.rows import ABLATED, ABLATIONS, BEGINNING, BULLET_TASKS, ROWS, SHORT

OURS, PAPER = "#0072B2", "#E69F00"
COLORS = {"": OURS, "no_delay": "#CC79A7", "no_smoothing": "#009E73", "no_twin": "#D55E00", "ddpg": "#555555"}
"""TD3 and its ablations."""
CHANGED = "#CC79A7"


def _panels(count: int, most: int = 3) -> tuple[Any, list[Any]]:
    """A figure and its panels, at most so many in a line."""
    import matplotlib.pyplot as plt

    columns = min(most, count)
    lines = -(-count // columns)
    size = (4 * columns, 2.9 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, dpi=140, layout="constrained", squeeze=False)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    for panel in axes.flat[count:]:
        panel.axis("off")
    return figure, [*axes.flat[:count]]


def _draw(panel: Any, curve: Curve, color: str, label: str, seeds: bool = True, style: str = "-") -> None:
    """The mean of a curve with its interval, and every seed thin."""
    steps, (low, high) = curve.steps / 1e6, mean_interval(curve.returns)
    if seeds:
        panel.plot(steps, curve.returns.T, color=color, linewidth=0.5, alpha=0.4)
    panel.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
    panel.plot(steps, curve.returns.mean(0), style, color=color, linewidth=1.8, label=label)


def _legend_below(figure: Any, panels: list[Any]) -> None:
    """One legend for all panels, each line once."""
    lines = {line.get_label(): line for panel in panels for line in panel.get_lines() if line.get_label()[0] != "_"}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def plot_tasks(results: Path, out: Path) -> None:
    """The paper's tasks: the mean with its interval, each seed, and the paper's band."""
    rows = [row for row in ROWS if row.table == "table1" and not row.env_kwargs]
    run = [(row, curve) for row in rows if (curve := read_curve(results / row.name))]
    figure, panels = _panels(len(run))
    for panel, (row, curve) in zip(panels, run, strict=True):
        _draw(panel, curve, OURS, f"td3, mean of {len(curve.returns)} seeds")
        if known := published(row.env):
            low, high = known.highest - known.spread, known.highest + known.spread
            panel.axhspan(low, high, color=PAPER, alpha=0.15, linewidth=0)
            panel.axhline(known.highest, color=PAPER, linestyle="--", linewidth=1, label="paper, highest mean (Gym v1)")
        bottom = float(np.quantile(curve.returns, 0.02))
        panel.set(title=row.task, xlim=(0, curve.steps[-1] / 1e6), xlabel="env steps (millions)", ylabel="return")
        panel.set_ylim(bottom=bottom - 0.05 * abs(bottom))
    panels[0].legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(out)


def _compare_ablations(
    results: Path, out: Path, read: Callable[[Path], Curve | None], ylabel: str, colors: dict[str, str] = COLORS
) -> None:
    """TD3 and its ablations, one panel for each task of which an ablation was run."""
    drawn: dict[str, dict[str, Curve]] = {}
    for env, task in ABLATED.items():
        found = {name: read(results / (f"{task}_v5_{name}" if name else f"{task}_v5")) for name in colors}
        drawn[env] = {name: at_steps(curve, VALUED_STEPS) for name, curve in found.items() if curve is not None}
    drawn = {env: curves for env, curves in drawn.items() if any(curves)}  # TD3 has no name
    if not drawn:
        return
    figure, panels = _panels(len(drawn), most=2)
    for panel, (env, curves) in zip(panels, drawn.items(), strict=True):
        for name, curve in curves.items():
            label = ABLATIONS[name][0] if name in ABLATIONS else "TD3"
            _draw(panel, curve, colors[name], label, seeds=False, style="--" if name == "no_delay" else "-")
        counts = sorted({len(curve.returns) for curve in curves.values()})
        seeds = " to ".join(map(str, counts[:: max(1, len(counts) - 1)]))
        panel.set(title=f"{env}, {seeds} seeds", xlabel="env steps (millions)", ylabel=ylabel)
        panel.axhline(0, color="0.2", linewidth=0.8)
    _legend_below(figure, panels)
    figure.savefig(out)


def plot_ablations(results: Path, out: Path) -> None:
    """Returns of TD3 and its ablations."""
    _compare_ablations(results, out, read_curve, "return")


def plot_overestimation(results: Path, out: Path) -> None:
    """How far critic 1's value is above the discounted return, with TD3 and its ablations."""

    def read(folder: Path) -> Curve | None:
        found = read_values(folder)
        return None if found is None else Curve(found[0], found[1] - found[2], {})

    _compare_ablations(results, out, read, "overestimation", {"again": OURS, **COLORS})


BEGINNINGS = {
    "Hopper-v5": (("hopper_v5", "preset author"), ("hopper_v5_paper", "preset paper"), "paper"),
    "Walker2d-v5": (("walker2d_v5", "preset author"), ("walker2d_v5_paper", "preset paper"), "paper"),
    "Ant-v5": (("ant_v5", "105 observations"), ("ant_v5_27", "27 observations"), "tianshou"),
}
"""Two rows of a task that are compared at first, with their labels, and the source that they are compared with."""


def plot_beginning(results: Path, out: Path) -> None:
    """Two rows of each task, and the last ten evaluations of a source's own seeds."""
    figure, panels = _panels(len(BEGINNINGS))
    for panel, (env, (*rows, source)) in zip(panels, BEGINNINGS.items(), strict=True):
        for (name, label), color in zip(rows, (OURS, CHANGED), strict=True):
            if (curve := read_curve(results / name)) is not None:
                _draw(panel, compared_part(curve, "", BEGINNING), color, f"td3, {label}")
        last = np.arange(BEGINNING - (LAST - 1) * SPACING, BEGINNING + 1, SPACING) / 1e6
        theirs = published_seeds(results, source, env.partition("-")[0], BEGINNING)[LAST_TEN]
        panel.fill_between(last, *mean_interval(theirs), color=PAPER, alpha=0.35, linewidth=0)
        label = f"{NAMES[source]}, last ten evaluations"
        panel.plot(last, np.full(len(last), theirs.mean()), color=PAPER, linewidth=1.8, label=label)
        panel.set(title=f"{env}, {len(theirs)} seeds each", xlabel="env steps (millions)", ylabel="return")
        panel.legend(frameon=False, loc="upper left", fontsize=8)
    figure.savefig(out)


def plot_bullet(results: Path, out: Path) -> None:
    """The PyBullet tasks, presets `bullet` and `course` and Stable-Baselines3 in one panel for each task."""
    figure, panels = _panels(len(BULLET_TASKS))
    for panel, (task, env) in zip(panels, BULLET_TASKS.items(), strict=True):
        for preset, color in (("bullet", OURS), ("course", PAPER)):
            if (curve := read_curve(results / f"{preset}_{task}")) is not None:
                _draw(panel, curve, color, f"preset {preset}, mean of {len(curve.returns)} seeds")
        for end in BULLET_ENDS:
            theirs = published_seeds(results, "sb3", env.partition("-")[0], end)[LAST_TEN]
            first = end - (LAST - 1) * BULLET_SPACING
            label = "Stable-Baselines3, 1 seed, means of ten evaluations" if end == BULLET_ENDS[0] else None
            panel.plot([first / 1e6, end / 1e6], [theirs.mean()] * 2, color="0.2", linewidth=1.8, label=label)
        panel.set(title=env, xlim=(0, SHORT / 1e6), xlabel="env steps (millions)", ylabel="return")
    _legend_below(figure, panels)
    figure.savefig(out)


PLOTS = {
    "tasks": plot_tasks,
    "beginning": plot_beginning,
    "ablations": plot_ablations,
    "overestimation": plot_overestimation,
    "bullet": plot_bullet,
}
"""What is drawn into docs/images, by name."""
