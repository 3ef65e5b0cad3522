"""A film of a trained agent: played without noise, rendered without a screen, written as mp4."""

import ctypes.util
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.environments.make import family_of, make_environment
from td3.errors import EnvironmentFault, missing_extra
from td3.policy import Policy

FRAMES_PER_SECOND = 30
LONGEST_EPISODE = 2_000


class Film(NamedTuple):
    """Where the film is and what it shows."""

    path: Path
    frames: int
    returns: list[float]


def prepare_headless_rendering(env: str) -> None:
    """Let MuJoCo draw without a screen; must come before mujoco is imported, and only where the library exists."""
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


def record(policy: Policy, env: str, path: Path, episodes: int = 1, seed: int = 0) -> Film:
    """Play episodes and write them as one mp4, in real time as far as the frame rate allows."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise missing_extra("writing a video", "video") from None
    prepare_headless_rendering(env)
    size = {"width": 320, "height": 240} if _takes_size(env) else {}
    environment = make_environment(env, render_mode="rgb_array", **size)
    steps_per_second = environment.metadata.get("render_fps") or FRAMES_PER_SECOND
    every = max(1, round(steps_per_second / FRAMES_PER_SECOND))
    path.parent.mkdir(parents=True, exist_ok=True)
    writer, frames, returns = None, 0, []
    try:
        for episode in range(episodes):
            observation, _ = environment.reset(seed=seed + episode)
            total, ended, step = 0.0, False, 0
            while not ended and step < LONGEST_EPISODE:
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


def _takes_size(env: str) -> bool:
    family = family_of(env)
    return family is not None and family.extra == "mujoco"


def _frame(environment: Any, env: str) -> np.ndarray[Any, Any]:
    frame = environment.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise EnvironmentFault(f"{env} has no renderer that gives pictures (render_mode rgb_array).")
    return frame
