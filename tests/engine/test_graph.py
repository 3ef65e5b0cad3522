"""The graph engine: the same updates, actions and memory as plain execution, whatever runs it."""

import contextlib
import gc

import numpy as np
import pytest
import torch
from scripted import SMALL

import td3
from td3.algorithm.agent import Agent, Task
from td3.algorithm.normalizer import NormalizedReplayBuffer
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.engine import TOLERANCE, Engine, check, max_difference
from td3.engine.capture import capture
from td3.engine.updates import Updates
from td3.settings import TD3Config

LOW, HIGH = [-1.0, -2.0], [1.0, 0.5]
STATE = 5
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


def learners(members, settings, device="cpu", normalized=False):
    seeds = list(range(3, 3 + members))
    spec = (
        Task(STATE, LOW, HIGH, normalized=normalized),
        TD3Config(
            hidden_sizes=settings.hidden_sizes,
            actor_learning_rate=1e-3,
            critic_learning_rate=1e-3,
            optimizer=settings.optimizer,
        ),
    )
    agent = Agent.create(*spec, seeds, device)
    buffer = make_replay_buffer(members, settings.buffer_size, STATE, len(LOW), device)
    return seeds, agent, NormalizedReplayBuffer(buffer, agent.normalizer) if normalized else buffer


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
    seeds, agent, buffer = learners(members, settings, device)
    _, plain_agent, plain_memory = learners(members, settings, device)
    engine = Engine(agent, buffer, seeds, settings, "graph", envs=environments)
    plain = Engine(plain_agent, plain_memory, seeds, settings, "eager")
    actions = drive(engine, updates + 5, members, environments)
    plain_actions = drive(plain, updates + 5, members, environments)
    assert list(agent.updates) == [updates] * members == list(plain_agent.updates)
    assert torch.equal(buffer.rows[:, : len(buffer)], plain_memory.rows[:, : len(buffer)])
    assert int(buffer.filled) == len(buffer) == len(plain_memory)
    np.testing.assert_allclose(actions, plain_actions, atol=1e-4)
    losses, plain_losses = (run.mean_losses([updates] * members) for run in (engine, plain))
    for mine, theirs in zip(losses, plain_losses, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    return largest_difference(agent, plain_agent)


def test_more_rows_may_be_stored_in_a_round_than_there_are_environments():
    """As variant hindsight does, in other rounds none; observations are normalized by all of them."""
    settings = TD3Config(hidden_sizes=(16, 16), batch_size=16, buffer_size=64)
    seeds, engines = (3, 4), []
    for kind in ("graph", "eager"):
        spec = Task(STATE, LOW, HIGH, normalized=True), settings
        agent = Agent.create(*spec, seeds)
        assert agent.normalizer is not None
        plain = make_replay_buffer(len(seeds), 64, STATE, len(LOW))
        plain.rows_per_round = 10
        buffer = NormalizedReplayBuffer(plain, agent.normalizer)
        if kind == "graph":
            engine = Engine(agent, buffer, seeds, settings, "graph", envs=2)
        else:
            engine = Engine(agent, buffer, seeds, settings, "eager")
        engines.append(engine)
        for number, (_, rows) in enumerate(rounds(40, len(seeds), 10)):
            if number % 3:
                engine.store(rows)
            if kind == "graph":
                assert engine._exchange.waiting == bool(number % 3)  # uploaded with the next states
            engine.act(rows[:, :2, :STATE])
            if number > 5:
                engine.update([1, 1])
        engine.flush()
    one, other = engines
    assert torch.equal(one.buffer.rows, other.buffer.rows)
    assert largest_difference(one.agent, other.agent) <= 1e-4


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("kind", ["graph", "recorded"])
@pytest.mark.parametrize("device", DEVICES)
def test_nothing_is_stored_for_a_frozen_member_but_where_its_buffer_is_empty(kind, device, tensors):
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=50)
    seeds, agent, buffer = learners(2, settings, device, normalized=True)
    execution = "eager" if kind == "recorded" and device == "cuda" else kind
    engine = Engine(agent, buffer, seeds, settings, execution, envs=3)
    rows = [torch.from_numpy(each).to(device) if tensors else each for _, each in rounds(40, 2, 3)]
    for each in rows[:10]:
        engine.store(each)
    engine.flush()
    before = {name: tensor.clone() for name, tensor in agent.normalizer.tensors().items()}
    stored = buffer.rows.clone()
    engine.freeze(1, "a test")
    for each in rows[10:]:
        engine.store(each)
    engine.flush()
    given = np.concatenate([torch.as_tensor(each).cpu().numpy() for each in rows], 1)
    newest = np.roll(given[:, -50:], given.shape[1] % 50, axis=1)
    np.testing.assert_array_equal(buffer.rows[0].cpu(), newest[0])
    assert torch.equal(buffer.rows[1, :30], stored[1, :30])
    np.testing.assert_array_equal(buffer.rows[1, 30:].cpu(), given[1, 30:50])
    for name, tensor in agent.normalizer.tensors().items():
        assert torch.equal(tensor[1], before[name][1]), name
        assert not torch.equal(tensor[0], before[name][0]), name
    engine.close()


