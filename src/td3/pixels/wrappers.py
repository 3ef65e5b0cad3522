"""An environment seen through its own drawing: small gray images instead of its observations."""

import ctypes.util
import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import FrameStackObservation
from numpy.typing import NDArray

from td3.errors import EnvironmentFault

Array = NDArray[Any]
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
"""How bright red, green and blue look (ITU-R BT.601)."""
DRAWS_WITH_MUJOCO = ("mujoco", "dm_control", "gymnasium_robotics")


def prepare_headless_rendering(package: str | None) -> None:
    """Let MuJoCo and pygame draw without a screen; must come before mujoco is imported."""
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if package not in DRAWS_WITH_MUJOCO or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY"):
        return
    if ctypes.util.find_library("EGL") is None:
        raise EnvironmentFault(
            "drawing MuJoCo without a screen needs the EGL library: on Debian and Ubuntu, "
            "apt-get install libegl1 libgl1-mesa-dri"
        )
    os.environ["MUJOCO_GL"] = "egl"


class RepeatAction(gym.Wrapper[Any, Any, Any, Any]):
    """Does every action several times, as one env step: rewards are added up, and an end ends it."""

    def __init__(self, environment: gym.Env[Any, Any], times: int) -> None:
        super().__init__(environment)
        self._times = times

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The last observation of several steps, and the sum of their rewards."""
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(np.copy(action))  # which it may change
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class Pixels(gym.ObservationWrapper[Array, Any, Any]):
    """What the environment draws, as a gray image `[size, size]` of bytes."""

    def __init__(self, environment: gym.Env[Any, Any], name: str, size: int) -> None:
        super().__init__(environment)
        self.name, self.size = name, size
        self.observation_space = Box(0, 255, (size, size), np.uint8)
        self._averaging: tuple[Array, Array] | None = None

    def observation(self, observation: Any) -> Array:
        """The image of this moment."""
        drawn = render_frame(self.env, self.name)
        if self._averaging is None:
            self._averaging = averaging(drawn.shape[0], self.size), averaging(drawn.shape[1], self.size).T
        rows, columns = self._averaging
        gray = drawn.astype(np.float32) @ LUMINANCE
        return np.asarray((rows @ gray @ columns + np.float32(0.5)).clip(0, 255), np.uint8)


def render_frame(environment: Any, name: str) -> Array:
    """The current frame of an environment, `[height, width, 3]`; raises `EnvironmentFault` if it is no RGB array."""
    try:
        frame = environment.render()
    except NotImplementedError:
        raise no_renderer(name) from None
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise no_renderer(name)
    return frame


def averaging(length: int, places: int) -> Array:
    """`[places, length]`: the mean over each of so many equal parts of a line of pixels, cut where they end."""
    edges = np.linspace(0, length, places + 1)[:, None]
    pixels = np.arange(length)
    shares = np.clip(np.minimum(pixels + 1, edges[1:]) - np.maximum(pixels, edges[:-1]), 0, 1)
    return np.asarray(shares / shares.sum(1, keepdims=True), np.float32)


def render_as_observation(environment: gym.Env[Any, Any], name: str, size: int, frames: int) -> gym.Env[Any, Any]:
    """The environment with the newest few of its images as its observation, `[frame, size, size]`."""
    if environment.render_mode != "rgb_array":
        environment.close()
        raise no_renderer(name)
    return FrameStackObservation(Pixels(environment, name, size), frames)


def no_renderer(name: str) -> EnvironmentFault:
    """The error for an environment that cannot be looked at."""
    return EnvironmentFault(
        f"{name} has no renderer that gives images: accept render_mode='rgb_array' in its __init__ and return an RGB "
        "array from render()."
    )


def stacked_frames(environment: gym.Env[Any, Any]) -> int:
    """How many frames an observation consists of, where Gymnasium's own wrapper stacks them; else 1."""
    space = environment.observation_space
    while isinstance(environment, gym.Wrapper):
        if isinstance(environment, FrameStackObservation):
            return environment.stack_size if environment.observation_space == space else 1
        environment = environment.env
    return 1
