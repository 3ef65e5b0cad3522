"""One self-contained HTML page of one run or of several side by side: no server, no requests, light and dark."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.config import preset_config
from td3.errors import ConfigError, RunError
from td3.files import outside, read_regular_file, write_atomically
from td3.policy import Array
from td3.report import paper
from td3.report.doctor import Finding, all_clear, examine_run, remarks_on
from td3.report.records import RunRecords, shared_steps
from td3.report.svg import Chart, Level, Line, bars, stacked
from td3.run.directory import PARTS
from td3.statistics import (
    FEWEST_SEEDS,
    Comparison,
    at_the_end,
    compare,
    interquartile_mean,
    iqm_interval,
    mean_interval,
)

COLOURS = tuple(f"var(--c{number})" for number in range(6))
MARGIN = 0.1
"""Equivalence margin: a share of the reference run's mean return."""
LARGEST_VIDEO = 12 << 20
"""Bytes of a film that go into the page; a larger one is linked."""
BAND_POINTS = 60
"""Evaluations at which the band of the learning curve is drawn: the eye sees no more."""
OPTION = re.compile(r"--[a-z0-9][a-z0-9.-]*[a-z0-9]")
"""An option of the command line within a sentence."""
PART_WORDS = {
    "env": "environments",
    "act": "acting",
    "update": "updates",
    "store": "storing",
    "evaluate": "evaluation",
    "save": "saving",
    "other": "everything else",
}


class Summary(NamedTuple):
    """What a run reached: each number is over the seeds that count, and an interval is NaN for one seed."""

    final: float
    """Mean of the final evaluation."""
    final_low: float
    final_high: float
    final_at: int
    q_values: Array
    """Each seed's mean over the evaluations in the last tenth of the env steps."""
    iqm: float
    """Interquartile mean of those."""
    low: float
    high: float
    highest: float
    highest_spread: float
    highest_at: int


def summarize(records: RunRecords) -> Summary:
    """Results over the seeds: at the final evaluation, over the last tenth, and the paper's highest mean."""
    steps, returns = records.curves
    final_low, final_high = mean_interval(records.final)
    q_values = records.q_values
    low, high = iqm_interval(q_values)
    best = int(returns.mean(0).argmax())
    spread = float(returns[:, best].std(ddof=1)) if len(returns) > 1 else 0.0
    return Summary(
        float(records.final.mean()),
        float(final_low),
        float(final_high),
        int(steps[-1]),
        q_values,
        float(interquartile_mean(q_values)),
        float(low),
        float(high),
        float(returns[:, best].mean()),
        spread,
        int(steps[best]),
    )


def figures(runs: Sequence[RunRecords], margin: float = MARGIN) -> dict[str, Any]:
    """The page's numbers, for `--json`."""
    rows = []
    for records in runs:
        found = summarize(records)
        known = paper.published(records.config.env)
        counted = [str(seed.seed) for seed in records.whole_seeds]
        rows.append(
            {
                "run": str(records.path),
                "env": records.config.env,
                "status": records.status.get("status", "running"),
                "env_steps": records.env_steps,
                "final_at": found.final_at,
                "final": dict(zip(counted, records.final.tolist(), strict=True)),
                "final_mean": found.final,
                "final_interval": _known(found.final_low, found.final_high),
                "last_tenth_at": records.end_steps.tolist(),
                "last_tenth": dict(zip(counted, found.q_values.tolist(), strict=True)),
                "iqm": found.iqm,
                "iqm_interval": _known(found.low, found.high),
                "max_average": found.highest,
                "max_average_std": found.highest_spread,
                "max_average_at": found.highest_at,
                "frozen": {str(seed.seed): seed.frozen._asdict() for seed in records.seeds if seed.frozen},
                "notes": records.notes,
                "paper": None if known is None else known._asdict(),
                "seconds": records.seconds,
                "findings": [finding._asdict() for finding in examine_run(records)],
                "remarks": [remark._asdict() for remark in remarks_on(records)],
                "versions": records.versions,
            }
        )
    compared = [
        {
            "run": str(pair.run.path),
            "reference": str(pair.reference.path),
            "at": pair.steps.tolist(),
            **({} if pair.result is None else _without_nan(pair.result._asdict())),
            "said": _said(pair),
        }
        for pair in comparisons(runs, margin)
    ]
    return {"runs": rows, "comparisons": compared, "warning": _engines_differ(runs)}


def _known(low: float, high: float) -> list[float] | None:
    return None if np.isnan(low) else [low, high]


def _without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in values.items()}


def _engines_differ(runs: Sequence[RunRecords]) -> str | None:
    return paper.engines_differ([run.versions for records in runs for run in records.runs])