@pytest.mark.parametrize("updates", [60, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("members", "environments"), [(1, 1), (3, 1), (2, 4)])
def test_updates_by_the_graph_engine_equal_plain_ones(members, environments, updates):
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16, buffer_size=300)
    assert compare(members, environments, settings, updates) <= 1e-4


@pytest.mark.parametrize("kind", ["graph", "recorded"])
@pytest.mark.parametrize("device", DEVICES)
def test_tensors_on_the_device_give_the_actions_and_rows_that_arrays_give(kind, device):
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=50)
    found = []
    for tensors in (False, True):
        seeds, agent, buffer = learners(2, settings, device)
        execution = "eager" if kind == "recorded" and device == "cuda" else kind
        engine = Engine(agent, buffer, seeds, settings, execution, envs=3)
        actions = []
        for number, (states, rows) in enumerate(rounds(40, 2, 3)):
            given = [torch.from_numpy(array).to(device) if tensors else array for array in (states, rows)]
            if number >= 5:
                engine.act_async(given[0])
                acted = engine.act_wait()
                assert isinstance(acted, torch.Tensor) == tensors
                actions.append(torch.as_tensor(acted).cpu().numpy().copy())
                engine.update([1, 1])
            engine.store(given[1])
        engine.close()
        found.append((np.array(actions), buffer.rows.cpu(), int(buffer.filled), agent))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-5)
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2] == 50
    assert largest_difference(found[0][3], found[1][3]) <= 1e-5


@pytest.mark.parametrize("device", DEVICES)
def test_fewer_rows_than_environments_are_stored_too(device):
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=40)
    (seeds, agent, buffer), (_, plain_agent, plain_buffer) = (learners(2, settings, device, True) for _ in range(2))
    engine = Engine(agent, buffer, seeds, settings, "graph", envs=3)
    plain = Engine(plain_agent, plain_buffer, seeds, settings, "eager")
    for number, (states, rows) in enumerate(rounds(40, 2, 3)):
        for one in (engine, plain):
            if number >= 5:
                one.act(states)
                one.update([1, 1])
            one.store(rows[:, : 1 + number % 3])  # one, two or all of them
    engine.close()
    assert torch.equal(buffer.rows, plain_buffer.rows)
    assert int(buffer.filled) == int(plain_buffer.filled) == 40
    assert largest_difference(agent, plain_agent) <= 1e-4


