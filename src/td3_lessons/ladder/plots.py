"""The drawings of the ladder: learning curves against the optimum, values against the exact ones, overestimation."""

import importlib.util
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from td3.environments.rail import END
from td3.errors import ConfigError, RunError, missing_extra
from td3_lessons.ladder.climb import MAP, NUMBERS, RAIL, Result, interval, lesson, optimum
from td3_lessons.ladder.exact import solve

COLOURS = ("#999999", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2")
"""One for each rung, told apart by the color-blind too; every line also has its name beside it."""
INK, FAINT = "#111213", "#c1c2c3"
"""Text and lines; in the page both are replaced by what the reader's light or dark setting asks for."""
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "legend.frameon": False,
}
TICKS = (-3, -5, -10, -20, -40, -80)
"""Marks on the axis of returns on Rail, whose scale is logarithmic in the distance from 1: what matters happens near
zero, and nothing is cut off below."""


def require_plots(out: Path, endings: Sequence[str]) -> None:
    """Whatever can be known to be missing for a drawing is told now, before anything is trained."""
    if importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("drawing the ladder", "plots")
    if out.suffix not in endings:
        raise ConfigError(f"this is written as {' or '.join(endings)}, but {out} was given: give another --out.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("ab").close()
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): give another --out.") from None


def figure(width: int, height: int, columns: int = 1, **kwargs: Any) -> tuple[Any, Any]:
    """An empty drawing of so many points, with axes side by side."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        drawing = Figure(figsize=(width / 72, height / 72), layout="constrained")
        return drawing, drawing.subplots(1, columns, squeeze=False, **kwargs)[0]


def save(drawing: Any, out: Path) -> None:
    """Write a drawing for a white page."""
    import matplotlib as mpl

    with mpl.rc_context({**STYLE, "svg.hashsalt": "td3"}):
        drawing.savefig(out, dpi=144, facecolor="white", metadata={"Date": None} if out.suffix == ".svg" else None)


def svg(drawing: Any, title: str) -> str:
    """A drawing as SVG to be put into a page: its inks follow the page, its text is text, it asks nothing of anyone."""
    import matplotlib as mpl

    written = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": title}):
        drawing.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", written.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    text = re.sub(r' width="[\d.]+pt"', "", text, count=1)
    text = re.sub(r' height="[\d.]+pt"', f' role="img" aria-label="{title}"', text, count=1)
    return re.sub(
        r' id="(figure|axes|patch|line2d|text|matplotlib\.axis|xtick|ytick|legend|collection)[^"]*"', "", text
    )


def draw_curves(axes: Any, groups: Sequence[Sequence[Result]], logarithmic: bool = False) -> None:
    """The mean return of each group of seeds with its 95 % interval, its name at the end, and the optimum."""
    on_rail = groups[0][0].env == RAIL
    for results in groups:
        number = results[0].number
        returns = np.stack([result.returns for result in results])
        # Before the first step there is nothing to be seen on a logarithmic axis.
        steps, returns = (results[0].steps[1:], returns[:, 1:]) if logarithmic else (results[0].steps, returns)
        color, mean = COLOURS[number - 1], returns.mean(0)
        label = f"{number} {short_title(number)}"
        axes.plot(steps, mean, color=color, lw=2, label=label)
        if len(results) > 1:
            axes.fill_between(steps, *interval(returns), color=color, alpha=0.25, lw=0)
    axes.set_xlabel("env steps")
    axes.set_ylabel("discounted return (logarithmic)" if on_rail else "return")
    axes.margins(x=0.02)
    if logarithmic:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
        axes.xaxis.set_major_locator(_few_ticks(5))
    if on_rail:
        axes.axhline(optimum(), color=INK, ls="--", lw=1.2, label="optimum")
        axes.set_yscale("function", functions=(_squeezed, _unsqueezed))
        axes.set_yticks(TICKS, [str(tick) for tick in TICKS])
        lowest = min(float(np.min(result.returns)) for results in groups for result in results)
        axes.set_ylim(min(-20.0, 1.05 * lowest), -3)
    if len(groups) > 2:
        axes.figure.legend(*axes.get_legend_handles_labels(), fontsize=10, loc="outside lower center", ncols=3)
    elif on_rail:
        axes.legend(fontsize=10, loc="lower right")


def _squeezed(returns: Any) -> Any:
    return -np.log10(np.maximum(1 - np.asarray(returns, float), 1e-3))


def _unsqueezed(place: Any) -> Any:
    return 1 - 10 ** -np.asarray(place, float)


def draw_idea(axes: Any, plain: Sequence[Result], changed: Sequence[Result], before: str, after: str) -> None:
    """Predicted minus earned along training, without and with one idea: mean and 95 % interval over the seeds."""
    for results, color, label in ((plain, "#8a8a8a", before), (changed, COLOURS[-1], after)):
        bias = np.stack([result.self_deception for result in results if result.self_deception is not None])
        axes.plot(results[0].steps, bias.mean(0), color=color, lw=2, label=label)
        if len(results) > 1:
            axes.fill_between(results[0].steps, *interval(bias), color=color, alpha=0.25, lw=0)
    axes.axhline(0, color=INK, lw=1.2, ls="--")
    axes.set_xlabel("env steps")
    axes.set_ylabel("predicted - earned")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    axes.xaxis.set_major_locator(_few_ticks(4))
    axes.legend(fontsize=9, loc="best")


def short_title(number: int) -> str:
    """The name of a rung up to its first comma."""
    return lesson(number).title.partition(",")[0]


def draw_values(drawing: Any, axes: Any, results: Sequence[Result]) -> None:
    """The learned values (mean over the seeds) and the exact ones, over position and velocity, in the same colors."""
    learned = np.ma.masked_invalid([result.values for result in results if result.values is not None]).mean(0)
    name = "what its policy earns" if results[0].overestimate is None else "learned value"
    for axis, values, title in zip(axes, (learned, solve().v(MAP)), (name, "exact optimum"), strict=True):
        image = axis.imshow(values, origin="lower", extent=(-END, END, -END, END), vmin=-40, vmax=0, cmap="cividis")
        axis.patch.set(hatch="////", edgecolor=FAINT)  # shows where no seed has learned a value
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("position")
        axis.grid(False)
        axis.set_xticks((-2, 0, 2))
        axis.set_yticks((-2, 0, 2))
    axes[0].set_ylabel("velocity")
    bar = drawing.colorbar(image, ax=list(axes), shrink=0.75, pad=0.02)
    bar.outline.set_visible(False)


def draw_overestimate(axes: Any, groups: Sequence[Sequence[Result]]) -> None:
    """What is predicted minus what the policy earns, along training: mean and 95 % interval over the seeds."""
    for results in groups:
        number = results[0].number
        bias = np.stack([result.self_deception for result in results if result.self_deception is not None])
        axes.plot(results[0].steps, bias.mean(0), color=COLOURS[number - 1], lw=2, label=short_title(number))
        if len(results) > 1:
            axes.fill_between(results[0].steps, *interval(bias), color=COLOURS[number - 1], alpha=0.25, lw=0)
    axes.axhline(0, color=INK, lw=1.2, ls="--")
    axes.set_xlabel("env steps")
    axes.set_ylabel("predicted - earned")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    axes.xaxis.set_major_locator(_few_ticks(5))
    axes.legend(fontsize=10, loc="best")


def draw_final_bias(axes: Any, groups: Sequence[Sequence[Result]]) -> None:
    """The overestimation at the end, one dot per seed, with mean and 95 % interval."""
    for place, results in enumerate(groups):
        number = results[0].number
        bias = final_overestimate(results)
        low, high = interval(bias)
        spread = np.linspace(-0.12, 0.12, len(bias)) if len(bias) > 1 else np.zeros(1)
        axes.scatter(place + spread, np.sort(bias), s=14, color=COLOURS[number - 1], alpha=0.55, lw=0)
        axes.errorbar(
            place + 0.25,
            bias.mean(),
            [[bias.mean() - low], [high - bias.mean()]],
            fmt="D",
            ms=5,
            color=COLOURS[number - 1],
        )
    axes.axhline(0, color=INK, lw=1.2, ls="--")
    names = [f"{short_title(g[0].number)}\n{'noisy' if g[0].reward_noise else 'noise-free'}\nreward" for g in groups]
    axes.set_xticks(range(len(groups)), names, fontsize=10)
    axes.set_ylabel("predicted - earned, at the end")
    axes.grid(False, axis="x")


def final_overestimate(results: Sequence[Result]) -> Any:
    """The overestimation of each seed at the end of its training: the mean of the last five evaluations."""
    return np.array([at_the_end(result.self_deception) for result in results])


def at_the_end(curve: Any) -> float:
    """The mean of the last five evaluations."""
    return float(curve[-5:].mean())


def draw_rung(result: Result, out: Path) -> None:
    """What one run of one rung gave, as one picture."""
    drawing, axes = figure(*((1000, 300, 3) if result.values is not None else (420, 300, 1)))
    with_style(draw_curves, axes[0], [[result]])
    axes[0].set_title(
        f"rung {result.number}: {short_title(result.number)} on {result.env}, seed {result.seed}", fontsize=10
    )
    if result.values is not None:
        with_style(draw_values, drawing, axes[1:], [result])
    save(drawing, out)


def draw_ladder(results: Sequence[Result], out: Path) -> None:
    """All six curves beside the overestimation of DDPG and TD3 with noisy rewards, as one picture."""
    drawing, axes = figure(900, 340, 2)
    plain = [result for result in results if not result.idea]
    groups = [[result for result in plain if result.number == n and not result.reward_noise] for n in NUMBERS]
    noisy = [[result for result in results if result.number == n and result.reward_noise] for n in (5, 6)]
    with_style(draw_curves, axes[0], groups, True)
    with_style(draw_overestimate, axes[1], noisy)
    axes[0].set_title("six rungs on Rail, against the exact optimum", fontsize=10)
    axes[1].set_title("predicted minus earned, with noisy rewards", fontsize=10)
    save(drawing, out)


def with_style(draw: Any, *arguments: Any) -> None:
    """Call a drawing function with our inks in force."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        draw(*arguments)


def _few_ticks(count: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count)
