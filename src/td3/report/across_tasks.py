"""Groups of runs compared over several tasks, as rliable does: Agarwal et al. 2021, arXiv 2108.13264."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from td3.errors import ConfigError
from td3.policy import Array
from td3.report.records import RunRecords, shared_steps
from td3.statistics import (
    FEWEST_SEEDS,
    at_the_end,
    improvement_over_tasks,
    iqm_of_tasks,
    mean_of_tasks,
    median_of_tasks,
    over_tasks,
)

Scales = Mapping[str, tuple[float, float]]
"""By task, the scores that count as 0 and as 1, such as those of random actions and of a reference."""
AGGREGATES = {"iqm": iqm_of_tasks, "mean": mean_of_tasks, "median": median_of_tasks}


def read_scales(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """TASK=LOW,HIGH words."""
    scales = {}
    for word in words:
        task, _, ends = word.rpartition("=")
        try:
            low, high = map(float, ends.split(","))
            if not task or not math.isfinite(low) or not math.isfinite(high) or low == high:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"needs the scores that count as 0 and 1 on a task, such as Hopper-v5=20,3564, but {word!r} was given.",
                "normalize",
            ) from None
        scales[task] = (low, high)
    return scales


def scores_by_task(runs: Sequence[RunRecords]) -> dict[str, dict[str, Array]]:
    """By group and task, each seed's mean return over the last tenth of the env steps that all groups have there.

    Of the tasks that every group has.
    """
    groups: dict[str, dict[str, RunRecords]] = {}
    for records in runs:
        groups.setdefault(records.title, {})[records.config.env] = records
    scores: dict[str, dict[str, Array]] = {name: {} for name in groups}
    for task in dict.fromkeys(records.config.env for records in runs):
        members = [by_task[task] for by_task in groups.values() if task in by_task]
        if len(members) < len(groups) or any(member.all_frozen for member in members):
            continue
        steps = shared_steps(member.curves[0] for member in members)
        steps = steps[steps > 0]
        if len(steps):
            for name, by_task in groups.items():
                found, returns = by_task[task].curves
                scores[name][task] = returns[:, np.isin(found, steps[at_the_end(steps)])].mean(1)
    return scores


def normalized(scores: Mapping[str, Array], scales: Scales) -> dict[str, Array]:
    """Scores with 0 and 1 at the stated ones; every task must have its two."""
    if missing := [task for task in scores if task not in scales]:
        raise ConfigError(
            f"has no scores for {', '.join(missing)}: add the two that count as 0 and 1, "
            f"{' '.join(f'{task}=LOW,HIGH' for task in missing)}",
            "normalize",
        )
    return {task: (values - scales[task][0]) / (scales[task][1] - scales[task][0]) for task, values in scores.items()}


def across_tasks(runs: Sequence[RunRecords], scales: Scales | None = None) -> dict[str, Any] | None:
    """Aggregates of each group and probabilities of improvement; None unless all groups share two tasks or more."""
    scores = scores_by_task(runs)
    tasks = list(next(iter(scores.values()), {}))
    if len(tasks) < 2:
        return None
    groups = []
    for name, by_task in scores.items():
        row: dict[str, Any] = {"run": name, "seeds": [len(by_task[task]) for task in tasks]}
        if scales:
            values = list(normalized(by_task, scales).values())
            for label, aggregate in AGGREGATES.items():
                row[label], *row[f"{label}_interval"] = over_tasks(aggregate, values)
        groups.append(row)
    names = list(scores)
    improvements = []
    for index, reference in enumerate(names):
        for run in names[index + 1 :]:
            sides = [[scores[name][task] for task in tasks] for name in (run, reference)]
            probability, low, high = over_tasks(improvement_over_tasks, *sides)
            improvements.append(
                {"run": run, "reference": reference, "probability": probability, "interval": [low, high]}
            )
    left_out = [t for t in dict.fromkeys(records.config.env for records in runs) if t not in tasks]
    return {
        "tasks": tasks,
        "left_out": left_out,
        "normalized": {task: list(scales[task]) for task in tasks} if scales else None,
        "groups": groups,
        "improvements": improvements,
        "notes": _notes(tasks, left_out, groups, bool(scales)),
    }


def _notes(
    tasks: Sequence[str], left_out: Sequence[str], groups: Sequence[Mapping[str, Any]], scaled: bool
) -> list[str]:
    notes = []
    if left_out:
        notes.append(f"Not in it, because not every group has results on them: {', '.join(left_out)}.")
    if min(count for group in groups for count in group["seeds"]) < FEWEST_SEEDS:
        notes.append(f"With fewer than {FEWEST_SEEDS} seeds on a task these intervals are too narrow for a verdict.")
    if not scaled:
        example = " ".join(f"{task}=LOW,HIGH" for task in tasks)
        notes.append(f"For IQM, mean and median over tasks, state the scores that are 0 and 1: --normalize {example}")
    return notes


def describe_tasks(found: Mapping[str, Any]) -> list[str]:
    """The same as text."""
    lines = [f"Over {len(found['tasks'])} tasks ({', '.join(found['tasks'])}):"]
    for group in found["groups"] if found["normalized"] else ():
        said = [f"{label.upper() if label == 'iqm' else label} {_with_interval(group, label)}" for label in AGGREGATES]
        lines.append(f"  {group['run']}: normalized {', '.join(said)}")
    for pair in found["improvements"]:
        low, high = pair["interval"]
        lines.append(
            f"  {pair['run']} against {pair['reference']}: probability of improvement {pair['probability']:.2f} "
            f"(95 % interval {low:.2f} to {high:.2f})"
        )
    return lines + [f"  {note}" for note in found["notes"]]


def _with_interval(group: Mapping[str, Any], label: str) -> str:
    low, high = group[f"{label}_interval"]
    return f"{group[label]:.3f} (95 % interval {low:.3f} to {high:.3f})"
