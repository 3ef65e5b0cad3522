"""An agent is its tensors: members are views of it, copies are not."""

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.engine import update_once
from td3.settings import TD3Config

SETTINGS = TD3Config(hidden_sizes=(16, 16), batch_size=8, buffer_size=50)


def make_agent(seeds, optimizer="adam", dtype=torch.float32):
    return Agent.create(
        Task(3, (-1.0, -2.0), (1.0, 3.0)),
        TD3Config(hidden_sizes=(16, 16), actor_learning_rate=1e-3, critic_learning_rate=2e-3, optimizer=optimizer),
        seeds,
        dtype=dtype,
    )


def make_buffer(members, dtype=torch.float32):
    buffer = make_replay_buffer(members, 50, 3, 2, dtype=dtype)
    buffer.add_(torch.randn(members, 50, 10, generator=torch.Generator().manual_seed(0), dtype=dtype))
    return buffer


def all_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_an_agent_has_a_member_for_each_seed():
    agent = make_agent((4, 5, 6))
    assert agent.members == 3
    assert agent.updates.tolist() == [0, 0, 0]


def test_a_members_weights_depend_on_its_own_seed_alone():
    together = make_agent((4, 5, 6))
    for index, seed in enumerate((4, 5, 6)):
        assert all_equal(together.member(index).tensors(), make_agent((seed,)).tensors())


def test_tensors_are_all_that_learning_changes():
    shapes = {name: tuple(tensor.shape) for name, tensor in make_agent((0, 1, 2)).tensors().items()}
    actor, critic = (3 + 1) * 16 + 17 * 16 + 17 * 2, (5 + 1) * 16 + 17 * 16 + 17
    assert shapes == {
        "actor": (3, actor),
        "actor_target": (3, actor),
        "critics": (2, 3, critic),
        "critics_target": (2, 3, critic),
        "actor_optimizer.first_moment": (3, actor),
        "actor_optimizer.second_moment": (3, actor),
        "actor_optimizer.steps": (3,),
        "critics_optimizer.first_moment": (2, 3, critic),
        "critics_optimizer.second_moment": (2, 3, critic),
        "critics_optimizer.steps": (2, 3),
    }


def test_tensors_are_the_agents_own_and_ask_for_no_gradient():
    agent = make_agent((0, 1))
    tensors = agent.tensors()
    assert not any(tensor.requires_grad for tensor in tensors.values())
    assert tensors["actor"].data_ptr() == agent.actor.parameters.data_ptr()
    tensors["critics"].fill_(0.5)
    assert bool((agent.critics.parameters == 0.5).all())


def test_plain_gradient_descent_has_no_tensors_of_its_own():
    assert set(make_agent((0,), "sgd").tensors()) == {"actor", "actor_target", "critics", "critics_target"}


def test_a_member_is_a_view():
    agent = make_agent((0, 1, 2))
    for name, tensor in agent.member(1).tensors().items():
        tensor.fill_(7)
        whole = agent.tensors()[name]
        part = whole[..., 1] if name.endswith("steps") else whole[..., 1, :]
        assert bool((part == 7).all()), name
        assert int((whole == 7).sum()) == part.numel(), name


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_updating_a_member_updates_that_member_of_the_whole(optimizer):
    agent, buffer = make_agent((0, 1, 2), optimizer), make_buffer(3)
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    member, streams = agent.member(1), MemberStreams((1,))
    for _ in range(4):
        update_once(member, buffer.member(1), streams, SETTINGS)
    assert agent.updates.tolist() == [0, 4, 0]
    for name, tensor in agent.tensors().items():
        changed = (tensor != before[name]).flatten(0, -2) if not name.endswith("steps") else tensor != before[name]
        rows = changed.any(-1).view(-1, 3) if not name.endswith("steps") else changed.view(-1, 3)
        assert rows.any(0).tolist() == [False, True, False], name


def test_a_member_learns_as_it_would_alone():
    # In double precision: the library that multiplies matrices may sum in another order where memory is laid out
    # otherwise, and nothing else may differ.
    agent, buffer = make_agent((0, 1, 2), dtype=torch.float64), make_buffer(3, torch.float64)
    member, alone = agent.member(1), make_agent((1,), dtype=torch.float64)
    for learner in (member, alone):
        streams = MemberStreams((1,), dtype=torch.float64)
        for _ in range(20):
            update_once(learner, buffer.member(1), streams, SETTINGS)
    for name, tensor in alone.tensors().items():
        torch.testing.assert_close(member.tensors()[name], tensor, rtol=1e-10, atol=1e-12)


def test_only_the_online_networks_of_a_member_ask_for_gradients():
    agent = make_agent((0, 1))
    for learner in (agent, agent.member(1), agent.copied()):
        assert learner.actor.parameters.requires_grad
        assert learner.critics.parameters.requires_grad
        assert not learner.actor_target.parameters.requires_grad
        assert not learner.critics_target.parameters.requires_grad


def test_a_copy_is_equal_and_shares_nothing():
    agent, buffer = make_agent((0, 1)), make_buffer(2)
    streams = MemberStreams((0, 1))
    for _ in range(5):
        update_once(agent, buffer, streams, SETTINGS)
    copy = agent.copied()
    assert all_equal(copy.tensors(), agent.tensors())
    assert copy.updates.tolist() == [5, 5]
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    for tensor in copy.tensors().values():
        tensor.fill_(7)
    copy.updates += 1
    assert all_equal(agent.tensors(), before)
    assert agent.updates.tolist() == [5, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_made_in_the_type_that_was_asked_for(dtype):
    agent = make_agent((0,), dtype=dtype)
    tensors = agent.tensors()
    assert {tensor.dtype for name, tensor in tensors.items() if not name.endswith("steps")} == {dtype}
    assert agent.actor(torch.zeros(1, 4, 3, dtype=dtype)).dtype == dtype


def test_the_learning_rates_go_to_their_own_optimizers():
    agent = make_agent((0,))
    assert agent.actor_optimizer.learning_rate == 1e-3
    assert agent.critics_optimizer.learning_rate == 2e-3


def test_states_of_the_wrong_shape_are_refused():
    agent = make_agent((0, 1))
    with pytest.raises(TypeCheckError):
        agent.actor(torch.zeros(4, 3))
    with pytest.raises(TypeCheckError):
        agent.critics(torch.zeros(2, 4, 3), torch.zeros(2, 5, 2))
    with pytest.raises(TypeCheckError):
        agent.actor(np.zeros((2, 4, 3), np.float32))
