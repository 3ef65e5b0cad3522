"""A comparison as a table for spreadsheets (CSV) and papers (LaTeX)."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from td3.errors import RunError
from td3.files import write_atomically
from td3.report.across_tasks import AGGREGATES
from td3.report.records import RunRecords
from td3.report.summary import LEVEL, comparisons, summarize
from td3.statistics import mean_interval

COLUMNS = (
    *("task", "run", "seeds", "env_steps", "mean", "mean_low", "mean_high", "iqm", "iqm_low", "iqm_high"),
    *("reference", "difference", "difference_low", "difference_high", "p_value", "verdict"),
    *("probability_of_improvement", "probability_low", "probability_high"),
)
"""`mean` and `iqm` are those of the run's last tenth; `p_value` has Holm's correction."""
ESCAPES = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def write_text(path: Path, text: str) -> None:
    """Write a small file, atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): give another file.") from None


def as_csv(runs: Sequence[RunRecords], margin: float, tasks: Mapping[str, Any] | None) -> str:
    """A row for each run, one for each pair, and one for each group over all tasks."""
    rows: list[dict[str, Any]] = [_result(records) for records in runs]
    for pair in comparisons(runs, margin):
        row = {**_result(pair.run), "reference": pair.reference.title}
        if (found := pair.result) is not None:
            row |= {
                "difference": found.difference,
                "difference_low": found.low,
                "difference_high": found.high,
                "p_value": pair.p_value,
                "verdict": found.verdict,
                "probability_of_improvement": found.probability,
                "probability_low": found.probability_low,
                "probability_high": found.probability_high,
            }
        rows.append(row)
    if tasks:
        for group in tasks["groups"] if tasks["normalized"] else ():
            low, high = zip(group["mean_interval"], group["iqm_interval"], strict=True)
            values = (group["mean"], low[0], high[0], group["iqm"], low[1], high[1])
            named = dict(zip(COLUMNS[4:10], values, strict=True))
            rows.append({"task": "all, normalized", "run": group["run"], "seeds": min(group["seeds"]), **named})
        for pair in tasks["improvements"]:
            chance = dict(zip(COLUMNS[-3:], (pair["probability"], *pair["interval"]), strict=True))
            rows.append({"task": "all", "run": pair["run"], "reference": pair["reference"], **chance})
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if _is_nan(value) else value for name, value in row.items()} for row in rows)
    return file.getvalue()


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _result(records: RunRecords) -> dict[str, Any]:
    found = summarize(records)
    low, high = mean_interval(found.last_tenth)
    values = (float(found.last_tenth.mean()), float(low), float(high), found.iqm, found.low, found.high)
    named = dict(zip(COLUMNS[4:10], values, strict=True))
    seeds = len(found.last_tenth)
    return {"task": records.config.env, "run": records.title, "seeds": seeds, "env_steps": found.final_at, **named}


def as_latex(runs: Sequence[RunRecords], margin: float, tasks: Mapping[str, Any] | None) -> str:
    """A table for the package booktabs: a row for each task, a column for each group.

    Means over seeds of the last tenth, with half of the 95 % interval. Bold: the highest mean, and those that do not
    differ from it significantly, where all have seeds enough for a verdict.
    """
    names = list(dict.fromkeys(records.title for records in runs))
    lines = [
        "% Mean return over seeds in the last tenth of the env steps, and half of its 95 % interval (Student's t).",
        "% Bold: the highest mean, and means that do not differ from it significantly (Welch, Holm).",
        rf"\begin{{tabular}}{{l{'r' * len(names)}}}",
        r"\toprule",
        " & ".join(["", *map(_escaped, names)]) + r" \\",
        r"\midrule",
    ]
    for task in dict.fromkeys(records.config.env for records in runs):
        group = {records.title: records for records in runs if records.config.env == task}
        bold = _best(list(group.values()), margin)
        cells = [_cell(group[name], name in bold) if name in group else "" for name in names]
        lines.append(" & ".join([_escaped(task), *cells]) + r" \\")
    if tasks and tasks["normalized"]:
        lines.append(r"\midrule")
        by_name = {group["run"]: group for group in tasks["groups"]}
        for label in AGGREGATES:
            cells = [_aggregate(by_name[name], label) if name in by_name else "" for name in names]
            title = f"{label.upper() if label == 'iqm' else label.capitalize()} (normalized)"
            lines.append(" & ".join([title, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _best(runs: Sequence[RunRecords], margin: float) -> set[str]:
    pairs = comparisons(runs, margin)
    if not pairs or any(pair.result is None or pair.result.verdict == "too_few_seeds" for pair in pairs):
        return set()
    best = max(runs, key=lambda records: float(records.last_tenth.mean()))
    beaten = {
        (pair.run if pair.reference is best else pair.reference).title
        for pair in pairs
        if (pair.run is best or pair.reference is best) and pair.p_value <= LEVEL
    }
    return {records.title for records in runs} - beaten


def _cell(records: RunRecords, bold: bool) -> str:
    values = records.last_tenth
    mean, (low, high) = float(values.mean()), mean_interval(values)
    if math.isnan(mean):
        return ""
    digits = 0 if abs(mean) >= 1000 else 1 if abs(mean) >= 10 else 2
    text = f"{mean:,.{digits}f}".replace(",", "{,}")
    spread = "" if math.isnan(low) else rf" \pm {(float(high) - float(low)) / 2:,.{digits}f}".replace(",", "{,}")
    return rf"$\mathbf{{{text}}}{spread}$" if bold else f"${text}{spread}$"


def _aggregate(group: Mapping[str, Any], label: str) -> str:
    low, high = group[f"{label}_interval"]
    return f"${group[label]:.2f}$ (${low:.2f}$ to ${high:.2f}$)"


def _escaped(text: str) -> str:
    return "".join(ESCAPES.get(character, character) for character in text)
