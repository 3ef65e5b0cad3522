"""A replaced step and every variant in the graph engine: each update equals that of eager execution.

On a CPU the engine calls what it would record; on a GPU, ten seeds run in CUDA graphs.
"""

import numpy as np
import pytest
import torch
from scripted import SMALL

import td3
from td3.algorithm.agent import Agent, Task
from td3.algorithm.replacing import replace_step
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.engine import TOLERANCE, Engine, max_difference
from td3.settings import TD3Config
from td3.variant_settings import with_variant
from td3.variants import find_replacements

STATE, LOW, HIGH = 4, [-1.0, -2.0], [1.0, 0.5]
CAPACITY = 70
"""Rows: fewer than the tests store, so that the ring wraps; more than one block of priorities."""


@replace_step(9, state={"scale": 1})
def scaled_target(reward, terminated, next_q, gamma, original, step_state, settings):
    scale = step_state["scale"]
    scale.copy_(torch.maximum(scale, reward.abs().amax(-1, keepdim=True)))
    return original(reward / scale.clamp(min=1e-6), terminated, next_q, gamma) * (1 - settings.tau)


@replace_step(11)
def huber_loss(q_values, target_q):
    error = (q_values - target_q).abs()
    return torch.where(error < 1, 0.5 * error**2, error - 0.5).mean(-1).sum(0)


CASES = {
    "replaced steps": ("", [scaled_target, huber_loss]),
    "n-step": ("n-step", []),
    "layer-norm": ("layer-norm", []),
    "prioritized": ("prioritized", []),
    "together": ("layer-norm,n-step,prioritized", [scaled_target]),
}
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def learners(case, members, width, batch_size, device, capacity=CAPACITY):
    variant, functions = CASES[case]
    names = tuple(variant.split(",")) if variant else ()
    settings = with_variant(TD3Config(hidden_sizes=(width, width), batch_size=batch_size, buffer_size=capacity), names)
    seeds = list(range(members))
    agent = Agent.create(
        Task(STATE, LOW, HIGH),
        settings,
        *(seeds, device),
        replacements=find_replacements(names, (), functions),
        capacity=settings.buffer_size,
    )
    buffer = make_replay_buffer(members, settings.buffer_size, STATE, len(LOW), device)
    buffer.stride = buffer.rows_per_round = 2
    return settings, seeds, agent, buffer


def walks(members, rounds):
    """Rows of two environments per member, whose episodes are cut now and then."""
    generator = np.random.default_rng(0)
    state = generator.normal(size=(members, 2, STATE))
    for _ in range(rounds):
        after, reward = state + generator.normal(size=state.shape), 3 * generator.normal(size=(members, 2, 1))
        terminated, cut = (generator.random((members, 2, 1)) < 0.1 for _ in range(2))
        actions = generator.uniform(-1, 0.5, (members, 2, len(LOW)))
        yield np.concatenate((state, actions, after, reward, terminated), -1, dtype=np.float32)
        state = np.where(terminated | cut, generator.normal(size=state.shape), after)


def worst_difference(case, members, width, batch_size, rounds, device, capacity=CAPACITY):
    """The largest difference that an update makes; after each, both continue from the same state."""
    settings, seeds, agent, buffer = learners(case, members, width, batch_size, device, capacity)
    _, _, plain_agent, plain_buffer = learners(case, members, width, batch_size, device, capacity)
    engine = Engine(agent, buffer, seeds, settings, "graph", envs=2)
    plain = Engine(plain_agent, plain_buffer, seeds, settings, "eager")
    worst = 0.0
    for number, rows in enumerate(walks(members, rounds)):
        engine.store(rows)
        plain.store(rows)
        if number < 10:
            continue
        for _ in range(2):
            engine.update([1] * members)
            plain.update([1] * members)
            for name, tensor in agent.tensors().items():
                other = plain_agent.tensors()[name]
                if "optimizer" not in name:
                    difference = (tensor - other).norm() / other.norm().clamp(min=1e-9)
                    worst = max(worst, float(difference))
                other.copy_(tensor)
    engine.close()
    plain.close()
    assert buffer.counts.tolist() == plain_buffer.counts.tolist() == [capacity, 2 * rounds]
    return worst


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", CASES)
def test_the_graph_engine_computes_what_eager_execution_computes(case):
    assert worst_difference(case, members=2, width=8, batch_size=8, rounds=40, device="cpu") <= TOLERANCE


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", [pytest.param(case, marks=gpu) for case in CASES])
def test_ten_seeds_in_cuda_graphs_compute_what_eager_execution_computes(case):
    sizes = {"members": 10, "width": 256, "batch_size": 256, "device": "cuda", "capacity": 300}
    assert worst_difference(case, rounds=180, **sizes) <= TOLERANCE
    settings, seeds, agent, _ = learners(case, **sizes)
    drift = max_difference(
        agent, seeds, settings, lambda one, rows: Engine(one, rows, seeds, settings, "graph", envs=2)
    )
    assert drift <= TOLERANCE


@replace_step(11)
def loss_by_spread(q_values, target_q):
    return ((q_values - target_q) / target_q.std(-1, keepdim=True)).square().mean(-1).sum(0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recording_freezes_no_seed(monkeypatch):
    """The rows that graphs are recorded with are all alike, and a step may divide by their spread."""
    monkeypatch.setitem(CASES, "spread", ("", [loss_by_spread]))
    settings, seeds, agent, buffer = learners("spread", 2, 16, 8, "cuda")
    engine = Engine(agent, buffer, seeds, settings, "graph", envs=2)
    engine.check()
    assert engine.frozen == {}
    assert agent.active.tolist() == [1, 1]


@pytest.mark.parametrize("case", [pytest.param(case, marks=gpu) for case in CASES])
def test_a_run_of_ten_seeds_stays_in_its_graphs(tmp_path, case):
    """A warning, which is an error here, would say that a step cannot be put into a graph."""
    variant, functions = CASES[case]
    names = {"variant": variant} if variant else {}
    fields = {**SMALL, "steps": 400, "seeds": 10, "device": "cuda", "engine": "graph", "buffer_size": 150}
    run = td3.train("Rail-v0", out=tmp_path / "run", replace_steps=functions, **names, **fields)
    assert run.config.seeds == 10
