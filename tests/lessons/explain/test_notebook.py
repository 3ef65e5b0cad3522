"""The notebook: runs to the end with the solutions, stops at the first empty function without, and catches mistakes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from td3_lessons.explain.exercises import SOLUTIONS, NotSolved, check, solution

NOTEBOOK = Path(__file__).parents[3] / "notebooks/td3_in_15_steps.ipynb"
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=900, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
code = [cell for cell in book.cells if cell.cell_type == "code"]
print(sum(cell.execution_count is not None for cell in code), len(code))
print(sum("right." in output.get("text", "") for cell in code for output in cell.outputs))
"""


def run(**environment):
    return subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK), str(NOTEBOOK.parent)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_PLATFORM_DIRS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def executed(**environment):
    done = run(TD3_NOTEBOOK_SOLUTIONS="1", **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    counts, right = done.stdout.strip().splitlines()[-2:]
    ran, all_ = counts.split()
    assert ran == all_
    assert int(right) == 15


def test_the_notebook_runs_in_its_short_form_with_the_solutions():
    executed(TD3_NOTEBOOK_FAST="1")


@pytest.mark.long
def test_the_notebook_runs_in_full_with_the_solutions():
    executed(TD3_NOTEBOOK_FAST="")


def test_the_notebook_stops_at_the_first_empty_function():
    done = run(TD3_NOTEBOOK_FAST="1", TD3_NOTEBOOK_SOLUTIONS="")
    assert done.returncode != 0
    assert "Step 1: the function returns nothing yet." in done.stderr


def test_every_function_of_the_notebook_is_empty_and_nothing_has_run():
    import nbformat

    book = nbformat.read(NOTEBOOK, 4)
    text = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
    assert len(re.findall(r"^def \w+\([^)]*\): \.\.\.$", text, re.MULTILINE)) == 15
    assert [int(step) for step in re.findall(r"check\((\d+), ", text)] == list(range(1, 16))
    assert not any(cell.get("outputs") for cell in book.cells)
    for step in range(1, 16):
        signature = solution(step).partition("def ")[2].partition(")")[0]
        names = re.findall(r"(\w+):", signature)
        assert f"({', '.join(names)}): ..." in text, "the empty functions take what the solutions take"


@pytest.mark.parametrize("step", range(1, 16))
def test_the_solution_passes(step):
    assert check(step, SOLUTIONS[step - 1]) is SOLUTIONS[step - 1]


MISTAKES = {
    (1, "keep the oldest"): lambda buffer, row, capacity: [*buffer, row][:capacity],
    (2, "scale by the highest action"): lambda output, low, high: high * torch.tanh(output),
    (3, "the targets are the critics"): lambda one, two: (one, two),
    (3, "critic 2 is a copy of critic 1"): lambda one, two: (one.clone(), one.clone()),
    (4, "the newest rows"): lambda filled, count, generator: torch.arange(filled - count, filled),
    (4, "all seeds alike"): lambda filled, count, generator: torch.randint(
        filled, (count,), generator=torch.Generator().manual_seed(0)
    ),
    (5, "the online actor"): lambda actor, target, s: actor(s),
    (6, "no clamp"): lambda a, normal, sigma, c, low, high: a + (sigma * normal).clamp(-c, c),
    (6, "no bound"): lambda a, normal, sigma, c, low, high: (a + sigma * normal).clamp(low, high),
    (6, "one noise for all rows"): lambda a, normal, sigma, c, low, high: (a + (sigma * normal[:1]).clamp(-c, c)).clamp(
        low, high
    ),
    (7, "another noise for critic 2"): lambda q1, q2, s, a: (q1(s, a), q2(s, -a)),
    (8, "the mean"): lambda q1, q2: (q1 + q2) / 2,
    (8, "critic 1"): lambda q1, q2: q1,
    (9, "no (1 - terminated)"): lambda r, d, late, q, gamma: r + gamma * q,
    (9, "a time-out is death"): lambda r, d, late, q, gamma: r + gamma * (1 - torch.maximum(d, late)) * q,
    (10, "the actor's action"): lambda q1, q2, s, a, own: (q1(s, own), q2(s, own)),
    (11, "(B, 1) against (B,)"): lambda q1, q2, y: (
        (q1[:, None] - y).square().mean() + (q2[:, None] - y).square().mean()
    ),
    (11, "halved"): lambda q1, q2, y: ((q1 - y).square().mean() + (q2 - y).square().mean()) / 2,
    (12, "critic 1 alone"): lambda critics, targets, g, step: ([step(critics[0], g[0]), critics[1]], targets),
    (12, "the targets as well"): lambda critics, targets, g, step: (
        [step(p, d) for p, d in zip(critics, g, strict=True)],
        [step(p, d) for p, d in zip(targets, g, strict=True)],
    ),
    (13, "no minus"): lambda q1, q2: q1.mean(),
    (13, "both critics"): lambda q1, q2: -(q1 + q2).mean() / 2,
    (13, "the minimum"): lambda q1, q2: -torch.minimum(q1, q2).mean(),
    (14, "copied"): lambda target, online, tau: online,
    (14, "the wrong way round"): lambda target, online, tau: tau * target + (1 - tau) * online,
    (15, "every update"): lambda targets, critics, tau, update, delay: [
        t + tau * (q - t) for t, q in zip(targets, critics, strict=True)
    ],
}


@pytest.mark.parametrize(("step", "mistake"), MISTAKES)
def test_a_planted_mistake_is_caught_with_the_number_that_it_should_have_been(step, mistake):
    with pytest.raises(NotSolved, match=f"Step {step}: .*(should have been|must give|rows go from|span)"):
        check(step, MISTAKES[step, mistake])


def test_the_sentence_says_what_kind_of_row_it_was():
    with pytest.raises(NotSolved, match=r"row \d+, which terminated: yours is -6\d\.\d+, it should have been -6\d"):
        check(9, MISTAKES[9, "no (1 - terminated)"])
    with pytest.raises(NotSolved, match=r"row \d+, a time-out: yours is"):
        check(9, MISTAKES[9, "a time-out is death"])
