"""The moments that the page shows were chosen by rule, and the film shows what its captions say."""

import numpy as np
import pytest

from td3_lessons.explain.lessons import FILM
from td3_lessons.explain.moments import INSIDE, SHOWN, VISIBLE, Chooser, effect
from td3_lessons.explain.rail_run import WINDOWS
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
def test_the_loss_falls_and_the_shown_rows_approach_y_and_follow_their_gradient(index):
    made, shown = effect_of(index), FACTS["shown"][index]
    assert made.loss_falls
    assert made.rise > 0 or FACTS["updates"][index] % 2
    assert len(set(shown)) == SHOWN
    assert made.approaches[shown].all()
    assert made.follows[shown].all()


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
    assert made.gain[place] > 0
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
    chooser = Chooser(window, (0, 0), FACTS["sizes"])
    chooser.add(FACTS["start"] - 1, odd, ends)
    chooser.add(FACTS["start"], even, ends)
    assert list(chooser.chosen()) == [FACTS["start"] - 1, FACTS["start"]]
    spoiled = even | {"critics_after": 2 * even["critics_before"] - even["critics_after"]}  # a step uphill on the loss
    chooser = Chooser(window, (0, 0), FACTS["sizes"])
    chooser.add(FACTS["start"] - 1, odd, ends)
    chooser.add(FACTS["start"], spoiled, ends)
    assert chooser.chosen() == {}


FILMED = """share => {
    const S = explain.filmState(share), R = explain.run(S.u, S.pokes), j = R.shown[S.pokes.row];
    return { step: S.step, turn: R.turn, y: R.y[j], before: [R.q[0][j], R.q[1][j]],
        after: [R.qAfter[0][j], R.qAfter[1][j]], losses: R.losses, lossesAfter: R.lossesAfter,
        a: R.policy[j], moved: R.policyAfter[j] - R.policy[j], slope: R.slope[j], rise: R.rise };
}"""


def test_in_the_film_the_critics_approach_y_and_the_action_climbs(tab):
    seconds, at = sum(shot.seconds for shot in FILM), 0.0
    seen = set()
    for shot in FILM:
        made = tab.evaluate(FILMED, (at + shot.seconds / 2) / seconds)
        at += shot.seconds
        assert made["step"] == shot.step
        if shot.step in (11, 12):
            assert np.less(made["lossesAfter"], made["losses"]).all()
            distance = [np.abs(np.array(made[when]) - made["y"]) for when in ("before", "after")]
            assert (distance[1] < distance[0]).all()
            seen.add("critics")
        if shot.step == 13 and made["turn"]:
            assert made["moved"] * made["slope"] > 0
            assert abs(made["a"]) <= INSIDE
            assert made["rise"][1] > made["rise"][0]
            seen.add("actor")
        if shot.step == 13 and not made["turn"]:
            seen.add("waits")
    assert seen == {"critics", "actor", "waits"}


def test_step_12_prints_the_loss_before_and_after_and_step_13_the_mean_q(tab):
    tab.show(f"update={FACTS['start']}&step=12&t=1")
    assert "loss of critic 1:" in tab.page.locator("#drawing").text_content()
    tab.show(f"update={FACTS['start']}&step=13&t=1")
    assert "mean Q1 of the batch:" in tab.page.locator("#drawing").text_content()
