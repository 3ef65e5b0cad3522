"""The numbers of a report: results of each run over its seeds, and comparisons between runs, as data and as text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from td3.policy import Array
from td3.report import paper
from td3.report.across_tasks import Scales, across_tasks, describe_tasks
from td3.report.differences import describe_differences, differences
from td3.report.doctor import examine_run, remarks_on
from td3.report.records import RunRecords, shared_steps
from td3.statistics import (
    FEWEST_SEEDS,
    Comparison,
    at_the_end,
    compare,
    holm,
    interquartile_mean,
    iqm_interval,
    mean_interval,
    welch_p,
)

MARGIN = 0.1
"""Equivalence margin: a share of the reference run's mean return."""
LEVEL = 0.05
"""A corrected p-value up to this is significant."""
VERDICTS = {
    "equivalent": "equivalent",
    "better": "better than the reference",
    "worse": "worse than the reference",
    "undecided": "not decided by these seeds",
}


class Summary(NamedTuple):
    """Results of a run over its active seeds; the intervals of one seed are NaN."""

    final: float
    """Mean of the final evaluation."""
    final_low: float
    final_high: float
    final_at: int
    last_tenth: Array
    """Each seed's mean over the evaluations in the last tenth of the env steps."""
    iqm: float
    """Interquartile mean of those."""
    low: float
    high: float
    highest: float
    highest_spread: float
    highest_at: int


def summarize(records: RunRecords) -> Summary:
    """Results over the seeds: at the final evaluation, over the last tenth, and the paper's highest mean.

    All NaN for a run without evaluations.
    """
    if not records.evaluated:
        nan = math.nan
        return Summary(nan, nan, nan, 0, records.last_tenth, nan, nan, nan, nan, nan, 0)
    steps, returns = records.curves
    final_low, final_high = mean_interval(records.final)
    last_tenth = records.last_tenth
    low, high = iqm_interval(last_tenth)
    best = int(returns.mean(0).argmax())
    spread = float(returns[:, best].std())  # divided by n, as in the paper
    return Summary(
        float(records.final.mean()),
        float(final_low),
        float(final_high),
        int(steps[-1]),
        last_tenth,
        float(interquartile_mean(last_tenth)),
        float(low),
        float(high),
        float(returns[:, best].mean()),
        spread,
        int(steps[best]),
    )


def figures(runs: Sequence[RunRecords], margin: float = MARGIN, scales: Scales | None = None) -> dict[str, Any]:
    """All numbers of a report, for `--json`; `scales` are the scores that stand for 0 and 1 on each task."""
    rows = []
    for records in runs:
        summary = summarize(records)
        published = paper.published(records.config.env)
        counted = [str(seed.seed) for seed in records.whole_seeds]
        rows.append(
            {
                "run": records.title,
                "runs": [str(run.path) for run in records.runs],
                "env": records.config.env,
                "status": records.status.get("status", "running"),
                "env_steps": records.env_steps,
                "unit": records.config.unit,
                "final_at": summary.final_at,
                "final": dict(zip(counted, records.final.tolist(), strict=True)) if records.evaluated else {},
                "final_mean": _known(summary.final),
                "final_interval": _interval(summary.final_low, summary.final_high),
                "success_rate": None if math.isnan(records.success_rate) else records.success_rate,
                "last_tenth_at": records.end_steps.tolist(),
                "last_tenth": dict(zip(counted, map(_known, summary.last_tenth.tolist()), strict=True)),
                "iqm": _known(summary.iqm),
                "iqm_interval": _interval(summary.low, summary.high),
                "max_average": _known(summary.highest),
                "max_average_std": _known(summary.highest_spread),
                "max_average_at": summary.highest_at,
                "frozen": {str(seed.seed): seed.frozen._asdict() for seed in records.seeds if seed.frozen},
                "notes": records.notes,
                "paper": None if published is None else published._asdict(),
                "seconds": records.seconds,
                "findings": [] if records.source else [finding._asdict() for finding in examine_run(records)],
                "remarks": [] if records.source else [remark._asdict() for remark in remarks_on(records)],
                "versions": records.versions,
            }
        )
    compared = [
        {
            "run": pair.run.title,
            "reference": pair.reference.title,
            "env": pair.run.config.env,
            "at": pair.steps.tolist(),
            **({} if pair.result is None else _nan_as_none(pair.result._asdict())),
            "p_value": _known(pair.p_value),
            "said": describe_pair(pair),
        }
        for pair in comparisons(runs, margin)
    ]
    tasks = across_tasks(runs, scales)
    return {
        "differences": differences(runs),
        "runs": rows,
        "comparisons": compared,
        "tasks": tasks,
        "warning": engines_differ(runs),
    }


