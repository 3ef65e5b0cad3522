"""TD3+BC: the actor's loss by hand, each seed's own scale, in every engine, resumed exactly."""

import numpy as np
import pytest
import torch
from scripted import SMALL

import td3
from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import Batch
from td3.errors import ConfigError
from td3.run.checkpoints import Checkpoints
from td3.settings import TD3Config
from td3.variants.behavior_cloning import improve_actor_near_data_

LOW, HIGH = (-2.0, 0.5), (1.0, 7.25)
HALF = torch.tensor([1.5, 3.375])


def agent(seeds=(0,), rate=1e-2, optimizer="sgd"):
    return Agent.create(
        Task(3, LOW, HIGH),
        TD3Config(hidden_sizes=(16, 16), actor_learning_rate=rate, critic_learning_rate=rate, optimizer=optimizer),
        seeds,
    )


def batch(members=1, count=8):
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(members, count, 3, generator=generator)
    actions = torch.rand(members, count, 2, generator=generator) * 2 * HALF + torch.tensor(LOW)
    nothing = torch.zeros(members, count)
    return Batch(states, actions, nothing, states, nothing, torch.zeros(members, count, dtype=torch.int64))


def improve(learner, given, alpha=2.5):
    parts = learner.actor, learner.critics, learner.actor_optimizer, given.state
    return improve_actor_near_data_(*parts, settings=TD3Config(bc_alpha=alpha), batch=given)


def terms(learner, given):
    """Q1 of the actor's actions, and their distance from the batch's in units of half the range."""
    with torch.no_grad():
        action = learner.actor(given.state)
        q_values = learner.critics(given.state, action)[0]
    return q_values, ((action - given.action) / HALF).square().mean((-2, -1))


def test_the_loss_is_minus_the_scaled_q_value_plus_the_squared_distance():
    learner, given = agent(), batch()
    q_values, distance = terms(learner, given)
    expected = distance - 2.5 * q_values.mean(-1) / q_values.abs().mean(-1)
    assert improve(learner, given).tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_the_scale_is_a_constant_for_the_gradient():
    learner, given = agent(), batch()
    scale = 2.5 / terms(learner, given)[0].abs().mean()
    action = learner.actor(given.state)
    loss = ((action - given.action) / HALF).square().mean() - scale * learner.critics(given.state, action)[0].mean()
    gradient = torch.autograd.grad(loss, learner.actor.parameters)[0].clone()  # its memory is used again
    before = learner.actor.parameters.detach().clone()
    improve(learner, given)
    moved = learner.actor.parameters.detach() - before
    assert torch.allclose(moved, -1e-2 * gradient, rtol=1e-3, atol=1e-7)


@pytest.mark.usefixtures("unchecked")
def test_without_q_values_the_actor_learns_the_actions_of_the_data():
    learner, given = agent(rate=3e-3, optimizer="adam"), batch()
    _, before = terms(learner, given)
    for _ in range(400):
        improve(learner, given, alpha=0.0)
    _, after = terms(learner, given)
    assert after < 0.02 * before


def test_critics_stay_and_each_member_has_a_scale_of_its_own():
    both, given = agent((3, 4)), batch(2)
    with torch.no_grad():
        both.critics.parameters[:, 1] *= 10
    critics = both.critics.parameters.detach().clone()
    losses = improve(both, given)
    assert torch.equal(both.critics.parameters.detach(), critics)
    for member in range(2):
        alone = agent((3 + member,))
        with torch.no_grad():
            alone.critics.parameters.copy_(critics[:, member : member + 1])
        one = Batch(*(column[member : member + 1] for column in given))
        assert improve(alone, one)[0] == pytest.approx(losses[member].item(), rel=1e-5)
        assert torch.allclose(alone.actor.parameters[0], both.actor.parameters[member], atol=1e-6)


def weights_of(run):
    tensors = Checkpoints(run.path).newest()[0].tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith("agent.")}


def trained(folder, **settings):
    fields = {**SMALL, "steps": 80, "device": "cpu", "variant": "behavior-cloning", **settings}
    return td3.train("Rail-v0", out=folder, **fields)


def require_equal(one, other):
    for name, tensor in weights_of(one).items():
        assert np.array_equal(weights_of(other)[name], tensor), name


@pytest.mark.usefixtures("unchecked")
def test_recorded_and_eager_execution_are_the_same_and_a_resumed_run_is_the_whole_one(tmp_path):
    recorded = trained(tmp_path / "recorded")
    require_equal(recorded, trained(tmp_path / "eager", engine="eager"))
    require_equal(recorded, td3.resume(trained(tmp_path / "cut", steps=50).path, steps=80))


def test_the_weight_is_refused_without_the_variant(tmp_path):
    with pytest.raises(ConfigError, match="only the variant behavior-cloning reads it"):
        td3.train("Rail-v0", out=tmp_path / "run", bc_alpha=1.0)
