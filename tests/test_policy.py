import numpy as np
import pytest
import torch
from scripted import HIGH, LOW, linear_policy

import td3
from td3.algorithm.agent import Agent, Task
from td3.engine import live_policy
from td3.errors import UserError
from td3.policy import Policy
from td3.settings import TD3Config

BOUNDS = [((-1.0, 0.25), (3.0, 0.5)), ((-2.0, -0.4), (2.0, 0.4)), ((0.0, -100.0), (1e-3, -50.0))]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
@pytest.mark.parametrize("hidden_sizes", [(64,), (256, 256), (400, 300)])
def test_the_numpy_actor_equals_the_torch_actor(low, high, hidden_sizes):
    agent = Agent.create(
        Task(3, low, high),
        TD3Config(hidden_sizes=hidden_sizes, actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        [0, 1],
    )
    states = np.random.default_rng(0).normal(size=(2, 50, 3)).astype(np.float32) * 3
    expected = agent.actor(torch.from_numpy(states)).detach().numpy()
    scale = np.float32(high) - np.float32(low)
    np.testing.assert_allclose(live_policy(agent)(states) / scale, expected / scale, atol=1e-6)


def test_a_live_policy_follows_the_actor():
    agent = Agent.create(
        Task(3, LOW, HIGH), TD3Config(hidden_sizes=(8,), actor_learning_rate=1e-3, critic_learning_rate=1e-3), [0]
    )
    policy, states = live_policy(agent), np.ones((1, 4, 3), np.float32)
    before = policy(states)
    with torch.no_grad():
        agent.actor.parameters.add_(0.1)
    after = policy(states)
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(after, agent.actor(torch.from_numpy(states)).detach().numpy(), atol=1e-6)


def test_one_observation_gives_one_action_and_a_batch_gives_a_batch():
    policy = linear_policy()
    batch = np.random.default_rng(0).normal(size=(7, 3))
    actions = policy.act(batch)
    assert actions.shape == (7, 2)
    for observation, action in zip(batch, actions, strict=True):
        assert policy.act(observation).shape == (2,)
        np.testing.assert_allclose(policy.act(observation), action, atol=1e-6)
    assert policy.act(batch[:0]).shape == (0, 2)


def test_lists_and_other_number_types_are_welcome():
    policy = linear_policy()
    np.testing.assert_array_equal(policy.act([1, 2, 3]), policy.act(np.array([1.0, 2.0, 3.0])))


def test_actions_lie_within_the_range():
    actions = linear_policy().act(np.random.default_rng(0).normal(size=(1000, 3)) * 1e6)
    assert ((actions >= np.float32(LOW)) & (actions <= np.float32(HIGH))).all()


@pytest.mark.parametrize("shape", [(), (2,), (4,), (5, 4), (3, 1), (2, 5, 3)])
def test_an_observation_of_the_wrong_shape_gets_a_sentence(shape):
    with pytest.raises(UserError, match=r"trained on observations of shape \(3,\)") as caught:
        linear_policy().act(np.zeros(shape))
    assert f"an array of shape {shape} was given" in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_with_nan_gets_a_sentence(value):
    with pytest.raises(UserError, match="holds NaN or infinity"):
        linear_policy().act([0.0, value, 0.0])


def test_what_is_no_array_gets_a_sentence():
    with pytest.raises(UserError, match="observations of shape"):
        linear_policy().act({"position": [1, 2, 3]})
    with pytest.raises(UserError, match="observations of shape"):
        linear_policy().act([[1, 2, 3], [1, 2]])


def test_shaped_observations_and_actions_keep_their_shapes():
    layers = [(np.ones((6, 4), np.float32), np.zeros(4, np.float32))]
    policy = Policy(layers, [-1.0] * 4, [1.0] * 4, (2, 3), (2, 2))
    assert policy.act(np.zeros((2, 3))).shape == (2, 2)
    assert policy.act(np.zeros((5, 2, 3))).shape == (5, 2, 2)


def test_a_loaded_agent_acts_as_the_torch_actor_with_its_weights(trained):
    agent = td3.load(trained.path, seed=1, which="last")
    torch_actor = torch.nn.Sequential(
        *(module for size in ((3, 8), (8, 8), (8, 2)) for module in (torch.nn.Linear(*size), torch.nn.ReLU()))
    )[:-1]
    from safetensors.torch import load_file

    tensors = load_file(trained.folder(1) / "last" / "agent.safetensors")
    names = {f"{2 * depth}.{kind}": f"actor.{depth}.{kind}" for depth in range(3) for kind in ("weight", "bias")}
    torch_actor.load_state_dict({own: tensors[name] for own, name in names.items()})
    observations = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    expected = (low + high) / 2 + (high - low) / 2 * torch.tanh(torch_actor(observations))
    np.testing.assert_allclose(agent.act(observations.numpy()), expected.detach().numpy(), atol=1e-6)


def test_types_are_checked_in_the_whole_suite():
    with pytest.raises(Exception, match="typechecking parameter 'layers'"):
        Policy(3, LOW, HIGH, (3,), (2,))
