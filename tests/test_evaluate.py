import numpy as np
import pytest
from scripted import Scripted, linear_policy

from td3.errors import ConfigError, EnvironmentFault
from td3.evaluate import Evaluator, evaluation_seeds, held_out
from td3.policy import Policy


def stacked(*policies: Policy) -> Policy:
    """One policy of several members."""
    layers = [
        (np.stack([weight for weight, _ in depth]), np.stack([bias[0] for _, bias in depth]))
        for depth in zip(*(policy.layers for policy in policies), strict=True)
    ]
    return Policy(layers, policies[0].low.tolist(), policies[0].high.tolist(), (3,), (2,))


def test_every_episode_is_played_to_its_own_end():
    evaluator = Evaluator(Scripted, [0], 6)
    evaluation = evaluator(stacked(linear_policy()))
    seeds = [environment.seed_number for environment in evaluator.environments.environments]
    assert evaluation.lengths.tolist() == [[(3, 5, 2, 4)[seed % 4] for seed in seeds]]
    assert len({*evaluation.lengths[0]}) > 1


def test_returns_are_undiscounted_sums_of_the_policys_own_actions():
    policy = linear_policy()
    evaluator = Evaluator(Scripted, [0], 5)
    evaluation = evaluator(stacked(policy))
    for episode, played in enumerate(evaluator.environments.environments):
        environment = Scripted()
        observation, _ = environment.reset(seed=played.seed_number)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = environment.step(policy.act(observation))
            total, over = total + reward, terminated or truncated
        assert evaluation.returns[0, episode] == pytest.approx(total, abs=1e-5)


def test_evaluating_twice_gives_identical_numbers():
    evaluator = Evaluator(Scripted, [0, 1], 4)
    first, second = (evaluator(stacked(linear_policy(0), linear_policy(1))) for _ in range(2))
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.lengths, second.lengths)


def test_a_member_is_evaluated_as_if_it_were_alone():
    policies = [linear_policy(seed) for seed in (4, 5, 6)]
    together = Evaluator(Scripted, [4, 5, 6], 3)(stacked(*policies))
    for index, policy in enumerate(policies):
        alone = Evaluator(Scripted, [4 + index], 3)(stacked(policy))
        np.testing.assert_array_equal(together.returns[index], alone.returns[0])
        np.testing.assert_array_equal(together.lengths[index], alone.lengths[0])


def test_every_episode_has_a_seed_of_its_own():
    evaluator = Evaluator(Scripted, [0, 1], 5)
    evaluator(stacked(linear_policy(0), linear_policy(1)))
    assert len({environment.seed_number for environment in evaluator.environments.environments}) == 10


def test_held_out_episodes_are_none_of_those_that_training_evaluates_on():
    purposes = ("evaluation", held_out(0), held_out(1))
    drawn = [{*np.ravel(evaluation_seeds(range(10), 100, purpose)).tolist()} for purpose in purposes]
    assert [len(seeds) for seeds in drawn] == [1_000] * 3
    assert len(set.union(*drawn)) == 3_000


def test_actions_at_the_edge_of_the_range_stay_inside():
    layers = [(np.zeros((3, 2), np.float32), np.full(2, 1e6, np.float32))]
    saturated = Policy(layers, (-1.0, 0.25), (3.0, 0.5), (3,), (2,))
    Evaluator(Scripted, [0], 2)(stacked(saturated))  # the environment itself refuses what is out of range


@pytest.mark.parametrize("fault", ["reward", "observation"])
def test_nan_in_an_evaluation_ends_with_a_sentence(fault):
    evaluator = Evaluator(lambda: Scripted(fault=fault, fault_at=2), [0], 2)
    with pytest.raises(EnvironmentFault, match="an environment gave NaN or infinity in an evaluation"):
        evaluator(stacked(linear_policy()))


@pytest.mark.parametrize("episodes", [0, -3])
def test_no_episodes_are_refused(episodes):
    with pytest.raises(ConfigError, match=f"episodes must be a whole number of at least 1, but {episodes} was given"):
        Evaluator(Scripted, [0], episodes)


def test_evaluations_come_back_in_the_order_in_which_they_were_begun():
    evaluator = Evaluator(Scripted, [0], 2)
    for env_steps, seed in ((100, 0), (200, 1)):
        evaluator.begin(env_steps, stacked(linear_policy(seed)))
    finished = dict(evaluator.finished(wait=True))
    assert list(finished) == [100, 200]
    np.testing.assert_array_equal(finished[200].returns, evaluator(stacked(linear_policy(1))).returns)


@pytest.mark.parametrize(("ending", "left"), [((True, False), 0.0), ((False, True), 0.5**3), ((True, True), 0.0)])
def test_visits_hold_the_discounted_return_what_is_left_and_both_ends_of_the_episode(ending, left):
    evaluator = Evaluator(lambda: Scripted(lengths=(3,), endings=(ending,)), [0], 1, gamma=0.5)
    layers = [(np.zeros((1, 3, 2), np.float32), np.zeros((1, 2), np.float32))]
    evaluation = evaluator(Policy(layers, (-1.0, 0.25), (3.0, 0.5), (3,), (2,)))  # always acts (1, 0.375)
    (seed,) = [environment.seed_number for environment in evaluator.environments.environments]
    discounted = 1.375 + 0.5 * 2.375 + 0.25 * 3.375
    expected = [discounted, left, seed, 0, 0, seed, 0, 3.01]
    assert evaluation.visits is not None
    assert evaluation.visits.shape == (1, 1, 8)
    np.testing.assert_allclose(evaluation.visits[0, 0], expected, rtol=1e-6)
