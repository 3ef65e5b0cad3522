"""The exact answer is as exact as it says: refined, played, and checked against the Bellman equation."""

import numpy as np
import pytest

from td3.environments.rail import END, FALL, START_POSITION, START_VELOCITY, move
from td3_lessons.ladder.climb import EPISODE, LONG, STATES, optimum, play_rail
from td3_lessons.ladder.common import CHOICES
from td3_lessons.ladder.exact import GAMMA, interpolate, solve

STARTS = np.random.default_rng(5).uniform(
    (-START_POSITION, -START_VELOCITY), (START_POSITION, START_VELOCITY), (500, 2)
)


def greedy(states):
    return solve().policy(states)[:, 0]


def test_a_finer_grid_changes_the_values_by_the_square_of_the_step():
    coarse, middle, fine = (solve(nodes, 21).v(STARTS) for nodes in (41, 81, 161))
    first, second = np.abs(coarse - middle).max(), np.abs(middle - fine).max()
    assert second < 0.05
    assert second < first / 2.5  # bilinear interpolation: a quarter with every halving
    # What is left beyond the finest grid is then at most second / 4 + second / 16 + ... = second / 3.
    assert second / 3 < 0.02


def test_more_forces_change_nothing_that_matters():
    assert np.abs(solve(81, 81).v(STARTS) - solve(81, 41).v(STARTS)).max() < 0.003


def test_playing_the_policy_earns_what_the_values_say():
    earned = play_rail(greedy, STARTS, LONG)
    assert np.abs(earned - solve().v(STARTS)).max() < 0.02
    assert STARTS.shape == (500, 2)


def test_no_other_policy_earns_more():
    earned = play_rail(greedy, STARTS, LONG)
    for gains in ((1.0, 1.0), (2.0, 2.0), (3.0, 2.0), (5.0, 4.0), (10.0, 8.0)):
        linear = play_rail(lambda s, g=gains: np.clip(-g[0] * s[:, 0] - g[1] * s[:, 1], -1, 1), STARTS, LONG)
        assert np.all(linear <= earned + 0.02)


def test_v_is_the_best_q_and_the_policy_attains_it():
    exact = solve()
    forces = np.linspace(-1, 1, 401)
    best = exact.q(STARTS[:, None], forces).max(-1)
    assert best == pytest.approx(exact.v(STARTS), abs=1e-3)
    assert exact.q(STARTS, greedy(STARTS)) == pytest.approx(exact.v(STARTS))


def test_q_is_reward_and_discounted_value_and_a_fall_has_no_future():
    exact = solve()
    state, force = np.array([0.5, 0.2]), np.array(0.3)
    reward, position, velocity, left = move(*state, force)
    assert not left
    assert exact.q(state, force) == pytest.approx(reward + GAMMA * interpolate(exact.nodes, position, velocity))
    assert exact.q(np.array([1.99, 2.0]), np.array(0.0)) == pytest.approx(-(1.99**2 + 0.4) - FALL)


def test_the_middle_is_worth_nothing_lost_and_the_problem_is_symmetric():
    exact = solve()
    assert exact.v(np.zeros((1, 2)))[0] == pytest.approx(0, abs=1e-9)
    assert exact.v(STARTS) == pytest.approx(exact.v(-STARTS), abs=1e-6)
    assert exact.nodes.max() <= 1e-9


def test_the_optimal_cart_never_leaves_the_rail_from_a_start():
    states, left_once = STARTS, np.zeros(len(STARTS), bool)
    for _ in range(100):
        _, position, velocity, left = move(states[:, 0], states[:, 1], greedy(states))
        states, left_once = np.stack((position, velocity), -1), left_once | left
    assert not left_once.any()
    assert np.abs(states).max() < 0.05


def test_interpolation_is_exact_at_the_nodes_and_linear_between_them():
    nodes = np.arange(9.0).reshape(3, 3)
    assert interpolate(nodes, np.array([-END, 0, END]), np.array([-END, 0, END])).tolist() == [0, 4, 8]
    assert interpolate(nodes, np.array(-END / 2), np.array(END)) == pytest.approx(3.5)


def test_the_optimum_of_the_curves_is_the_mean_value_of_their_starts():
    assert optimum() == pytest.approx(-4.848, abs=0.02)


def test_five_forces_cost_little():
    listed = solve(forces=CHOICES)
    assert play_rail(lambda states: listed.policy(states)[:, 0], STATES, EPISODE).mean() == pytest.approx(
        -4.89, abs=0.01
    )
