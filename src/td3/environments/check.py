"""Check an environment before training: whether TD3 supports it, and whether it follows Gymnasium's API."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from td3.environments.guarded import describe, not_bytes
from td3.environments.observations import flattened_from, holds_image
from td3.errors import EnvironmentFault
from td3.pixels.layout import LARGEST, layout_of
from td3.pixels.wrappers import stacked_frames


class TaskSpaces(NamedTuple):
    """Sizes and bounds of an environment's spaces."""

    state_size: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    flattened: str = ""
    """The original observation space as text, if it was flattened."""
    frames: int = 0
    """Stacked frames of an image observation; 0 for vectors."""

    @property
    def action_size(self) -> int:
        """The number of action dimensions."""
        return len(self.action_low)


def check_environment(environment: gym.Env[Any, Any], name: str) -> TaskSpaces:
    """The task's spaces, after a reset and a step; raises `EnvironmentFault` when TD3 cannot be trained on it."""
    action_space, observation_space = environment.action_space, environment.observation_space
    if not isinstance(action_space, Box):
        kind = type(action_space).__name__
        raise EnvironmentFault(
            f"{name} has {kind} actions, and TD3 needs continuous ones (a Box): "
            + (
                "make it with  --env-kwargs continuous=true"
                if "continuous" in inspect.signature(type(environment.unwrapped)).parameters
                else "choose another task, or for Discrete actions another algorithm."
            )
        )
    low, high = (np.asarray(bound, np.float64).ravel() for bound in (action_space.low, action_space.high))
    if low.size == 0 or not np.all(np.isfinite([low, high])):
        raise EnvironmentFault(
            f"{name} has action bounds {_short(low)}..{_short(high)}, and TD3 needs finite ones: "
            "wrap it with gymnasium.wrappers.RescaleAction or ClipAction."
        )
    with np.errstate(over="ignore"):
        widths = np.float32(high) - np.float32(low)
    if not np.all(np.isfinite(widths)):
        raise EnvironmentFault(
            f"{name} has action bounds {_short(low)}..{_short(high)}, whose width does not fit into 32-bit numbers: "
            "wrap it with gymnasium.wrappers.RescaleAction."
        )
    if np.any(low >= high):
        raise EnvironmentFault(
            f"{name} has an action dimension without width ({_short(low)}..{_short(high)}): remove that dimension."
        )
    if holds_image(observation_space) and not isinstance(observation_space, Box):
        kind = type(observation_space).__name__
        raise EnvironmentFault(f"{name} has {kind} observations with images among them: give one or the other.")
    if not isinstance(observation_space, Box):
        kind = type(observation_space).__name__
        raise EnvironmentFault(f"{name} has {kind} observations: wrap it so that it gives an array (a Box).")
    if 0 in observation_space.shape:
        raise EnvironmentFault(
            f"{name} has an observation space of shape {observation_space.shape}, which holds no numbers: TD3 needs at "
            "least one number in an observation."
        )
    frames = _frames(environment, observation_space, name)
    _check_reset(environment, observation_space, name)
    _check_step(environment, observation_space, ((low + high) / 2).reshape(action_space.shape), name)
    return TaskSpaces(
        int(np.prod(observation_space.shape)),
        tuple(low.tolist()),
        tuple(high.tolist()),
        observation_space.shape,
        action_space.shape,
        flattened_from(environment),
        frames,
    )


def _frames(environment: gym.Env[Any, Any], space: Box, name: str) -> int:
    """Stacked frames of an image observation; 0 if it is no image."""
    if space.dtype != np.uint8 or len(space.shape) < 2:
        return 0
    frames = space.shape[0] if len(space.shape) == 4 else stacked_frames(environment)
    layout = layout_of(space.shape, frames)
    if layout is None:
        return 0
    if max(layout.height, layout.width) > LARGEST:
        raise EnvironmentFault(
            f"{name} gives images of {layout.height} x {layout.width} pixels, and at most {LARGEST} x {LARGEST} can "
            "be learned from: wrap it with gymnasium.wrappers.ResizeObservation, (84, 84) for example."
        )
    return frames


def _check_reset(environment: gym.Env[Any, Any], space: Box, name: str) -> None:
    result = guarded_call(f"{name}.reset()", lambda: environment.reset(seed=0))
    if not (isinstance(result, tuple) and len(result) == 2):
        raise EnvironmentFault(f"{name}.reset() must return (observation, info), the Gymnasium way; fix its reset().")
    _check_observation(result[0], space, f"{name}.reset()")


def _check_step(environment: gym.Env[Any, Any], space: Box, action: NDArray[Any], name: str) -> None:
    result = guarded_call(f"{name}.step()", lambda: environment.step(action.astype(np.float32)))
    if not (isinstance(result, tuple) and len(result) == 5):
        raise EnvironmentFault(
            f"{name}.step() must return (observation, reward, terminated, truncated, info), the Gymnasium way; "
            "fix its step()."
        )
    observation, reward, *ends, _ = result
    _check_observation(observation, space, f"{name}.step()")
    amount = guarded_call(f"{name}.step()", lambda: np.asarray(reward))
    if amount.shape != () or not np.issubdtype(amount.dtype, np.number):
        raise EnvironmentFault(
            f"{name}.step() gave the reward {guarded_call(name, lambda: repr(reward))}: return one number."
        )
    if not np.isfinite(amount):
        raise EnvironmentFault(f"{name}.step() gave NaN or infinity as its reward: fix the environment.")
    if not all(isinstance(end, bool | np.bool_) for end in ends):
        kinds = ", ".join(type(end).__name__ for end in ends)
        raise EnvironmentFault(f"{name}.step() gave terminated and truncated as {kinds}: return True or False.")


def guarded_call(source: str, call: Callable[[], Any], advice: str = "fix the environment.") -> Any:
    """The call's result; any exception except Ctrl-C becomes an `EnvironmentFault`."""
    try:
        return call()
    except (KeyboardInterrupt, EnvironmentFault):
        raise
    except BaseException as error:
        raise EnvironmentFault(f"{source} failed ({describe(error)}): {advice}") from error


def _check_observation(given: Any, space: Box, source: str) -> None:
    observation = guarded_call(source, lambda: np.asarray(given))
    if observation.shape != space.shape:
        raise EnvironmentFault(
            f"{source} gave an observation of shape {observation.shape}, but its observation_space says "
            f"{space.shape}: make the two agree."
        )
    if observation.dtype.kind not in "fiu":
        raise EnvironmentFault(f"{source} gave an observation of type {observation.dtype}: return numbers.")
    if holds_image(space) and (problem := not_bytes(observation)):
        raise EnvironmentFault(f"{source} gave {problem}.")
    if not np.all(np.isfinite(observation)):
        raise EnvironmentFault(f"{source} gave NaN or infinity in its observation: fix the environment.")


def _short(bound: NDArray[Any]) -> str:
    return np.array2string(bound, precision=3, threshold=6)