@pytest.mark.parametrize("device", DEVICES)
def test_members_that_stand_at_different_counts_are_updated_under_a_mask(device, monkeypatch):
    """As at the end of episodes; where they meet again, they are updated together again."""
    settings = TD3Config(hidden_sizes=(16, 16), batch_size=8, buffer_size=40)
    (seeds, agent, buffer), (_, plain_agent, plain_buffer) = (learners(3, settings, device) for _ in range(2))
    engine = Engine(agent, buffer, seeds, settings, "graph")
    plain = Engine(plain_agent, plain_buffer, seeds, settings, "eager")
    masked, used, execute = [], [], Updates._execute
    monkeypatch.setattr(
        Updates, "_execute", lambda self, kind, members: (used.append(kind), execute(self, kind, members))[1]
    )
    due = [(2, 2, 2), (70, 0, 0), (0, 0, 3), (0, 70, 67), (5, 5, 5), (0, 0, 0), (1, 9, 2)]
    for number, (counts, (_, rows)) in enumerate(zip(due, rounds(len(due), 3, 1), strict=True)):
        if number == 6:
            engine.freeze(1, "for a test")
            plain.freeze(1, "for a test")
        for one in (engine, plain):
            one.store(rows)
            one.update(counts)
        masked.append(any(kind.masked for kind in used))
        used.clear()
    engine.close()
    assert masked == [False, True, True, True, False, False, True]
    assert agent.updates.tolist() == plain_agent.updates.tolist() == [78, 77, 79]
    assert torch.equal(buffer.rows[:, : len(buffer)], plain_buffer.rows[:, : len(buffer)])
    assert largest_difference(agent, plain_agent) <= 1e-4
    for mine, theirs in zip(engine.mean_losses([78, 77, 79]), plain.mean_losses([78, 77, 79]), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    # A checkpoint of other counts.
    for one in (engine, plain):
        one.agent.updates[:] = [10, 0, 21]
        one.seek()
        one.update([3, 0, 3])
    assert largest_difference(agent, plain_agent) <= 1e-4


def test_the_check_at_the_start_updates_members_alone_where_episodes_end_at_different_times():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=40)
    seeds, agent, _ = learners(3, settings)
    made = []

    def by_graph(agent, buffer):
        made.append(Engine(agent, buffer, seeds, settings, "graph"))
        return made[-1]

    for alone in (False, True):
        assert max_difference(agent, seeds, settings, by_graph, alone=alone) <= TOLERANCE
    kinds = [engine._updates[0]._recordings for engine in made]
    assert [any(kind.masked for kind in recorded) for recorded in kinds] == [False, True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_updates_at_the_end_of_episodes_are_cuda_graphs(tmp_path):
    """A warning, which is an error here, would say that they are not."""
    fields = {**SMALL, "steps": 400, "seeds": 3, "device": "cuda", "engine": "graph", "train_freq": "episode"}
    run = td3.train("Rail-v0", out=tmp_path / "run", **fields)
    assert run.agent(2, "last").facts["updates"] > 300


def test_more_rows_than_the_buffer_holds_are_stored_as_by_eager_execution():
    settings = TD3Config(hidden_sizes=(16, 16), batch_size=3, buffer_size=3)
    buffers = []
    for kind in ("graph", "eager"):
        agent = Agent.create(Task(STATE, LOW, HIGH), settings, (3,))
        buffer = make_replay_buffer(1, 3, STATE, len(LOW))
        if kind == "graph":
            engine = Engine(agent, buffer, (3,), settings, "graph", envs=5)
        else:
            engine = Engine(agent, buffer, (3,), settings, "eager")
        for _, rows in rounds(4, 1, 5):
            engine.store(rows)
        engine.flush()
        buffers.append(buffer)
    one, other = buffers
    assert torch.equal(one.rows, other.rows)
    assert torch.equal(one.counts, other.counts)


@pytest.mark.parametrize("policy_delay", [1, 2, 3])
def test_every_policy_delay_is_recorded_rightly(policy_delay):
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=64, policy_delay=policy_delay)
    assert compare(2, 1, settings, 100) <= 1e-5


def test_sgd_runs_as_graphs_too():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=64, optimizer="sgd")
    assert compare(2, 1, settings, 100) <= 1e-5


