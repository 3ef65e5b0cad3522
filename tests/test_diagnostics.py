"""Illnesses of known size, planted into weights and memories, are measured as they are; looking changes nothing."""

import csv
import json

import numpy as np
import pytest
import torch
from scripted import SMALL

from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import layer_views
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import derive_seed
from td3.config import resolve
from td3.diagnostics import BINS, ROWS, TimeBudget, examine, value_against_return
from td3.engine import Engine
from td3.settings import TD3Config
from td3.training import train_run

STATES, LOW, HIGH = 3, (-1.0, 0.0), (1.0, 4.0)


def new_agent(seeds=(0,), hidden=(16, 8)) -> Agent:
    return Agent.create(
        Task(STATES, LOW, HIGH),
        TD3Config(hidden_sizes=hidden, actor_learning_rate=3e-4, critic_learning_rate=3e-4),
        seeds,
    )


def filled(members: int = 1, count: int = 400, capacity: int = 1_000, state_scale: float = 1.0, noise: float = 0.1):
    """A buffer of random states in which every member did what its newly initialized actor says, plus noise."""
    random = np.random.default_rng(0)
    buffer = make_replay_buffer(members, capacity, STATES, 2)
    rows = np.empty((members, count, 2 * STATES + 4), np.float32)
    for member in range(members):
        own = np.random.default_rng(member)
        states = own.normal(size=(count, 2 * STATES)).astype(np.float32) * state_scale
        with torch.no_grad():
            actions = new_agent((member,)).actor(torch.from_numpy(states[None, :, :STATES]))[0].numpy()
        half = (np.array(HIGH) - np.array(LOW)) / 2
        actions = actions + half * noise * own.normal(size=actions.shape)
        rows[member] = np.concatenate(
            (states[:, :STATES], actions, states[:, STATES:], random.normal(2, 0, (count, 1)), np.zeros((count, 1))), 1
        )
    buffer.add_(torch.from_numpy(rows))
    return buffer


def only(agent, buffer, **more):
    (row,) = examine(agent, buffer, [0], 5_000, **more)
    return row


def test_a_healthy_newborn_is_measured_so():
    row = only(new_agent(), filled())
    assert row["saturation"] == 0
    assert row["actor_dead"] < 0.2
    assert row["critic_dead"] < 0.2
    assert row["actor_gradient"] > 1e-4
    assert row["exploration"] == pytest.approx(0.1, rel=0.1)
    assert row["observation_scale"] == pytest.approx(1, rel=0.15)
    assert row["reward_scale"] == pytest.approx(2)


def test_a_saturated_actor_is_measured_and_its_gradient_vanishes():
    agent = new_agent()
    _, bias = layer_views(agent.actor.parameters.detach(), agent.actor.network.sizes)[-1]
    bias[..., 0] = 50.0
    row = only(agent, filled())
    assert row["saturation"] == row["stuck"] == 0.5  # one of two dimensions
    policy = json.loads(row["policy_actions"])
    assert policy[-1] >= ROWS
    assert sum(policy) == 2 * ROWS
    bias[:] = 50.0
    assert only(agent, filled())["actor_gradient"] == 0


def test_dead_units_are_counted_in_actor_and_critics():
    agent = new_agent(hidden=(16, 8))
    _, bias = layer_views(agent.actor.parameters.detach(), agent.actor.network.sizes)[0]
    bias[..., :12] = -1e3
    for weight, bias in layer_views(agent.critics.parameters.detach(), agent.critics.network.sizes)[1:2]:
        weight[:] = 0
        bias[:] = -1
    row = only(agent, filled())
    assert row["actor_dead"] == pytest.approx(12 / 24, abs=0.1)
    assert row["critic_dead"] >= 8 / 24
    assert only(new_agent(), filled())["actor_dead"] < row["actor_dead"]


def test_the_gradient_is_the_one_that_the_actors_step_would_use():
    agent, buffer = new_agent(), filled(count=ROWS)
    row = only(agent, buffer)
    ages = np.random.default_rng(derive_seed(0, "diagnostics", 5_000)).integers(ROWS, size=ROWS)
    state = buffer.gather(torch.from_numpy((ROWS - 1 - ages)[None])).state
    loss = -agent.critics.first_frozen(state, agent.actor(state)).mean()
    (gradient,) = torch.autograd.grad(loss, agent.actor.parameters)
    assert row["actor_gradient"] == pytest.approx(float(gradient.square().mean().sqrt()), rel=1e-4)


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 0.0), (0.02, 0.02), (0.5, 0.5)])
def test_exploration_is_the_distance_of_played_from_meant_actions(noise, expected):
    assert only(new_agent(), filled(noise=noise))["exploration"] == pytest.approx(expected, rel=0.1, abs=1e-6)


def test_histograms_span_the_action_range_of_each_dimension():
    row = only(new_agent(), filled(noise=10.0))
    played = json.loads(row["played_actions"])
    assert len(played) == BINS
    assert sum(played) == 2 * ROWS
    assert min(played[0], played[-1]) > ROWS / 2  # far out on both sides, counted at the ends


