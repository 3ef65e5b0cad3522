"""Calls into an environment: any error becomes an `EnvironmentFault` with one sentence.

Only KeyboardInterrupt passes: Ctrl-C is for the run. `sys.exit()` inside an environment is a fault like any other.
"""

import contextlib
import math
import numbers
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from td3.environments.infos import numbers_of
from td3.environments.observations import holds_image
from td3.environments.side_effects import raised_by_code
from td3.errors import EnvironmentFault, UserError
from td3.user_code import describe, with_lines

Array = NDArray[Any]
Make = Callable[[], gym.Env[Any, Any]]
Step = tuple[Array, float, bool, bool, dict[str, float]]
MOST_FAULTS = 3
"""Faults of one environment, with no finished episode between them, after which the run ends."""
LONGEST_VALUE = 60
"""Characters of a wrong value that are shown."""
UNSTABLE = "MuJoCo found its simulation unstable and reset it inside a step"


class Shapes(NamedTuple):
    """Shapes and types of an environment's observations and actions."""

    observation: tuple[int, ...]
    action: tuple[int, ...]
    image: bool
    """Whether observations must be bytes."""

    @classmethod
    def of(cls, environment: gym.Env[Any, Any]) -> "Shapes":
        """The shapes of an environment's spaces."""
        space = environment.observation_space
        return cls(space.shape or (), environment.action_space.shape or (), holds_image(space))


def failed_in(method: str, error: BaseException) -> EnvironmentFault:
    """The fault for something that an environment raised in this method."""
    return with_lines(EnvironmentFault(f"an environment failed in {method}(): {describe(error)}"), error)


def construct(make: Make) -> gym.Env[Any, Any]:
    """A new environment."""
    try:
        environment = make()
        if not isinstance(environment, gym.Env):
            raise EnvironmentFault(f"{type(environment).__name__} was constructed, which is not a gymnasium.Env")
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:
        raise failed_in("__init__", error) from error
    listen_to_mujoco()
    return environment


def reset(environment: gym.Env[Any, Any], seed: int | None, shapes: Shapes) -> Array:
    """The first observation of a new episode, as a vector."""
    try:
        observation, _ = environment.reset(seed=seed)
        return as_vector(observation, shapes, environment)
    except (KeyboardInterrupt, EnvironmentFault):
        raise
    except BaseException as error:
        raise failed_in("reset", error) from error


def step(environment: gym.Env[Any, Any], action: Array, shapes: Shapes) -> Step:
    """One step: observation, reward, terminated, truncated, and at the end of an episode the numbers in its info."""
    try:
        # A copy of the action: the environment may keep or change the one that it is given.
        observation, reward, terminated, truncated, info = environment.step(action.reshape(shapes.action).copy())
        # The usual types are asked for first: this is done in every step.
        ended = (
            terminated if type(terminated) is bool else as_flag(terminated, "terminated"),
            truncated if type(truncated) is bool else as_flag(truncated, "truncated"),
        )
        result = (
            as_vector(observation, shapes, environment),
            reward if isinstance(reward, float) else as_reward(reward),
            *ended,
            numbers_of(info) if any(ended) else {},
        )
    except (KeyboardInterrupt, EnvironmentFault):
        raise
    except BaseException as error:
        raise failed_in("step", error) from error
    if _mujoco_warnings:
        complaints = _mujoco_warnings.pop(threading.get_ident(), [])
        if any("unstable" in complaint for complaint in complaints):
            raise EnvironmentFault(UNSTABLE)
    return result


def close(environment: gym.Env[Any, Any]) -> None:
    """Close the environment."""
    try:
        environment.close()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not raised_by_code(error):  # Ctrl-C
            raise
        raise failed_in("close", error) from error


@contextlib.contextmanager
def opened(make: Make) -> Iterator[gym.Env[Any, Any]]:
    """A new environment, closed afterwards; an error in closing is a warning."""
    environment = construct(make)
    try:
        yield environment
    finally:
        try:
            close(environment)
        except EnvironmentFault as fault:
            warnings.warn(str(fault), stacklevel=3)


def as_vector(observation: Any, shapes: Shapes, environment: gym.Env[Any, Any]) -> Array:
    """A copy of the observation as a vector of float32: the environment may keep and change its own."""
    array = np.asarray(observation)
    if array.shape != shapes.observation:
        raise EnvironmentFault(
            f"{_name(environment)} gave an observation of shape {array.shape}, but its observation_space says "
            f"{shapes.observation}: make the two agree"
        )
    if array.dtype == np.float32 and not shapes.image:
        return array.flatten()
    if array.dtype.kind not in "fiub":
        raise EnvironmentFault(f"{_name(environment)} gave an observation of type {array.dtype}: return numbers")
    if shapes.image and (problem := not_bytes(array)):
        raise EnvironmentFault(f"{_name(environment)} gave {problem}")
    with np.errstate(over="ignore"):  # overflow is detected as infinity
        return array.astype(np.float32).ravel()


def as_flag(value: Any, name: str, source: str = "an environment") -> bool:
    """True or False: also of NumPy, 0 or 1, and of an array or a tensor with one of them; else `EnvironmentFault`."""
    plain = _only_element(value)
    if isinstance(plain, bool | np.bool_) or (isinstance(plain, int | np.integer) and plain in (0, 1)):
        return bool(plain)
    raise EnvironmentFault(f"{source} gave {name}={_shown(value)}: return True or False")


def as_reward(value: Any, source: str = "an environment") -> float:
    """A real number, also the only element of an array or a tensor; else `EnvironmentFault`."""
    plain = _only_element(value)
    if isinstance(plain, numbers.Real | np.bool_):
        return float(plain)
    raise EnvironmentFault(f"{source} gave the reward {_shown(value)}: return one real number")


def _only_element(value: Any) -> Any:
    """The element of an array or tensor with only one; anything else as it is."""
    shape = getattr(value, "shape", None)
    return value.item() if shape is not None and math.prod(shape) == 1 else value


def _shown(value: Any) -> str:
    """The value with its type, in one short line."""
    text = " ".join(repr(value).split())
    return f"{text[:LONGEST_VALUE]}{' ...' * (len(text) > LONGEST_VALUE)} ({type(value).__name__})"


def not_bytes(array: Array) -> str:
    """Why this array is not an image of bytes, as text that follows "gave"; empty if it is one."""
    if array.dtype == np.uint8:
        return ""
    if array.dtype.kind not in "iu":
        what = f"an image of {array.dtype} numbers"
    elif array.size and (array.min() < 0 or array.max() > 255):
        what = f"an image with numbers from {array.min()} to {array.max()}"
    else:
        return ""
    return f"{what}, but its observation_space has dtype uint8 (0 to 255): make the two agree"


def _name(environment: gym.Env[Any, Any]) -> str:
    return getattr(getattr(environment, "spec", None), "id", "the environment")


def listen_to_mujoco() -> None:
    """Redirect MuJoCo's warnings to Python, by the thread that caused them, instead of a file.

    When its numbers explode, MuJoCo resets the simulation by itself and only warns: the step looks like any other.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None:
        with contextlib.suppress(AttributeError):  # a package that is being imported by another thread
            mujoco.set_mju_user_warning(
                _on_mujoco_warning
            )  # again, for dm_control listens by itself from its import on


def _on_mujoco_warning(complaint: str) -> None:
    _mujoco_warnings.setdefault(threading.get_ident(), []).append(complaint)


_mujoco_warnings: dict[int, list[str]] = {}
