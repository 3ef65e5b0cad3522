"""What differs between compared runs: settings, replaced steps and versions of packages."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from td3.report.groups import SEEDS, source_of_steps
from td3.report.numbers import MISSING, setting
from td3.report.records import RunRecords

Differences = list[dict[str, Any]]
"""Rows of a `setting` and its `values` by the names of the runs."""
NONE = "Settings and versions do not differ."


def differences(runs: Sequence[RunRecords]) -> Differences:
    """The settings in which runs of one task differ, seeds and folders aside."""
    titles = list(dict.fromkeys(records.title for records in runs))
    facts = {id(run): _facts(run) for records in runs for run in records.runs if not run.source}
    rows: Differences = []
    for name in dict.fromkeys(name for each in facts.values() for name in each):
        values: dict[str, dict[str, None]] = {title: {} for title in titles}
        per_task: dict[str, set[str]] = {}
        for records in runs:
            for run in records.runs:
                if (known := facts.get(id(run))) is not None:
                    value = known.get(name, MISSING)
                    values[records.title][value] = None
                    per_task.setdefault(records.config.env, set()).add(value)
        if any(len(each) > 1 for each in per_task.values()):
            texts = {title: " or ".join(each) or MISSING for title, each in values.items()}
            rows.append({"setting": name, "values": texts})
    return rows


def _facts(run: RunRecords) -> dict[str, str]:
    values = run.config.to_json()
    td3 = values.pop("td3")
    facts = {name: setting(value) for name, value in values.items() if name not in SEEDS}
    facts |= {f"td3.{name}": setting(value) for name, value in td3.items()}
    if source := source_of_steps(run):
        facts["source of replaced steps"] = f"sha256 {hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return facts | {f"version of {package}": version for package, version in run.versions.items()}


def describe_differences(rows: Sequence[Mapping[str, Any]], runs: int) -> list[str]:
    """The same as text; nothing for a single run."""
    if not rows:
        return [NONE] if runs > 1 else []
    values = [", ".join(f"{run} {value}" for run, value in row["values"].items()) for row in rows]
    return ["What differs:", *(f"  {row['setting']}: {text}" for row, text in zip(rows, values, strict=True))]