def _interval(low: float, high: float) -> list[float] | None:
    return None if np.isnan(low) else [low, high]


def _nan_as_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _known(value) for name, value in values.items()}


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def engines_differ(runs: Sequence[RunRecords]) -> str | None:
    """A warning if the runs used different versions of MuJoCo."""
    return paper.engines_differ([run.versions for records in runs for run in records.runs])


def describe_runs(results: Mapping[str, Any]) -> list[str]:
    """The numbers as text, a line for each run and each comparison."""
    lines = describe_differences(results["differences"], len(results["runs"]))
    for run in results["runs"]:
        seeds, count = len(run["final"]), len(run["last_tenth_at"])
        over = f" over {seeds} seeds{_interval_text(run['final_interval'])}" if seeds > 1 else " of one seed"
        line = f"{run['run']}: {run['env']}, {run['env_steps']:,} {run['unit']}, {run['status']}. "
        if not seeds:
            line += "No evaluations."
        else:
            at = run["unit"].removesuffix("s")
            line += f"Final evaluation, at {at} {run['final_at']:,}: mean return {run['final_mean']:,.1f}{over}"
        if run["success_rate"] is not None:
            line += f", success rate {run['success_rate']:.0%}"
        if count > 1:
            average = f"IQM over {seeds} seeds" if seeds > 1 else "mean"
            line += (
                f"; last tenth of the {run['unit']} ({count} evaluations): {average} {run['iqm']:,.1f}"
                f"{_interval_text(run['iqm_interval'])}"
            )
        if seeds:
            line += f"; highest mean {run['max_average']:,.1f} at {run['max_average_at']:,}."
        lines.append(line)
        lines += [f"  {note}" for note in run["notes"]]
        lines += [f"  {finding['said']} {finding['advice']}" for finding in run["findings"]]
    several = len({pair["env"] for pair in results["comparisons"]}) > 1
    for pair in results["comparisons"]:
        on = f" on {pair['env']}" if several else ""
        lines.append(f"{pair['run']} against {pair['reference']}{on}: {pair['said']}")
    if results["tasks"]:
        lines += describe_tasks(results["tasks"])
    return lines + ([results["warning"]] if results["warning"] else [])


