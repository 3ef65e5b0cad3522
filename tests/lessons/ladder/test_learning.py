"""Every rung learns: a stated share of the optimum on fixed seeds, and the table to the exact Q of its own cells."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from td3.environments.rail import END, move
from td3_lessons.ladder import rung_1_q_learning
from td3_lessons.ladder.climb import MODULES, NUMBERS, chance, optimum, run_rung, share
from td3_lessons.ladder.common import CHOICES, Task, Transition

SHORT = {1: (40_000, 0.6), 2: (2_500, 0.85), 3: (30_000, 0.85), 4: (20_000, 0.6), 5: (3_000, 0.85), 6: (2_500, 0.85)}
"""Env steps, and the share of the way from random forces to the optimum that is reached within them."""
FULL = {1: 0.85, 2: 0.95, 3: 0.9, 4: 0.95, 5: 0.95, 6: 0.95}
"""The same at the end of a full run, median of three seeds."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 4, 6, *(pytest.param(number, marks=pytest.mark.long) for number in (2, 3, 5))])
def test_a_rung_reaches_its_share_of_the_optimum(number):
    steps, wanted = SHORT[number]
    result = run_rung(number, seed=1, steps=steps, evaluations=8)
    assert result.steps[-1] == steps
    assert result.returns.max() > result.returns[0] + 5
    assert share(result.returns).max() > wanted
    assert result.returns.max() < optimum() + 0.02, "better than the optimum"


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_a_full_run_ends_near_the_optimum(number):
    ends = [share(run_rung(number, seed=seed).returns[-1]) for seed in (100, 101, 102)]
    assert np.median(ends) > FULL[number]


def exact_q_of_cells(cells: int, gamma: float, points: int = 24) -> np.ndarray:
    """The Q of the problem in which only the cell is known and the cart is anywhere in it with equal chance."""
    inside = (np.arange(cells * points) + 0.5) / (cells * points) * 2 * END - END
    forces = np.linspace(-1, 1, CHOICES)
    position, velocity, force = np.meshgrid(inside, inside, forces, indexing="ij")
    reward, next_position, next_velocity, left = move(position, velocity, force)

    def cell(position, velocity):
        across, along = (
            np.clip(((part + END) / (2 * END) * cells).astype(int), 0, cells - 1) for part in (position, velocity)
        )
        return across + cells * along

    here, there = cell(position, velocity), cell(next_position, next_velocity)
    pairs = (here * CHOICES + np.arange(CHOICES)).ravel()
    count = np.bincount(pairs)
    q = np.zeros((cells**2, CHOICES))
    for _ in range(400):
        goal = reward + gamma * ~left * q.max(-1)[there]
        q = (np.bincount(pairs, goal.ravel()) / count).reshape(q.shape)
    return q


def test_the_table_converges_to_the_exact_q_of_its_own_cells():
    gamma, cells = 0.7, 4
    settings = rung_1_q_learning.Settings(gamma=gamma, cells=cells, alpha=0.2, steps=12_000)
    task = Task("Rail-v0", *rung_1_q_learning.SERVES)
    learner = rung_1_q_learning.train_from_random_states(task, 0, settings, lambda *_: None)
    exact = exact_q_of_cells(cells, gamma)
    coarse = np.abs(learner.q - exact).mean()
    for number in range(36_000):  # ever smaller corrections, as convergence asks
        learner.settings = replace(settings, alpha=0.2 / (1 + number / 500))
        state = task.reset(state=learner.random.uniform(task.low, task.high))
        action = learner.random.integers(CHOICES)
        learner.learn(Transition(state, action, *task.step(action)))
    spread = np.abs(exact).max()
    error = np.abs(learner.q - exact)
    assert spread > 10
    assert error.max() < 0.1 * spread
    assert error.mean() < 0.02 * spread
    assert error.mean() < coarse / 2
    best = exact.max(-1) - np.take_along_axis(exact, learner.q.argmax(-1)[:, None], -1)[:, 0]
    assert best.max() < 0.03 * spread, "what the table thinks best is not"


def test_on_its_trajectory_the_table_learns_the_exact_q_of_a_frozen_lake():
    task = Task("FrozenLake-v1", *rung_1_q_learning.SERVES, is_slippery=False)
    settings = rung_1_q_learning.Settings(steps=15_000, exploration=1.0, alpha=0.5, gamma=0.9)
    learner = rung_1_q_learning.train(task, 0, settings, lambda *_: None)
    exact = np.zeros((16, 4))
    for _ in range(100):
        for state, actions in task.environment.unwrapped.P.items():
            for action, outcomes in actions.items():
                exact[state, action] = sum(
                    chance * (reward + 0.9 * (not end) * exact[there].max()) for chance, there, reward, end in outcomes
                )
    tried = [s for s in range(16) if task.environment.unwrapped.desc.ravel()[s] in b"SF"]
    assert learner.q[tried] == pytest.approx(exact[tried], abs=1e-3)
    assert exact[0].max() == pytest.approx(0.9**5)


@pytest.mark.long
def test_a_frozen_lake_is_learned_by_rung_1():
    result = run_rung(1, "FrozenLake-v1", seed=0, steps=20_000, evaluations=5)
    assert result.returns[0] <= 0.3
    assert result.returns.max() >= 0.6


@pytest.mark.long
def test_a_cart_pole_is_learned_by_rung_2():
    result = run_rung(2, "CartPole-v1", seed=0, steps=8_000, evaluations=5)
    assert result.returns[0] < 100
    assert result.returns.max() > 180


def test_a_run_repeats_and_another_seed_differs():
    one, same, other = (run_rung(6, seed=seed, steps=1_050, evaluations=1).returns for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_random_forces_earn_far_less_than_the_optimum():
    assert chance() < -50 < optimum()
    assert share(chance()) == 0
    assert share(optimum()) == 1
    assert len(MODULES) == 6
