import numpy as np
import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.normalizer import CLIP, LEAST_VARIANCE, NormalizedReplayBuffer, Normalizer
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import MemberStreams
from td3.engine import Engine, live_policy, max_difference, update_once
from td3.policy import CLIP as POLICY_CLIP
from td3.settings import TD3Config

SETTINGS = TD3Config(hidden_sizes=(8, 8), batch_size=16, actor_learning_rate=1e-3, critic_learning_rate=1e-3)
SEEDS, STATE, ACTION = (0, 1), 3, 2
SIZES = np.array([1e-3, 1.0, 5e3])


def rows_of(generator, count=1):
    rows = generator.normal(size=(len(SEEDS), count, 2 * STATE + ACTION + 2))
    rows[..., :STATE] = 3 * SIZES + SIZES * rows[..., :STATE]
    rows[..., STATE + ACTION : -2] = 3 * SIZES + SIZES * rows[..., STATE + ACTION : -2]
    rows[..., -1] = 0
    return rows.astype(np.float32)


def new_agent(normalized=True, seeds=SEEDS):
    return Agent.create(
        Task(STATE, [-1.0] * ACTION, [1.0] * ACTION, normalized=normalized),
        TD3Config(hidden_sizes=(8, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        seeds,
    )


def new_memory(agent, capacity=64):
    return NormalizedReplayBuffer(ReplayBuffer(agent.members, capacity, STATE, ACTION), agent.normalizer)


@pytest.mark.parametrize("counts", [[1] * 40, [3, 1, 8, 200], [500]])
def test_statistics_are_those_of_everything_that_was_ever_seen(counts):
    generator = np.random.default_rng(0)
    normalizer, seen = Normalizer(2, STATE), []
    for count in counts:
        states = rows_of(generator, count=count)[..., :STATE]
        seen.append(states)
        normalizer.observe_(torch.from_numpy(states))
    everything = np.concatenate(seen, 1).astype(np.float64)
    np.testing.assert_array_equal(normalizer.count, np.full((2, 1), sum(counts)))
    np.testing.assert_allclose(normalizer.exact_mean, everything.mean(1), rtol=1e-13)
    np.testing.assert_allclose(normalizer.squares / sum(counts), everything.var(1), rtol=1e-11)
    np.testing.assert_array_equal(normalizer.mean, everything.mean(1).astype(np.float32))
    np.testing.assert_allclose(normalizer.scale, (everything.var(1) + LEAST_VARIANCE) ** -0.5, rtol=1e-6)


def test_numbers_by_hand():
    normalizer = Normalizer(1, 2)
    normalizer.observe_(torch.tensor([[[1.0, 7.0], [3.0, 7.0]]]))
    normalizer.observe_(torch.tensor([[[5.0, 7.0]]]))
    scale = (8 / 3) ** -0.5
    given = torch.tensor([[[3.0, 7.0], [4.0, 7.0], [1e9, 8.0], [-1e9, 0.0]]])
    expected = [[0, 0], [scale, 0], [CLIP, CLIP], [-CLIP, -CLIP]]
    np.testing.assert_allclose(normalizer(given)[0], expected, rtol=1e-6)


def test_nothing_is_normalized_before_anything_was_seen():
    states = torch.tensor([[[2.0, -3.0]]])
    assert torch.equal(Normalizer(1, 2)(states), states)


def test_the_memory_keeps_rows_as_they_came_and_gives_them_normalized_by_what_is_known_now():
    generator = np.random.default_rng(1)
    agent = new_agent()
    buffer = new_memory(agent, capacity=8)
    rows = rows_of(generator, count=8)
    buffer.add_(torch.from_numpy(rows))
    before = buffer.gather(torch.zeros(2, 1, dtype=torch.int64))
    buffer.add_(torch.from_numpy(100 * rows_of(generator)))
    after = buffer.gather(torch.full((2, 1), 1))
    np.testing.assert_array_equal(buffer.rows[:, 1:], rows[:, 1:])
    states = torch.from_numpy(rows[:, 1:2])
    assert torch.equal(after.state, agent.normalizer(states[..., :STATE]))
    assert torch.equal(after.next_state, agent.normalizer(states[..., STATE + ACTION : -2]))
    assert torch.equal(after.reward, states[..., -2])
    assert not torch.equal(before.state, agent.normalizer(torch.from_numpy(rows[:, :1, :STATE])))


def test_one_member_is_a_view_and_its_numbers_are_its_own():
    agent, alone = new_agent(), new_agent(seeds=SEEDS[1:])
    buffer, lone_memory = new_memory(agent), new_memory(alone)
    generator = np.random.default_rng(2)
    for count in (1, 3, 8):
        rows = torch.from_numpy(rows_of(generator, count=count))
        buffer.add_(rows)
        lone_memory.add_(rows[1:])
    for name, tensor in alone.normalizer.tensors().items():
        assert torch.equal(agent.normalizer.tensors()[name][1:], tensor)
        assert torch.equal(agent.member(1).normalizer.tensors()[name], tensor)
    places = torch.tensor([[5, 2]])
    assert torch.equal(buffer.member(1).gather(places).state, lone_memory.gather(places).state)
    copy = agent.copied()
    buffer.add_(rows)
    assert torch.equal(copy.normalizer.mean[1:], alone.normalizer.mean)
    assert not torch.equal(copy.normalizer.mean, agent.normalizer.mean)


def test_off_is_what_it_was():
    plain, normalized = new_agent(normalized=False), new_agent()
    assert plain.normalizer is None
    assert not any(name.startswith("observations") for name in plain.tensors())
    states = torch.randn(2, 4, STATE)
    assert plain.normalized(states) is states
    for name, tensor in plain.tensors().items():
        assert torch.equal(tensor, normalized.tensors()[name])


def test_every_engine_learns_the_same_and_acts_alike():
    """On a CPU the graph engine calls what it would have recorded: all but the recording is compared here."""
    agents, actions = [], []
    for kind in ("plain", "eager", "graph"):
        generator, agent = np.random.default_rng(3), new_agent()
        buffer = new_memory(agent)
        streams = MemberStreams(SEEDS)
        engine = None
        if kind != "plain":
            engine = Engine(agent, buffer, SEEDS, SETTINGS, "recorded" if kind == "eager" else "graph")
        for _ in range(30):
            rows, states = rows_of(generator), rows_of(generator)[..., :STATE]
            if engine is None:
                buffer.add_(torch.from_numpy(rows))
                acted = live_policy(agent)(states)
                update_once(agent, buffer, streams, SETTINGS)
            else:
                engine.store(rows)
                engine.act_async(states)
                acted = engine.act_wait().copy()
                engine.update([1, 1])
        actions.append(acted)
        agents.append(agent)
    for agent, acted in zip(agents[1:], actions[1:], strict=True):
        np.testing.assert_allclose(acted, actions[0], rtol=1e-5, atol=1e-6)
        for name, tensor in agents[0].tensors().items():
            np.testing.assert_allclose(agent.tensors()[name], tensor, rtol=1e-4, atol=1e-6, err_msg=name)
    for name in ("count", "exact_mean", "squares", "mean", "scale"):
        assert all(torch.equal(a.normalizer.tensors()[name], agents[0].normalizer.tensors()[name]) for a in agents[1:])


def test_making_the_engine_leaves_no_trace():
    agent = new_agent()
    buffer = new_memory(agent)
    buffer.add_(torch.from_numpy(rows_of(np.random.default_rng(4), count=5)))
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    Engine(agent, buffer, SEEDS, SETTINGS, "graph")

    def by_graph(agent, buffer):
        return Engine(agent, buffer, SEEDS, SETTINGS, "graph")

    assert max_difference(agent, SEEDS, SETTINGS, by_graph) < 1e-5
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.tensors().items())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_graphs_follow_the_statistics():
    generator = np.random.default_rng(5)
    task = Task(STATE, [-1.0] * ACTION, [1.0] * ACTION, normalized=True)
    there, here = Agent.create(task, SETTINGS, SEEDS, "cuda"), new_agent()
    buffer = NormalizedReplayBuffer(ReplayBuffer(2, 64, STATE, ACTION, "cuda"), there.normalizer)
    engine = Engine(there, buffer, SEEDS, SETTINGS, "graph")
    for _ in range(20):
        rows, states = rows_of(generator), rows_of(generator)[..., :STATE]
        here.normalizer.observe_(torch.from_numpy(rows[..., :STATE]))
        engine.store(rows)
        acted = engine.act(states)
        np.testing.assert_allclose(acted, live_policy(here)(states), rtol=1e-3, atol=1e-4)
    for name in ("count", "exact_mean", "squares"):
        expected = here.normalizer.tensors()[name]
        np.testing.assert_allclose(there.normalizer.tensors()[name].cpu(), expected, rtol=1e-12)


def test_numpy_clips_where_torch_does():
    assert POLICY_CLIP == CLIP