def _interval_text(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" (95 % interval {interval[0]:,.1f} to {interval[1]:,.1f})"


class Pair(NamedTuple):
    """A run and the one that it is compared with."""

    run: RunRecords
    reference: RunRecords
    steps: Array
    """The env steps compared: those in the last tenth of the env steps at which both were evaluated."""
    result: Comparison | None
    """None if there is nothing to compare."""
    p_value: float = math.nan
    """Of Welch's test, with Holm's correction; NaN without a verdict."""
    tests: int = 1
    """How many pairs of the task have a verdict, for which the p-value is corrected."""


def comparisons(runs: Sequence[RunRecords], margin: float) -> list[Pair]:
    """All pairs of runs of the same task, the first run's first; the margin is a share of the reference's mean.

    Better or worse needs a p-value of at most 0.05 after Holm's correction for the pairs of the task.
    """
    tasks: dict[str, list[RunRecords]] = {}
    for records in runs:
        tasks.setdefault(records.config.env, []).append(records)
    pairs: list[Pair] = []
    for group in tasks.values():
        both = [(run, reference) for index, reference in enumerate(group) for run in group[index + 1 :]]
        pairs += _corrected([_pair(run, reference, margin) for run, reference in both])
    return pairs


def _pair(run: RunRecords, reference: RunRecords, margin: float) -> Pair:
    shared = shared_steps(side.curves[0] for side in (run, reference))
    shared = shared[shared > 0]  # before training all agents are alike
    if len(shared) == 0 or run.all_frozen or reference.all_frozen:
        return Pair(run, reference, np.zeros(0, int), None)
    shared = shared[at_the_end(shared)]
    ours, theirs = (returns_at(side, shared) for side in (run, reference))
    result = compare(ours, theirs, margin * abs(float(theirs.mean())))
    judged = result.verdict != "too_few_seeds"
    return Pair(run, reference, shared, result, welch_p(ours, theirs) if judged else math.nan)


def _corrected(pairs: list[Pair]) -> list[Pair]:
    """The pairs of one task, with p-values and verdicts corrected for how many have one."""
    judged = [pair for pair in pairs if pair.result and pair.result.verdict != "too_few_seeds"]
    p_values = iter(holm([pair.p_value for pair in judged]).tolist())
    corrected = []
    for pair in pairs:
        result = pair.result
        if result and result.verdict != "too_few_seeds":
            p_value = next(p_values)
            if result.verdict in ("better", "worse") and p_value > LEVEL:
                result = result._replace(verdict="undecided")
            corrected.append(pair._replace(result=result, p_value=p_value, tests=len(judged)))
        else:
            corrected.append(pair)
    return corrected


def returns_at(records: RunRecords, shared: Array) -> Array:
    """Each seed's mean over the evaluations at these env steps."""
    steps, returns = records.curves
    return np.asarray(returns[:, np.isin(steps, shared)].mean(1))


def describe_pair(pair: Pair) -> str:
    """A comparison in one sentence, with a verdict if there are enough seeds for one."""
    comparison = pair.result
    if comparison is None:
        for records in (pair.run, pair.reference):
            if records.all_frozen:
                return f"not compared: every seed of {records.title} is frozen."
        return "not compared: they have no evaluation at the same env step after training began."
    numbers = (
        f"mean return differs by {comparison.difference:+,.1f}"
        + ("" if np.isnan(comparison.low) else f" (95 % interval {comparison.low:+,.1f} to {comparison.high:+,.1f})")
        + f" at {_where(pair.steps)}, probability of improvement {comparison.probability:.2f}"
    )
    ended = [(records.title, int(records.curves[0][-1])) for records in (pair.run, pair.reference)]
    further = "".join(f" {title} continues to {last:,}." for title, last in ended if last > pair.steps[-1])
    if comparison.verdict == "too_few_seeds":
        return f"{numbers}; {too_few_seeds(comparison)}.{further}"
    corrected = f", p {p_text(pair.p_value)} after Holm's correction for {pair.tests} pairs" if pair.tests > 1 else ""
    return f"{VERDICTS[comparison.verdict]}; {numbers}, margin {comparison.margin:,.1f}{corrected}.{further}"


def p_text(p_value: float) -> str:
    """A p-value in two digits."""
    return f"{p_value:.2g}" if p_value >= 0.001 else "below 0.001"


def _where(steps: Array) -> str:
    if len(steps) == 1:
        return f"env step {steps[0]:,.0f}"
    return f"{len(steps)} shared evaluations, env steps {steps[0]:,.0f} to {steps[-1]:,.0f}"


def too_few_seeds(comparison: Comparison) -> str:
    """Why a comparison has no verdict."""
    ours, theirs = comparison.seeds
    counted = f"{ours} and {theirs} seeds are" if ours != theirs else "1 seed is" if ours == 1 else f"{ours} seeds are"
    return f"{counted} too few for a verdict, which needs {FEWEST_SEEDS} of each run"
