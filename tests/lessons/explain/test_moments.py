"""The updates, rows and film of the page were chosen by rules that it tells, and show what its words say."""

import numpy as np
import pytest

from td3_lessons.explain.moments import INSIDE, SHOWN, VISIBLE, Chooser, choose_rows, effect
from td3_lessons.explain.rail_run import FILMED, WINDOWS
from td3_lessons.explain.trace import lesson_trace

TRACE = lesson_trace()
FACTS = TRACE.facts
EVEN = [index for index, number in enumerate(FACTS["updates"]) if number % 2 == 0]


def record_of(index):
    """A recorded update with its batch, as the recorder made it."""
    arrays = {name.rpartition(".")[0]: value for name, value in TRACE.arrays.items() if name.endswith(f".{index}")}
    rows = TRACE.arrays["memory"][arrays["rows"].astype(int)]
    arrays |= {"state": rows[:, :2], "action": rows[:, 2:3], "reward": rows[:, 5], "terminated": rows[:, 6]}
    if FACTS["updates"][index] % 2:
        arrays.pop("actor_after", None)
    return arrays


def effect_of(index):
    return effect(record_of(index), FACTS["low"], FACTS["high"], FACTS["sizes"])


@pytest.mark.parametrize("index", range(len(FACTS["updates"])))
def test_the_loss_of_the_whole_batch_falls_and_mean_q1_rises(index):
    made = effect_of(index)
    assert made.loss_falls
    assert made.rise > 0 or FACTS["updates"][index] % 2


@pytest.mark.parametrize("index", range(len(FACTS["updates"])))
def test_rows_are_chosen_by_what_goes_into_the_update_and_not_by_what_it_does(index):
    record, shown = record_of(index), FACTS["shown"][index]
    ends = TRACE.arrays["timed_out"]
    assert len(set(shown)) == SHOWN
    spoiled = {name: value for name, value in record.items() if not name.endswith("_after")}
    assert choose_rows(spoiled, ends) == shown
    next_q = record["next_q"][[place for at, place in enumerate(shown) if at not in (2, 3)]]
    assert (np.diff(next_q) >= 0).all(), "from the lowest next Q-value to the highest"
    if record["terminated"].any():
        assert record["terminated"][shown[2]] == 1


def test_some_of_the_drawn_rows_move_away_from_y():
    shares = [effect_of(index).approaches[FACTS["shown"][index]].mean() for index in range(len(FACTS["updates"]))]
    assert min(shares) < 0.5 < max(shares)


def test_the_puzzle_is_an_update_in_which_few_rows_approach_and_a_fall_outweighs_all():
    made = effect_of(FACTS["updates"].index(FACTS["puzzle"]))
    assert made.approaches.mean() < 0.25
    assert made.ended[made.loss_rows.argmax()]
    assert made.loss_rows.max() > 0.5 * made.loss_rows.sum()


def test_every_part_of_the_training_has_its_pair():
    firsts = FACTS["updates"][::2]
    assert len(firsts) == len(WINDOWS)
    assert FACTS["updates"][1::2] == [first + 1 for first in firsts]


def test_the_row_at_which_the_page_opens_moves_visibly_inside_the_range():
    index = FACTS["updates"].index(FACTS["start"])
    made, record = effect_of(index), record_of(index)
    place = FACTS["shown"][index][FACTS["row"]]
    assert abs(made.policy[place]) <= INSIDE
    assert abs(made.shift[place]) >= 2 * VISIBLE
    assert not made.ended[place]
    shown = FACTS["shown"][index]
    assert record["terminated"][shown[2]] == 1, "row 3 is the fall"
    ends = TRACE.arrays["timed_out"][record["rows"].astype(int)]
    assert ends[shown[3]] == 1, "row 4 is the time-out"
    lower = record["target_q_values"][0][shown] < record["target_q_values"][1][shown]
    assert 0 < lower.sum() < SHOWN, "now the one and now the other critic is lower"


def test_pairs_that_break_a_rule_are_not_chosen():
    index = FACTS["updates"].index(FACTS["start"])
    odd, even = record_of(index - 1), record_of(index)
    window = ((FACTS["start"] - 1, FACTS["start"]),)
    ends = TRACE.arrays["timed_out"]
    chooser = Chooser(window, (0, 0), (0, 0), FACTS["sizes"])
    chooser.add(FACTS["start"] - 1, odd, ends)
    chooser.add(FACTS["start"], even, ends)
    assert list(chooser.chosen()) == [FACTS["start"] - 1, FACTS["start"]]
    spoiled = even | {"critics_after": 2 * even["critics_before"] - even["critics_after"]}  # a step uphill on the loss
    chooser = Chooser(window, (0, 0), (0, 0), FACTS["sizes"])
    chooser.add(FACTS["start"] - 1, odd, ends)
    chooser.add(FACTS["start"], spoiled, ends)
    assert chooser.chosen() == {}


def test_in_the_film_the_critic_approaches_y_its_target_is_late_and_the_action_climbs():
    grid = np.linspace(-1, 1, 61)
    q, target, y = (TRACE.arrays[f"film.{name}"] for name in ("q", "target", "y"))
    policy, _, stored = TRACE.arrays["film.action"].T
    apart = np.abs([np.interp(a, grid, curve) - value for a, curve, value in zip(stored, q, y, strict=True)])
    assert len(y) == FILMED + 1
    assert apart[-1] < 0.1 * apart[0]
    assert np.interp(policy[-1], grid, q[-1]) > np.interp(policy[0], grid, q[-1])
    moved = [np.abs(curve[-1] - curve[0]).mean() for curve in (q, target)]
    assert moved[1] < 0.6 * moved[0]
    assert 1 <= FACTS["film"] <= 2_000 - FILMED


def test_step_12_prints_the_loss_before_and_after_and_step_13_the_mean_q(tab):
    tab.show(f"update={FACTS['start']}&step=12&t=1")
    assert "loss of critic 1:" in tab.page.locator("#drawing").text_content()
    tab.show(f"update={FACTS['start']}&step=13&t=1")
    assert "mean Q1 of the batch:" in tab.page.locator("#drawing").text_content()
