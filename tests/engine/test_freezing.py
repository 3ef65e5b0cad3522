"""A member whose numbers break down is frozen as a whole; the others learn as they would have."""

import threading
import time

import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.optimizer import OPTIMIZERS, JointOptimizer, NonFinite
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.engine import Engine
from td3.settings import TD3Config

SEEDS = [5, 6, 7]


def settings_of(**fields):
    return TD3Config(
        **{
            "hidden_sizes": (16, 16),
            "batch_size": 8,
            "buffer_size": 100,
            "actor_learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            **fields,
        }
    )


def learners(settings, device="cpu"):
    agent = Agent.create(Task(4, [-1.0], [1.0]), settings, SEEDS, device)
    buffer = make_replay_buffer(len(SEEDS), 100, 4, 1, device)
    buffer.add_(torch.randn(3, 100, 11, generator=torch.Generator().manual_seed(1)).to(device))
    return agent, buffer


def tensors_of_member(agent, member):
    return {
        name: (tensor[..., member] if name.endswith("steps") else tensor[..., member, :]).clone()
        for name, tensor in agent.tensors().items()
    }


def equal(some, others):
    return all(torch.equal(tensor, others[name]) for name, tensor in some.items())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("recorded", [True, False])
def test_one_member_is_frozen_and_the_others_learn_as_they_would_have(threads, recorded, optimizer):
    settings = settings_of(optimizer=optimizer)
    found = []
    for bad in (True, False):
        agent, buffer = learners(settings)
        engine = Engine(agent, buffer, SEEDS, settings, "recorded" if recorded else "eager", threads=threads)
        engine.update([6, 6, 6])
        before = tensors_of_member(agent, 1)
        if bad:
            buffer.rows[1, :, -2] = 1e30
        for _ in range(4):
            engine.update([2, 2, 2])
        engine.close()
        found.append((agent, before, engine))
    (agent, before, engine), (healthy, *_) = found
    assert engine.frozen == {1: engine.frozen[1]}
    assert "too large or not a number" in engine.frozen[1]
    assert agent.updates.tolist() == [14, 6, 14]
    assert equal(tensors_of_member(agent, 1), before)
    for member in (0, 2):
        assert equal(tensors_of_member(agent, member), tensors_of_member(healthy, member))


def test_when_the_last_member_is_frozen_the_engine_raises():
    settings = settings_of()
    agent, buffer = learners(settings)
    engine = Engine(agent, buffer, SEEDS, settings, "recorded", threads=2)
    engine.freeze(0, "its environment failed")
    buffer.rows[1:, :, -2] = torch.nan
    with pytest.raises(NonFinite, match="too large or not a number"):
        engine.update([1, 1, 1])
    with pytest.raises(NonFinite):
        engine.check()
    assert agent.active.tolist() == [0, 0, 0]
    engine.close()


def test_an_actors_gradient_that_breaks_down_moves_neither_the_actor_nor_a_target():
    settings = settings_of(policy_delay=1)
    agent, buffer = learners(settings)
    engine = Engine(agent, buffer, SEEDS, settings, "recorded")
    engine.update([3, 3, 3])
    agent.actor.parameters.data[1, -1] = torch.nan  # critics do not read it, their targets' actor is another network
    before = tensors_of_member(agent, 1)
    engine.update([1, 1, 1])
    after = tensors_of_member(agent, 1)
    assert 1 in engine.frozen
    changed = {name for name in after if not torch.equal(after[name].nan_to_num(), before[name].nan_to_num())}
    assert changed == {"critics", *(name for name in before if name.startswith("critics_optimizer"))}
    assert bool(torch.isfinite(after["critics"]).all())
    engine.close()


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("bad", [float("nan"), 2e18])
@pytest.mark.parametrize("where", ["critics", "encoder"])
def test_critics_and_encoder_step_together_or_not_at_all(kind, bad, where):
    parameters = {"critics": torch.randn(2, 1, 7), "encoder": torch.randn(1, 9)}
    joint = JointOptimizer(*(OPTIMIZERS[kind](tensor, 0.1) for tensor in parameters.values()))
    gradients = {name: torch.randn_like(tensor) for name, tensor in parameters.items()}
    joint.step_(*gradients.values())
    before = [tensor.clone() for tensor in (*parameters.values(), *joint.state().values())]
    gradients[where].view(-1)[3] = bad
    with pytest.raises(NonFinite):
        joint.step_(*gradients.values())
    after = [*parameters.values(), *joint.state().values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_an_error_of_one_member_is_raised_when_the_others_have_ended():
    settings = settings_of()
    agent, buffer = learners(settings)
    engine = Engine(agent, buffer, SEEDS, settings, "recorded", threads=3)
    failed, ended = threading.Event(), []

    def fails():
        failed.set()
        raise RuntimeError("out of memory")

    def goes_on():
        assert failed.wait(10)
        time.sleep(0.05)
        ended.append(True)

    engine._updates[:] = [fails, goes_on, goes_on]
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.update([1, 1, 1])
    assert ended == [True, True]
    engine.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("by", ["graphs", "plain"])
@pytest.mark.parametrize("frozen", [0, 1])
def test_on_a_gpu_one_member_is_frozen_and_the_others_learn_as_they_would_have(by, optimizer, frozen):
    settings = settings_of(optimizer=optimizer)
    found = []
    for bad in (True, False):
        agent, buffer = learners(settings, "cuda")
        engine = Engine(agent, buffer, SEEDS, settings, "graph" if by == "graphs" else "eager")
        engine.update([6, 6, 6])
        engine.check()
        before = tensors_of_member(agent, frozen)
        if bad:
            buffer.rows[frozen, :, -2] = 1e30
        for _ in range(3):
            engine.update([2, 2, 2])
        found.append((agent, before, engine))
    (agent, before, engine), (healthy, *_) = found
    engine.check()
    assert [*engine.frozen] == [frozen]
    assert equal(tensors_of_member(agent, frozen), before)
    if optimizer == "adam":
        assert agent.updates.tolist() == [6 if member == frozen else 12 for member in range(3)]
    engine.update([4, 4, 4])
    found[1][2].update([4, 4, 4])
    assert equal(tensors_of_member(agent, frozen), before)
    for member in {0, 1, 2} - {frozen}:
        assert agent.updates[member] == 16
        assert equal(tensors_of_member(agent, member), tensors_of_member(healthy, member))
        assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors_of_member(agent, member).values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_engine_raises_when_all_members_are_frozen():
    settings = settings_of()
    agent, buffer = learners(settings, "cuda")
    engine = Engine(agent, buffer, SEEDS, settings, "graph")
    buffer.rows[..., -2] = torch.nan
    engine.update([2, 2, 2])
    with pytest.raises(NonFinite, match="a gradient is too large"):
        engine.check()
    assert agent.updates.tolist() == [0, 0, 0]