def test_looking_changes_nothing_and_gives_the_same_every_time():
    agent, buffer = new_agent((0, 1)), filled(2)
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    first, second = (examine(agent, buffer, [0, 1], 5_000) for _ in range(2))
    assert first == second
    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.tensors().items())
    assert examine(agent, buffer, [0, 1], 10_000) != first


def test_a_member_looks_the_same_alone():
    together = examine(new_agent((0, 1)), filled(2), [0, 1], 5_000)
    buffer = filled(2)
    alone = examine(new_agent((1,)), buffer.member(1), [1], 5_000)
    assert together[1] == alone[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_numbers_do_not_depend_on_threads(threads):
    agent, buffer = (
        Agent.create(
            Task(STATES, LOW, HIGH),
            TD3Config(hidden_sizes=(256, 256), actor_learning_rate=3e-4, critic_learning_rate=3e-4),
            (0,),
        ),
        filled(),
    )
    used = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = examine(agent, buffer, [0], 5_000)
        torch.set_num_threads(threads)
        assert examine(agent, buffer, [0], 5_000) == alone
    finally:
        torch.set_num_threads(used)


def test_an_empty_memory_has_no_figures():
    row = only(new_agent(), make_replay_buffer(1, 10, STATES, 2))
    assert np.isnan(row["saturation"])
    assert row["policy_actions"] == "[]"


def test_rows_that_have_not_arrived_are_not_looked_at():
    buffer = filled(count=300, capacity=300)
    buffer.rows[:, -4:] = float("nan")
    assert np.isfinite(only(new_agent(), buffer, waiting=4)["reward_scale"])
    assert np.isnan(only(new_agent(), buffer, waiting=0)["exploration"])


def test_a_full_ring_is_read_from_its_newest_row():
    buffer = filled(count=300, capacity=300)
    newest = buffer.rows[:, :ROWS].clone()
    newest[..., STATES : STATES + 2] = 123.0
    buffer.add_(newest)
    played = json.loads(only(new_agent(), buffer)["played_actions"])
    assert played[-1] == 2 * ROWS


def test_value_and_return_at_the_first_state_by_hand():
    agent = new_agent()
    parameters = agent.critics.parameters.detach()
    parameters.zero_()
    layer_views(parameters, agent.critics.network.sizes)[-1][1][:] = 7.0  # critic 1 says 7 everywhere
    state = [0.1, 0.2, 0.3]
    visits = np.array([[[5.0, 0.0, *state, *state], [3.0, 0.5, *state, *state]]])
    (row,) = value_against_return(agent, visits)
    # The first episode ended: 5. The second was cut with half the discount left: 3 + 0.5 * 7.
    assert row == {"q_start": pytest.approx(7), "return_start": pytest.approx((5 + 6.5) / 2)}


def test_time_is_booked_on_what_was_done():
    now = [0.0]
    budget = TimeBudget(lambda: now[0])
    for part, seconds in (("act", 1.0), ("env", 2.0), ("act", 0.5)):
        now[0] += seconds
        budget.lap(part)
    assert budget.take() == {"act": 1.5, "env": 2.0}
    now[0] += 3
    budget.lap("env")
    assert budget.take() == {"env": 3.0}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_nearly_the_same_figures():
    agent, buffer = new_agent((0, 1)), filled(2)
    there = make_replay_buffer(2, 1_000, STATES, 2, "cuda")
    there.add_(buffer.rows[:, :400].cuda())
    here, on_gpu = examine(agent, buffer, [0, 1], 5_000), examine(agent.copied("cuda"), there, [0, 1], 5_000)
    for row, other in zip(here, on_gpu, strict=True):
        for name, value in row.items():
            assert other[name] == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value)


@pytest.mark.usefixtures("unchecked")
def test_an_engine_whose_newest_rows_still_travel_gives_the_same_diagnostics(tmp_path, monkeypatch):
    def trained(name):
        fields = {**SMALL, "steps": 120, "seeds": 2, "envs": 2, "eval_every": 40, "out": tmp_path / name}
        return train_run(resolve("Rail-v0", **fields))

    plain = trained("plain")

    def graphs(agent, buffer, config, threads):
        return Engine(agent, buffer, config.member_seeds, config.td3, "graph", envs=config.envs)

    monkeypatch.setattr("td3.training.parts.make_engine", graphs)
    recorded = trained("recorded")
    for seed in plain.seeds:
        paths = [run.folder(seed) / "diagnostics.csv" for run in (plain, recorded)]
        tables = [list(csv.DictReader(path.read_text().splitlines())) for path in paths]
        assert [row["played_actions"] for row in tables[0]] == [row["played_actions"] for row in tables[1]]
        for row, other in zip(*tables, strict=True):
            for name in ("exploration", "reward_scale", "observation_scale", "q_start"):
                assert float(other[name]) == pytest.approx(float(row[name]), rel=1e-3, nan_ok=True)
