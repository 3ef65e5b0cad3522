"""Separate sizes of actor and critics, and other activations, from the command line to every file of an agent."""

from typing import get_args

import numpy as np
import pytest
import torch

import td3
from td3 import policy as in_numpy
from td3.algorithm.agent import Agent, Task
from td3.backends.torch_backend import ACTIVATIONS
from td3.config import TrainConfig
from td3.engine import live_policy
from td3.errors import AgentFileError
from td3.export.exported_actor import ACTIVATIONS as EXPORTED
from td3.export.exported_actor import ExportedActor
from td3.report.video_stage import saved_critic
from td3.run.agent_file import load_agent
from td3.settings import Activation, TD3Config

OPTIONS = {"eval_every": 0, "eval_episodes": 1, "device": "cpu", "threads": 1, "workers": "none"}
SMALL = {"batch_size": 4, "learning_starts": 5}


def test_every_list_of_activations_has_the_same_names():
    assert set(ACTIVATIONS) == set(in_numpy.ACTIVATIONS) == set(EXPORTED) == set(get_args(Activation))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_numpy_and_the_exported_module_act_as_the_network_does(activation):
    spec = (
        Task(3, (-2.0, 0.0), (1.0, 3.0)),
        TD3Config(hidden_sizes=(16, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3, activation=activation),
    )
    agent, states = Agent.create(*spec, [0]), np.random.default_rng(0).normal(size=(1, 30, 3)).astype(np.float32)
    with torch.no_grad():
        wanted = agent.actor(torch.from_numpy(states)).numpy()
    policy = live_policy(agent)
    np.testing.assert_allclose(policy(states), wanted, rtol=1e-5, atol=1e-6)
    exported = ExportedActor(policy.member(0))(torch.from_numpy(states[0])).numpy()
    np.testing.assert_allclose(exported, wanted[0], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    sizes = {"actor_hidden_sizes": (6,), "critic_hidden_sizes": (8, 7), "activation": "tanh"}
    return td3.train("Rail-v0", steps=30, out=out, learning_rate_schedule="linear", **sizes, **SMALL, **OPTIONS)


def test_an_export_for_stable_baselines3_has_them(run, tmp_path):
    pytest.importorskip("stable_baselines3", reason="comes with an extra")
    from safetensors.numpy import load_file
    from stable_baselines3 import TD3

    from td3.export.sb3_zip import actions_by_sb3, write_sb3

    folder, (policy, facts) = run.folder(0) / "last", run.agent(0, "last")
    write_sb3(tmp_path / "model.zip", load_file(folder / "agent.safetensors"), policy, run.config, facts)
    observations = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_allclose(
        actions_by_sb3(tmp_path / "model.zip", observations), policy.act(observations), rtol=1e-4, atol=1e-5
    )
    model = TD3.load(tmp_path / "model.zip", device="cpu", buffer_size=1)
    assert model.policy.net_arch == {"pi": [6], "qf": [8, 7]}
    assert model.policy.activation_fn is torch.nn.Tanh


def test_a_run_saves_and_loads_them(run):
    saved = run.agent(0, "last")
    assert saved.policy.activation == "tanh"
    assert [weight.shape for weight, _ in saved.policy.layers] == [(2, 6), (6, 1)]
    assert saved.facts["activation"] == "tanh"
    assert saved.facts["version"] == 3
    assert run.config.td3.critic_sizes == (8, 7)
    assert TrainConfig.from_json(run.config.to_json()) == run.config
    again = td3.resume(run.path, steps=40)
    assert again.config.td3 == run.config.td3


def test_the_critic_of_a_video_has_its_own_sizes_and_activation(run):
    q_value = saved_critic(run.folder(0) / "last")
    assert np.isfinite(q_value(np.zeros(2, np.float32), np.zeros(1, np.float32)))


def test_an_unknown_activation_in_an_agent_file_is_refused(run, tmp_path):
    for name in ("agent.json", "agent.safetensors"):
        (tmp_path / name).write_bytes((run.folder(0) / "last" / name).read_bytes())
    text = (tmp_path / "agent.json").read_text().replace('"activation": "tanh"', '"activation": "swish"')
    (tmp_path / "agent.json").write_text(text)
    with pytest.raises(AgentFileError, match="its activation, 'swish', is none of relu, tanh, elu, leaky_relu"):
        load_agent(tmp_path)


def test_by_default_both_have_the_common_sizes():
    settings = TD3Config(hidden_sizes=[5, 4])
    assert settings.actor_sizes == settings.critic_sizes == (5, 4)
    assert TD3Config(hidden_sizes=(5,), critic_hidden_sizes=[9]).critic_sizes == (9,)
