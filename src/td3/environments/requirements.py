"""Check an environment before training: whether TD3 supports it, and whether it follows Gymnasium's API."""

import inspect
import json
import math
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from td3.environments.guarded import as_flag, as_reward, not_bytes
from td3.environments.observations import flattened_from, holds_image
from td3.errors import EnvironmentFault
from td3.pixels.layout import LARGEST, layout_of
from td3.pixels.wrappers import stacked_frames
from td3.user_code import describe, with_lines


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
    time_limit: int = 0
    """Env steps after which Gymnasium truncates an episode; 0 if at most the environment itself does."""

    @property
    def action_size(self) -> int:
        """The number of action dimensions."""
        return len(self.action_low)


USUAL_LIMIT = 1_000
"""Time limit that is suggested: that of most MuJoCo tasks."""
NEW_RESET = (
    "begin it with  def reset(self, *, seed=None, options=None):  and  super().reset(seed=seed),  and end it with  "
    "return observation, {}"
)
"""What Gymnasium asks of `reset`, where the old gym API had neither arguments nor an info."""


def check_environment(environment: gym.Env[Any, Any], name: str) -> TaskSpaces:
    """The task's spaces, after a reset and a step; raises `EnvironmentFault` when TD3 cannot be trained on it."""
    action_space, observation_space = environment.action_space, environment.observation_space
    if not isinstance(action_space, Box):
        label = type(action_space).__name__
        raise EnvironmentFault(
            f"{name} has {label} actions, and TD3 needs continuous ones (a Box): "
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
            f"declare them, as in  self.action_space = {_unit_box(action_space)}  or wrap it:  "
            f"gymnasium.wrappers.TransformAction(env, lambda action: action, {_unit_box(action_space)})"
        )
    with np.errstate(over="ignore"):
        widths = np.float32(high) - np.float32(low)
    if not np.all(np.isfinite(widths)):
        raise EnvironmentFault(
            f"{name} has action bounds {_short(low)}..{_short(high)}, whose width does not fit into 32-bit numbers: "
            "wrap it:  gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))"
        )
    if np.any(low >= high):
        raise EnvironmentFault(
            f"{name} has an action dimension without width ({_short(low)}..{_short(high)}): remove that dimension."
        )
    if holds_image(observation_space) and not isinstance(observation_space, Box):
        label = type(observation_space).__name__
        how = _without_images(observation_space)
        raise EnvironmentFault(f"{name} has {label} observations with images among them: give one or the other{how}")
    if not isinstance(observation_space, Box):
        label = type(observation_space).__name__
        raise EnvironmentFault(
            f"{name} has {label} observations: wrap it so that it gives an array (a Box), as with a function as_array:"
            "  gymnasium.wrappers.TransformObservation(env, as_array, gymnasium.spaces.Box(-1.0, 1.0, (SIZE,)))"
        )
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
        _time_limit(environment),
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
            f"be learned from: draw smaller ones, or wrap it:  {_smaller(space)}"
        )
    return frames


def _unit_box(space: Box) -> str:
    return f"gymnasium.spaces.Box(-1.0, 1.0, {space.shape}, np.float32)"


def _without_images(space: Any) -> str:
    """How to keep the numbers of a Dict, as text that follows the advice."""
    numbers = [name for name, subspace in space.items() if not holds_image(subspace)] if isinstance(space, Dict) else []
    return f", as with  gymnasium.wrappers.FilterObservation(env, {numbers})" if numbers else "."


def _smaller(space: Box) -> str:
    """A wrapper that leaves out rows and columns, so that the images are of about 84 x 84 pixels."""
    strides = [max(1, -(-size // 84)) if size > LARGEST else 1 for size in space.shape]
    sizes = tuple(-(-size // stride) for size, stride in zip(space.shape, strides, strict=True))
    kept = ", ".join(f"::{stride}" for stride in strides)
    box = f"gymnasium.spaces.Box(0, 255, {sizes}, np.uint8)"
    return f"gymnasium.wrappers.TransformObservation(env, lambda image: image[{kept}], {box})"


def _kind(result: Any) -> str:
    """What a method returned, in two words."""
    return f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__


def option_with_limit(env_kwargs: Mapping[str, Any]) -> str:
    """The option that gives an environment a time limit beside the arguments that it has."""
    words = [f"{name}={json.dumps(value)}" for name, value in {**env_kwargs, "max_episode_steps": USUAL_LIMIT}.items()]
    return f"--env-kwargs {shlex.join(words)}"


def _time_limit(environment: gym.Env[Any, Any]) -> int:
    """Env steps after which Gymnasium truncates an episode; 0 if it does not."""
    while isinstance(environment, gym.Wrapper):
        if isinstance(environment, TimeLimit):
            return int(environment._max_episode_steps)
        environment = environment.env
    return 0


def _check_reset(environment: gym.Env[Any, Any], space: Box, name: str) -> None:
    takes = inspect.signature(environment.unwrapped.reset).parameters
    is_old = not any(name == "seed" or parameter.kind == parameter.VAR_KEYWORD for name, parameter in takes.items())
    advice = f"its reset() follows the old gym API: {NEW_RESET}" if is_old else "fix the environment."
    result = guarded_call(f"{name}.reset()", lambda: environment.reset(seed=0), advice)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise EnvironmentFault(f"{name}.reset() returned {_kind(result)}: {NEW_RESET}")
    _check_observation(result[0], space, f"{name}.reset()")


def _check_step(environment: gym.Env[Any, Any], space: Box, action: NDArray[Any], name: str) -> None:
    result = guarded_call(f"{name}.step()", lambda: environment.step(action.astype(np.float32)))
    if not (isinstance(result, tuple) and len(result) == 5):
        raise EnvironmentFault(
            f"{name}.step() returned {_kind(result)}: end it with  return observation, reward, terminated, truncated, "
            "info  where the old gym API had done; truncated is for time limits."
        )
    observation, reward, *ends, _ = result
    _check_observation(observation, space, f"{name}.step()")
    source = f"{name}.step()"
    if not math.isfinite(guarded_call(source, lambda: as_reward(reward, source))):
        raise EnvironmentFault(f"{source} gave NaN or infinity as its reward: fix the environment.")
    for end, what in zip(ends, ("terminated", "truncated"), strict=True):
        guarded_call(source, partial(as_flag, end, what, source))


def guarded_call(source: str, call: Callable[[], Any], advice: str = "fix the environment.") -> Any:
    """The call's result; any exception except Ctrl-C becomes an `EnvironmentFault`."""
    try:
        return call()
    except (KeyboardInterrupt, EnvironmentFault):
        raise
    except BaseException as error:
        raise with_lines(EnvironmentFault(f"{source} failed with {describe(error)}: {advice}"), error) from error


def _check_observation(returned: Any, space: Box, source: str) -> None:
    observation = guarded_call(source, lambda: np.asarray(returned))
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
