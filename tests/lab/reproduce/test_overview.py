"""The five lines, the table and the plot say what the tables of the other pages say."""

import re
from pathlib import Path

import numpy as np
import pytest
from td3_lab.reproduce import overview
from td3_lab.reproduce.page import tables

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def cells():
    """The cells of each table's lines."""
    found = tables(RESULTS)
    return {
        name: [[c.strip() for c in line.split("|")[1:-1]] for line in t.splitlines()[2:]] for name, t in found.items()
    }


@pytest.fixture(scope="module")
def lines():
    return overview.summary(RESULTS).splitlines()


@pytest.fixture(scope="module")
def limits():
    return overview.limits(RESULTS)


def number(cell):
    return float(cell.split(" ")[0].replace(",", ""))


def verdicts(cells, measure):
    """The verdicts of a task and a source by one measure, without Reacher."""
    rows = [row for source in ("tianshou", "paper") for row in cells[source] if row[3].startswith(measure)]
    return {(row[0].partition("-v")[0], row[2]): row[8] for row in rows if row[0] != "Reacher-v5"}


def test_no_difference_is_claimed_exactly_where_every_verdict_is_undecided_or_equivalent(cells, lines):
    found = verdicts(cells, "last ten")
    assert {*found.values()} <= {"undecided", "equivalent"}
    shown, equivalent = re.search(r"is shown on (.*?); (.*?) are equivalent\.", lines[0]).groups()
    assert {task for task, _ in found if task in re.findall(r"\w+", equivalent)} == {
        task for task, _ in found if {found[task, "Tianshou"], found[task, "the paper"]} == {"equivalent"}
    }
    assert {task for task, _ in found} == {*re.findall(r"\w+", shown), *re.findall(r"\w+", equivalent)} - {"and"}


def test_the_losses_that_cannot_be_ruled_out_are_the_ends_of_the_intervals(cells, limits):
    told = {task: int(loss) for loss, task in re.findall(r"(\d+) % \((\w+)\)", limits)}
    assert len(told) == 4
    for task, loss in told.items():
        rows = [
            r for s in ("tianshou", "paper") for r in cells[s] if r[0] == f"{task}-v5" and r[3].startswith("last ten")
        ]
        lows = [(number(re.search(r"\((\S+) to", r[6])[1]), number(r[5])) for r in rows]
        assert loss == pytest.approx(100 * max(-low / mean for low, mean in lows), abs=0.6)


def test_where_the_iqm_decides_otherwise_is_said(cells, limits):
    decided = {key: verdict for key, verdict in verdicts(cells, "their IQM").items() if verdict in ("better", "worse")}
    assert decided == {("Walker2d", "Tianshou"): "better", ("Walker2d", "the paper"): "worse"}
    assert "By the interquartile mean, td3 is below the paper and above Tianshou on Walker2d." in limits


def test_the_default_is_behind_early_where_the_table_says_worse(cells, lines, limits):
    rows = [row for row in cells["beginning"] if row[1:3] == ["`author`", "the paper"] and "27" not in row[0]]
    behind = re.search(r"behind the paper on (.*?);", limits)[1]
    assert [row[0].removesuffix("-v5") for row in rows if row[8] == "worse"] == re.split(", | and ", behind)
    assert "Early learning is slower than the paper's." in lines[0]


def test_an_idea_is_credited_with_every_significant_ablation_and_with_no_other(cells, lines):
    named = {idea: change for change, idea in overview.IDEAS.items()}
    changes = {"no-twin": "no minimum of two critics", "no-smoothing": "no target policy smoothing"}
    changes["no-delay"] = "no delayed policy updates"
    told = set()
    for part in lines[3].partition("** ")[2].split("; "):
        (change,) = (changes[named[idea]] for idea in named if part.lower().startswith(idea.lower()))
        told |= {
            (change, f"{task}-v5", int(loss))
            for loss, task in re.findall(r"(-?\d+) % (?:of the return )?on (\w+)", part)
        }
    single = [row for row in cells["table2"] if row[1] in changes.values() and row[10] in ("yes", "no")]
    assert told == {(row[1], row[0], round(100 * (1 - number(row[4]) / number(row[5])))) for row in single}


def test_the_variants_that_are_better_or_worse_are_counted(cells, lines):
    run = [row for row in cells["variants"] if row[4] != "not run"]
    assert f"None of {len(run)} comparisons is better than TD3" in lines[4]
    assert not [row for row in run if row[8] == "better"]
    worse = [row[0] for row in run if row[8] == "worse"]
    assert f"; {len(worse)} are worse on HalfCheetah." in lines[4]
    assert {*worse} == {"HalfCheetah-v5"}
    rates = [row[9].replace("%", " %") for row in cells["goals"]]
    assert f"from {rates[2]} to {rates[3]} (FetchReach)" in lines[4]
    assert [row[8] for row in cells["goals"]] == ["", "better", "", "better"]


def test_the_plot_claims_no_difference_only_if_every_interval_includes_0(monkeypatch):
    assert "No difference from published TD3 is shown" in overview.plot(RESULTS)
    apart = {("Hopper", source): (np.arange(10.0) + 100, np.arange(10.0) + 80) for source in ("paper", "tianshou")}
    monkeypatch.setattr(overview, "_against_published", lambda results: apart)
    drawn = overview.plot(RESULTS)
    assert "No difference" not in drawn
    assert drawn.count("Hopper") == 1
