"""The command line: reads arguments, calls, prints. Nothing is computed here."""

import contextlib
import difflib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import tyro

from td3.bench.options import AnyBench, LoopBench, PeersBench, ScalingBench, UpdateBench
from td3.config import TrainConfig, preset_config
from td3.errors import ConfigError, UserError

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
    max_steps: int = 2_000
    """Env steps to show of each episode at most."""
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


@dataclass(frozen=True)
class LadderCommand:
    """Climb from Q-learning to TD3 in six rungs: `td3 ladder` lists them, `td3 ladder 3` runs one, `... all` all."""

    rung: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUNG")] = "list"
    """1 to 6, or all; nothing lists them."""
    env: str = "Rail-v0"
    """Gymnasium's name of the task, for one rung; CartPole-v1 suits rung 2, FrozenLake-v1 rungs 1 and 2."""
    seed: int = 0
    """The first seed."""
    seeds: int = 10
    """How many seeds of each rung, for `all`."""
    steps: int | None = None
    """Env steps of each run; by default as many as the rung needs on Rail."""
    reward_noise: float = 0.0
    """Standard deviation of noise on Rail's rewards, for one rung."""
    out: Path | None = None
    """The picture (.png or .svg) of one rung, or the page (.html) of all; by default under runs/ladder."""
    picture: Path | None = None
    """With `all`: also the curves and the overestimation as one picture (.png or .svg)."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class ExplainCommand:
    """Write and open a page that explains the fifteen steps, poked and broken at will: `td3 explain`."""

    out: Path = Path("runs/explain/fifteen_steps.html")
    """The page, one self-contained HTML file."""
    run: Path | None = None
    """Explain with the networks of this run directory instead of the lesson's cart on a rail."""
    seed: int | None = None
    """With --run: which seed's networks; by default the one whose last evaluation was highest."""
    at: str = ""
    """The moment to open, as it stands in the page's address after the #, such as "step=9&row=2"."""
    open: bool = True
    """Open the page in a browser, where there is a screen."""
    json: bool = False
    """Print where the page is as one JSON object instead of words."""


def train_command(command: TrainCommand) -> int:
    """Train, with a live display."""
    from rich.console import Console

    from td3.report.progress import ProgressDisplay, describe
    from td3.training import train_run

    display = ProgressDisplay(Console(stderr=command.json, highlight=False))
    config = TrainConfig(**{f.name: getattr(command, f.name) for f in fields(TrainConfig)})
    if command.capture_video:
        from td3.report.video import prepare_film

        prepare_film(config.env)
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
    say = display.say
    if interrupted:
        say(f"Stopped at {display.env_steps:,} env steps; what was learnt is saved.")
    say(f"Before training: return {describe(display.first)}")
    say(f"After training:  return {describe(display.last)}")
    say(f"The run is in    {display.path}")
    if command.capture_video and not interrupted:
        figures["video"] = str(_film(WatchCommand(display.path)).path)
        say(f"The video is     {figures['video']}")
    say("Next:", style="bold")
    say(f"  td3 watch {display.path}")
    say("  td3 train Ant-v5 --steps 1000000")
    if command.json:
        print(json.dumps(figures))
    return 130 if interrupted else 0


def evaluate_command(command: EvaluateCommand) -> int:
    """Evaluate every seed of a run."""
    from td3.environments import make_environment
    from td3.evaluate import Evaluator
    from td3.report.progress import describe
    from td3.run import Run

    run = Run(command.run)
    means, episodes = {}, {}
    for seed in run.seeds:
        agent = run.agent(seed, command.which)
        evaluator = Evaluator(lambda: make_environment(run.config.env), [seed], command.episodes)
        evaluation = evaluator(agent.policy)
        evaluator.close()
        returns = evaluation.returns[0]
        means[seed], episodes[seed] = float(returns.mean()), returns.tolist()
        if not command.json:
            print(f"seed {seed}: return {describe(evaluation)}")
    if command.json:
        print(json.dumps({"env": run.config.env, "mean_return": means, "returns": episodes}))
    elif len(means) > 1:
        print(f"all {len(means)} seeds: mean return {sum(means.values()) / len(means):,.1f}")
    return 0


def watch_command(command: WatchCommand) -> int:
    """Film a trained agent."""
    film = _film(command)
    if command.json:
        print(json.dumps({"video": str(film.path), "frames": film.frames, "returns": film.returns}))
    else:
        returns = ", ".join(f"{value:,.1f}" for value in film.returns)
        print(f"{film.path}: {film.frames} frames, return {returns}")
    return 0


def _film(command: WatchCommand) -> Any:
    from td3.report.video import record
    from td3.run import Run

    run = Run(command.run)
    agent = run.agent(command.seed, command.which)
    out = command.out or run.path / "video.mp4"
    return record(agent.policy, run.config.env, out, command.episodes, max_steps=command.max_steps)


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


def bench_command(options: AnyBench) -> int:
    """Measure."""
    from td3.bench import run

    figures, text = run(options)
    print(json.dumps(figures) if options.json else text)
    return 0


def ladder_command(command: LadderCommand) -> int:
    """List the rungs, run one, or run all and write the page."""
    from td3.ladder import report

    figures, text = report.run(**{f.name: getattr(command, f.name) for f in fields(command) if f.name != "json"})
    print(json.dumps(figures) if command.json else text)
    return 0


