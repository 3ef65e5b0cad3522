"""`td3 train` and `td3 resume`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from td3.cli.options import HIDDEN, Commands, EnvKwargs, EnvName, Json, RunPath, Trust
from td3.cli.parsing import option_names, parse_arguments
from td3.cli.play import WatchCommand, record_video
from td3.config import TrainConfig, preset_config
from td3.config_file import read_config
from td3.errors import ConfigError
from td3.settings import TD3Config
from td3.variant_settings import with_variant


@dataclass(frozen=True)
class TrainCommand(TrainConfig):
    """Train TD3: `td3 train HalfCheetah-v5 --steps 100000 --seeds 3 --td3.learning-starts 10000`."""

    env: EnvName = tyro.MISSING
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """Arguments of the environment, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    config: Path | None = None
    """TOML or JSON file of settings, such as a run's config.json; command-line options override it."""
    dataset: Annotated[str | None, *HIDDEN] = None
    trust: Trust = False
    capture_video: bool = False
    """Write a video of the trained agent after training."""
    track: bool = False
    """Also log to Weights & Biases, one run per seed; offline in wandb/ without a key or by WANDB_MODE=offline."""
    wandb_project: str = "td3"
    """Project on Weights & Biases."""
    verbose: bool = False
    """Also print how updates are executed."""
    json: Json = False

    def __post_init__(self) -> None:
        """No checks: `train_config` makes a `TrainConfig`, which checks all fields."""


@dataclass(frozen=True)
class ResumeCommand:
    """Continue an interrupted run exactly, or extend a finished one: `td3 resume runs/HalfCheetah-v5/latest`."""

    run: RunPath
    steps: int | None = None
    """Total env steps of each seed; more than before extends the run."""
    trust: Trust = False
    track: bool = False
    """Also log to Weights & Biases, one run per seed; offline in wandb/ without a key or by WANDB_MODE=offline."""
    wandb_project: str = "td3"
    """Project on Weights & Biases."""
    verbose: bool = False
    """Also print how updates are executed."""
    json: Json = False


@dataclass(frozen=True)
class _UncheckedTD3(TD3Config):
    def __post_init__(self) -> None:
        """No checks."""


UNTYPED = ("",)
"""Variants that were not typed: `--variant` without names means none."""


@dataclass(frozen=True)
class _Typed(TrainCommand):
    """What was typed, to find out which defaults apply; options that were not given have empty values."""

    env: EnvName = ""
    steps: int = 0
    preset: str = ""  # type: ignore[assignment]  # an unknown one gets its sentence from preset_config
    variant: tuple[str, ...] = UNTYPED
    td3: _UncheckedTD3 = field(default_factory=_UncheckedTD3)  # combinations are valid or not with the right defaults


def parse_train(words: Sequence[str]) -> TrainCommand:
    """The command of the arguments after `td3 train`."""
    return parse_arguments(  # type: ignore[no-any-return]  # of the type that is given
        TrainCommand, "td3 train", words, "train", TRAIN_OPTIONS, default=train_defaults(words)
    )


def train_defaults(words: Sequence[str]) -> TrainCommand:
    """Defaults of the chosen preset or file, so that --help shows them and given options override them."""
    typed = _typed(words)
    if typed.config:
        return _defaults_of_file(typed.config, typed)
    default = TrainCommand()
    # Fewer than one step gets its sentence from TrainConfig.
    steps = typed.steps if typed.steps > 0 else default.steps
    settings = with_variant(preset_config(typed.preset or default.preset, typed.env, steps), typed.variant)
    return replace(default, td3=settings)


def _typed(words: Sequence[str]) -> _Typed:
    # ENV may be missing if help was asked for; if a file has it, the last value of an option is not taken for it.
    file = any(word.partition("=")[0] == "--config" for word in words)
    for env in ("", tyro.MISSING) if file else (tyro.MISSING, ""):
        try:
            typed, _ = parse_arguments(
                *(_Typed, "td3 train", words, "train", []),
                default=_Typed(env=env),
                add_help=False,
                return_unknown_args=True,
            )
        except ConfigError:  # parsing with the right types refuses it again
            continue
        return typed  # type: ignore[no-any-return]  # as above
    return _Typed()


def _defaults_of_file(path: Path, typed: _Typed) -> TrainCommand:
    """The settings of a file over those of its preset, which depend on environment, preset and steps."""
    typed_values = {name: value for name in ("env", "preset", "steps") if (value := getattr(typed, name))}
    if typed.variant != UNTYPED:
        typed_values["variant"] = typed.variant
    from td3.run.directory import require_trust, require_trusted_steps

    config, command = read_config(path, **typed_values), f"td3 train --config {path}"
    # What the command line names is executed; what the file names, with --trust.
    if ":" in config.env and not typed.env:
        require_trust(config, path, typed.trust, command)
    if not typed.replace_steps:
        require_trusted_steps(config, path, typed.trust, command)
    return TrainCommand(**{f.name: getattr(config, f.name) for f in fields(TrainConfig)}, config=path)


