"""The plot of a study: learning curves of all trials, the value of each, and the values against each setting."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td3.files import write_atomically

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

ENDINGS: dict[str, dict[str, Any]] = {
    "ended early": {"color": "#999999", "marker": "x", "s": 20},
    "finished": {"color": "#0072b2", "marker": "o", "s": 20},
    "best": {"color": "#d55e00", "marker": "*", "s": 90},
}
"""How trials are drawn, by their ending; the last ones lie on top."""
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def draw(
    title: str, search: Mapping[str, Any], trials: Sequence["FrozenTrial"], best: "FrozenTrial | None", path: Path
) -> None:
    """Write the plot; `search` has the choices, or the range, of every setting that was searched."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    groups: dict[str, list[FrozenTrial]] = {ending: [] for ending in ENDINGS}
    for trial in trials:
        finished = "finished" if trial.state.name == "COMPLETE" else "ended early"
        groups["best" if best is not None and trial.number == best.number else finished].append(trial)
    with mpl.rc_context(STYLE):
        rows = math.ceil(len(search) / 4)
        figure = Figure(figsize=(10, 3.4 + 2.1 * rows), dpi=150, layout="constrained")
        grid = figure.add_gridspec(1 + rows, 4, height_ratios=[1.5] + [1.0] * rows)
        figure.suptitle(title)
        curves, numbers = figure.add_subplot(grid[0, :2]), figure.add_subplot(grid[0, 2:])
        curves.set(title="every evaluation", xlabel="env steps", ylabel="return")
        numbers.set(title="every trial", xlabel="trial")
        panels = [figure.add_subplot(grid[1 + index // 4, index % 4]) for index in range(len(search))]
        for ending, group in groups.items():
            for trial in group:
                steps, returns = zip(*sorted(trial.intermediate_values.items()) or [(0, math.nan)], strict=True)
                curves.plot(steps, returns, color=ENDINGS[ending]["color"], linewidth=2 if ending == "best" else 1)
            values = [math.nan if trial.value is None else trial.value for trial in group]
            numbers.scatter([trial.number for trial in group], values, label=ending, **ENDINGS[ending])
            for axes, (name, space) in zip(panels, search.items(), strict=True):
                tried = [trial.params[name] for trial in group]
                positions = [space.index(value) for value in tried] if isinstance(space, list) else tried
                axes.scatter(positions, values, **ENDINGS[ending])
        numbers.legend(ncols=3)
        for axes, (name, space) in zip(panels, search.items(), strict=True):
            axes.set_xlabel(name)
            if isinstance(space, list):
                axes.set_xticks(range(len(space)), [str(value).replace(" ", "\n") for value in space])
            else:
                axes.set_xscale("log" if space.get("log") else "linear")
                axes.set_xlim(0.9 * space["low"], 1.1 * space["high"])
        written = io.BytesIO()
        figure.savefig(written, format="png")
    write_atomically(path, written.getvalue())