def describe_runs(found: Mapping[str, Any]) -> list[str]:
    """The figures in words, a line for each run and each comparison."""
    lines = []
    for run in found["runs"]:
        seeds, count = len(run["final"]), len(run["last_tenth_at"])
        over = f" over {seeds} seeds{_words_between(run['final_interval'])}" if seeds > 1 else " of one seed"
        line = (
            f"{run['run']}: {run['env']}, {run['env_steps']:,} env steps, {run['status']}. Final evaluation, at env "
            f"step {run['final_at']:,}: mean return {run['final_mean']:,.1f}{over}"
        )
        if count > 1:
            kind = f"IQM over {seeds} seeds" if seeds > 1 else "mean"
            line += (
                f"; last tenth of the env steps ({count} evaluations): {kind} {run['iqm']:,.1f}"
                f"{_words_between(run['iqm_interval'])}"
            )
        lines.append(f"{line}; highest mean {run['max_average']:,.1f} at {run['max_average_at']:,}.")
        lines += [f"  {note}" for note in run["notes"]]
        lines += [f"  {finding['said']} {finding['advice']}" for finding in run["findings"]]
    lines += [f"{pair['run']} against {pair['reference']}: {pair['said']}" for pair in found["comparisons"]]
    return lines + ([found["warning"]] if found["warning"] else [])