def train_command(command: TrainCommand) -> int:
    """Train, with a live display."""
    from td3.training import train_run

    config = train_config(command)
    return run_training(command, config, partial(train_run, config))


def run_training(command: TrainCommand, config: TrainConfig, training: Callable[[Any], Any]) -> int:
    """Train as configured, then print the result and write the video that was asked for."""
    if command.capture_video:
        from td3.report.video_file import require_video

        require_video(config.env_arguments)
    return _trained(command, training, capture_video=command.capture_video)


def train_config(command: TrainCommand) -> TrainConfig:
    """The checked configuration of a run; one that would make no update is refused."""
    config = TrainConfig(**{f.name: getattr(command, f.name) for f in fields(TrainConfig)})
    config.require_updates()
    return config


def resume_command(command: ResumeCommand) -> int:
    """Continue a run, with a live display."""
    from td3.training import resume_run

    return _trained(command, partial(resume_run, command.run, command.steps, trust=command.trust))


def _trained(
    command: TrainCommand | ResumeCommand,
    training: Callable[[Any], Any],
    capture_video: bool = False,
) -> int:
    """Train, then print the result."""
    import numpy as np

    from td3.callbacks.progress import ProgressDisplay, RetryingConsole, describe
    from td3.callbacks.tracking import WeightsAndBiases, sync_command, wandb_mode
    from td3.evaluate import Evaluation
    from td3.report.next_steps import next_steps
    from td3.run.checkpoints import Checkpoints
    from td3.run.directory import Run, resume_command

    display = ProgressDisplay(RetryingConsole(stderr=command.json, highlight=False), command.verbose)
    trackers = [WeightsAndBiases(command.wandb_project)] if command.track else []
    interrupted = False
    try:
        training([display, *trackers])
    except KeyboardInterrupt:
        interrupted = True
    finally:
        display.close()
    if display.path is None:
        return 130
    if interrupted and display.last is None:  # not even one evaluation
        return 130
    run = Run(display.path)
    evaluations = [run.evaluations(seed)[1] for seed in run.seeds]
    first, last = (
        Evaluation(returns, returns) for returns in (np.stack([e[at] for e in evaluations]) for at in (0, -1))
    )
    if display.last is not None and display.last.successes is not None:
        last = last._replace(successes=display.last.successes)
    active = np.isin(run.seeds, run.active_seeds)
    last.returns[~active] = np.nan
    rates = last.success_rate.tolist()
    figures: dict[str, Any] = {
        "run": str(display.path),
        "env_steps": display.env_steps,
        "interrupted": interrupted,
        "before": first.returns.mean(1).tolist(),
        "after": [mean if counts else None for mean, counts in zip(last.returns.mean(1).tolist(), active, strict=True)],
        **({} if np.isnan(rates).all() else {"success_rate": [None if np.isnan(rate) else rate for rate in rates]}),
        **({"frozen": run.frozen} if run.frozen else {}),
    }
    say, step = display.say, run.config.unit[:-1]
    if interrupted:
        say(f"Stopped at {display.env_steps:,} {run.config.unit}; the agents are saved.")
        checkpoint, _ = Checkpoints(display.path).newest()
        if checkpoint is None:
            say("There is no checkpoint, so it cannot be resumed.")
        else:
            again = resume_command(display.path, run.config)
            say(f"To continue:     {again}    (from {step} {checkpoint.env_steps:,})")
    begun = int(run.evaluations(run.seeds[0])[0][0])  # later in a run that evaluated nothing before it was resumed
    ended = int(run.evaluations(run.active_seeds[0])[0][-1])
    say(f"{f'At {step} {begun:,}:' if begun else 'Before training:'} return {describe(first)}")
    if ended > begun or not interrupted:
        say(f"{f'At {step} {ended:,}:' if interrupted else 'After training: '} return {describe(last)}")
    for seed, facts in run.frozen.items():
        say(f"Seed {seed} was frozen at {step} {facts['env_steps']:,} and is not in these means: {facts['reason']}")
    say(f"The run is in    {display.path}")
    if capture_video and not interrupted:
        figures["video"] = str(record_video(WatchCommand(display.path, trust=True)).path)
        say(f"The video is     {figures['video']}")
    say(f"The report is    {display.path / 'report.html'}")
    if command.track and wandb_mode() == "offline":
        say(f"W&B is offline:  {sync_command(display.path)}")
    say("Next:", style="bold")
    for line in next_steps(display.path, run.config, interrupted, first.returns, last.returns):
        say(f"  {line}")
    if command.json:
        print(json.dumps(figures))
    return 130 if interrupted else 0


TRAIN_OPTIONS = option_names(TrainCommand)
COMMANDS: Commands = {"train": (TrainCommand, train_command), "resume": (ResumeCommand, resume_command)}
