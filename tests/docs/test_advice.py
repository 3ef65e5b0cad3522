"""What the page on hyperparameters and the doctor advise is what the results show."""

import re
from pathlib import Path

from td3.report.doctor import REMARKS, RULES

DOCS = Path(__file__).parents[2] / "docs"
ADVICE = " ".join((DOCS / "hyperparameters.md").read_text().split())
RESULTS = " ".join(" ".join(page.read_text() for page in DOCS.glob("results*.md")).split())


def test_every_effect_on_the_page_is_in_the_results():
    effects = {*re.findall(r"\d+ %|\d\.\d times", ADVICE)}
    assert len(effects) > 5
    assert {effect for effect in effects if not re.search(rf"(?<![\d.]){re.escape(effect)}", RESULTS)} == set()


def test_nothing_is_said_of_many_updates_that_no_row_shows():
    assert re.search(r"\| 4 updates per env step \| 5 \| 300,000 \| not run \|", RESULTS)
    advised = " ".join(rule.advice for rule in (*RULES, *REMARKS))
    assert "overfit" not in ADVICE + advised


def test_short_runs_are_not_sent_to_the_slower_preset():
    start = ADVICE[: ADVICE.index("| setting |")]
    assert "--preset paper" in start
    assert "not run longer" in start


def test_delay_and_smoothing_are_credited_with_what_their_ablations_show():
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (DOCS / "results_ablations.md").read_text().splitlines()
    ]
    shown = {(row[1], row[0]) for row in table if len(row) == 11 and (row[8], row[10]) == ("worse", "yes")}
    assert {task for change, task in shown if change == "no delayed policy updates"} == {"Ant-v5"}
    assert {task for change, task in shown if change == "no target policy smoothing"} == {"Hopper-v5"}
    assert "the delay costs return on Ant-v5, the noise on Hopper-v5" in ADVICE
