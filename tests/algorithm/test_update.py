"""One update calls the steps 4 to 15 in their order, and hands each what the one before has found."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.registry import STEPS
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.engine import update_once
from td3.settings import TD3Config

updates = importlib.import_module("td3.algorithm.update")

SETTINGS = TD3Config(hidden_sizes=(16, 16), batch_size=8, buffer_size=50)
NAMES = {number: STEPS[number].function.__name__ for number in range(4, 16)}


def small_world(members=1, learning_rate=1e-3):
    agent = Agent.create(
        Task(3, (-1.0, -2.0), (1.0, 3.0)),
        TD3Config(hidden_sizes=(16, 16), actor_learning_rate=learning_rate, critic_learning_rate=learning_rate),
        range(members),
    )
    buffer = make_replay_buffer(members, 50, 3, 2)
    rows = torch.randn(members, 50, 10, generator=torch.Generator().manual_seed(0))
    rows[..., -1] = (rows[..., -1] > 1.5).float()
    buffer.add_(rows)
    return agent, buffer, MemberStreams(range(members))


@pytest.fixture
def calls(monkeypatch):
    """The steps that were called, with what they were given and what they gave."""
    seen = []

    def spied(number, function):
        def spy(*arguments):
            result = function(*arguments)
            seen.append((number, arguments, result))
            return result

        return spy

    for number, name in NAMES.items():
        monkeypatch.setattr(updates, name, spied(number, getattr(updates, name)))
    return seen


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_steps_are_called_in_order_and_the_last_three_only_in_their_turn(calls, delay):
    world = small_world()
    for number in range(1, 7):
        calls.clear()
        update_once(*world, replace(SETTINGS, policy_delay=delay))
        turn = number % delay == 0
        assert [step for step, _, _ in calls] == list(range(4, 16 if turn else 13))


def test_each_step_is_given_what_the_one_before_has_found(calls):
    agent, buffer, random = small_world()
    update_once(agent, buffer, random, replace(SETTINGS, policy_delay=1))
    given = {number: arguments for number, arguments, _ in calls}
    found = {number: result for number, _, result in calls}
    batch = found[4]
    assert given[4] == (buffer, random, 8)
    assert given[5][0] is agent.actor_target
    assert given[5][1] is batch.next_state
    assert given[6][0] is found[5]
    assert given[6][1:] == (random, 0.2, 0.5, agent.actor.action_range)
    assert given[7][0] is agent.critics_target
    assert given[7][1] is batch.next_state
    assert given[7][2] is found[6]
    assert given[8][0] is found[7]
    assert given[9][0] is batch.reward
    assert given[9][1] is batch.terminated
    assert given[9][2] is found[8]
    assert given[9][3] == 0.99
    assert given[10][0] is agent.critics
    assert given[10][1] is batch.state
    assert given[10][2] is batch.action
    assert given[11][0] is found[10]
    assert given[11][1] is found[9]
    assert given[12][0] is agent.critics
    assert given[12][1] is agent.critics_optimizer
    assert given[12][2] is found[11]
    assert given[13][:3] == (agent.actor, agent.critics, agent.actor_optimizer)
    assert given[13][3] is batch.state
    assert given[14] == (agent.actor_target, agent.actor, 0.005)
    assert given[15] == (agent.critics_target, agent.critics, 0.005)


def test_what_an_update_says_of_itself_is_what_its_steps_found(calls):
    losses = update_once(*small_world(2), replace(SETTINGS, policy_delay=1))
    found = {number: result for number, _, result in calls}
    assert torch.equal(losses.critic, found[11])
    assert torch.equal(losses.actor, found[13])
    torch.testing.assert_close(losses.mean_q, found[10].detach().mean((0, 2)))
    assert not any(tensor.requires_grad for tensor in losses)


def test_updates_are_counted():
    agent, buffer, random = small_world(2)
    for number in range(1, 4):
        update_once(agent, buffer, random, SETTINGS)
        assert agent.updates.tolist() == [number, number]
    assert agent.updates.dtype == np.int64


def test_many_updates_stay_finite_and_move_every_network():
    agent, buffer, random = small_world(2)
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    losses = [update_once(agent, buffer, random, SETTINGS) for _ in range(100)]
    assert all(bool(loss.critic.isfinite().all()) for loss in losses)
    for name, tensor in agent.tensors().items():
        assert bool(tensor.isfinite().all())
        assert not torch.equal(tensor, before[name])


@pytest.mark.usefixtures("unchecked")
def test_the_critics_learn_a_reward_that_needs_no_future():
    agent, buffer, random = small_world(learning_rate=3e-3)
    buffer.rows[..., -2] = buffer.rows[..., 0] + buffer.rows[..., 3]
    settings = replace(SETTINGS, gamma=0.0, batch_size=50)
    losses = [float(update_once(agent, buffer, random, settings).critic) for _ in range(300)]
    assert np.mean(losses[-50:]) < 0.1 * np.mean(losses[:50])


@pytest.mark.usefixtures("unchecked")
def test_the_actor_learns_the_action_that_pays():
    agent, buffer, random = small_world(learning_rate=3e-3)
    # One state, whose reward falls with the distance from (0.5, 2); every row is an end of its own.
    best, generator = torch.tensor([0.5, 2.0]), torch.Generator().manual_seed(1)
    actions = torch.rand(1, 50, 2, generator=generator) * torch.tensor([2.0, 5.0]) + torch.tensor([-1.0, -2.0])
    buffer.rows[..., :3] = 0.0
    buffer.rows[..., 3:5] = actions
    buffer.rows[..., -2] = -(actions - best).square().sum(-1)
    buffer.rows[..., -1] = 1.0

    def distance():
        played = agent.actor(torch.zeros(1, 1, 3)).detach()
        return float((played - best).square().sum())

    new_learner = distance()
    for _ in range(1_000):
        update_once(agent, buffer, random, replace(SETTINGS, batch_size=50))
    assert distance() < 0.1 * new_learner
