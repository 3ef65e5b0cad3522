"""The command line: reads arguments, calls, prints. Nothing is computed here."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from td3.config import TrainConfig, preset_config
from td3.errors import UserError

# What people type elsewhere for the same thing.
SPELLINGS = {"-n": "--steps", "--total-timesteps": "--steps", "--n-timesteps": "--steps", "--num-envs": "--envs"}
ENV_SPELLINGS = ("--env", "--env-id")

RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class TrainCommand(TrainConfig):
    """Train TD3: `td3 train HalfCheetah-v5 --steps 100000 --seeds 3 --td3.random-steps 10000`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = tyro.MISSING
    capture_video: bool = False
    """Write a video of the trained agent at the end."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Nothing: the `TrainConfig` made of it checks its fields, when all of them are known."""


@dataclass(frozen=True)
class EvaluateCommand:
    """Play a trained agent without noise and report its returns: `td3 evaluate runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    episodes: int = 10
    """Episodes for each seed."""
    which: Literal["best", "last"] = "last"
    """The agent at its best evaluation, or at the end."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class WatchCommand:
    """Write a video of a trained agent: `td3 watch runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    out: Path | None = None
    """The mp4 file; by default video.mp4 in the run directory."""
    episodes: int = 1
    """Episodes to show, one after another."""
    seed: int | None = None
    """Which seed's agent; by default the one whose last evaluation was highest."""
    which: Literal["best", "last"] = "best"
    """The agent at its best evaluation, or at the end."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class EnvsCommand:
    """List what can be trained here, and which extra is missing for the rest: `td3 envs`."""

    json: bool = False
    """Print the list as one JSON object instead of words."""


def train_command(command: TrainCommand) -> int:
    """Train, with a live display."""
    from rich.console import Console

    from td3.report.progress import ProgressDisplay, describe
    from td3.training import train_run

    display = ProgressDisplay(Console(stderr=command.json, highlight=False))
    config = TrainConfig(**{f.name: getattr(command, f.name) for f in fields(TrainConfig)})
    interrupted = False
    try:
        train_run(config, display)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        display.close()
    if display.path is None or display.first is None or display.last is None:
        return 130
    figures: dict[str, Any] = {
        "run": str(display.path),
        "env_steps": display.env_steps,
        "interrupted": interrupted,
        "before": display.first.returns.mean(1).tolist(),
        "after": display.last.returns.mean(1).tolist(),
    }
    say = display.console.print
    if interrupted:
        say(f"Stopped at {display.env_steps:,} env steps; what was learnt is saved.")
    say(f"Before training: return {describe(display.first)}")
    say(f"After training:  return {describe(display.last)}")
    say(f"The run is in    {display.path}", soft_wrap=True)
    if command.capture_video and not interrupted:
        figures["video"] = str(_film(display.path, None, 1, None, "best").path)
        say(f"The video is     {figures['video']}", soft_wrap=True)
    say("Next:", style="bold")
    say(f"  td3 watch {display.path}", soft_wrap=True)
    say("  td3 train Ant-v5 --steps 1000000")
    if command.json:
        print(json.dumps(figures))
    return 130 if interrupted else 0


def evaluate_command(command: EvaluateCommand) -> int:
    """Evaluate every seed of a run."""
    from td3.environments import make_environment
    from td3.evaluate import Evaluator
    from td3.run import Run

    run = Run(command.run)
    means, episodes = {}, {}
    for seed in run.seeds:
        agent = run.agent(seed, command.which)
        evaluator = Evaluator(lambda: make_environment(run.config.env), [seed], command.episodes)
        returns = evaluator(agent.policy).returns[0]
        evaluator.close()
        means[seed], episodes[seed] = float(returns.mean()), returns.tolist()
        if not command.json:
            print(f"seed {seed}: return {returns.mean():,.1f} +- {returns.std():,.1f} over {len(returns)} episodes")
    if command.json:
        print(json.dumps({"env": run.config.env, "mean_return": means, "returns": episodes}))
    elif len(means) > 1:
        print(f"all {len(means)} seeds: mean return {sum(means.values()) / len(means):,.1f}")
    return 0


def watch_command(command: WatchCommand) -> int:
    """Film a trained agent."""
    film = _film(command.run, command.out, command.episodes, command.seed, command.which)
    if command.json:
        print(json.dumps({"video": str(film.path), "frames": film.frames, "returns": film.returns}))
    else:
        returns = ", ".join(f"{value:,.1f}" for value in film.returns)
        print(f"{film.path}: {film.frames} frames, return {returns}")
    return 0


def _film(run_path: Path, out: Path | None, episodes: int, seed: int | None, which: str) -> Any:
    from td3.report.video import record
    from td3.run import Run

    run = Run(run_path)
    agent = run.agent(seed, which)
    return record(agent.policy, run.config.env, out or run.path / "video.mp4", episodes)


def envs_command(command: EnvsCommand) -> int:
    """List the families of environments."""
    from td3.environments import families

    found = families()
    if command.json:
        listed = {
            family.title: {"available": ready, "extra": family.extra, "environments": family.examples}
            for family, ready in found
        }
        print(json.dumps(listed))
        return 0
    for family, ready in found:
        state = "ready" if ready else f"missing: pip install 'td3[{family.extra}]'"
        print(f"{family.title} ({state})")
        print("  " + "  ".join(family.examples))
    print("Any other Gymnasium environment with continuous actions: td3 train your_module:YourEnv-v0")
    return 0


COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "train": (TrainCommand, train_command),
    "evaluate": (EvaluateCommand, evaluate_command),
    "watch": (WatchCommand, watch_command),
    "envs": (EnvsCommand, envs_command),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a person's mistake becomes one sentence and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help") or words[0] not in COMMANDS:
        return _overview(words)
    kind, run = COMMANDS[words[0]]
    try:
        default = None
        rest = _translated(words[1:])
        if kind is TrainCommand:
            default = _train_defaults(rest)
        command = tyro.cli(kind, prog=f"td3 {words[0]}", args=rest, default=default, description=kind.__doc__)
        return run(command)
    except UserError as error:
        print(f"td3: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _overview(words: Sequence[str]) -> int:
    asked = bool(words) and words[0] in ("-h", "--help")
    stream = sys.stdout if asked else sys.stderr
    if words and not asked:
        print(f"td3: there is no command {words[0]!r}.", file=stream)
    print("td3: Twin Delayed DDPG, from one command to a trained agent\n", file=stream)
    for name, (kind, _) in COMMANDS.items():
        print(f"  td3 {name:<9} {(kind.__doc__ or '').split(':')[0]}", file=stream)
    print("\ntd3 COMMAND --help says more.  Example: td3 train HalfCheetah-v5 --steps 50000", file=stream)
    return 0 if asked else 2


def _translated(words: Sequence[str]) -> list[str]:
    """The same arguments in our own spelling."""
    translated: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if name in ENV_SPELLINGS:
            translated += [value] if equals else []
        else:
            translated.append(SPELLINGS.get(name, name) + equals + value)
    return translated


def _train_defaults(words: Sequence[str]) -> TrainCommand:
    """Defaults as the chosen preset has them, so that --help shows them and the given fields go on top."""
    preset = _value_of("--preset", words) or "author"
    steps = _value_of("--steps", words) or ""
    env = next((word for word in words if not word.startswith("-")), "")
    default = TrainCommand()
    given_steps = int(steps) if steps.isdigit() else default.steps
    td3 = preset_config(preset, env, given_steps)
    return replace(default, td3=td3)


def _value_of(option: str, words: Sequence[str]) -> str | None:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else next(iter(words[index + 1 : index + 2]), None)
    return None
