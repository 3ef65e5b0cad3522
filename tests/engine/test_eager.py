"""The plain engine: a thread for each member, and the same numbers as without."""

import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.engine import Engine
from td3.settings import TD3Config

SETTINGS = TD3Config(hidden_sizes=(32, 32), batch_size=16, buffer_size=200)


def trained(threads, counts):
    seeds = [5, 6, 7]
    agent = Agent.create(
        Task(4, [-1.0], [1.0]),
        TD3Config(hidden_sizes=SETTINGS.hidden_sizes, actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        seeds,
    )
    buffer = make_replay_buffer(len(seeds), 200, 4, 1)
    buffer.add_(torch.randn(3, 200, 11, generator=torch.Generator().manual_seed(1)))
    engine = Engine(agent, buffer, seeds, SETTINGS, "recorded", threads=threads)
    for _ in range(20):
        engine.update(counts)
    engine.close()
    return agent


def test_members_on_threads_of_their_own_learn_the_same_bit_for_bit():
    alone, together = trained(1, [1, 1, 1]), trained(3, [1, 1, 1])
    assert all(torch.equal(tensor, together.tensors()[name]) for name, tensor in alone.tensors().items())


def test_members_may_stand_at_different_counts():
    agent = trained(2, [1, 0, 2])
    assert agent.updates.tolist() == [20, 0, 40]
    untouched = Agent.create(
        Task(4, [-1.0], [1.0]),
        TD3Config(hidden_sizes=SETTINGS.hidden_sizes, actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        [6],
    )
    assert torch.equal(agent.actor.parameters[1], untouched.actor.parameters[0])
    even = trained(1, [2, 2, 2])
    assert torch.equal(agent.actor.parameters[2], even.actor.parameters[2])
