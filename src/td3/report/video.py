"""A film of a trained agent: played without noise, rendered without a screen, written as mp4."""

import ctypes.util
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td3.environments.make import family_of, make_environment
from td3.errors import ConfigError, EnvironmentFault, RunError, missing_extra
from td3.policy import Policy

FRAMES_PER_SECOND = 30
LONGEST_EPISODE = 2_000
"""Env steps shown of an episode, unless told otherwise."""


class Film(NamedTuple):
    """Where the film is and what it shows."""

    path: Path
    frames: int
    returns: list[float]


def prepare_film(env: str) -> None:
    """Whatever can be known to be missing for a film is told now, before anything is trained or played."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise missing_extra("writing a video", "video")
    prepare_headless_rendering(env)


def prepare_headless_rendering(env: str) -> None:
    """Let MuJoCo and pygame draw without a screen; must come before mujoco is imported."""
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    family = family_of(env)
    needs_gl = family is not None and family.package in ("mujoco", "dm_control", "gymnasium_robotics")
    if not needs_gl or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY"):
        return
    if ctypes.util.find_library("EGL") is None:
        raise EnvironmentFault(
            "drawing MuJoCo without a screen needs the EGL library: on Debian and Ubuntu, "
            "apt-get install libegl1 libgl1-mesa-dri"
        )
    os.environ["MUJOCO_GL"] = "egl"


def record(
    policy: Policy, env: str, path: Path, episodes: int = 1, seed: int = 0, max_steps: int = LONGEST_EPISODE
) -> Film:
    """Play episodes and write them as one mp4, in real time as far as the frame rate allows."""
    for name, given in (("episodes", episodes), ("max_steps", max_steps)):
        if given < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, but {given!r} was given.")
    prepare_film(env)
    import imageio_ffmpeg

    _require_writable(path)
    environment = _make_drawing(env)
    steps_per_second = environment.metadata.get("render_fps") or FRAMES_PER_SECOND
    every = max(1, round(steps_per_second / FRAMES_PER_SECOND))
    writer, frames, returns = None, 0, []
    try:
        for episode in range(episodes):
            observation, _ = environment.reset(seed=seed + episode)
            total, ended, step = 0.0, False, 0
            while not ended and step < max_steps:
                if step % every == 0:
                    frame = _frame(environment, env)
                    if writer is None:
                        height, width = frame.shape[:2]
                        writer = imageio_ffmpeg.write_frames(
                            str(path), (width, height), fps=steps_per_second / every, macro_block_size=2, quality=7
                        )
                        writer.send(None)
                    writer.send(np.ascontiguousarray(frame))
                    frames += 1
                observation, reward, terminated, truncated, _ = environment.step(policy.act(observation))
                total, ended, step = total + float(reward), terminated or truncated, step + 1
            returns.append(total)
    finally:
        if writer is not None:
            writer.close()
        environment.close()
    return Film(path, frames, returns)


def _require_writable(path: Path) -> None:
    if path.suffix != ".mp4":
        raise ConfigError(f"a video is written as .mp4, but {path} was given.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise RunError(f"the video {path} cannot be written ({error.strerror}): give another --out.") from None


def _make_drawing(env: str) -> Any:
    family = family_of(env)
    # The camera that follows the body, where the model has one; MuJoCo falls back to its free camera.
    is_mujoco = family is not None and family.extra == "mujoco"
    view = {"width": 320, "height": 240, "camera_name": "track"} if is_mujoco else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no such renderer is said below, as an error
            environment = make_environment(env, render_mode="rgb_array", **view)
    except EnvironmentFault as fault:
        if "render_mode" in str(fault):
            raise _no_renderer(env) from None
        raise
    if environment.render_mode != "rgb_array":
        environment.close()
        raise _no_renderer(env)
    return environment


def _no_renderer(env: str) -> EnvironmentFault:
    return EnvironmentFault(f"{env} has no renderer that gives pictures (render_mode rgb_array): add one to it.")


def _frame(environment: Any, env: str) -> NDArray[Any]:
    try:
        frame = environment.render()
    except NotImplementedError:
        raise _no_renderer(env) from None
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise _no_renderer(env)
    return frame
