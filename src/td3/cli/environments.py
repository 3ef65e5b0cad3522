"""`td3 envs` and `td3 check`: which environments can be trained here, and whether yours can."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from td3.cli.options import Commands, EnvKwargs, EnvName, Json
from td3.errors import ConfigError


@dataclass(frozen=True)
class EnvsCommand:
    """List the environments, and the missing extra of those that are not installed: `td3 envs`."""

    json: Json = False


def envs_command(command: EnvsCommand) -> int:
    """List the families of environments."""
    from td3.environments import families, note_on

    all_families = families()
    if command.json:
        listed = {
            family.title: {"available": ready, "extra": family.extra, "environments": family.examples}
            for family, ready in all_families
        }
        print(json.dumps(listed))
        return 0
    for family, ready in all_families:
        state = "ready" if ready else f"missing: pip install 'td3[{family.extra}]'"
        state += f"; {note}" if not ready and (note := note_on(family)) else ""
        print(f"{family.title} ({state})")
        print("  " + "  ".join(family.examples))
    print("This project's own (ready)\n  Rail-v0  RailGoal-v0")
    print("Any other Gymnasium environment with continuous actions: td3 train your_module:YourEnv-v0, or :YourClass")
    return 0


@dataclass(frozen=True)
class CheckCommand:
    """Check an environment of your own with random actions: `td3 check my_module:MyEnv`."""

    env: EnvName
    """Name of the environment, as `td3 train` takes it."""
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """Arguments of the environment, as KEY=VALUE or one JSON object."""
    steps: int = 2_000
    """Random steps to take."""
    seed: int = 0
    """Seed of the actions and of the first episode."""
    json: Json = False


def check_command(command: CheckCommand) -> int:
    """Exit code 0: nothing found; 1: something to look at."""
    from td3.environments.survey import survey

    if command.steps < 1:
        raise ConfigError(f"--steps must be at least 1, but {command.steps} was given.")
    if command.seed < 0:
        raise ConfigError(f"--seed must be at least 0, but {command.seed} was given.")
    result = survey(command.env, command.env_kwargs, command.steps, command.seed)
    if command.json:
        figures = {name: None if _is_nan(value) else value for name, value in result._asdict().items()}
        print(json.dumps({**figures, "spaces": result.spaces._asdict()}))
        return 1 if result.findings else 0
    spaces = result.spaces
    bounds = [f"{low:g}..{high:g}" for low, high in zip(spaces.action_low, spaces.action_high, strict=True)]
    shown = ", ".join(bounds[:6]) + (", ..." if len(bounds) > 6 else "")
    print(f"{command.env}: {result.steps:,} random steps, {1e3 * result.seconds_per_step:.3g} ms each")
    print(f"  observations  {spaces.flattened or spaces.observation_shape}; ", end="")
    print(f"scale {result.observation_scale:.3g}, spread {result.observation_spread:.3g}, ", end="")
    print(f"{len(result.constant_dimensions)} constant dimensions")
    print(f"  actions       {spaces.action_size} dimensions, {shown}")
    print(f"  rewards       scale {result.reward_scale:.3g}")
    ended = f"{result.terminated} terminated, {result.truncated} truncated"
    print(f"  episodes      {result.episodes} ended: {ended}", end="")
    print(f"; mean return {result.mean_return:,.4g}, mean length {result.mean_length:,.4g}" if result.episodes else "")
    print(f"  repeatable    {'yes' if result.repeatable else 'no'}")
    for sentence in result.findings:
        print(f"- {sentence}")
    if not result.findings:
        print("Nothing found: TD3 can be trained on it.")
    return 1 if result.findings else 0


def _is_nan(value: Any) -> bool:
    """Whether it is NaN, which JSON does not have: the mean over no episodes."""
    return isinstance(value, float) and math.isnan(value)


COMMANDS: Commands = {"envs": (EnvsCommand, envs_command), "check": (CheckCommand, check_command)}
