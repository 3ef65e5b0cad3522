"""The graph engine: the same updates, actions and memory as plain execution, whatever runs it."""

import numpy as np
import pytest
import torch

from td3.algorithm import Agent, make_replay_memory
from td3.config import TD3Config
from td3.engine import TOLERANCE, EagerEngine, GraphEngine, disagreement

LOW, HIGH = [-1.0, -2.0], [1.0, 0.5]
STATE = 5


def learners(members, settings, device="cpu"):
    seeds = list(range(3, 3 + members))
    agent = Agent.create(seeds, STATE, LOW, HIGH, settings.hidden_sizes, 1e-3, 1e-3, settings.optimizer, device)
    return seeds, agent, make_replay_memory(members, settings.memory_size, STATE, len(LOW), device)


def rounds(count, members, environments, seed=0):
    """States to act in and rows to store, as a run would bring them."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        rows = generator.normal(size=(members, environments, 2 * STATE + len(LOW) + 2)).astype(np.float32)
        rows[..., -1] = rows[..., -1] > 1
        yield generator.normal(size=(members, environments, STATE)).astype(np.float32), rows


def drive(engine, count, members, environments, warm_up=5):
    """Act, update, store; returns every action."""
    actions = []
    for number, (states, rows) in enumerate(rounds(count, members, environments)):
        if number >= warm_up:
            actions.append(engine.act(states).copy())
            engine.update([1] * members)
        engine.store(rows)
    engine.close()
    return np.array(actions)


def largest_difference(one, other):
    return max(float((tensor - other.tensors()[name]).abs().max().cpu()) for name, tensor in one.tensors().items())


def compare(members, environments, settings, updates, device="cpu"):
    seeds, agent, memory = learners(members, settings, device)
    _, plain_agent, plain_memory = learners(members, settings, device)
    engine = GraphEngine(agent, memory, seeds, settings, environments)
    plain = EagerEngine(plain_agent, plain_memory, seeds, settings, 1)
    actions = drive(engine, updates + 5, members, environments)
    plain_actions = drive(plain, updates + 5, members, environments)
    assert list(agent.updates) == [updates] * members == list(plain_agent.updates)
    assert torch.equal(memory.rows, plain_memory.rows)
    assert int(memory.filled) == len(memory) == len(plain_memory)
    np.testing.assert_allclose(actions, plain_actions, atol=1e-4)
    losses, plain_losses = (run.mean_losses([updates] * members) for run in (engine, plain))
    for mine, theirs in zip(losses, plain_losses, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    return largest_difference(agent, plain_agent)


@pytest.mark.parametrize(("members", "environments"), [(1, 1), (3, 1), (2, 4)])
def test_1000_updates_by_the_graph_engine_equal_plain_ones(members, environments):
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16, memory_size=300)
    assert compare(members, environments, settings, 1_000) <= 1e-4


@pytest.mark.parametrize("policy_delay", [1, 2, 3])
def test_every_policy_delay_is_recorded_rightly(policy_delay):
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, memory_size=64, policy_delay=policy_delay)
    assert compare(2, 1, settings, 100) <= 1e-5


def test_sgd_runs_as_graphs_too():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, memory_size=64, optimizer="sgd")
    assert compare(2, 1, settings, 100) <= 1e-5


def test_making_the_engine_changes_nothing():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, memory_size=64)
    seeds, agent, memory = learners(2, settings)
    memory.add_(torch.randn(2, 10, memory.rows.shape[2]))
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    rows, filled = memory.rows[:, :10].clone(), int(memory.filled)
    engine = GraphEngine(agent, memory, seeds, settings, 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.tensors().items())
    assert torch.equal(memory.rows[:, :10], rows)
    assert int(memory.filled) == filled == 10
    assert np.isnan(engine.mean_losses([0, 0])[0]["critic_loss"])


def test_an_update_sees_rows_that_were_stored_before_it():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, memory_size=64)
    seeds, agent, memory = learners(1, settings)
    engine = GraphEngine(agent, memory, seeds, settings, 1)
    _, rows = next(rounds(1, 1, 1))
    engine.store(rows)
    engine.update([1])
    assert int(memory.filled) == 1
    np.testing.assert_array_equal(memory.rows[0, 0].numpy(), rows[0, 0])


def test_the_self_check_finds_no_disagreement():
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16)
    seeds, agent, _ = learners(3, settings)
    assert disagreement(agent, seeds, settings) <= TOLERANCE


def test_the_self_check_sees_a_graph_that_computes_something_else(monkeypatch):
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16)
    seeds, agent, _ = learners(1, settings)
    monkeypatch.setattr("td3.engine.graph.CursorStreams.normal", lambda self, count, size: torch.zeros(1, count, size))
    assert disagreement(agent, seeds, settings) > TOLERANCE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("members", [1, 4])
def test_1000_recorded_updates_on_a_gpu_equal_plain_ones(members):
    settings = TD3Config(hidden_sizes=(256, 256), batch_size=256, memory_size=2_000)
    assert compare(members, 1, settings, 1_000, "cuda") <= 1e-2
