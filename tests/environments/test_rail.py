import gymnasium as gym
import numpy as np
import pytest

from td3.environments import check_environment, make_environment
from td3.environments.rail import END, FALL, START_POSITION, START_VELOCITY, Rail, move


def test_one_push_worked_by_hand():
    rail = Rail()
    rail.reset(seed=0, options={"state": (1.0, -0.5)})
    state, reward, terminated, truncated, _ = rail.step(np.array([0.5], np.float32))
    # v' = 0.9 * -0.5 + 0.4 * 0.5 = -0.25; x' = 1 - 0.025; r = -(1 + 0.1 * 0.25 + 0.001 * 0.25)
    assert state == pytest.approx([0.975, -0.25])
    assert reward == pytest.approx(-1.02525)
    assert (terminated, truncated) == (False, False)


def test_leaving_the_rail_is_a_termination_that_costs():
    rail = Rail()
    rail.reset(seed=0, options={"state": (1.95, 1.0)})
    state, reward, terminated, truncated, _ = rail.step(np.array([0.0], np.float32))
    assert (terminated, truncated) == (True, False)
    assert reward == pytest.approx(-(1.95**2 + 0.1) - FALL)
    assert state == pytest.approx([END, 0.9])
    assert rail.observation_space.contains(state)


def test_a_hundred_steps_are_a_truncation_and_no_termination():
    rail = make_environment("Rail-v0")
    rail.reset(seed=0, options={"state": (0.0, 0.0)})
    endings = [rail.step(np.zeros(1, np.float32))[2:4] for _ in range(100)]
    assert endings[:-1] == [(False, False)] * 99
    assert endings[-1] == (False, True)


def test_speed_and_force_have_their_limits():
    rail = Rail()
    rail.reset(seed=0, options={"state": (-1.0, 1.9)})
    assert rail.step(np.array([50.0], np.float32))[0][1] == pytest.approx(END)
    assert rail.step(np.array([-50.0], np.float32))[0][1] == pytest.approx(0.9 * END - 0.4)


def test_a_seed_repeats_and_starts_lie_within_their_bounds():
    rail = Rail()
    starts = np.array([rail.reset(seed=seed)[0] for seed in range(200)])
    assert starts[7] == pytest.approx(rail.reset(seed=7)[0])
    assert np.all(np.abs(starts) <= (START_POSITION, START_VELOCITY))
    assert np.all(starts.max(0) > (0.9 * START_POSITION, 0.9 * START_VELOCITY))


def test_noise_is_on_the_reward_alone_and_follows_the_seed():
    def play(noise: float):
        rail = gym.make("Rail-v0", reward_noise=noise)
        rail.reset(seed=3)
        return [rail.step(np.array([0.1], np.float32))[:2] for _ in range(50)]

    plain, noisy, again = play(0.0), play(2.0), play(2.0)
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(plain, noisy, strict=True))
    noise = np.array([other[1] - one[1] for one, other in zip(plain, noisy, strict=True)])
    assert abs(noise.mean()) < 1
    assert 1.4 < noise.std() < 2.6
    assert [step[1] for step in noisy] == [step[1] for step in again]


def test_many_carts_move_as_one_does():
    random = np.random.default_rng(0)
    states, forces = random.uniform(-END, END, (50, 2)), random.uniform(-1, 1, 50)
    together = np.stack(move(states[:, 0], states[:, 1], forces), -1)
    alone = [move(*state, force) for state, force in zip(states, forces, strict=True)]
    assert together == pytest.approx(np.array(alone, float))


def test_td3_can_serve_it():
    spaces = check_environment(make_environment("Rail-v0"), "Rail-v0")
    assert (spaces.state_size, spaces.action_low, spaces.action_high) == (2, (-1.0,), (1.0,))
