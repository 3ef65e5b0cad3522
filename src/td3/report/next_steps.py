"""Commands to suggest after a run, chosen by its settings and result; each can be typed as it is."""

import importlib.util
import inspect
import shlex
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from td3.config import TrainConfig
from td3.environments.make import family_of
from td3.environments.spec import class_named
from td3.policy import Array
from td3.run.directory import resume_command, trust_option

SHORT = 300_000
"""Env steps below which a run that improved is worth extending."""
VIDEO_PACKAGES = ("imageio_ffmpeg", "PIL")
"""What the extra `video` installs."""


def next_steps(path: Path, config: TrainConfig, interrupted: bool, before: Array, after: Array) -> list[str]:
    """One to three commands that fit this run: diagnose, evaluate, watch, extend, repeat with seeds, or export it."""
    trust = " --trust" if ":" in config.env else ""  # its module is imported again
    run = shlex.quote(str(path))
    if interrupted:  # how to continue was said before, with the env step
        return [f"td3 report {run}"]
    watch = [f"td3 watch {run}{trust}"] if can_watch(config) else []
    if float(np.nanmean(after)) <= float(np.nanmean(before)):  # frozen seeds are NaN
        return [f"td3 doctor {run}", *watch]
    lines = [f"td3 evaluate {run}{trust}", *watch]
    if config.steps < SHORT:
        return [*lines, f"{resume_command(path, config)} --steps {4 * config.steps}"]
    if config.seeds == 1:
        again = f"td3 train --config {shlex.quote(str(path / 'config.json'))} --seeds 5"  # names a dataset, too
        return [*lines, again + trust_option(config)]
    return [*lines, f"td3 export {run}"]


def can_watch(config: TrainConfig) -> bool:
    """Whether `td3 watch` works: the environment draws frames, and what draws and writes them is installed."""
    family = family_of(config.env)
    needed = [*VIDEO_PACKAGES, *([family.package] if family else [])]
    return all(importlib.util.find_spec(package) for package in needed) and renders(config)


def renders(config: TrainConfig) -> bool:
    """Whether the environment can render frames, as its class says: a robot is not made again to be asked."""
    creator = _creator(config.env)
    if "rgb_array" not in (getattr(creator, "metadata", None) or {}).get("render_modes", []):
        return False
    parameters = inspect.signature(creator).parameters.values()
    return any(each.name == "render_mode" or each.kind is each.VAR_KEYWORD for each in parameters)


def _creator(env: str) -> Any:
    """The class or function that makes the environment; None where that is not known without importing its module."""
    if ":" in env and env.partition(":")[0] in sys.modules and (found := class_named(env)):
        return found
    try:
        entry = gym.spec(env).entry_point
        return load_env_creator(entry) if isinstance(entry, str) else entry
    except (gym.error.Error, ImportError, AttributeError, ValueError):
        return None