def test_making_the_engine_changes_nothing():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=64)
    seeds, agent, buffer = learners(2, settings)
    buffer.add_(torch.randn(2, 10, buffer.rows.shape[2]))
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    rows, filled = buffer.rows[:, :10].clone(), int(buffer.filled)
    engine = Engine(agent, buffer, seeds, settings, "graph")
    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.tensors().items())
    assert torch.equal(buffer.rows[:, :10], rows)
    assert int(buffer.filled) == filled == 10
    assert np.isnan(engine.mean_losses([0, 0])[0]["critic_loss"])


def test_an_update_sees_rows_that_were_stored_before_it():
    settings = TD3Config(hidden_sizes=(16,), batch_size=8, buffer_size=64)
    seeds, agent, buffer = learners(1, settings)
    engine = Engine(agent, buffer, seeds, settings, "graph")
    _, rows = next(rounds(1, 1, 1))
    engine.store(rows)
    engine.update([1])
    assert int(buffer.filled) == 1
    np.testing.assert_array_equal(buffer.rows[0, 0].numpy(), rows[0, 0])


def by_graph(seeds, settings):
    return lambda agent, buffer: Engine(agent, buffer, seeds, settings, "graph")


def test_the_self_check_finds_no_disagreement():
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16)
    seeds, agent, _ = learners(3, settings)
    assert max_difference(agent, seeds, settings, by_graph(seeds, settings)) <= TOLERANCE


def test_the_self_check_sees_a_graph_that_computes_something_else(monkeypatch):
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16)
    seeds, agent, _ = learners(1, settings)
    normal = MemberStreams.normal
    monkeypatch.setattr(MemberStreams, "normal", lambda self, *sizes: normal(self, *sizes) * (not self.held))
    assert max_difference(agent, seeds, settings, by_graph(seeds, settings)) > TOLERANCE


