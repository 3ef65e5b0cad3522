"""One self-contained HTML report of one run or of several: no server, no requests, light and dark."""

import base64
import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from td3.config import preset_config
from td3.errors import ConfigError, RunError
from td3.files import outside, read_regular_file, write_atomically
from td3.report import paper
from td3.report.across_tasks import AGGREGATES, Scales, across_tasks
from td3.report.charts import COLORS, NamedRun, learning_curves, time_budget, training_figures
from td3.report.differences import NONE, differences
from td3.report.doctor import all_clear, examine_run, remarks_on
from td3.report.numbers import MISSING, duration, interval, number, setting, span
from td3.report.records import RunRecords
from td3.report.summary import (
    MARGIN,
    VERDICTS,
    Pair,
    comparisons,
    describe_pair,
    engines_differ,
    p_text,
    summarize,
    too_few_seeds,
)
from td3.statistics import FEWEST_SEEDS, at_the_end

LARGEST_VIDEO = 12 << 20
"""Bytes of a video that is embedded; a larger one is linked."""
OPTION = re.compile(r"--[a-z0-9][a-z0-9.-]*[a-z0-9]")
"""An option of the command line within a sentence."""


class Cell(NamedTuple):
    """A table cell with a confidence interval or a run's color."""

    text: str
    interval: str = ""
    color: str = ""


Row = list[str | Cell]


def write_report(runs: Sequence[RunRecords], out: Path, margin: float = MARGIN, scales: Scales | None = None) -> None:
    """Write the report as one file, atomically."""
    if out.suffix != ".html":
        raise ConfigError(f"a report is written as .html, but {out} was given.")
    if not 0 < margin < 1:
        raise ConfigError(
            f"must be within (0, 1), a share of the reference's return, but {margin} was given.", "margin"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page(runs, margin, scales).encode(errors="backslashreplace"))
    except OSError as error:
        raise RunError(f"the report {out} cannot be written ({error.strerror}): give another --out.") from None


def page(runs: Sequence[RunRecords], margin: float = MARGIN, scales: Scales | None = None) -> str:
    """The report as HTML."""
    named = named_runs(runs)
    envs = list(dict.fromkeys(records.config.env for records in runs))
    heading, alone = ", ".join(envs), len(runs) == 1
    return (
        _templates()
        .get_template("report.html")
        .render(
            alone=alone,
            title=f"{heading}: {named[0].name}" if alone else f"{heading}: {len(runs)} runs",
            heading=heading,
            lead=_lead(runs[0]) if alone else f"{len(runs)} runs side by side.",
            tiles=_tiles(runs[0]) if alone else [],
            training=any(records.status.get("status", "running") == "running" for records in runs),
            tasks=[_task([run for run in named if run.records.config.env == env]) for env in envs],
            results=_results(_with_tasks(named)),
            differences=_differences(named),
            comparisons=_comparisons(named, margin),
            across=_across(across_tasks(runs, scales)),
            margin=f"{100 * margin:g}",
            fewest_seeds=FEWEST_SEEDS,
            runs=[_details(*run) for run in _with_tasks(named)],
        )
    )


def named_runs(runs: Sequence[RunRecords]) -> list[NamedRun]:
    """Each run with its name and the color of that name."""
    names = _names(runs)
    colors = {name: COLORS[index % len(COLORS)] for index, name in enumerate(dict.fromkeys(names))}
    return [NamedRun(records, name, colors[name]) for records, name in zip(runs, names, strict=True)]


