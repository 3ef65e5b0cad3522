"""The plot of a study: learning curves of all trials, the best value so far, and the value against each setting."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from td3.files import write_atomically
from td3.tune.search import value_of

if TYPE_CHECKING:
    import optuna

BEST, WHOLE, STOPPED, INK = "#d55e00", "#0072b2", "#999999", "#111213"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "legend.frameon": False,
}
LOGARITHMIC = {"learning_rate": (1e-4, 3e-4, 1e-3, 3e-3), "tau": (0.001, 0.003, 0.01, 0.05)}
"""The settings drawn on a logarithmic axis, and where it is labeled."""
LISTED = ("gamma", "hidden_sizes", "batch_size")
"""The settings with a few choices."""


def draw(
    options: Mapping[str, Any],
    trials: Sequence["optuna.trial.FrozenTrial"],
    best: "optuna.trial.FrozenTrial | None",
    path: Path,
) -> None:
    """Write the plot."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = list(options["fields"])
    rows = math.ceil(len(names) / 4)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.4 + 2.1 * rows), dpi=150, layout="constrained")
        grid = figure.add_gridspec(1 + rows, 4, height_ratios=[1.5] + [1.0] * rows)
        figure.suptitle(f"td3 tune {options['env']}: {len(trials)} trials of {options['steps']:,} env steps")
        _curves(figure.add_subplot(grid[0, :2]), trials, best)
        _history(figure.add_subplot(grid[0, 2:]), trials, best)
        for index, name in enumerate(names):
            axes = figure.add_subplot(grid[1 + index // 4, index % 4])
            _against(axes, name, trials, best)
            if index % 4 == 0:
                axes.set_ylabel("return")
        for axes in figure.axes:
            axes.yaxis.set_major_formatter(_thousands)
        written = io.BytesIO()
        figure.savefig(written, format="png")
        write_atomically(path, written.getvalue())


def _thousands(value: float, _: Any = None) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _look(trial: "optuna.trial.FrozenTrial", best: "optuna.trial.FrozenTrial | None") -> dict[str, Any]:
    """Color and marker of a trial; both have the same meaning."""
    if best is not None and trial.number == best.number:
        return {"color": BEST, "marker": "*", "zorder": 3}
    if trial.state.name == "COMPLETE":
        return {"color": WHOLE, "marker": "o", "zorder": 2}
    return {"color": STOPPED, "marker": "x", "zorder": 1}


def _curves(axes: Any, trials: Sequence["optuna.trial.FrozenTrial"], best: "optuna.trial.FrozenTrial | None") -> None:
    for trial in trials:
        look, reported = _look(trial, best), sorted(trial.intermediate_values.items())
        axes.plot(
            [steps for steps, _ in reported],
            [value for _, value in reported],
            color=look["color"],
            zorder=look["zorder"],
            linewidth=2 if look["marker"] == "*" else 1,
            alpha=1 if look["marker"] == "*" else 0.6,
        )
    axes.set(title="every evaluation", xlabel="env steps", ylabel="return")
    axes.xaxis.set_major_formatter(_thousands)


def _history(axes: Any, trials: Sequence["optuna.trial.FrozenTrial"], best: "optuna.trial.FrozenTrial | None") -> None:
    for mark, label in (("*", "best"), ("o", "finished"), ("x", "stopped early")):
        shown = [trial for trial in trials if _look(trial, best)["marker"] == mark]
        if shown:
            size = 120 if mark == "*" else 28
            places, values = [trial.number for trial in shown], [value_of(trial) for trial in shown]
            axes.scatter(places, values, s=size, label=label, **_look(shown[0], best))
    complete = sorted((trial for trial in trials if trial.state.name == "COMPLETE"), key=lambda trial: trial.number)
    if complete:
        highest = np.maximum.accumulate([value_of(trial) for trial in complete])
        axes.step([trial.number for trial in complete], highest, where="post", color=BEST, linewidth=1, zorder=0)
    axes.set_title("every trial", loc="left")
    axes.set_xlabel("trial")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0, handletextpad=0.2)


def _against(
    axes: Any, name: str, trials: Sequence["optuna.trial.FrozenTrial"], best: "optuna.trial.FrozenTrial | None"
) -> None:
    # Sizes are words such as "64 64": by their numbers, 64 comes before 128.
    tried = sorted(
        {trial.params[name] for trial in trials}, key=lambda v: int(v.split()[0]) if isinstance(v, str) else v
    )
    for trial in trials:
        look, value = _look(trial, best), trial.params[name]
        place = tried.index(value) if name in LISTED else value
        axes.scatter(place, value_of(trial), s=70 if look["marker"] == "*" else 16, **look)
    if name in LISTED:
        axes.set_xticks(range(len(tried)), [str(value).replace(" ", "\n") for value in tried])
        axes.set_xlim(-0.5, len(tried) - 0.5)
    elif name in LOGARITHMIC:
        axes.set_xscale("log")
        axes.set_xticks(LOGARITHMIC[name], [f"{tick:g}" for tick in LOGARITHMIC[name]])
        axes.minorticks_off()
    axes.set_xlabel(name)