def compare_each(members, settings, updates, device="cpu"):
    """The largest difference that one update makes, of so many: after each, both go on from the same state.

    Over many updates learning itself blows up any rounding: two right engines that run freely end far apart.
    """
    seeds, agent, buffer = learners(members, settings, device)
    _, plain_agent, plain_memory = learners(members, settings, device)
    for _, rows in rounds(100, members, settings.buffer_size // 100):
        buffer.add_(torch.from_numpy(rows).to(device))
        plain_memory.add_(torch.from_numpy(rows).to(device))
    engine = Engine(agent, buffer, seeds, settings, "graph")
    plain = Engine(plain_agent, plain_memory, seeds, settings, "eager")
    worst = torch.zeros((), device=device)
    for _ in range(updates):
        engine.update([1] * members)
        plain.update([1] * members)
        for name, tensor in agent.tensors().items():
            other = plain_agent.tensors()[name]
            if "optimizer" not in name:
                worst = torch.maximum(worst, (tensor - other).norm() / other.norm())
            other.copy_(tensor)
    losses, plain_losses = (run.mean_losses([updates] * members) for run in (engine, plain))
    for mine, theirs in zip(losses, plain_losses, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    return float(worst)


def test_each_of_many_updates_equals_a_plain_one():
    settings = TD3Config(hidden_sizes=(32, 32), batch_size=16, buffer_size=300)
    assert compare_each(2, settings, 200) <= TOLERANCE


def test_random_numbers_follow_the_count_of_updates_wherever_it_goes():
    """Two blocks are held at a time: counts that go on, jump ahead and jump back find the numbers that are theirs."""
    streams = MemberStreams([3, 4], held=True)
    filled = torch.tensor(1_000_000)
    for number in (*range(200), 500, 501, 64, 65, 63, *range(64, 200)):
        streams.follow([number, number], [0, 1])
        plain = MemberStreams([3, 4], position=number)
        assert torch.equal(streams.rows(filled, 8), plain.rows(filled, 8))
        assert torch.equal(streams.normal(8, 2), plain.normal(8, 2))
        streams.cursor.add_(1)
        streams.prepare()


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@gpu
def test_each_of_1000_recorded_updates_on_a_gpu_equals_a_plain_one():
    settings = TD3Config(hidden_sizes=(256, 256), batch_size=256, buffer_size=2_000)
    assert compare_each(3, settings, 1_000, "cuda") <= TOLERANCE


@pytest.mark.gpu
@gpu
def test_a_lone_member_by_graph_and_plainly_is_the_same_to_the_last_bit():
    settings = TD3Config(hidden_sizes=(256, 256), batch_size=256, buffer_size=2_000)
    assert compare(1, 1, settings, 300, "cuda") == 0


@pytest.mark.gpu
@gpu
def test_a_memory_in_host_memory_gives_the_same_numbers():
    settings = TD3Config(hidden_sizes=(64, 64), batch_size=64, buffer_size=150)
    results = []
    for in_host_ram in (False, True):
        seeds, agent, _ = learners(3, settings, "cuda")
        buffer = make_replay_buffer(3, 150, STATE, len(LOW), "cuda", in_host_ram=in_host_ram)
        engine = Engine(agent, buffer, seeds, settings, "graph", envs=2)
        actions = drive(engine, 200, 3, 2)
        results.append((actions, buffer.rows.clone(), agent.tensors()))
    (actions, rows, tensors), (host_actions, host_rows, host_tensors) = results
    np.testing.assert_array_equal(actions, host_actions)
    assert torch.equal(rows, host_rows)
    assert all(torch.equal(tensor, host_tensors[name]) for name, tensor in tensors.items())


@pytest.mark.parametrize("device", DEVICES)
def test_a_network_called_with_another_batch_size_leaves_recorded_updates_their_memory(device):
    settings = TD3Config(hidden_sizes=(8, 8), batch_size=8, buffer_size=64)
    seeds, agent, buffer = learners(2, settings, device)
    engine = Engine(agent, buffer, seeds, settings, "graph")
    networks = [
        agent.actor.network,
        agent.actor_target.network,
        *agent.critics.networks,
        engine._exchange._acting.network,
    ]
    before = [(network, network.memory) for network in networks]
    kept = [*engine._updates[0]._memory, engine._exchange._memory]
    for network, memory in before:
        network(torch.zeros(*network.parameters.shape[:-1], 5, network.sizes[0], device=device))
        assert network.memory is not memory
        assert any(memory is one for one in kept)
    assert drive(engine, 12, 2, 1).shape == (7, 2, 1, len(LOW))


def test_a_comparison_that_others_came_in_between_is_begun_anew(monkeypatch):
    monkeypatch.setattr(check, "FIRST", 4)
    monkeypatch.setattr(check, "SHARE", 1e9)
    settings = TD3Config(hidden_sizes=(8, 8), batch_size=8, buffer_size=64)
    seeds, agent, buffer = learners(2, settings)
    engine = Engine(agent, buffer, seeds, settings, "graph")
    said = []
    engine.on_warning = said.append
    for _, rows in rounds(20, 2, 1):
        engine.store(rows)
    for counts in [[1, 1]] * 5 + [[1, 0], [0, 1]] + [[1, 1]] * 20:  # a comparison begins after 4, and has two updates
        engine.update(counts)
    assert said == []
    assert engine.kind == "CUDA graphs"


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_a_graph_is_recorded(monkeypatch, enabled):
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream=None: contextlib.nullcontext())
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with contextlib.suppress(ValueError), capture(None):
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.gpu
@gpu
def test_an_engine_that_becomes_garbage_does_not_break_the_recording_of_another():
    settings, before = TD3Config(hidden_sizes=(8, 8), batch_size=8, buffer_size=64), gc.get_threshold()
    try:
        for _ in range(3):
            for threshold in before[0], 1:
                seeds, agent, buffer = learners(2, settings, "cuda")
                gc.set_threshold(threshold)
                engine = Engine(agent, buffer, seeds, settings, "graph")
            engine.itself = engine  # only the collector frees it
            del engine
    finally:
        gc.set_threshold(*before)
