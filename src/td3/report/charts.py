"""The charts of a report: learning curves, losses and diagnostics, histogram of actions, time budget."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from td3.policy import Array
from td3.report import paper
from td3.report.numbers import duration, number
from td3.report.records import RunRecords, shared_steps
from td3.report.svg import Chart, Level, Line, bars, stacked
from td3.run.directory import PARTS
from td3.statistics import interquartile_mean, iqm_interval

COLORS = tuple(f"var(--c{index})" for index in range(6))
BAND_SEEDS = 3
"""Seeds from which on a learning curve has a band."""
BAND_POINTS = 60
"""Evaluations at which the band of the learning curve is drawn; more would not be visible."""
PART_NAMES = {
    "env": "environments",
    "act": "acting",
    "update": "updates",
    "store": "storing",
    "evaluate": "evaluation",
    "save": "saving",
    "other": "everything else",
}

Legend = Sequence[tuple[str, str]]
"""CSS colors and what they stand for; the color `none` has no dot."""


class Figure(NamedTuple):
    """A chart with its title, legend and caption; `small` is the chart for narrow screens if there is a second one."""

    title: str
    svg: Markup
    caption: str
    legend: Legend = ()
    small: Markup | None = None


class NamedRun(NamedTuple):
    """A run with its name and color in the report."""

    records: RunRecords
    name: str
    color: str


def learning_curves(runs: Sequence[NamedRun]) -> Figure:
    """Learning curves of one task: each seed, the interquartile mean and its interval, and the paper's result."""
    env = runs[0].records.config.env
    runs = [run for run in runs if run.records.evaluated]
    units = " or ".join(dict.fromkeys(run.records.config.unit for run in runs))
    chart = Chart(f"Learning curves on {env}", units, height=270)
    legend = []
    for records, name, color in runs:
        steps, returns = records.curves
        many = len(returns) > 1
        chart.lines += [Line(steps, curve, color, 1.0, 0.35 / len(runs)) for curve in returns] if many else []
        for seed in records.seeds:
            if seed.frozen:
                chart.lines.append(Line(seed.steps, seed.curve, color, 1.0, 0.7, dashed=True))
        indices = np.unique(np.linspace(0, len(steps) - 1, BAND_POINTS).round().astype(int))
        low, high = iqm_interval(returns[:, indices])
        # Two seeds have an interval too, but one that reaches far beyond what the task can give.
        band = (low, high) if len(returns) >= BAND_SEEDS else (None, None)
        chart.lines.append(Line(steps[indices], interquartile_mean(returns[:, indices]), color, 2.5, 1.0, False, *band))
        legend.append((color, name if len(runs) > 1 else "IQM over seeds" if many else "mean of the episodes"))
    published = paper.published(env)
    if published:
        text = f"the paper\u2019s table: {number(published.highest)} \u00b1 {number(published.spread)}"
        # In a run of a few thousand steps the curve would be a flat line far below the paper's result.
        if max(float(np.abs(run.records.curves[1]).max()) for run in runs) > 0.3 * abs(published.highest):
            chart.levels.append(Level(published.highest, "var(--paper-band)", published.spread))
        else:
            text += f" after {paper.STEPS:,} env steps, far beyond this chart"
        legend.append(("var(--paper-band)", text))
    episodes = " or ".join(str(count) for count in sorted(_episodes(runs)))
    caption = (
        f"Return of {episodes} noise-free episodes in separate environments. Thin: each seed. Thick: "
        f"interquartile mean over the seeds; band, from {BAND_SEEDS} seeds on: its 95\u00a0% interval."
        + (
            " Dashed: frozen seeds, not in the mean."
            if any(s.frozen for run in runs for s in run.records.seeds)
            else ""
        )
    )
    large = replace(chart, width=800, height=360)
    return Figure("", Markup(large.svg()), caption, legend, Markup(chart.svg()))


def _episodes(runs: Sequence[NamedRun]) -> set[int]:
    """How many episodes an evaluation had; what another library wrote has a note of its own."""
    own = {run.records.config.eval_episodes for run in runs if not run.records.source}
    return own or {run.records.config.eval_episodes for run in runs}


def training_figures(records: RunRecords) -> list[Figure]:
    """Returns, losses and diagnostics during training; without those that the run did not record."""
    predicted, observed = (_per_seed(records, "diagnostics", column) for column in ("q_start", "return_start"))
    figure = partial(_figure, x_label=records.config.unit)
    losses = ("Sum of both critics, logarithmic.", "Minus critic 1\u2019s mean Q-value of the actor\u2019s actions.")
    shares = {"saturation": "saturated", "actor_dead": "dead in the actor", "critic_dead": "dead in the critics"}
    if not records.critics_trained:
        losses = ("As the replaced steps return it, logarithmic.", "As the replaced steps return it.")
        del shares["critic_dead"]
    figures = [
        figure(
            "Return while training",
            _per_seed(records, "metrics", "episode_return"),
            "With exploration noise: mean over the episodes of 1,000 env steps.",
        ),
        figure("Critic loss", _per_seed(records, "metrics", "critic_loss"), losses[0], log=True),
        figure(
            "Actor loss",
            _per_seed(records, "metrics", "actor_loss"),
            losses[1],
        ),
        figure(
            "Predicted Q and observed return",
            [*(replace(line, color=COLORS[1]) for line in observed), *predicted],
            "At the first states of the evaluation episodes: critic 1\u2019s Q-value and the observed discounted "
            "return (for a truncated episode, the rest is critic 1\u2019s Q-value).",
            [(COLORS[0], "predicted Q, critic 1"), (COLORS[1], "observed return")],
        ),
        _actions(records),
        figure(
            "Saturated outputs and dead units",
            [
                replace(line, color=color)
                for column, color in zip(shares, COLORS, strict=False)
                for line in _per_seed(records, "diagnostics", column)
            ],
            "Shares: the actor\u2019s outputs beyond 0.99 of their range, and hidden units that are 0 in every state.",
            list(zip(COLORS, shares.values(), strict=False)),
            y_span=(0.0, 1.0),
        ),
        figure(
            "Exploration",
            _per_seed(records, "diagnostics", "exploration"),
            "Distance of the actions in the buffer from the actor\u2019s, as a share of half the action range.",
        ),
        figure(
            "Actor gradient",
            _per_seed(records, "diagnostics", "actor_gradient"),
            "Root mean square over the actor\u2019s weights, logarithmic.",
            log=True,
        ),
    ]
    return [chart for chart in figures if chart]


