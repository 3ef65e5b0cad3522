"""Commands to suggest after a run, chosen by its settings and result."""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from td3.config import TrainConfig
from td3.policy import Array
from td3.run.directory import resume_command, trust_option

SHORT = 300_000
"""Env steps below which a run that improved is worth extending."""


def next_steps(path: Path, config: TrainConfig, interrupted: bool, before: Array, after: Array) -> list[str]:
    """Two or three commands that fit this run: continue, diagnose, watch, extend, repeat with seeds, or export it."""
    trust = " --trust" if ":" in config.env else ""  # its module is imported again
    resume = resume_command(path, config)
    if interrupted:  # how to continue was said before, with the env step
        return [f"td3 report {path}"]
    lines = [f"td3 watch {path}{trust}"] if renders(config) else []
    if float(np.nanmean(after)) <= float(np.nanmean(before)):  # frozen seeds are NaN
        return [f"td3 doctor {path}", *lines]
    if config.steps < SHORT:
        return [*lines, f"{resume} --steps {4 * config.steps}"]
    if config.seeds == 1:
        again = f"td3 train --config {path / 'config.json'} --seeds 5"  # the file also names an offline run's dataset
        return [*lines, again + trust_option(config)]
    return [*lines, f"td3 export {path}"]


def renders(config: TrainConfig) -> bool:
    """Whether the environment can render frames."""
    try:
        entry = gym.spec(config.env).entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
    except (gym.error.Error, ImportError, AttributeError, ValueError):
        return False
    return "rgb_array" in (getattr(creator, "metadata", None) or {}).get("render_modes", [])
