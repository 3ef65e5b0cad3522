"""Values and actions of small tasks come out as they can be worked out by hand."""

import numpy as np
import pytest

from learning.probes import (
    BestActionInside,
    ConstantReward,
    DelayedReward,
    Learnt,
    PaidForWaiting,
    PaidUntilTheEnd,
    RewardIsTheState,
)

ACTIONS = (-0.9, 0.0, 0.9)


@pytest.fixture(scope="module")
def waited(tmp_path_factory):
    return Learnt(PaidForWaiting, tmp_path_factory.mktemp("waited"), steps=3_000, gamma=0.9)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return Learnt(PaidUntilTheEnd, tmp_path_factory.mktemp("ended"), steps=3_000, gamma=0.9)


def test_a_constant_reward_and_an_end_are_worth_that_reward(tmp_path):
    learned = Learnt(ConstantReward, tmp_path, steps=1_200)
    for action in ACTIONS:
        assert learned.q_values((0.5,), (action,)) == pytest.approx([1, 1], abs=0.03)


def test_a_reward_that_depends_on_the_state_is_told_apart(tmp_path):
    learned = Learnt(RewardIsTheState, tmp_path, steps=1_200)
    for action in ACTIONS:
        assert learned.q_values((-1.0,), (action,)) == pytest.approx([-1, -1], abs=0.05)
        assert learned.q_values((1.0,), (action,)) == pytest.approx([1, 1], abs=0.05)


def test_a_reward_one_step_later_is_worth_gamma(tmp_path):
    learned = Learnt(DelayedReward, tmp_path, steps=2_000, gamma=0.5)
    for action in ACTIONS:
        assert learned.q_values((0.0,), (action,)) == pytest.approx([0.5, 0.5], abs=0.05)
        assert learned.q_values((1.0,), (action,)) == pytest.approx([1, 1], abs=0.05)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_time_limit_does_not_end_the_value(waited, action):
    """Cut after five steps, yet worth 1 / (1 - gamma) = 10.

    Taken for an end it would be worth 3.4 at most; bootstrapped from the state after the reset, 8.2.
    """
    assert waited.q_values((1.0,), (action,)) == pytest.approx([10, 10], abs=0.4)
    assert waited.q_values((0.0,), (action,)) == pytest.approx([9, 9], abs=0.4)


@pytest.mark.parametrize("done", range(5))
def test_a_true_end_ends_the_value(ended, done):
    """The finite sum of what is left; without an end it would be worth 10."""
    left = sum(0.9**later for later in range(5 - done))
    assert ended.q_values((done / 5,), (0.0,)) == pytest.approx([left, left], abs=0.25)


def test_the_actor_finds_the_best_action_inside_an_asymmetric_range(tmp_path):
    learned = Learnt(BestActionInside, tmp_path, steps=4_000)
    states = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)
    half = (np.array(BestActionInside.high) - np.array(BestActionInside.low)) / 2
    errors = np.abs(learned.actions(states) - BestActionInside.best(states)) / half
    new_learner = np.abs(np.add(BestActionInside.low, BestActionInside.high) / 2 - BestActionInside.best(states)) / half
    assert errors.mean(0).max() < 0.1
    assert errors.mean() < new_learner.mean() / 3
