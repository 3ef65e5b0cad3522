"""The ladder's recorded runs, ten seeds each, and the tables that docs/ladder.md prints of them."""

import json
from functools import cache
from importlib import resources

import numpy as np

from td3.policy import Array
from td3.statistics import FEWEST_SEEDS, mean_interval
from td3_lessons.ladder.climb import NUMBERS, code_lines, diff_to_below, lesson, rung_module, share
from td3_lessons.ladder.page import AGAINST, NOISE

COMMAND = "td3 ladder all --seed 200"
BEGIN, END = "<!-- ladder {}: begin -->", "<!-- ladder {}: end -->"


@cache
def recorded() -> dict[str, dict[str, list[float]]]:
    """By run (`rung_5`, `rung_5_noisy`, `twin`): for each seed the return and what its values differ by at the end."""
    stored = json.loads(
        resources.files("td3_lessons.ladder").joinpath("templates", "recorded.json").read_text(encoding="utf-8")
    )
    assert len(stored["seeds"]) >= FEWEST_SEEDS
    runs: dict[str, dict[str, list[float]]] = stored["runs"]
    return runs


def rungs_table() -> list[str]:
    """Every rung: env steps, final return, share of the optimum, lines, seconds."""
    lines = [
        "| rung | env steps | final return (95 % interval) | share of the optimum | code lines | changed lines |"
        " seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for number in NUMBERS:
        run, diff = recorded()[f"rung_{number}"], diff_to_below(number) if number > 1 else None
        returns = np.array(run["return"])
        changed = "" if diff is None else f"{diff.changed} (+{diff.added}, -{diff.removed})"
        title = f"{number} {lesson(number).title.partition(',')[0]}"
        steps, ratio = rung_module(number).Settings().steps, 100 * float(share(returns).mean())
        lines.append(
            f"| {title} | {steps:,} | {_text(returns)} | {ratio:.1f} % | {len(code_lines(number))} | {changed} | "
            f"{np.mean(run['seconds']):.0f} |"
        )
    return lines


def belief_table() -> list[str]:
    """What DDPG and TD3 predict, minus what their policies earn or minus Q*, without and with noise in the reward."""
    lines = ["| predicted minus | reward noise | DDPG | TD3 | DDPG - TD3 |", "|---|---|---|---|---|"]
    for measure, named in AGAINST.items():
        for noise, ending in ((0, ""), (NOISE, "_noisy")):
            ddpg, td3 = (np.array(recorded()[f"rung_{number}{ending}"][measure]) for number in (5, 6))
            cells = " | ".join(_text(values, "+") for values in (ddpg, td3, ddpg - td3))
            lines.append(f"| {named} | {noise:g} | {cells} |")
    return lines


def ideas_table() -> list[str]:
    """Each of TD3's changes alone, added to DDPG."""
    lines = ["| | predicted minus earned | final return |", "|---|---|---|"]
    names = {
        "rung_5": "DDPG",
        "twin": "with twin critics",
        "delay": "with delay",
        "smoothing": "with target policy smoothing",
    }
    for run, named in names.items():
        both = (np.array(recorded()[run][measure]) for measure in ("self_deception", "return"))
        lines.append(
            f"| {named} | "
            + " | ".join(_text(values, sign) for values, sign in zip(both, ("+", ""), strict=True))
            + " |"
        )
    return lines


def _text(values: Array, sign: str = "") -> str:
    low, high = mean_interval(values)
    return f"{values.mean():{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


TABLES = {"rungs": rungs_table, "belief": belief_table, "ideas": ideas_table}


def with_tables(text: str, sentences: dict[str, str]) -> str:
    """docs/ladder.md with its tables, and its sentences on them, made anew."""
    for name, made in {**{name: "\n".join(table()) for name, table in TABLES.items()}, **sentences}.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}\n{end}{rest.split(end)[1]}"
    return text
