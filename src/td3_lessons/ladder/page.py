"""One self-contained page of the whole ladder: ideas, diffs, curves against the optimum, overestimation measured."""

import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from td3 import __version__
from td3.environments.rail import FALL
from td3_lessons.ladder import plots
from td3_lessons.ladder.climb import (
    EVALUATIONS,
    NUMBERS,
    RAIL,
    STATES,
    Result,
    chance,
    code_lines,
    diff_of_idea,
    diff_to_below,
    interval,
    lesson,
    notes,
    optimum,
    rung_module,
    share,
)
from td3_lessons.ladder.exact import FORCES, NODES, solve
from td3_lessons.ladder.ideas import IDEAS, PARTS

NOISE = 1.0
"""Standard deviation of the reward noise in the second half of the overestimation experiment."""
AGAINST = {"self_deception": "what its own policy earns", "overestimate": "the best possible Q, Q*"}
"""What values are compared with."""
JUDGED = (5, 6)
"""The rungs whose overestimation is compared: DDPG and TD3."""


def jobs(seed: int, seeds: int, steps: int | None) -> list[tuple[Any, ...]]:
    """Every run that the page needs: six rungs, and DDPG and TD3 once more with noise in the reward."""
    wanted = [(number, 0.0) for number in NUMBERS] + [(number, NOISE) for number in JUDGED]
    return [(number, RAIL, one, steps, noise) for one in range(seed, seed + seeds) for number, noise in wanted]


def idea_jobs(seed: int, seeds: int, steps: int | None) -> list[tuple[Any, ...]]:
    """The runs of the single ideas: a target network for rung 2, and TD3's three changes of rung 5 one at a time."""
    return [
        (idea.rung, RAIL, one, steps, 0.0, EVALUATIONS, name)
        for one in range(seed, seed + seeds)
        for name, idea in IDEAS.items()
    ]


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """The page's numbers, for `--json` and for the tables."""
    rungs = {}
    for number in NUMBERS:
        runs = pick(results, number)
        returns = np.array([run.returns[-1] for run in runs])
        diff = diff_to_below(number) if number > 1 else None
        rungs[str(number)] = {
            "title": lesson(number).title,
            "env_steps": int(runs[0].steps[-1]),
            "seconds": round(float(np.mean([run.seconds for run in runs])), 1),
            "return": summary(returns),
            "share_of_optimum": summary(share(returns)),
            "code_lines": len(code_lines(number)),
            "changed_lines": None if diff is None else diff.changed,
            "added_lines": None if diff is None else diff.added,
            "removed_lines": None if diff is None else diff.removed,
        }
    bias = {
        f"reward_noise_{noise:g}": {against: compared(results, noise, against) for against in AGAINST}
        for noise in (0.0, NOISE)
    }
    noisy = {
        plots.short_title(number): summary(np.array([run.returns[-1] for run in pick(results, number, NOISE)]))
        for number in JUDGED
    }
    seeds = sorted({result.seed for result in results})
    return {
        "seeds": seeds,
        "optimum": optimum(),
        "random_forces": chance(),
        "rungs": rungs,
        "overestimation": bias,
        "return_with_reward_noise": noisy,
        "ideas": {name: idea_figures(runs) for name in IDEAS if (runs := pick_idea(results, name))},
    }


def compared(results: Sequence[Result], noise: float, against: str) -> dict[str, Any]:
    """How far DDPG's and TD3's values lie above the truth at the end, and by how much the one's above the other's."""
    ends = [np.array([plots.at_the_end(getattr(run, against)) for run in pick(results, n, noise)]) for n in JUDGED]
    sizes = np.abs(ends)
    return {
        **{plots.short_title(number): summary(values) for number, values in zip(JUDGED, ends, strict=True)},
        "difference": summary(ends[0] - ends[1]),
        "difference_of_sizes": summary(sizes[0] - sizes[1]),
    }


def summary(values: Any) -> dict[str, Any]:
    """Mean and 95 % interval over the seeds; of one seed there is no interval."""
    low, high = (float(end) for end in interval(np.asarray(values))) if len(values) > 1 else (None, None)
    return {"mean": float(np.mean(values)), "low": low, "high": high}


def pick(results: Sequence[Result], number: int, noise: float = 0.0) -> list[Result]:
    """The runs of one rung, by seed."""
    return [result for result in results if (result.number, result.reward_noise, result.idea) == (number, noise, "")]


def pick_idea(results: Sequence[Result], name: str) -> list[Result]:
    """The runs of one idea, by seed."""
    return [result for result in results if result.idea == name]


def idea_figures(runs: Sequence[Result]) -> dict[str, Any]:
    """Return, and predicted minus earned, of an idea's runs at the end."""
    return {
        "return": summary([run.returns[-1] for run in runs]),
        "self_deception": summary([plots.at_the_end(run.self_deception) for run in runs]),
    }