def _per_seed(records: RunRecords, table: str, column: str) -> list[Line]:
    """One thin line per seed, dashed if it is frozen; for several, their mean at the env steps that all have."""
    curves: list[tuple[Array, Array, bool]] = []
    for seed in records.seeds:
        values: Mapping[str, Array] = getattr(seed, table)
        curves.append((values["env_steps"], values[column], seed.frozen is not None))
    many = len(curves) > 1
    lines = [Line(x, y, COLORS[0], 1.0 if many else 2.0, 0.4 if many else 1.0, frozen) for x, y, frozen in curves]
    whole = [(x, y) for x, y, frozen in curves if not frozen and len(x)]
    if len(whole) > 1 and len(shared := shared_steps(x for x, _ in whole)):
        together = np.stack([y[np.unique(x, return_index=True)[1]][np.isin(np.unique(x), shared)] for x, y in whole])
        finite = np.isfinite(together)
        mean = np.where(finite, together, 0).sum(0) / np.maximum(finite.sum(0), 1)
        lines.append(Line(shared, np.where(finite.any(0), mean, np.nan), COLORS[0], 2.0))
    return [line for line in lines if np.isfinite(line.y).any()]


def _figure(
    title: str,
    lines: Sequence[Line],
    caption: str,
    legend: Legend = (),
    log: bool = False,
    y_span: tuple[float, float] | None = None,
    *,
    x_label: str,
) -> Figure | None:
    if not lines:
        return None
    chart = Chart(title, x_label, lines=list(lines), log=log, y_span=y_span)
    return Figure(title, Markup(chart.svg()), caption, legend)


def _actions(records: RunRecords) -> Figure | None:
    """The actor's actions at the beginning, half-way and at the end, of the first seed that recorded them."""
    for seed in records.seeds:
        table = seed.diagnostics
        both = zip(table["env_steps"], table["policy_actions"], strict=True)
        kept = [(step, counts) for step, counts in both if len(counts)]
        if kept:
            picks = sorted({0, len(kept) // 2, len(kept) - 1})
            colors = ("var(--faint-line)", COLORS[5], COLORS[0])[-len(picks) :]
            groups = [(kept[pick][1], color) for pick, color in zip(picks, colors, strict=True)]
            legend = [(color, f"{kept[pick][0]:,.0f}") for pick, color in zip(picks, colors, strict=True)]
            drawing = bars(groups, "Histogram of actions", "action, all dimensions", ("lowest", "highest"), 250)
            caption = f"Of seed {seed.seed}, in states from its buffer."
            after = records.config.unit.removesuffix("s")
            return Figure("Actions of the actor", Markup(drawing), caption, [("none", after), *legend])
    return None


class TimeBudget(NamedTuple):
    """How a run's wall-clock time was spent, and its speed over time."""

    shares: Figure
    speed: Figure | None


def time_budget(records: RunRecords) -> TimeBudget | None:
    """None if the run recorded no times."""
    seconds = records.seconds
    whole = sum(seconds.values())
    if not whole:
        return None
    parts = [(phase, seconds.get(phase, 0.0), f"var(--p{index})") for index, phase in enumerate(PARTS)]
    legend = [
        (color, f"{PART_NAMES[phase]} {100 * value / whole:.1f}\u00a0%") for phase, value, color in parts if value > 0
    ]
    separate = f", added up over {len(records.separate)} runs that trained separately" if records.separate else ""
    overlap = (
        " On a GPU, updates run while the environments step: waiting for them counts as acting."
        if records.device.startswith("cuda")
        else ""
    )
    caption = f"{duration(whole)} of wall-clock time{separate}.{overlap}"
    bar = Markup(stacked([(value, color) for _, value, color in parts], "Time budget"))
    lines = [line for run in records.runs if len((line := _speed(run)).x)]
    which = f"Each of {len(records.separate)} runs by itself" if records.separate else "All seeds together"
    title = f"{records.config.unit.capitalize()} a second"
    chart = Chart(title, records.config.unit, lines=lines, height=190)
    speed = Figure(title, Markup(chart.svg()), f"{which}, between evaluations, evaluations included.")
    return TimeBudget(Figure("", bar, caption, legend), speed if lines else None)


def _speed(run: RunRecords) -> Line:
    """Env steps per second of all seeds of one run."""
    steps, times = run.times["env_steps"], np.sum([run.times[phase] for phase in PARTS], 0)
    onward = np.diff(steps) > 0  # a resumed run goes back to its checkpoint first
    rates = (np.diff(steps) / np.maximum(times[1:], 1e-9) * run.config.seeds)[onward]
    return Line(steps[1:][onward], rates, COLORS[0])