def explain_command(command: ExplainCommand) -> int:
    """Write the page and open it."""
    from td3.explain import explain

    page, opened = explain(command.out, command.run, command.seed, command.at, command.open)
    if command.json:
        print(json.dumps({"page": str(page), "opened": opened}))
    else:
        print(f"{page}: {'opened in your browser' if opened else 'open it in a browser'}")
    return 0


COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "train": (TrainCommand, train_command),
    "evaluate": (EvaluateCommand, evaluate_command),
    "watch": (WatchCommand, watch_command),
    "envs": (EnvsCommand, envs_command),
    "ladder": (LadderCommand, ladder_command),
    "explain": (ExplainCommand, explain_command),
    "bench update": (UpdateBench, bench_command),
    "bench loop": (LoopBench, bench_command),
    "bench peers": (PeersBench, bench_command),
    "bench scaling": (ScalingBench, bench_command),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a person's mistake becomes one sentence and exit code 2."""
    # numpy only multiplies small matrices here, beside PyTorch's threads; more of its own would fight with those. It is
    # read when numpy is first imported, which is later than this.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = list(sys.argv[1:] if arguments is None else arguments)
    # `td3 train my_module:MyEnv-v0` finds my_module where it was typed, as `python -m td3` does.
    if "" not in sys.path:
        sys.path.append("")
    try:
        if not words or words[0] in ("-h", "--help"):
            return _overview(sys.stdout if words else sys.stderr)
        if words[0] == "--version":
            return _version()
        name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        if name == "bench" and words[1:2] in (["-h"], ["--help"]):
            return _overview(sys.stdout)
        if name not in COMMANDS:
            raise ConfigError(_no_command(name))
        _, run = COMMANDS[name]
        return run(_parsed(name, _translated(words[len(name.split()) :], name == "ladder")))
    except UserError as error:
        print(f"td3: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parsed(name: str, words: Sequence[str]) -> Any:
    kind, _ = COMMANDS[name]
    _refuse_unknown_options(name, kind, words)
    default = _train_defaults(words) if kind is TrainCommand else None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, prog=f"td3 {name}", args=words, default=default, description=kind.__doc__)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise ConfigError(f"{_first_part(said.getvalue())} (`td3 {name} --help` says more)") from None


def _refuse_unknown_options(name: str, kind: type, words: Sequence[str]) -> None:
    known = ["--help", *_options(kind)]
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"`td3 {name} --help` lists them all."
            raise ConfigError(f"`td3 {name}` has no option {word.partition('=')[0]}: {hint}")


def _options(kind: Any, prefix: str = "--") -> list[str]:
    options = []
    for f in fields(kind):
        option = f.name.replace("_", "-")
        if is_dataclass(f.type):
            options += _options(f.type, f"{prefix}{option}.")
        else:
            options += [prefix + option, *([f"{prefix}no-{option}"] if f.type is bool else [])]
    return options


def _first_part(box: str) -> str:
    """What the argument parser says in its frame, down to the first rule, on one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)  # in a terminal it comes in colours
    lines = [line.strip("│ ") for line in plain.splitlines()[1:]]
    end = next((number for number, line in enumerate(lines) if set(line) <= set("─╰╯")), len(lines))
    return " ".join(lines[:end])


def _no_command(word: str) -> str:
    if word == "bench":
        return "`td3 bench` measures one thing at a time: say update, loop, peers or scaling after it."
    near = difflib.get_close_matches(word, COMMANDS, 1)
    hint = f"did you mean `td3 {near[0]}`?" if near else f"the commands are {', '.join(COMMANDS)}."
    return f"there is no command {word!r}: {hint}"


def _version() -> int:
    from td3 import __version__

    print(f"td3 {__version__}")
    return 0


def _overview(stream: TextIO) -> int:
    print("td3: Twin Delayed DDPG, from one command to a trained agent\n", file=stream)
    for name, (kind, _) in COMMANDS.items():
        print(f"  td3 {name:<13} {(kind.__doc__ or '').split(':')[0]}", file=stream)
    print("\ntd3 COMMAND --help says more.  Example: td3 train HalfCheetah-v5 --steps 50000", file=stream)
    return 0 if stream is sys.stdout else 2


def _translated(words: Sequence[str], env_is_option: bool = False) -> list[str]:
    """The same arguments in our own spelling."""
    translated: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if name in ENV_SPELLINGS and env_is_option:
            translated.append("--env" + equals + value)
        elif name in ENV_SPELLINGS:
            translated += [value] if equals else []
        else:
            translated.append(SPELLINGS.get(name, name) + equals + value)
    return translated


def _train_defaults(words: Sequence[str]) -> TrainCommand:
    """Defaults as the chosen preset has them, so that --help shows them and the given fields go on top."""
    default = TrainCommand()
    preset = _value_of("--preset", words) or default.preset
    try:
        steps = int(_value_of("--steps", words) or default.steps)
    except ValueError:  # the parser will say so
        steps = default.steps
    return replace(default, td3=preset_config(preset, _environment_in(words), steps))


def _environment_in(words: Sequence[str]) -> str:
    """The word that is neither an option nor an option's value; numbers can only be values."""
    flags = [f"--{name}" for name in ("json", "no-json", "capture-video", "no-capture-video")]
    for before, word in pairwise(["", *words]):
        takes_value = before.startswith("--") and "=" not in before and before.replace("_", "-") not in flags
        if not word.startswith("-") and not word.isdigit() and not takes_value:
            return word
    return ""


def _value_of(option: str, words: Sequence[str]) -> str | None:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else next(iter(words[index + 1 : index + 2]), None)
    return None
