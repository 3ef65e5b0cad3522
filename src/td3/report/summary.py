"""The numbers of a report: results of each run over its seeds, and comparisons between runs, as data and as text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from td3.policy import Array
from td3.report import paper
from td3.report.doctor import examine_run, remarks_on
from td3.report.records import RunRecords, shared_steps
from td3.statistics import (
    FEWEST_SEEDS,
    Comparison,
    at_the_end,
    compare,
    interquartile_mean,
    iqm_interval,
    mean_interval,
)

MARGIN = 0.1
"""Equivalence margin: a share of the reference run's mean return."""
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


def figures(runs: Sequence[RunRecords], margin: float = MARGIN) -> dict[str, Any]:
    """All numbers of a report, for `--json`."""
    rows = []
    for records in runs:
        summary = summarize(records)
        published = paper.published(records.config.env)
        counted = [str(seed.seed) for seed in records.whole_seeds]
        rows.append(
            {
                "run": str(records.path),
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
            **({} if pair.result is None else _nan_as_none(pair.result._asdict())),
            "said": describe_pair(pair),
        }
        for pair in comparisons(runs, margin)
    ]
    return {"runs": rows, "comparisons": compared, "warning": engines_differ(runs)}


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
    lines = []
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
    lines += [f"{pair['run']} against {pair['reference']}: {pair['said']}" for pair in results["comparisons"]]
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


def comparisons(runs: Sequence[RunRecords], margin: float) -> list[Pair]:
    """Every run against the first one of the same task; the margin is a share of its mean return."""
    references: dict[str, RunRecords] = {}
    pairs = []
    for records in runs:
        reference = references.setdefault(records.config.env, records)
        if reference is records:
            continue
        shared = shared_steps(side.curves[0] for side in (records, reference))
        shared = shared[shared > 0]  # before training all agents are alike
        if len(shared) == 0 or records.all_frozen or reference.all_frozen:
            pairs.append(Pair(records, reference, np.zeros(0, int), None))
            continue
        shared = shared[at_the_end(shared)]
        ours, theirs = (_returns_at(side, shared) for side in (records, reference))
        pairs.append(Pair(records, reference, shared, compare(ours, theirs, margin * abs(float(theirs.mean())))))
    return pairs


def _returns_at(records: RunRecords, shared: Array) -> Array:
    steps, returns = records.curves
    return np.asarray(returns[:, np.isin(steps, shared)].mean(1))


def describe_pair(pair: Pair) -> str:
    """A comparison in one sentence, with a verdict if there are enough seeds for one."""
    comparison = pair.result
    if comparison is None:
        for records in (pair.run, pair.reference):
            if records.all_frozen:
                return f"not compared: every seed of {records.path} is frozen."
        return "not compared: they have no evaluation at the same env step after training began."
    numbers = (
        f"mean return differs by {comparison.difference:+,.1f}"
        + ("" if np.isnan(comparison.low) else f" (95 % interval {comparison.low:+,.1f} to {comparison.high:+,.1f})")
        + f" at {_where(pair.steps)}, probability of improvement {comparison.probability:.2f}"
    )
    ended = [(records.path, int(records.curves[0][-1])) for records in (pair.run, pair.reference)]
    further = "".join(f" {path} continues to {last:,}." for path, last in ended if last > pair.steps[-1])
    if comparison.verdict == "too_few_seeds":
        return f"{numbers}; {too_few_seeds(comparison)}.{further}"
    return f"{VERDICTS[comparison.verdict]}; {numbers}, margin {comparison.margin:,.1f}.{further}"


def _where(steps: Array) -> str:
    if len(steps) == 1:
        return f"env step {steps[0]:,.0f}"
    return f"{len(steps)} shared evaluations, env steps {steps[0]:,.0f} to {steps[-1]:,.0f}"


def too_few_seeds(comparison: Comparison) -> str:
    """Why a comparison has no verdict."""
    ours, theirs = comparison.seeds
    counted = f"{ours} and {theirs} seeds are" if ours != theirs else "1 seed is" if ours == 1 else f"{ours} seeds are"
    return f"{counted} too few for a verdict, which needs {FEWEST_SEEDS} of each run"