def _words_between(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" (95 % interval {interval[0]:,.1f} to {interval[1]:,.1f})"


class Pair(NamedTuple):
    """A run and the one that it is compared with."""

    run: RunRecords
    reference: RunRecords
    steps: Array
    """The env steps compared: those in the last tenth of the env steps at which both were evaluated."""
    result: Comparison | None
    """None where there is nothing to compare."""


def comparisons(runs: Sequence[RunRecords], margin: float) -> list[Pair]:
    """Every run against the first one of the same task; the margin is a share of that one's mean return."""
    references: dict[str, RunRecords] = {}
    found = []
    for records in runs:
        reference = references.setdefault(records.config.env, records)
        if reference is records:
            continue
        shared = shared_steps(side.curves[0] for side in (records, reference))
        shared = shared[shared > 0]  # before training all agents are alike
        if len(shared) == 0 or records.all_frozen or reference.all_frozen:
            found.append(Pair(records, reference, np.zeros(0, int), None))
            continue
        shared = shared[at_the_end(shared)]
        ours, theirs = (_scores_at(side, shared) for side in (records, reference))
        found.append(Pair(records, reference, shared, compare(ours, theirs, margin * abs(float(theirs.mean())))))
    return found


def _scores_at(records: RunRecords, shared: Array) -> Array:
    steps, returns = records.curves
    return np.asarray(returns[:, np.isin(steps, shared)].mean(1))


VERDICTS = {
    "equivalent": "equivalent",
    "better": "better than the reference",
    "worse": "worse than the reference",
    "undecided": "not decided by these seeds",
}


def _said(pair: Pair) -> str:
    """A comparison in one sentence: a verdict only where there are seeds enough for one."""
    found = pair.result
    if found is None:
        for records in (pair.run, pair.reference):
            if records.all_frozen:
                return f"not compared: every seed of {records.path} is frozen."
        return "not compared: they have no evaluation at the same env step after training began."
    numbers = (
        f"mean return differs by {found.difference:+,.1f}"
        + ("" if np.isnan(found.low) else f" (95 % interval {found.low:+,.1f} to {found.high:+,.1f})")
        + f" at {_where(pair.steps)}, probability of improvement {found.probability:.2f}"
    )
    ended = [(records.path, int(records.curves[0][-1])) for records in (pair.run, pair.reference)]
    further = "".join(f" {path} goes on to {last:,}." for path, last in ended if last > pair.steps[-1])
    if found.verdict == "too_few_seeds":
        return f"{numbers}; {_too_few(found)}.{further}"
    return f"{VERDICTS[found.verdict]}; {numbers}, margin {found.margin:,.1f}.{further}"


def _where(steps: Array) -> str:
    if len(steps) == 1:
        return f"env step {steps[0]:,.0f}"
    return f"{len(steps)} shared evaluations, env steps {steps[0]:,.0f} to {steps[-1]:,.0f}"


def _too_few(found: Comparison) -> str:
    ours, theirs = found.seeds
    counted = f"{ours} and {theirs} seeds are" if ours != theirs else "1 seed is" if ours == 1 else f"{ours} seeds are"
    return f"{counted} too few for a verdict, which needs {FEWEST_SEEDS} of each run"


def write_report(runs: Sequence[RunRecords], out: Path, margin: float = MARGIN) -> None:
    """The whole page as one file, replaced in one move."""
    if out.suffix != ".html":
        raise ConfigError(f"a report is written as .html, but {out} was given.")
    if not 0 < margin < 1:
        raise ConfigError(f"margin must be within (0, 1), a share of the reference's return, but {margin} was given.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page(runs, margin).encode(errors="backslashreplace"))
    except OSError as error:
        raise RunError(f"the report {out} cannot be written ({error.strerror}): give another --out.") from None


def page(runs: Sequence[RunRecords], margin: float = MARGIN) -> str:
    """The page as text."""
    names = _names(runs)
    envs = list(dict.fromkeys(records.config.env for records in runs))
    title = f"{', '.join(envs)}: {names[0]}" if len(runs) == 1 else f"{', '.join(envs)}: {len(runs)} runs"
    colors = [COLOURS[number % len(COLOURS)] for number in range(len(runs))]
    body = [_opening(runs, envs)]
    for env in envs:
        chosen = [number for number, records in enumerate(runs) if records.config.env == env]
        who = [runs[n] for n in chosen], [names[n] for n in chosen], [colors[n] for n in chosen]
        body.append(_curves(*who, named=len(envs) > 1))
    body.append(_results(runs, names, colors))
    if len(runs) > 1:
        body.append(_compared(runs, names, margin))
    for records, name, color in zip(runs, names, colors, strict=True):
        body.append(_details(records, name, color, alone=len(runs) == 1))
    # A page that is open while its run trains shows the newest one by itself.
    training = any(records.status.get("status", "running") == "running" for records in runs)
    again = '<meta http-equiv="refresh" content="60">\n' if training else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{again}<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body><main>
{"".join(body)}
<footer><p>FileDigest by <code>td3 report</code>. Intervals: 95&nbsp;% by Student&rsquo;s t over seeds.</p></footer>
</main></body>
</html>
"""


def _names(runs: Sequence[RunRecords]) -> list[str]:
    """A name for each run, told apart by its folder where two are called alike."""
    plain = [records.name for records in runs]
    return [
        f"{records.path.resolve().parent.name}/{name}" if plain.count(name) > 1 else name
        for records, name in zip(runs, plain, strict=True)
    ]


def _opening(runs: Sequence[RunRecords], envs: Sequence[str]) -> str:
    first = runs[0]
    if len(runs) > 1:
        lead = f"{len(runs)} runs side by side."
        return f"<header><h1>{escape(', '.join(envs))}</h1><p class='lead'>{lead}</p></header>"
    config, found, seconds = first.config, summarize(first), sum(first.seconds.values())
    status = first.status.get("status", "running")
    seeds = "1 seed" if config.seeds == 1 else f"{config.seeds} seeds"
    lead = f"{seeds}, {first.env_steps:,} of {config.steps:,} env steps, {escape(status)}, on {escape(first.device)}."
    rate = f"{first.trained_steps / seconds:,.0f}" if seconds and first.env_steps else "&ndash;"
    counted = len(found.q_values)
    over = f"mean over {counted} seeds" if counted > 1 else "one seed"
    kind = f"IQM over {counted} seeds" if counted > 1 else "mean"
    count, apart = len(first.end_steps), len(first.separate)
    tiles = [
        (_number(found.final), f"return at the final evaluation, env step {found.final_at:,} ({over})"),
        (_interval(found.final_low, found.final_high), "95 % interval of that mean"),
        (_number(found.iqm), f"{kind}, last tenth of the env steps ({count} evaluation{'s' * (count > 1)})"),
        (_number(found.highest), "highest mean (the paper&rsquo;s measure)"),
        (rate, "env steps a second, each run by itself" if apart else "env steps a second, all seeds"),
        (_clock(seconds) if seconds else "&ndash;", f"of training, {apart} runs added up" if apart else "of training"),
    ]
    shown = "".join(f"<div><b>{value}</b><span>{label}</span></div>" for value, label in tiles)
    return (
        f"<header><h1>{escape(config.env)}</h1><p class='lead'>{lead}</p></header><div class='tiles'>{shown}</div>"
        + _notes(first)
        + _health(first)
    )


def _notes(records: RunRecords) -> str:
    return "".join(f"<p class='warn'>{escape(note)}</p>" for note in records.notes)


def _health(records: RunRecords) -> str:
    findings, remarks = examine_run(records), remarks_on(records)
    noted = f"<div class='remarks'><b>Remarks, not findings</b>{_said_list(remarks)}</div>" if remarks else ""
    if not findings:
        return f"<p class='well'><b>The doctor finds {all_clear(records)}.</b></p>{noted}"
    return f"<div class='ill'><b>The doctor says</b>{_said_list(findings)}</div>{noted}"


def _said_list(findings: Sequence[Finding]) -> str:
    items = "".join(f"<li><b>{escape(f.said)}</b> {OPTION.sub(_as_code, escape(f.advice))}</li>" for f in findings)
    return f"<ul>{items}</ul>"


def _as_code(option: re.Match[str]) -> str:
    return f"<code>{option[0]}</code>"


def _curves(runs: Sequence[RunRecords], names: Sequence[str], colors: Sequence[str], named: bool) -> str:
    """Learning curves: each seed, the interquartile mean and its interval, and the paper's band."""
    env = runs[0].config.env
    chart = Chart(f"Learning curves on {env}", y_label="return", height=270)
    legend = []
    for records, name, color in zip(runs, names, colors, strict=True):
        steps, returns = records.curves
        many = len(returns) > 1
        chart.lines += [Line(steps, curve, color, 1.0, 0.35 / len(runs)) for curve in returns] if many else []
        for seed in records.seeds:
            if seed.frozen:
                chart.lines.append(Line(seed.steps, seed.curve, color, 1.0, 0.7, dashed=True))
        places = np.unique(np.linspace(0, len(steps) - 1, BAND_POINTS).round().astype(int))
        low, high = iqm_interval(returns[:, places])
        band = (low, high) if many else (None, None)
        chart.lines.append(Line(steps[places], interquartile_mean(returns[:, places]), color, 2.5, 1.0, False, *band))
        legend.append((color, escape(name) if len(runs) > 1 else "IQM over seeds" if many else "mean of the episodes"))
    known, note = paper.published(env), ""
    if known:
        said = f"the paper&rsquo;s table: {_number(known.highest)} &plusmn; {_number(known.spread)}"
        # A run of a few thousand steps would be a flat line at the foot of the paper's million.
        if max(float(np.abs(records.curves[1]).max()) for records in runs) > 0.3 * abs(known.highest):
            chart.levels.append(Level(known.highest, "var(--paper-band)", known.spread))
        else:
            said += f" after {paper.STEPS:,} env steps, far beyond this chart"
        legend.append(("var(--paper-band)", said))
        note = f"<p class='warn'>{escape(paper.engine_warning(env, runs[0].versions))}</p>"
    episodes = " or ".join(str(count) for count in sorted({records.config.eval_episodes for records in runs}))
    caption = (
        f"Return of {episodes} noise-free episodes on environments of their own. Thin: each seed. Thick: "
        "interquartile mean over the seeds; band: its 95&nbsp;% interval."
        + (" Dashed: frozen seeds, not in the mean." if any(s.frozen for r in runs for s in r.seeds) else "")
    )
    differ = _engines_differ(runs)
    return (
        f"<section id='curves'><h2>Learning curves{f': {escape(env)}' if named else ''}</h2>"
        f"<figure class='wide'>{_legend(legend)}<div class='on-phone'>{chart.svg()}</div>"
        f"<div class='on-desk'>{replace(chart, width=800, height=360).svg()}</div>"
        f"<figcaption>{caption}</figcaption></figure>{note}"
        + (f"<p class='warn'>{escape(differ)}</p>" if differ else "")
        + "</section>"
    )


def _results(runs: Sequence[RunRecords], names: Sequence[str], colors: Sequence[str]) -> str:
    rows, seeds = [], []
    for records, name, color in zip(runs, names, colors, strict=True):
        found, known = summarize(records), paper.published(records.config.env)
        many, label = len(found.q_values) > 1, f"{_dot(color)}{escape(name)}"
        if len(runs) == 1:
            label = "all seeds" if many else f"seed {records.whole_seeds[0].seed}"
        rows.append(
            [
                label,
                str(len(found.q_values)),
                f"{_number(found.final)} {_aside(_range(found.final_low, found.final_high)) if many else ''}",
                f"{_number(found.iqm)} {_aside(_range(found.low, found.high)) if many else ''}",
                f"{_number(found.highest)}{f' &plusmn; {_number(found.highest_spread)}' if many else ''}",
                f"{found.highest_at:,}",
                f"{_number(known.highest)} &plusmn; {_number(known.spread)}" if known else "",
            ]
        )
        for seed in records.seeds:
            best = int(seed.curve.argmax())
            end = float(seed.curve[at_the_end(seed.steps)].mean())
            values = (float(seed.curve[-1]), end, float(seed.curve[best]))
            who = f"{escape(name)} seed {seed.seed}" if len(runs) > 1 else f"seed {seed.seed}"
            who += f" (frozen at {seed.frozen.env_steps:,})" if seed.frozen else ""
            seeds.append([who, *map(_number, values), f"{int(seed.steps[best]):,}"])
    head = ["", "seeds", "final: mean (95&nbsp;%)", "last tenth: IQM (95&nbsp;%)", "highest mean", "at env step"]
    if any(row[-1] for row in rows):
        head.append("the paper&rsquo;s")
    else:
        rows = [row[:-1] for row in rows]
    opened = " open" if len(runs) == 1 and len(seeds) > 1 else ""
    by_seed = _table(["", "final", "last tenth", "highest", "at env step"], seeds, "narrow")
    notes = "".join(_notes(records) for records in runs) if len(runs) > 1 else ""
    return f"""<section id="results"><h2>Returns at the end</h2>{_table(head, rows)}{notes}
<p class="note">Final: the last evaluation. Last tenth: each seed&rsquo;s mean over its evaluations in the last tenth of
the env steps. Highest mean: the best mean over seeds at any evaluation, &plusmn; one standard deviation over the seeds
there; the paper reports this, and it is biased upward, for it picks the moment after the fact.</p>
<details{opened}><summary>Seed by seed</summary>{by_seed}</details></section>"""


def _compared(runs: Sequence[RunRecords], names: Sequence[str], margin: float) -> str:
    called = {id(records): escape(name) for records, name in zip(runs, names, strict=True)}
    rows = [[called[id(pair.run)], called[id(pair.reference)], *_cells(pair)] for pair in comparisons(runs, margin)]
    if not rows:
        return "<section id='compared'><h2>Compared</h2><p>Runs of different tasks: nothing to compare.</p></section>"
    head = [
        "run",
        "reference",
        "seeds",
        "at env steps",
        "difference of means (95&nbsp;%)",
        "margin",
        "verdict",
        "probability of improvement (95&nbsp;%)",
    ]
    return f"""<section id="compared"><h2>Compared</h2>{_table(head, rows)}
<p class="note">Compared are each seed&rsquo;s means over the last tenth of the env steps at which both runs were
evaluated. Frozen seeds are not counted. <b>Equivalent</b> means that the whole 95&nbsp;% interval of the difference
(Welch&rsquo;s t) lies within the margin, {100 * margin:g}&nbsp;% of the reference&rsquo;s mean; <b>better</b> and
<b>worse</b> that it lies on one side of 0. With fewer than {FEWEST_SEEDS} seeds a run there is no verdict. &ldquo;Not
decided&rdquo; is not &ldquo;the same&rdquo;: it asks for more seeds. The probability of improvement is how often a
random seed of the run beats a random seed of the reference.</p></section>"""


def _cells(pair: Pair) -> list[str]:
    found = pair.result
    if found is None:
        counts = "/".join(str(len(records.whole_seeds)) for records in (pair.run, pair.reference))
        return [counts, "&ndash;", "&ndash;", "&ndash;", escape(_said(pair)), "&ndash;"]
    first, last = (f"{int(pair.steps[at]):,}" for at in (0, -1))
    return [
        "/".join(map(str, found.seeds)),
        first if first == last else f"{first} to {last}",
        f"{_number(found.difference, '+')} {_aside(_range(found.low, found.high, '+'))}"
        if not np.isnan(found.low)
        else _number(found.difference, "+"),
        f"&plusmn; {_number(found.margin)}",
        f"none: {_too_few(found)}" if found.verdict == "too_few_seeds" else VERDICTS[found.verdict],
        f"{found.probability:.2f} {_aside(f'{found.probability_low:.2f} to {found.probability_high:.2f}')}",
    ]


def _details(records: RunRecords, name: str, color: str, alone: bool) -> str:
    """What happened inside one run."""
    figures_ = [_training(records), *_losses(records), *_insides(records)]
    shown = "".join(figure for figure in figures_ if figure) or "<p>This run recorded no diagnostics.</p>"
    head = "<h2>Inside the training</h2>" if alone else ""
    inner = f"{head}<div class='grid2'>{shown}</div>{_budget(records)}{_video(records)}{_configuration(records)}" + (
        "" if alone else _health(records)
    )
    if alone:
        return f"<section id='inside'>{inner}</section>"
    findings = examine_run(records)
    title = f"{_dot(color)}Inside {escape(name)}{f' ({len(findings)} findings)' if findings else ''}"
    return f"<section><details><summary class='big'>{title}</summary>{inner}</details></section>"


def _training(records: RunRecords) -> str:
    lines = _per_seed(records, "metrics", "episode_return")
    return _figure("Return while training", lines, "With exploration noise: mean over the episodes of 1,000 env steps.")


def _losses(records: RunRecords) -> list[str]:
    return [
        _figure(
            "Critic loss", _per_seed(records, "metrics", "critic_loss"), "Sum of both critics, logarithmic.", log=True
        ),
        _figure(
            "Actor loss",
            _per_seed(records, "metrics", "actor_loss"),
            "Minus critic 1&rsquo;s mean score of its actions.",
        ),
    ]


def _insides(records: RunRecords) -> list[str]:
    value, came = (_per_seed(records, "diagnostics", column) for column in ("q_start", "return_start"))
    both = [*(replace(line, color=COLOURS[1]) for line in came), *value]
    shares = [
        replace(line, color=color)
        for column, color in (("saturation", COLOURS[0]), ("actor_dead", COLOURS[1]), ("critic_dead", COLOURS[2]))
        for line in _per_seed(records, "diagnostics", column)
    ]
    return [
        _figure(
            "Predicted Q and observed return",
            both,
            "At the first states of the evaluation&rsquo;s episodes: critic 1&rsquo;s Q-value and the observed "
            "discounted return (an episode that was cut off is continued by the critic).",
            [(COLOURS[0], "predicted Q, critic 1"), (COLOURS[1], "observed return")],
        ),
        _actions(records),
        _figure(
            "Saturated outputs and dead units",
            shares,
            "Shares: the actor&rsquo;s outputs beyond 0.99 of their range, and hidden units that are silent in every "
            "state.",
            [(COLOURS[0], "saturated"), (COLOURS[1], "dead in the actor"), (COLOURS[2], "dead in the critics")],
            y_span=(0.0, 1.0),
        ),
        _figure(
            "Exploration",
            _per_seed(records, "diagnostics", "exploration"),
            "How far played actions lie from the actor&rsquo;s, as a share of half the action range.",
        ),
        _figure(
            "Actor gradient",
            _per_seed(records, "diagnostics", "actor_gradient"),
            "Root mean square over the actor&rsquo;s weights, logarithmic.",
            log=True,
        ),
    ]


def _per_seed(records: RunRecords, table: str, column: str) -> list[Line]:
    """One thin line per seed, dashed if it is frozen; for several, their mean at the env steps that all have."""
    found: list[tuple[Array, Array, bool]] = []
    for seed in records.seeds:
        values: Mapping[str, Array] = getattr(seed, table)
        found.append((values["env_steps"], values[column], seed.frozen is not None))
    many = len(found) > 1
    lines = [Line(x, y, COLOURS[0], 1.0 if many else 2.0, 0.4 if many else 1.0, frozen) for x, y, frozen in found]
    whole = [(x, y) for x, y, frozen in found if not frozen and len(x)]
    if len(whole) > 1 and len(shared := shared_steps(x for x, _ in whole)):
        together = np.stack([y[np.unique(x, return_index=True)[1]][np.isin(np.unique(x), shared)] for x, y in whole])
        known = np.isfinite(together)
        mean = np.where(known, together, 0).sum(0) / np.maximum(known.sum(0), 1)
        lines.append(Line(shared, np.where(known.any(0), mean, np.nan), COLOURS[0], 2.0))
    return [line for line in lines if np.isfinite(line.y).any()]


def _figure(
    title: str,
    lines: Sequence[Line],
    caption: str,
    legend: Sequence[tuple[str, str]] = (),
    log: bool = False,
    y_span: tuple[float, float] | None = None,
) -> str:
    if not lines:
        return ""
    chart = Chart(title, lines=list(lines), log=log, y_span=y_span)
    return f"<figure><h3>{title}</h3>{_legend(legend)}{chart.svg()}<figcaption>{caption}</figcaption></figure>"


def _actions(records: RunRecords) -> str:
    """The first seed that has them: what its actor wants at the beginning, half-way and at the end."""
    for seed in records.seeds:
        table = seed.diagnostics
        both = zip(table["env_steps"], table["policy_actions"], strict=True)
        kept = [(step, counts) for step, counts in both if len(counts)]
        if kept:
            picks = sorted({0, len(kept) // 2, len(kept) - 1})
            colors = ("var(--faint-line)", COLOURS[5], COLOURS[0])[-len(picks) :]
            groups = [(kept[pick][1], color) for pick, color in zip(picks, colors, strict=True)]
            legend = [(color, f"{kept[pick][0]:,.0f}") for pick, color in zip(picks, colors, strict=True)]
            drawing = bars(groups, "Histogram of actions", "action, all dimensions", ("lowest", "highest"), 250)
            return (
                f"<figure><h3>Actions of the actor</h3>{_legend([('none', 'env step'), *legend])}{drawing}"
                f"<figcaption>Of seed {seed.seed}, in states from its buffer.</figcaption></figure>"
            )
    return ""


def _budget(records: RunRecords) -> str:
    seconds = records.seconds
    whole = sum(seconds.values())
    if not whole:
        return ""
    parts = [(part, seconds.get(part, 0.0), f"var(--p{number})") for number, part in enumerate(PARTS)]
    legend = [
        (color, f"{PART_WORDS[part]} {100 * value / whole:.1f}&nbsp;%") for part, value, color in parts if value > 0
    ]
    lines = [line for run in records.runs if len((line := _speed(run)).x)]
    chart = Chart("Env steps a second", lines=lines, height=190)
    who = f"Each of {len(records.separate)} runs by itself" if records.separate else "All seeds together"
    speed = (
        f"<figure><h3>Env steps a second</h3>{chart.svg()}<figcaption>{who}, between evaluations, "
        "evaluations included.</figcaption></figure>"
        if lines
        else ""
    )
    beside = (
        " On a GPU, updates run on while the environments step: waiting for them is booked under acting."
        if records.device.startswith("cuda")
        else ""
    )
    apart = f", added up over {len(records.separate)} runs that trained apart" if records.separate else ""
    bar = stacked([(value, color) for _, value, color in parts], "Time budget")
    return f"""<h2>Where the time went</h2><figure class="wide bar">{bar}{_legend(legend)}
<figcaption>{_clock(whole)} of wall-clock time{apart}.{beside}</figcaption></figure><div class="grid2">{speed}</div>"""


def _speed(run: RunRecords) -> Line:
    """Env steps a second of all seeds of one run."""
    steps, times = run.times["env_steps"], np.sum([run.times[part] for part in PARTS], 0)
    onward = np.diff(steps) > 0  # a resumed run goes back to its checkpoint first
    rates = (np.diff(steps) / np.maximum(times[1:], 1e-9) * run.config.seeds)[onward]
    return Line(steps[1:][onward], rates, COLOURS[0])


def _video(records: RunRecords) -> str:
    film = records.path / "video.mp4"
    if outside(film, records.path):  # the page may be sent to others, and the file is not the run's
        return ""
    try:
        size = film.stat().st_size
        if size > LARGEST_VIDEO:
            return f"<h2>Video</h2><p><a href='video.mp4'>video.mp4</a> ({size / 1e6:.0f} MB)</p>"
        content = read_regular_file(film, LARGEST_VIDEO)
    except (OSError, ValueError):
        return ""
    source = f"data:video/mp4;base64,{base64.b64encode(content).decode()}" if content else ""
    return f"<h2>Video</h2><video controls loop muted playsinline src='{source}'></video>" if source else ""


def _configuration(records: RunRecords) -> str:
    config = records.config
    values, usual = config.to_json(), preset_config(config.preset, config.env, config.steps)
    algorithm = {
        name: (value, list(getattr(usual, name)) if name == "hidden_sizes" else getattr(usual, name))
        for name, value in values.pop("td3").items()
    }
    changed = [
        [f"td3.{escape(name)}", escape(_plain(value)), escape(_plain(preset))]
        for name, (value, preset) in algorithm.items()
        if _plain(value) != _plain(preset)
    ]
    differs = (
        _table(["changed", "here", f"preset {config.preset}"], changed, "narrow")
        if changed
        else f"<p>Everything as preset <code>{config.preset}</code> has it.</p>"
    )
    whole = {**values, **{f"td3.{name}": value for name, (value, _) in algorithm.items()}}
    every = _table(
        ["setting", "value"], [[escape(name), escape(_plain(value))] for name, value in whole.items()], "narrow"
    )
    made_with = escape(", ".join(f"{name} {value}" for name, value in records.versions.items()))
    return (
        f"<h2>Configuration and versions</h2>{differs}<details><summary>Every setting</summary>{every}</details>"
        f"<p class='note'>{made_with}</p>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """A table whose first column names the rows; cells are HTML already."""
    names = "".join(f"<th>{cell}</th>" for cell in head)
    lines = "".join(
        f"<tr><th scope='row'>{first}</th>{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>" for first, *rest in rows
    )
    return (
        f"<div class='scroll'><table class='{kind}'><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _dot(color: str) -> str:
    return f"<i class='dot' style='background:{color}'></i>"


def _aside(text: str) -> str:
    return f"<span class='ci'>({text})</span>"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    if not entries:
        return ""
    items = "".join(f"<li>{_dot(color)}{text}</li>" for color, text in entries)
    return f"<ul class='legend'>{items}</ul>"


def _number(value: float, sign: str = "") -> str:
    """As many digits as mean something, with a true minus sign."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{value:{sign},.{digits}f}".replace("-", "&minus;")


def _range(low: float, high: float, sign: str = "") -> str:
    return f"{_number(low, sign)} to {_number(high, sign)}"


def _interval(low: float, high: float) -> str:
    return "&ndash;" if np.isnan(low) else _range(low, high)


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f}&nbsp;s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}&nbsp;h {minutes}&nbsp;min" if hours else f"{minutes}&nbsp;min"


STYLE = """
:root { color-scheme: light dark; --ink: #1b1d21; --paper: #fdfdfc; --soft: #5b616b; --faint: #d5d8dc; --wash: #f2f4f5;
  --accent: #0a5a94; --faint-line: #a9afb7; --paper-band: #b97700; --ill: #fdf1e0; --ill-ink: #6b3f00; --well: #e6f4ea;
  --well-ink: #10602b; --c0: #0072b2; --c1: #d55e00; --c2: #00805c; --c3: #b0578c; --c4: #8a6d00; --c5: #3f9bd0;
  --p0: #009e73; --p1: #56b4e9; --p2: #0072b2; --p3: #cc79a7; --p4: #e69f00; --p5: #d55e00; --p6: #9aa0a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #15171a; --soft: #a3aab4; --faint: #33383f;
  --wash: #1f2226; --accent: #7cc0f0; --faint-line: #6c747e; --paper-band: #f0b840; --ill: #33260f; --ill-ink: #f3cf94;
  --well: #15301f; --well-ink: #8fdca6; --c0: #4fb0ee; --c1: #ff8a4a; --c2: #3fcf9f; --c3: #e79cc6; --c4: #e6cf4a;
  --c5: #8fd0f7; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: clamp(1.5rem, 4vw, 2.2rem); line-height: 1.2; margin: 0.4em 0 0.2em; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 1.4em 0 0.6em; }
h3 { font-size: 1rem; font-weight: 600; margin: 0 0 4px; }
section { margin: 32px 0; border-top: 1px solid var(--faint); }
.lead { font-size: 1.1rem; color: var(--soft); margin: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
.tiles div { background: var(--wash); border-radius: 8px; padding: 12px 14px; }
.tiles b { display: block; font-size: 1.3rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 0.85rem; }
.ill, .well, .warn, .remarks { border-radius: 8px; padding: 10px 14px; max-width: none; }
.ill, .warn { background: var(--ill); color: var(--ill-ink); }
.remarks { background: var(--wash); margin: 12px 0; }
.ill ul, .remarks ul { margin: 4px 0 0; padding-left: 1.2em; }
.well { background: var(--well); color: var(--well-ink); }
.warn { font-size: 0.9rem; }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; overflow: visible; }
figure.wide { max-width: 880px; }
.grid2 figure { max-width: 520px; }
.on-phone { display: none; }
figure.bar svg { border-radius: 6px; overflow: hidden; }
svg text { font: 13px system-ui, sans-serif; fill: currentColor; }
svg text.soft { fill: var(--soft); }
svg .grid { stroke: var(--faint); stroke-width: 1; fill: none; }
svg .axis { stroke: var(--soft); stroke-width: 1; fill: none; }
svg .line { fill: none; stroke-linejoin: round; stroke-linecap: round; }
figcaption, .note, footer { color: var(--soft); font-size: 0.9rem; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 28px 32px;
  align-items: start; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 6px; padding: 0;
  font-size: 0.88rem; }
.dot { display: inline-block; width: 0.75em; height: 0.75em; border-radius: 50%; margin-right: 0.4em; }
.dot[style="background:none"] { display: none; }
p { max-width: 78ch; }
code { font: 13px/1.5 ui-monospace, monospace; white-space: nowrap; }
details > summary { cursor: pointer; color: var(--accent); padding: 8px 0; }
summary.big { font-size: 1.15rem; font-weight: 600; padding: 14px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.93rem; min-width: 560px; width: 100%; }
table.narrow { min-width: 0; width: auto; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--faint); vertical-align: baseline; }
td { font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 500; }
tbody th { font-weight: 500; }
.ci { white-space: nowrap; color: var(--soft); font-size: 0.85em; }
video { width: 100%; max-width: 640px; border-radius: 8px; display: block; }
a { color: var(--accent); }
@media (max-width: 600px) { table { font-size: 0.8rem; } th, td { padding: 5px 6px; } td .ci { display: block; }
  .tiles { grid-template-columns: 1fr 1fr; } .on-phone { display: block; } .on-desk { display: none; } }
"""
