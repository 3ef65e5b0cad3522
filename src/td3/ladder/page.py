"""One self-contained page of the whole ladder: ideas, diffs, curves against the optimum, overestimation measured."""

import platform
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from td3 import __version__
from td3.environments.rail import FALL
from td3.ladder import plots
from td3.ladder.climb import (
    EVALUATIONS,
    NUMBERS,
    RAIL,
    STATES,
    Diff,
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
from td3.ladder.exact import FORCES, NODES, solve
from td3.ladder.ideas import IDEAS, PARTS
from td3.ladder.style import STYLE

NOISE = 1.0
"""Standard deviation of the reward noise in the second half of the overestimation experiment."""
AGAINST = {"overestimate": "the exact optimal Q", "self_deception": "what its own policy earns"}
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


def summary(values: Any) -> dict[str, float]:
    """Mean and 95 % interval over the seeds."""
    low, high = interval(np.asarray(values))
    return {"mean": float(np.mean(values)), "low": float(low), "high": float(high)}


def pick(results: Sequence[Result], number: int, noise: float = 0.0) -> list[Result]:
    """The runs of one rung, by seed."""
    return [result for result in results if (result.number, result.reward_noise, result.idea) == (number, noise, "")]


def pick_idea(results: Sequence[Result], name: str) -> list[Result]:
    """The runs of one idea, by seed."""
    return [result for result in results if result.idea == name]


def idea_figures(runs: Sequence[Result]) -> dict[str, Any]:
    """Return and overestimation of an idea's runs at the end."""
    return {
        "return": summary([run.returns[-1] for run in runs]),
        "overestimate": summary([plots.at_the_end(run.overestimate) for run in runs]),
    }


def write_page(results: Sequence[Result], out: Path, command: str) -> None:
    """The whole page as one file."""
    numbers = figures(results)
    sections = "".join(
        rung_section(results, number, numbers["rungs"][str(number)]) + idea_sections(results, number, numbers)
        for number in NUMBERS
    )
    out.write_text(
        f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The ladder: from Q-learning to TD3</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{opening(results, numbers)}
{sections}
{overestimation_section(results, numbers)}
{ending(command)}
</main>
</body>
</html>
""",
        encoding="utf-8",
    )


def opening(results: Sequence[Result], numbers: dict[str, Any]) -> str:
    """The problem, the overview and the table."""
    drawing, (axes,) = plots.figure(400, 300)
    plots.with_style(plots.draw_curves, axes, [pick(results, number) for number in NUMBERS], True)
    overview = plots.svg(drawing, "Learning curves of all six rungs against the optimum")
    rows = "".join(table_row(number, numbers["rungs"][str(number)]) for number in NUMBERS)
    return f"""<header>
<h1>The ladder: from Q-learning to TD3 in six rungs</h1>
<p class="lead">Six algorithms, one small problem, one new idea each. All are measured against the exact answer.</p>
</header>
<section class="pair">
<div>
<h2>The problem: Rail</h2>
<p>A cart on a line. It sees its position x and velocity v, both within &plusmn;2, and pushes with a force a
within &plusmn;1:</p>
<div class="formulas"><p><code>v' = clip(0.9 v + 0.4 a, -2, 2)</code></p><p><code>x' = x + 0.1 v'</code></p>
<p><code>reward = -(x&sup2; + 0.1 v&sup2; + 0.001 a&sup2;)</code></p></div>
<p>Leaving the rail ends the episode and costs {FALL:g}; after 100 steps it is cut off, which is no end of the task. The
future is discounted by 0.99 a step. Two state dimensions fit on a grid, so dynamic programming gives the optimal value
of every state and action: from the {len(STATES)} starts used here the optimum earns
<b>{number_text(numbers["optimum"])}</b>, random forces earn {number_text(numbers["random_forces"])}.</p>
</div>
<figure>{overview}<figcaption>Return without exploration against env steps (logarithmic): mean over
{len(numbers["seeds"])} seeds, band: 95&nbsp;% bootstrap interval of the mean. Dashed: the exact optimum.</figcaption>
</figure>
</section>
<div class="scroll"><table>
<thead><tr><th>rung</th><th>env steps</th><th>final return</th><th>share of the optimum</th><th>code lines</th>
<th>changed</th><th>seconds</th></tr></thead>
<tbody>{rows}</tbody>
</table></div>
<p class="note">Final return: mean over the seeds with its 95&nbsp;% interval. Share: 0&nbsp;% is what random forces
earn, 100&nbsp;% the optimum. Code lines are counted without docstrings, comments and blank lines; a replaced line
counts as one change. Seconds: one run on one core of the machine that made this page.</p>"""


def table_row(number: int, row: dict[str, Any]) -> str:
    """One rung in figures."""
    changed = "" if row["changed_lines"] is None else row["changed_lines"]
    share_ = row["share_of_optimum"]
    return (
        f'<tr><th scope="row"><a href="#rung-{number}">{number} {escape(plots.short_title(number))}</a></th>'
        f"<td>{row['env_steps']:,}</td><td>{with_interval(row['return'])}</td>"
        f"<td>{number_text(100 * share_['mean'], digits=1)}&nbsp;%</td><td>{row['code_lines']}</td><td>{changed}</td>"
        f"<td>{row['seconds']:.0f}</td></tr>"
    )


def rung_section(results: Sequence[Result], number: int, row: dict[str, Any]) -> str:
    """What broke, the idea, the formulas, the curves and the diff."""
    told = lesson(number)
    drawing, (axes,) = plots.figure(400, 270)
    groups = [pick(results, other) for other in (number - 1, number) if other in NUMBERS]
    plots.with_style(plots.draw_curves, axes, groups)
    axes.set_xlim(0, results_end(groups[-1]))
    curve = plots.svg(drawing, f"Learning curve of rung {number}")
    drawing, axes_pair = plots.figure(400, 200, 2, sharey=True)
    plots.with_style(plots.draw_values, drawing, axes_pair, groups[-1])
    values = plots.svg(drawing, f"Values of rung {number} and exact values")
    remarks = "".join(f"<p>{coded(note)}</p>" for note in notes(number))
    below = f" Rung {number - 1} is shown over the same env steps." if number > 1 else ""
    return f"""<section id="rung-{number}">
<h2><span class="step">Rung {number}</span> {escape(told.title)}</h2>
<dl>
<dt>What broke before</dt><dd>{sentence(told.broke)}</dd>
<dt>The new idea</dt><dd>{sentence(told.idea)}</dd>
</dl>
<div class="formulas">{formula_lines(told.formulas)}</div>
{remarks}
<div class="pair">
<figure>{curve}
<figcaption>Final return {with_interval(row["return"])}, optimum {number_text(optimum())}.{below}</figcaption></figure>
<figure>{values}
<figcaption>Values over the plane of states, mean of the seeds, against the exact ones.</figcaption></figure>
</div>
{diff_block(number)}
</section>"""


def idea_sections(results: Sequence[Result], number: int, numbers: dict[str, Any]) -> str:
    """After rung 2 the target network, after rung 6 TD3's three changes of DDPG, each measured alone."""
    if number == 2 and "target_network" in numbers["ideas"]:
        idea, runs = IDEAS["target_network"], pick_idea(results, "target_network")
        row = numbers["ideas"]["target_network"]
        drawing, (axes,) = plots.figure(400, 270)
        plots.with_style(plots.draw_idea, axes, pick(results, 2), runs, "deep Q-learning", "with target network")
        made = diff_of_idea("target_network")
        return f"""<section id="target-networks">
<h2><span class="step">Idea</span> {idea.title}</h2>
<p>{escape(idea.told)}</p>
<div class="formulas">{formula_lines(idea.formulas)}</div>
<figure>{plots.svg(drawing, "Deep Q-learning with and without a target network")}
<figcaption>Value minus exact Q along training. Final return {with_interval(row["return"])} with a target network,
{with_interval(numbers["rungs"]["2"]["return"])} without.</figcaption></figure>
<details open><summary>The diff to rung 2: {made.changed} changed lines, idea_target_network.py</summary>
<pre>{diff_lines(made)}</pre></details>
</section>"""
    if number == 6 and all(name in numbers["ideas"] for name in PARTS):
        panels = "".join(part_panel(results, name, numbers["ideas"][name]) for name in PARTS)
        return f"""<section id="three-ideas">
<h2><span class="step">Rung 6</span> its three ideas, one at a time</h2>
<p>Each of TD3's changes alone, added to DDPG: value minus exact Q along training. Gray: DDPG; blue: with the one
change.</p>
<div class="three">{panels}</div>
</section>"""
    return ""


def part_panel(results: Sequence[Result], name: str, row: dict[str, Any]) -> str:
    """One of TD3's changes alone: a small curve with its equation."""
    idea = IDEAS[name]
    drawing, (axes,) = plots.figure(280, 210)
    plots.with_style(plots.draw_idea, axes, pick(results, 5), pick_idea(results, name), "DDPG", "with " + name)
    bias, formulas = with_interval(row["overestimate"], signed=True), formula_lines(idea.formulas)
    return f"""<figure>{plots.svg(drawing, idea.title)}
<figcaption><b>{escape(idea.title)}.</b> {escape(idea.told)} At the end {bias}; return {with_interval(row["return"])}.
</figcaption><div class="formulas">{formulas}</div></figure>"""


def coded(text: str) -> str:
    """Escaped, with what stands in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def formula_lines(formulas: str) -> str:
    """Each formula on its line, with its remark (after a wide gap) beside it, or below it on a narrow screen."""
    lines = (re.split(r" {4,}", line.strip(), maxsplit=1) for line in formulas.splitlines())
    return "".join(f"<p><code>{escape(first)}</code> <i>{escape(' '.join(rest))}</i></p>" for first, *rest in lines)


def results_end(runs: Sequence[Result]) -> int:
    """The last env step of these runs."""
    return int(runs[0].steps[-1])


def diff_block(number: int) -> str:
    """The diff to the rung below, or the whole of the first rung's code."""
    module = rung_module(number).__name__.rpartition(".")[2]
    if number == 1:
        lines = "".join(f"<span>{escape(line)}\n</span>" for line in code_lines(1))
        summary_line = f"The code: {len(code_lines(1))} lines of {module}.py"
        return f"<details><summary>{summary_line}</summary><pre>{lines}</pre></details>"
    diff = diff_to_below(number)
    lines = diff_lines(diff)
    return (
        f"<details open><summary>The diff to rung {number - 1}: {diff.changed} changed lines "
        f"(+{diff.added}, &minus;{diff.removed}), {module}.py</summary><pre>{lines}</pre></details>"
    )


def diff_lines(diff: Diff) -> str:
    """A diff as lines of a listing."""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return "".join(
        f'<span class="{kinds.get(line[:1], "same")}">{"&hellip;" if line.startswith("@@") else escape(line)}\n</span>'
        for line in diff.lines
    )


def overestimation_section(results: Sequence[Result], numbers: dict[str, Any]) -> str:
    """The paper's reason for TD3, measured."""
    noisy, noisy_return = [pick(results, number, NOISE) for number in JUDGED], numbers["return_with_reward_noise"]
    drawing, (axes,) = plots.figure(400, 270)
    plots.with_style(plots.draw_overestimate, axes, noisy)
    along = plots.svg(drawing, "Overestimation along training with noisy rewards")
    drawing, (axes,) = plots.figure(400, 270)
    groups = [pick(results, number, noise) for noise in (0.0, NOISE) for number in JUDGED]
    plots.with_style(plots.draw_final_bias, axes, groups)
    final = plots.svg(drawing, "Overestimation at the end of training")
    rows = "".join(bias_row(numbers, noise, against) for against in AGAINST for noise in (0.0, NOISE))
    return f"""<section id="overestimation">
<h2><span class="step">Measured</span> why TD3: DDPG overestimates</h2>
<p>Both learners were asked what they expect from each of the {len(STATES)} starts when their own actor acts, and the
exact optimal Q of that same state and action was subtracted. Above zero a learner expects more than the best possible
policy could earn. Both have the same networks, learning rates, replay buffer, batches and exploration; TD3 takes the
smaller of two critics, adds noise to the target policy's action and delays its actor. Measured without and with noise
in the reward (standard deviation {NOISE:g}).</p>
<div class="pair">
<figure>{along}
<figcaption>Along training, with noisy rewards: mean over the seeds and 95&nbsp;% interval.</figcaption></figure>
<figure>{final}
<figcaption>At the end (mean of the last five evaluations): a dot per seed; diamond: mean with 95&nbsp;%
interval.</figcaption></figure>
</div>
<div class="scroll"><table>
<thead><tr><th>value minus</th><th>reward noise</th><th>DDPG</th><th>TD3</th><th>DDPG &minus; TD3</th></tr></thead>
<tbody>{rows}</tbody>
</table></div>
<p class="note">At the end of training: mean over {len(numbers["seeds"])} seeds with 95&nbsp;% bootstrap intervals; the
differences are taken seed by seed. The second measure is the paper's: what the policy really earns from the same
starts, played out without noise. It is at most the exact optimal Q, so a learner that knows its own policy well, and
whose policy is not perfect, lies below zero in the first measure and near zero in the second.</p>
<p>With noisy rewards DDPG ends at a return of {with_interval(noisy_return["DDPG"])}, TD3 at
{with_interval(noisy_return["TD3"])}; the optimum is {number_text(numbers["optimum"])}.</p>
</section>"""


def bias_row(numbers: dict[str, Any], noise: float, against: str) -> str:
    """One kind of overestimation at one level of noise."""
    row = numbers["overestimation"][f"reward_noise_{noise:g}"][against]
    cells = "".join(f"<td>{with_interval(row[name], signed=True)}</td>" for name in ("DDPG", "TD3", "difference"))
    return f'<tr><th scope="row">{AGAINST[against]}</th><td>{noise:g}</td>{cells}</tr>'


def ending(command: str) -> str:
    """How this page was made."""
    error = float(np.abs(solve(81).v(STATES) - solve().v(STATES)).max())
    versions = f"td3 {__version__}, Python {platform.python_version()}, PyTorch {torch.__version__}"
    return f"""<footer><p>Made by <code>{escape(command)}</code> with {escape(versions)}, Gymnasium
{gymnasium.__version__}. The exact values come from a grid of {NODES} &times; {NODES} nodes and {FORCES} forces; a grid
of half as many nodes a side differs by at most {error:.3f} at the starts.</p></footer>"""


def number_text(value: float, signed: bool = False, digits: int = 2) -> str:
    """So many digits after the point, with a true minus sign."""
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "&minus;")


def with_interval(row: dict[str, float], signed: bool = False) -> str:
    """Mean and interval, as in -4.93 (-5.01 to -4.88)."""
    low, high = number_text(row["low"], signed), number_text(row["high"], signed)
    return f'<span class="n">{number_text(row["mean"], signed)}</span> <span class="ci">({low} to {high})</span>'


def sentence(text: str) -> str:
    """The text with a capital letter, on one line."""
    plain = " ".join(text.split())
    return escape(plain[:1].upper() + plain[1:])