def _with_tasks(runs: Sequence[NamedRun]) -> list[NamedRun]:
    """The same, each named with its task where one name has several."""
    tasks: dict[str, set[str]] = {}
    for run in runs:
        tasks.setdefault(run.name, set()).add(run.records.config.env)
    return [
        run._replace(name=f"{run.name}, {run.records.config.env}") if len(tasks[run.name]) > 1 else run for run in runs
    ]


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("td3.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["options_as_code"] = _options_as_code
    return templates


def _options_as_code(text: str) -> Markup:
    return Markup(OPTION.sub(r"<code>\g<0></code>", str(escape(text))))


def _names(runs: Sequence[RunRecords]) -> list[str]:
    """A name for each run, with its folder if two runs have the same name."""
    plain = [records.name for records in runs]
    return [
        f"{records.path.resolve().parent.name}/{name}" if plain.count(name) > 1 and not records.label else name
        for records, name in zip(runs, plain, strict=True)
    ]


def _lead(records: RunRecords) -> str:
    config, status = records.config, records.status.get("status", "running")
    seeds = "1 seed" if config.seeds == 1 else f"{config.seeds} seeds"
    unit = config.unit + (" on recorded transitions (offline)" if config.dataset else "")
    variant = f", variant {', '.join(config.variant)}" if config.variant else ""
    return f"{seeds}, {records.env_steps:,} of {config.steps:,} {unit}, {status}, on {records.device}{variant}."


def _tiles(records: RunRecords) -> list[tuple[str, str]]:
    """The most important numbers of a run, and what they are."""
    result, seconds = summarize(records), sum(records.seconds.values())
    rate = f"{records.trained_steps / seconds:,.0f}" if seconds and records.env_steps else MISSING
    counted, count, separate = len(result.last_tenth), len(records.end_steps), len(records.separate)
    over = f"mean over {counted} seeds" if counted > 1 else "one seed"
    average = f"IQM over {counted} seeds" if counted > 1 else "mean"
    unit = records.config.unit
    returns = [
        (number(result.final), f"return at the final evaluation, {unit[:-1]} {result.final_at:,} ({over})"),
        (interval(result.final_low, result.final_high), "95 % interval of that mean"),
        (number(result.iqm), f"{average}, last tenth of the {unit} ({count} evaluation{'s' * (count > 1)})"),
        (number(result.highest), "highest mean (the paper\u2019s measure)"),
    ]
    return [
        *(returns if records.evaluated else ()),
        (rate, f"{unit} a second, each run by itself" if separate else f"{unit} a second, all seeds"),
        (
            duration(seconds) if seconds else MISSING,
            f"of training, {separate} runs added up" if separate else "of training",
        ),
    ]


def _task(runs: Sequence[NamedRun]) -> dict[str, Any]:
    records = [run.records for run in runs]
    env, differ = records[0].config.env, engines_differ(records)
    warnings = [paper.engine_warning(env, records[0].versions)] if paper.published(env) else []
    curves = learning_curves(runs) if any(run.evaluated for run in records) else None
    return {"env": env, "curves": curves, "warnings": [*warnings, *([differ] if differ else [])]}


def _results(runs: Sequence[NamedRun]) -> dict[str, Any]:
    rows: list[Row] = []
    seeds: list[Row] = []
    for records, name, color in runs:
        if not records.evaluated:
            continue
        result, published = summarize(records), paper.published(records.config.env)
        many, label = len(result.last_tenth) > 1, Cell(name, color=color)
        if len(runs) == 1:
            label = Cell("all seeds" if many else f"seed {records.whole_seeds[0].seed}")
        rows.append(
            [
                label,
                str(len(result.last_tenth)),
                Cell(number(result.final), span(result.final_low, result.final_high) if many else ""),
                Cell(number(result.iqm), span(result.low, result.high) if many else ""),
                f"{number(result.highest)} \u00b1 {number(result.highest_spread)}" if many else number(result.highest),
                f"{result.highest_at:,}",
                f"{number(published.highest)} \u00b1 {number(published.spread)}" if published else "",
                "" if math.isnan(records.success_rate) else f"{records.success_rate:.0%}",
            ]
        )
        for seed in records.seeds:
            best = int(seed.curve.argmax())
            end = float(seed.curve[at_the_end(seed.steps)].mean())
            values = (float(seed.curve[-1]), end, float(seed.curve[best]))
            who = f"{name} seed {seed.seed}" if len(runs) > 1 else f"seed {seed.seed}"
            who += f" (frozen at {seed.frozen.env_steps:,})" if seed.frozen else ""
            rate = "" if math.isnan(seed.success_rate) else f"{seed.success_rate:.0%}"
            seeds.append([who, *map(number, values), f"{int(seed.steps[best]):,}", rate])
    at = "at " + " or ".join(dict.fromkeys(run.records.config.unit.removesuffix("s") for run in runs))
    head = ["", "seeds", "final: mean (95\u00a0%)", "last tenth: IQM (95\u00a0%)", "highest mean", at]
    head += ["the paper\u2019s", "success rate"]
    of_seeds = ["", "final", "last tenth", "highest", at, "success rate"]
    (head, rows), (of_seeds, seeds) = _without_empty_ends(head, rows), _without_empty_ends(of_seeds, seeds)
    return {"head": head, "rows": rows, "seeds_head": of_seeds, "seeds": seeds}


def _without_empty_ends(head: list[str], rows: list[Row]) -> tuple[list[str], list[Row]]:
    """A table without those of its last two columns that say nothing."""
    kept = [i for i in range(len(head)) if i < len(head) - 2 or any(row[i] for row in rows)]
    return [head[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _differences(runs: Sequence[NamedRun]) -> dict[str, Any]:
    """What differs between the runs, a column for each."""
    names = {run.records.title: Cell(run.name, color=run.color) for run in runs}
    rows = [
        [row["setting"], *(row["values"][title] for title in names)] for row in differences([r.records for r in runs])
    ]
    return {"head": ["", *names.values()], "rows": rows, "none": NONE}


def _comparisons(runs: Sequence[NamedRun], margin: float) -> dict[str, Any]:
    """All pairs of runs of a task; with p-values where there are more than two runs."""
    names = {id(run.records): run.name for run in runs}
    pairs = comparisons([run.records for run in runs], margin)
    corrected = any(pair.tests > 1 for pair in pairs)
    several = len({pair.run.config.env for pair in pairs}) > 1
    head = ["run", "reference", *(["task"] if several else []), "seeds", "at env steps", "difference of means (95 %)"]
    head += ["margin", *(["p (Holm)"] if corrected else []), "verdict", "probability of improvement (95 %)"]
    rows = []
    for pair in pairs:
        seeds, steps, difference, margin_text, verdict, probability = _cells(pair)
        task: Row = [pair.run.config.env] if several else []
        p_value: Row = [MISSING if math.isnan(pair.p_value) else p_text(pair.p_value)] if corrected else []
        who: Row = [names[id(pair.run)], names[id(pair.reference)]]
        rows.append([*who, *task, seeds, steps, difference, margin_text, *p_value, verdict, probability])
    return {"head": head, "rows": rows, "corrected": corrected}


def _across(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Aggregates over tasks as tables."""
    if found is None:
        return None
    groups: list[Row] = [
        [group["run"], *(_share(group[label], group[f"{label}_interval"]) for label in AGGREGATES)]
        for group in found["groups"]
        if found["normalized"]
    ]
    improvements: list[Row] = [
        [f"{pair['run']} over {pair['reference']}", _share(pair["probability"], pair["interval"])]
        for pair in found["improvements"]
    ]
    stated = [f"{task} {number(low)} and {number(high)}" for task, (low, high) in (found["normalized"] or {}).items()]
    return {
        "tasks": ", ".join(found["tasks"]),
        "groups": groups,
        "improvements": improvements,
        "stated": "; ".join(stated),
        "notes": found["notes"],
    }


def _share(value: float, ends: Sequence[float]) -> Cell:
    return Cell(f"{value:.2f}", f"{ends[0]:.2f} to {ends[1]:.2f}")


def _cells(pair: Pair) -> Row:
    comparison = pair.result
    if comparison is None:
        counts = "/".join(str(len(records.whole_seeds)) for records in (pair.run, pair.reference))
        return [counts, MISSING, MISSING, MISSING, describe_pair(pair), MISSING]
    first, last = (f"{int(pair.steps[at]):,}" for at in (0, -1))
    has_interval = not np.isnan(comparison.low)
    return [
        "/".join(map(str, comparison.seeds)),
        first if first == last else f"{first} to {last}",
        Cell(number(comparison.difference, "+"), span(comparison.low, comparison.high, "+") if has_interval else ""),
        f"\u00b1 {number(comparison.margin)}",
        f"none: {too_few_seeds(comparison)}" if comparison.verdict == "too_few_seeds" else VERDICTS[comparison.verdict],
        Cell(f"{comparison.probability:.2f}", f"{comparison.probability_low:.2f} to {comparison.probability_high:.2f}"),
    ]


def _details(records: RunRecords, name: str, color: str) -> dict[str, Any]:
    """Everything about one run that the template shows."""
    return {
        "name": name,
        "color": color,
        "notes": records.notes,
        "source": records.source,
        "findings": [] if records.source else examine_run(records),
        "remarks": [] if records.source else remarks_on(records),
        "all_clear": all_clear(records),
        "figures": training_figures(records),
        "budget": time_budget(records),
        "video": _video(records),
        "versions": ", ".join(f"{package} {version}" for package, version in records.versions.items()),
        **_settings(records),
    }


def _video(records: RunRecords) -> dict[str, str]:
    """The video as a data address, or its size if it is too large to be embedded."""
    path, none = records.path / "video.mp4", {"source": "", "megabytes": ""}
    if outside(path, records.path):  # the report may be sent to others, and the file is not part of the run
        return none
    try:
        size = path.stat().st_size
        if size > LARGEST_VIDEO:
            return none | {"megabytes": f"{size / 1e6:.0f}"}
        content = read_regular_file(path, LARGEST_VIDEO)
    except (OSError, ValueError):
        return none
    return none | {"source": f"data:video/mp4;base64,{base64.b64encode(content).decode()}" if content else ""}


def _settings(records: RunRecords) -> dict[str, Any]:
    """All settings, and those that differ from the preset."""
    config = records.config
    values, preset = config.to_json(), preset_config(config.preset, config.env, config.steps)
    algorithm = {name: (setting(value), setting(getattr(preset, name))) for name, value in values.pop("td3").items()}
    changed = [[f"td3.{name}", ours, theirs] for name, (ours, theirs) in algorithm.items() if ours != theirs]
    whole = [[name, setting(value)] for name, value in values.items()]
    whole += [[f"td3.{name}", ours] for name, (ours, _) in algorithm.items()]
    return {"preset": config.preset, "changed": changed, "settings": whole}
