"""A model's actor in the form that `td3.export` writes."""

from typing import Any

import numpy as np

from td3.policy import CLIP, Policy
from td3.run.agent_file import SavedAgent
from td3.run.directory import versions
from td3_sb3.errors import SettingError


def exported_agent(model: Any, actor: Policy | None) -> SavedAgent:
    """The actor with actions in the environment's units, and with what `VecNormalize` knows inside."""
    if actor is None:
        raise SettingError(
            "export writes actors of MlpPolicy on vectors of numbers: use torch.onnx for this policy, as the page "
            "'Exporting models' of Stable-Baselines3 says."
        )
    space = model.action_space
    layers = [(weight, bias[0]) for weight, bias in actor.layers]
    shapes = model.observation_space.shape, space.shape
    bounds = space.low.ravel().tolist(), space.high.ravel().tolist()
    policy = Policy(layers, *bounds, *shapes, normalizer=_normalizer(model))
    return SavedAgent(policy, {"env_steps": model.num_timesteps, "versions": versions()})


def _normalizer(model: Any) -> tuple[Any, Any] | None:
    known = model.get_vec_normalize_env()
    if known is None or not known.norm_obs:
        return None
    if known.clip_obs != CLIP:
        raise SettingError(
            f"an exported actor clips normalized observations at {CLIP:g}, but VecNormalize clips at "
            f"{known.clip_obs:g}: train with clip_obs={CLIP:g}."
        )
    scale = 1 / np.sqrt(known.obs_rms.var + known.epsilon)
    return known.obs_rms.mean.astype(np.float32).ravel(), scale.astype(np.float32).ravel()


def env_name(env: Any) -> str:
    """Gymnasium's name of the environment, as far as it can be known."""
    try:
        return str(env.get_attr("spec", 0)[0].id)
    except (AttributeError, IndexError, TypeError):
        return "an environment without a name"