def write_page(results: Sequence[Result], out: Path, command: str) -> None:
    """The whole page as one file."""
    numbers = figures(results)
    pages = Environment(
        loader=PackageLoader("td3_lessons.ladder"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    pages.filters.update(number=number_text, interval=with_interval, coded=coded, formulas=formula_lines)
    pages.filters.update(sentence=sentence)
    text = pages.get_template("ladder.html").render(
        **numbers,
        style=Markup(pages.get_template("ladder.css").render()),
        drawings=drawings(results, numbers),
        lessons={number: lesson(number) for number in NUMBERS},
        notes={number: notes(number) for number in NUMBERS},
        titles={number: plots.short_title(number) for number in NUMBERS},
        diffs={number: diff_to_below(number) for number in NUMBERS if number > 1},
        modules={number: rung_module(number).__name__.rpartition(".")[2] for number in NUMBERS},
        first_rung=code_lines(1),
        idea_texts=IDEAS,
        idea_diff=diff_of_idea("target_network"),
        parts=PARTS,
        against=AGAINST,
        noise=NOISE,
        states=len(STATES),
        fall=FALL,
        nodes=NODES,
        forces=FORCES,
        grid_error=float(np.abs(solve(81).v(STATES) - solve().v(STATES)).max()),
        command=command,
        versions=f"td3 {__version__}, Python {platform.python_version()}, PyTorch {torch.__version__}",
        gymnasium=gymnasium.__version__,
    )
    out.write_text(text + "\n", encoding="utf-8")


def drawings(results: Sequence[Result], numbers: dict[str, Any]) -> dict[str, Markup]:
    """Every plot of the page, by name."""
    rungs = {number: pick(results, number) for number in NUMBERS}
    noisy = [pick(results, number, NOISE) for number in JUDGED]
    both = [pick(results, number, noise) for noise in (0.0, NOISE) for number in JUDGED]
    found = {
        "overview": _drawn(
            "Learning curves of all six rungs against the optimum", 300, "curves", [*rungs.values()], True
        ),
        "along": _drawn("Predicted minus earned along training, with noisy rewards", 270, "overestimate", noisy),
        "final": _drawn("Predicted minus earned at the end of training", 270, "final_bias", both),
    }
    for number, runs in rungs.items():
        drawing, (axes,) = plots.figure(400, 270)
        plots.with_style(plots.draw_curves, axes, [rungs[n] for n in (number - 1, number) if n in rungs])
        axes.set_xlim(0, int(runs[0].steps[-1]))
        found[f"curve_{number}"] = Markup(plots.svg(drawing, f"Learning curve of rung {number}"))
        drawing, pair = plots.figure(400, 200, 2, sharey=True)
        plots.with_style(plots.draw_values, drawing, pair, runs)
        found[f"values_{number}"] = Markup(plots.svg(drawing, f"Values of rung {number} and exact values"))
    for name in numbers["ideas"]:
        alone = name == "target_network"
        without, named = (2, "deep Q-learning") if alone else (5, "DDPG")
        title = "Deep Q-learning with and without a target network" if alone else IDEAS[name].title
        label = "with target network" if alone else "with " + name
        drawing, (axes,) = plots.figure(*((400, 270) if alone else (280, 210)))
        plots.with_style(plots.draw_idea, axes, rungs[without], pick_idea(results, name), named, label)
        found[name] = Markup(plots.svg(drawing, title))
    return found


def _drawn(title: str, height: int, kind: str, *arguments: Any) -> Markup:
    drawing, (axes,) = plots.figure(400, height)
    plots.with_style(getattr(plots, f"draw_{kind}"), axes, *arguments)
    return Markup(plots.svg(drawing, title))


def coded(text: str) -> Markup:
    """Escaped, with what stands in backquotes as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def formula_lines(formulas: str) -> list[tuple[str, str]]:
    """Each formula, and its remark (after a wide gap), which stands beside it, or below it on a narrow screen."""
    lines = (re.split(r" {4,}", line.strip(), maxsplit=1) for line in formulas.splitlines())
    return [(first, " ".join(rest)) for first, *rest in lines]


def sentence(text: str) -> str:
    """The text with a capital letter, on one line."""
    plain = " ".join(text.split())
    return plain[:1].upper() + plain[1:]


def number_text(value: float, signed: bool = False, digits: int = 2) -> str:
    """So many digits after the point, with a true minus sign."""
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "\N{MINUS SIGN}")


def with_interval(row: dict[str, Any], signed: bool = False) -> Markup:
    """Mean and interval, as in -4.93 (-5.01 to -4.88)."""
    if row["low"] is None:
        mean = number_text(row["mean"], signed)
        return Markup('<span class="n">{}</span> <span class="ci">(one seed, no interval)</span>').format(mean)
    mean, low, high = (number_text(row[name], signed) for name in ("mean", "low", "high"))
    return Markup('<span class="n">{}</span> <span class="ci">({} to {})</span>').format(mean, low, high)
