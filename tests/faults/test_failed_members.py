"""A seed whose environment fails for good is left out; the others collect what they would have collected without it."""

import multiprocessing
from functools import partial

import numpy as np
import pytest
from scripted import HIGH, LOW, Scripted

from faults.collecting import WHERE, collected, placed
from faults.worlds import Hopeless
from td3.algorithm.streams import derive_seed
from td3.collect.collector import Collector
from td3.environments.guarded import MOST_FAULTS
from td3.errors import EnvironmentFault

SEEDS, ENVS, FAILING = (3, 4, 5), 2, 1
OTHERS = [0, 2]


def failing_seeds(environment: int = 0, first_episode: int = 0) -> frozenset[int]:
    """The seeds of an environment's episodes in the member that fails."""
    episodes = range(first_episode, first_episode + 8)
    return frozenset(derive_seed(SEEDS[FAILING], f"environment {environment}", episode) % 2**31 for episode in episodes)


@pytest.fixture(scope="module")
def unharmed():
    rows, episodes, _ = collected(_placed(partial(Scripted, lengths=(9, 11, 10)), "in process"), seeds=SEEDS)
    return rows, episodes


def _placed(make, where, workers=2):
    return placed(make, where, count=len(SEEDS) * ENVS, workers=workers)


CASES = [(where, method, "raise") for where in WHERE for method in ("step", "reset")] + [("processes", "step", "die")]


@pytest.mark.parametrize(("where", "method", "kind"), CASES)
def test_the_others_collect_as_if_nothing_had_happened(tmp_path, unharmed, where, method, kind):
    (tmp_path / "armed").touch()
    failing = {method: failing_seeds(first_episode=1 if method == "reset" else 0)}
    environments = _placed(partial(Hopeless, tmp_path, failing, kind), where)
    rows, episodes, collector = collected(environments, seeds=SEEDS)
    environments.close()
    assert {*collector.failed} == {FAILING}
    assert f"this was fault {MOST_FAULTS} of environment 0 of seed 4" in collector.failed[FAILING]
    assert [fault.member for fault in collector.faults] == [FAILING] * MOST_FAULTS
    expected, expected_episodes = unharmed
    assert rows.shape == expected.shape
    np.testing.assert_array_equal(rows[:, OTHERS], expected[:, OTHERS])
    assert [e for e in episodes if e.member != FAILING] == [e for e in expected_episodes if e.member != FAILING]
    blank = ~rows[:, FAILING].any((1, 2))
    assert blank[-1]
    round_of_failure = int(np.flatnonzero(blank)[0])
    assert blank[round_of_failure:].all()
    np.testing.assert_array_equal(rows[:round_of_failure, FAILING, 1], expected[:round_of_failure, FAILING, 1])
    assert collector.state()["inactive"].tolist() == [False, True, False]
    assert not collector.states[2:4].any()


@pytest.mark.parametrize("where", WHERE)
def test_a_member_that_cannot_begin_its_first_episode_is_left_out(tmp_path, unharmed, where):
    (tmp_path / "armed").touch()
    environments = _placed(partial(Hopeless, tmp_path, {"reset": failing_seeds(1)}), where)
    rows, _, collector = collected(environments, seeds=SEEDS)
    environments.close()
    assert {*collector.failed} == {FAILING}
    assert not rows[:, FAILING].any()
    np.testing.assert_array_equal(rows[:, OTHERS], unharmed[0][:, OTHERS])


def collected_from(collector: Collector) -> None:
    for _ in range(9):
        collector.step(collector.act(None))


def test_the_last_member_ends_the_run(tmp_path):
    """As one seed alone does."""
    (tmp_path / "armed").touch()
    make = partial(Hopeless, tmp_path, {"step": failing_seeds()})
    with pytest.raises(EnvironmentFault, match="this was fault 3 of environment 0 of seed 4"):
        collected(placed(make, "in process"), seeds=(4,))
    collector = Collector(placed(make, "in process", count=2), [3, 4], LOW, HIGH, 0.2)
    collector.deactivate(0)
    collector.step(collector.act(None))
    with pytest.raises(EnvironmentFault, match="this was fault 3 of environment 0 of seed 4"):
        collected_from(collector)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("when", ["between rounds", "during a round"])
def test_a_member_can_be_deactivated_at_any_time(unharmed, where, when):
    expected, expected_episodes = unharmed
    environments = _placed(partial(Scripted, lengths=(9, 11, 10)), where)
    collector = Collector(environments, SEEDS, LOW, HIGH, 0.2)
    rows, episodes = [], []
    for number in range(len(expected)):
        if number == 12 and when == "between rounds":
            collector.deactivate(0)
        collector.begin(collector.act(None))
        if number == 12 and when == "during a round":
            collector.deactivate(0)
        found, ended = collector.finish()
        rows.append(found)
        episodes += ended
    if where == "processes":
        assert len(multiprocessing.active_children()) == 2, "each worker has environments of others"
    environments.close()
    rows = np.stack(rows)
    np.testing.assert_array_equal(rows[:12], expected[:12])
    assert not rows[12:, 0].any()
    np.testing.assert_array_equal(rows[:, 1:], expected[:, 1:])
    assert [e for e in episodes if e.member] == [e for e in expected_episodes if e.member]
    assert collector.failed == {}
    assert collector.faults == []


def test_a_worker_without_active_environments_is_stopped(unharmed):
    environments = _placed(partial(Scripted, lengths=(9, 11, 10)), "processes", workers=3)
    collector = Collector(environments, SEEDS, LOW, HIGH, 0.2)
    collector.deactivate(1)
    assert len(multiprocessing.active_children()) == 2
    rows = np.stack([collector.step(collector.act(None))[0] for _ in range(12)])
    environments.close()
    np.testing.assert_array_equal(rows[:, OTHERS], unharmed[0][:12, OTHERS])


@pytest.mark.parametrize("where", WHERE)
def test_which_members_are_inactive_is_kept_over_a_resume(unharmed, where):
    make = partial(Scripted, lengths=(9, 11, 10))
    first = Collector(_placed(make, "in process"), SEEDS, LOW, HIGH, 0.2)
    for number in range(15):
        if number == 5:
            first.deactivate(1)
        first.step(first.act(None))
    state = {name: array.copy() for name, array in first.state().items()}
    environments = _placed(make, where)
    resumed = Collector(environments, SEEDS, LOW, HIGH, 0.2)
    assert resumed.restore(state) == []
    np.testing.assert_array_equal(resumed.states, first.states)
    rows = np.stack([resumed.step(resumed.act(None))[0] for _ in range(10)])
    environments.close()
    assert not rows[:, 1].any()
    np.testing.assert_array_equal(rows[:, OTHERS], unharmed[0][15:25, OTHERS])
    assert resumed.state()["inactive"].tolist() == [False, True, False]


def test_a_state_from_before_there_were_inactive_members_can_be_restored():
    collector = Collector(placed(Scripted, "in process"), [3], LOW, HIGH, 0.2)
    collector.step(collector.act(None))
    state = {name: array.copy() for name, array in collector.state().items() if name != "inactive"}
    assert Collector(placed(Scripted, "in process"), [3], LOW, HIGH, 0.2).restore(state) == []
