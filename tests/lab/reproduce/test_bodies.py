"""What the explaining page shows of the stored rows is what they hold, and what the results page says."""

import re
from pathlib import Path

import pytest
from td3_lab.reproduce.bodies import bodies

from td3.statistics import FEWEST_SEEDS
from td3_lessons.explain import evidence

ROOT = Path(__file__).parents[3]


def test_the_bodies_of_the_page_are_the_stored_rows():
    assert bodies(ROOT / "results") == evidence.stored_bodies()
    for row in evidence.stored_bodies().values():
        assert all(row[who]["seeds"] >= FEWEST_SEEDS for who in ("td3", "ddpg"))
        assert all(change["seeds"] >= FEWEST_SEEDS for change in row["removed"].values())


def test_what_the_bodies_show_is_what_the_results_page_shows():
    page = (ROOT / "docs/results_ablations.md").read_text(encoding="utf-8")
    for body, row in evidence.stored_bodies().items():
        head = f"| {body} | none of the three (DDPG) | 10 | 500,000 |"
        lines = [line for line in page.splitlines() if line.startswith(head)]
        shown = [[float(number) for number in re.findall(r"[-+]\d+\.\d", line)] for line in lines]
        assert pytest.approx(row["ddpg"]["too_much"], abs=0.1) in shown
        assert f"| {row['difference']['verdict']} |" in page
