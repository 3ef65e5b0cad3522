"""An agent as a Stable-Baselines3 model, written by Stable-Baselines3 itself: `TD3.load("sb3.zip", env=env)`.

Their critics see actions scaled to [-1, 1], ours in true units; the difference is folded into the first layer, so that
both compute the same numbers. So is what normalizes observations, where an agent has that; only its clip, at ten
standard deviations from the mean, has no place in their networks.
"""

import contextlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch

from td3.config import TrainConfig
from td3.environments import make_environment
from td3.errors import missing_extra
from td3.export.exported_actor import ACTIVATIONS
from td3.policy import Array, Policy
from td3.settings import TD3Config

if TYPE_CHECKING:
    import stable_baselines3


class _Spaces(gym.Env[Any, Any]):
    """An environment with spaces only: a model needs one, and it is never stepped."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def require_sb3() -> None:
    """Report a missing extra before anything is written."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise missing_extra("writing a Stable-Baselines3 model", "sb3")


def write_sb3(
    path: Path, tensors: Mapping[str, Array], policy: Policy, config: TrainConfig, facts: Mapping[str, Any]
) -> None:
    """Write all six networks and the settings; optimizer state is empty, because a saved agent has none."""
    require_sb3()
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    settings = config.td3
    with contextlib.closing(make_environment(**config.env_arguments)) as environment:
        spaces = _Spaces(environment.observation_space, environment.action_space)
    size, sizes = len(policy.low), {"pi": list(settings.actor_sizes), "qf": list(settings.critic_sizes)}
    model = TD3(
        "MlpPolicy",
        spaces,
        learning_rate=settings.actor_learning_rate,
        buffer_size=1,
        learning_starts=settings.learning_starts,
        batch_size=settings.batch_size,
        tau=settings.tau,
        gamma=settings.gamma,
        action_noise=NormalActionNoise(np.zeros(size), np.full(size, settings.exploration_noise)),
        policy_delay=settings.policy_delay,
        target_policy_noise=settings.target_policy_noise,
        target_noise_clip=settings.target_noise_clip,
        policy_kwargs={
            "net_arch": sizes["pi"] if sizes["pi"] == sizes["qf"] else sizes,
            "activation_fn": ACTIVATIONS[settings.activation],
            "optimizer_class": {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[settings.optimizer],
        },
        device="cpu",
        **_schedule(settings),
    )
    _copy_weights(model, tensors, policy)
    # The buffer is not part of the file; continued training creates one of this size.
    model.buffer_size = settings.buffer_size
    model.num_timesteps, model._n_updates = int(facts["env_steps"]), int(facts["updates"])
    model.save(path)


def actions_by_sb3(path: Path, observations: Array) -> Array:
    """Actions that Stable-Baselines3 predicts with the written file."""
    from stable_baselines3 import TD3

    # A buffer of one row: to predict, nothing is stored.
    actions, _ = TD3.load(path, device="cpu", buffer_size=1).predict(observations, deterministic=True)
    return np.asarray(actions)


def _schedule(settings: TD3Config) -> dict[str, Any]:
    """SB3's train_freq and gradient_steps; the nearest ratio that they can express."""
    if settings.train_freq == "episode":
        return {"train_freq": (1, "episode"), "gradient_steps": -1}
    if settings.utd_ratio >= 1:
        return {"train_freq": 1, "gradient_steps": round(settings.utd_ratio)}
    return {"train_freq": round(1 / settings.utd_ratio), "gradient_steps": 1}


def _copy_weights(model: "stable_baselines3.TD3", tensors: Mapping[str, Array], policy: Policy) -> None:
    middle, half = (policy.low.astype(np.float64) + policy.high) / 2, (policy.high.astype(np.float64) - policy.low) / 2
    for name, network in (
        ("actor", model.actor.mu),
        ("actor_target", model.actor_target.mu),
        ("critic_1", model.critic.q_networks[0]),
        ("critic_2", model.critic.q_networks[1]),
        ("critic_target_1", model.critic_target.q_networks[0]),
        ("critic_target_2", model.critic_target.q_networks[1]),
    ):
        linears = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
        for depth, linear in enumerate(linears):
            weight, bias = (tensors[f"{name}.{depth}.{part}"].astype(np.float64) for part in ("weight", "bias"))
            if depth == 0 and policy.normalizer is not None:
                mean, scale = (array.astype(np.float64) for array in policy.normalizer)
                of_state = weight[:, : len(mean)]
                of_state *= scale  # a view: the weight itself changes
                bias -= of_state @ mean
            if name.startswith("critic") and depth == 0:
                of_action = weight[:, -len(half) :]
                bias += of_action @ middle
                of_action *= half  # a view: the weight itself changes
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(weight))
                linear.bias.copy_(torch.from_numpy(bias))
