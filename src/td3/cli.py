"""The command line: reads arguments, calls, prints. Nothing is computed here."""

import contextlib
import difflib
import io
import json
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import tyro

from td3.bench.options import (
    AnyBench,
    CollectorsBench,
    EnvsBench,
    LoopBench,
    PeersBench,
    ScalingBench,
    UpdateBench,
)
from td3.config import Device, Preset, TrainConfig, preset_config, read_config
from td3.errors import ConfigError, UserError
from td3.libraries import library_variables
from td3.signals import sigterm_as_interrupt

# Option names of the author's code, CleanRL, Stable-Baselines3 and RL Zoo that mean the same thing.
SPELLINGS = {
    **dict.fromkeys(("-n", "--total-timesteps", "--n-timesteps", "--max-timesteps"), "--steps"),
    **dict.fromkeys(("--num-envs", "--n-envs"), "--envs"),
    "--eval-freq": "--eval-every",
}
TRAIN_SPELLINGS = SPELLINGS | {
    **dict.fromkeys(("--start-timesteps", "--random-steps", "--learning-starts"), "--td3.learning-starts"),
    **dict.fromkeys(("--expl-noise", "--exploration-noise"), "--td3.exploration-noise"),
    **dict.fromkeys(("--policy-noise", "--target-policy-noise"), "--td3.target-policy-noise"),
    **dict.fromkeys(("--noise-clip", "--target-noise-clip"), "--td3.target-noise-clip"),
    **dict.fromkeys(("--policy-freq", "--policy-frequency", "--policy-delay"), "--td3.policy-delay"),
    **dict.fromkeys(("--discount", "--gamma"), "--td3.gamma"),
    **{f"--{name}": f"--td3.{name}" for name in ("batch-size", "buffer-size", "tau")},
}
ENV_SPELLINGS = ("--env", "--env-id")


def _kwargs(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words as a dictionary, values as JSON has them and else as text; or all of it as one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return dict(json.loads(words[0]))
        except ValueError:
            raise ValueError(f"{words[0]} is not JSON") from None
        except RecursionError:
            raise ValueError("the JSON object is nested too deeply") from None
    pairs = [word.partition("=") for word in words]
    if wrong := [word for word, (key, equals, _) in zip(words, pairs, strict=True) if not (key and equals)]:
        raise ValueError(f"{wrong[0]!r} is neither KEY=VALUE nor a JSON object")
    return {key: _as_json(value) for key, _, value in pairs}


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


EnvKwargs = Annotated[
    dict[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE",
        instance_from_str=_kwargs,
        is_instance=lambda given: isinstance(given, dict),
        str_from_instance=lambda given: [f"{key}={json.dumps(value)}" for key, value in given.items()],
    ),
]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Trust = Annotated[
    bool, tyro.conf.arg(help="Import the module that the environment's name has (module:Class), which executes it.")
]


@dataclass(frozen=True)
class TrainCommand(TrainConfig):
    """Train TD3: `td3 train HalfCheetah-v5 --steps 100000 --seeds 3 --td3.learning-starts 10000`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = tyro.MISSING
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """What the environment is made with, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    config: Path | None = None
    """A TOML or JSON file of these settings, such as a run's config.json; what is given here goes before it."""
    trust: Trust = False
    capture_video: bool = False
    """Write a video of the trained agent at the end."""
    track: bool = False
    """Also log to Weights & Biases, a run for each seed; without a key, or with WANDB_MODE=offline, on disk."""
    wandb_project: str = "td3"
    """The project there."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Nothing: the `TrainConfig` made of it checks its fields, when all of them are known."""


@dataclass(frozen=True)
class ResumeCommand:
    """Continue an interrupted run exactly, or extend a finished one: `td3 resume runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    steps: int | None = None
    """Env steps of each seed in all; more than before extends the run."""
    trust: Trust = False
    track: bool = False
    """Send figures to Weights & Biases too (extra wandb; WANDB_MODE=offline keeps them here)."""
    wandb_project: str = "td3"
    """The project there."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class EvaluateCommand:
    """Play a trained agent without noise and report its returns: `td3 evaluate runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    episodes: int = 10
    """Episodes for each seed."""
    episode_seed: int = 0
    """Which held-out episodes: the same number gives the same ones, another number others."""
    which: Literal["best", "last"] = "last"
    """The agent at its best evaluation, or at the end."""
    trust: Trust = False
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class WatchCommand:
    """Write a video of a trained agent, with reward and Q below: `td3 watch runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    out: Path | None = None
    """The file, .mp4 or .gif; by default video.mp4 (grid.mp4, learning.mp4) in the run directory."""
    gif: bool = False
    """Also write a GIF beside an mp4."""
    grid: bool = False
    """Every seed's agent at once, in a grid (at most 16)."""
    learning: bool = False
    """One seed's agent from birth to the end of its training, in ten seconds."""
    plain: bool = False
    """The frames alone, without reward and Q."""
    episodes: int = 1
    """Episodes to show, one after another."""
    max_steps: int = 2_000
    """Env steps to show of each episode at most."""
    seed: int | None = None
    """Which seed's agent; by default the one whose last evaluation was highest."""
    which: Literal["best", "last"] = "best"
    """The agent at its best evaluation, or at the end."""
    trust: Trust = False
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class ReportCommand:
    """Write one page of curves, results and what happened inside: `td3 report runs/HalfCheetah-v5/latest`."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """One run directory, or several to be compared; the first of a task is the reference."""
    out: Path | None = None
    """The page (.html); by default report.html in the run directory, or in the current one for several runs."""
    margin: float = 0.1
    """Two runs are called equivalent within this share of the reference's return."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class DoctorCommand:
    """Say in words what is wrong with a run and what to try: `td3 doctor runs/HalfCheetah-v5/latest`.

    Exit code 0: nothing found (remarks do not count). 1: something is wrong. 2: the run cannot be read.
    """

    run: RunPath
    """The run directory; it may still be training."""
    json: bool = False
    """Print the findings as one JSON object instead of words."""


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
    """The plot (.png or .svg) of one rung, or the page (.html) of all; by default under runs/ladder."""
    plot: Path | None = None
    """With `all`: also the curves and the overestimation as one plot (.png or .svg)."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class ExplainCommand:
    """Write and open a page that explains the fifteen steps, to be edited and broken: `td3 explain`."""

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
    trust: Trust = False
    json: bool = False
    """Print where the page is as one JSON object instead of words."""


@dataclass(frozen=True)
class ExportCommand:
    """Write a trained agent as ONNX and PyTorch files with a model card: `td3 export runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    out: Path | None = None
    """The folder to write; by default export in the run directory."""
    seed: int | None = None
    """Which seed's agent; by default the one whose last evaluation was highest."""
    which: Literal["best", "last"] = "best"
    """The agent at its best evaluation, or at the end."""
    sb3: bool = False
    """Also write sb3.zip, which Stable-Baselines3 loads."""
    trust: Trust = False
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class PushCommand:
    """Export and upload to the Hugging Face hub: `td3 push runs/HalfCheetah-v5/latest --repo-id anna/td3-cheetah`."""

    run: RunPath
    """The run directory."""
    repo_id: str
    """owner/name on the hub; made if it is not there."""
    private: bool = False
    """Make a new repository private."""
    seed: int | None = None
    """Which seed's agent; by default the one whose last evaluation was highest."""
    which: Literal["best", "last"] = "best"
    """The agent at its best evaluation, or at the end."""
    sb3: bool = False
    """Also write sb3.zip, which Stable-Baselines3 loads."""
    trust: Trust = False
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class TuneCommand:
    """Search for settings that suit a task: `td3 tune Pendulum-v1 --steps 10000 --trials 30`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium's name of the environment."""
    trials: int = 30
    """Trials in all; a study that was stopped goes on with those that are missing."""
    steps: int = 100_000
    """Env steps of each trial."""
    seeds: int = 1
    """Seeds of each trial, trained side by side; their mean counts."""
    seed: int = 0
    """The first seed, the same in every trial."""
    preset: Preset = "author"
    """Where all that is not searched comes from; its own numbers are the first trial."""
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """What the environment is made with, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    normalize_observations: bool = False
    """Learn from observations less their running mean, over their running standard deviation, within +-10."""
    fields: tuple[str, ...] = (
        *("learning_rate", "gamma", "hidden_sizes", "batch_size", "exploration_noise", "tau", "learning_starts_share"),
    )
    """What to search."""
    eval_every: int | None = None
    """Env steps between evaluations, at which a trial may be stopped; by default a tenth of the steps."""
    eval_episodes: int = 10
    """Noise-free episodes of an evaluation."""
    device: Device = "auto"
    """Where the networks and the buffer live; auto takes a GPU if there is one."""
    threads: int = 0
    """CPU threads for the updates; 0 takes what the machine allows."""
    out: Path | None = None
    """The study's folder; by default runs/tune/ENV."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class SweepCommand:
    """Train tasks x settings x seeds, here or on a Ray cluster: `td3 sweep Hopper-v5 Ant-v5 --set td3.tau=0.005,0.01`.

    Each is a run in a folder of its own; the same command again resumes what is unfinished.
    """

    envs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ENV...")]
    """Gymnasium's names of the tasks."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A setting of `td3 train` and its values, as in td3.tau=0.005,0.01; several --set make all combinations."""
    seeds: int = 5
    """Seeds of each task and setting, each a run of its own."""
    seed: int = 0
    """The first seed."""
    steps: int = 1_000_000
    """Env steps of each run; more than before extends the runs."""
    preset: Preset = "author"
    """Where the defaults under td3 come from."""
    out: Path = Path("runs/sweep")
    """The sweep's folder; on a cluster, one that all machines share."""
    ray_address: str | None = None
    """HOST:PORT of a Ray cluster; without it, the cores of this machine."""
    cpus: int = 1
    """CPU cores of each run, which is also its number of threads."""
    gpus: float = 0.0
    """GPU of each run, 0.25 lets four share one; with 0 they train on CPU cores."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""


@dataclass(frozen=True)
class ReproduceCommand:
    """List the stored results, or train a row again and compare it: `td3 reproduce hopper_v5`."""

    rows: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ROW...")] = ()
    """Rows or whole tables to train again; without any, the stored ones are listed."""
    seeds: int | None = None
    """Train so many seeds instead of the row's own number; a verdict needs at least five."""
    results: Path = Path("results")
    """The folder of stored results, in a checkout of td3."""
    out: Path = Path("runs/reproduce")
    """Where the runs go; those that are there already are resumed."""
    json: bool = False
    """Print the comparisons as one JSON object instead of words."""


def train_command(command: TrainCommand) -> int:
    """Train, with a live display."""
    from td3.training import train_run

    config = _train_config(command)
    if command.capture_video:
        from td3.report.video import prepare_film

        prepare_film(config.env)
    return _trained(command, partial(train_run, config), capture_video=command.capture_video)


def _train_config(command: TrainCommand) -> TrainConfig:
    """The run that was asked for; one that would learn nothing is refused."""
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
    from td3.callbacks.tracking import WeightsAndBiases, wandb_mode
    from td3.evaluate import Evaluation
    from td3.report.next_steps import next_steps
    from td3.run.checkpoints import Checkpoints
    from td3.run.directory import Run

    display = ProgressDisplay(RetryingConsole(stderr=command.json, highlight=False))
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
    active = np.isin(run.seeds, run.active_seeds)
    last.returns[~active] = np.nan
    figures: dict[str, Any] = {
        "run": str(display.path),
        "env_steps": display.env_steps,
        "interrupted": interrupted,
        "before": first.returns.mean(1).tolist(),
        "after": [mean if counts else None for mean, counts in zip(last.returns.mean(1).tolist(), active, strict=True)],
        **({"frozen": run.frozen} if run.frozen else {}),
    }
    say = display.say
    if interrupted:
        say(f"Stopped at {display.env_steps:,} env steps; what was learned is saved.")
        checkpoint, _ = Checkpoints(display.path).newest()
        if checkpoint is None:
            say("There is no checkpoint, so it cannot be resumed.")
        else:
            say(f"To go on:        td3 resume {display.path}    (from env step {checkpoint.env_steps:,})")
    say(f"Before training: return {describe(first)}")
    moment = f"At env step {int(run.evaluations(run.active_seeds[0])[0][-1]):,}:" if interrupted else "After training: "
    say(f"{moment} return {describe(last)}")
    for seed, facts in run.frozen.items():
        say(f"Seed {seed} was frozen at env step {facts['env_steps']:,} and is not in these means: {facts['reason']}")
    say(f"The run is in    {display.path}")
    if capture_video and not interrupted:
        figures["video"] = str(_film(WatchCommand(display.path, trust=True)).path)
        say(f"The video is     {figures['video']}")
    say(f"The report is    {display.path / 'report.html'}")
    if command.track and wandb_mode() == "offline":
        say(f"W&B is offline:  wandb sync {display.path}/wandb/offline-run-*")
    say("Next:", style="bold")
    for line in next_steps(display.path, run.config, interrupted, first.returns, last.returns):
        say(f"  {line}")
    if command.json:
        print(json.dumps(figures))
    return 130 if interrupted else 0


def evaluate_command(command: EvaluateCommand) -> int:
    """Evaluate every seed of a run."""
    from td3.callbacks.progress import describe
    from td3.environments import in_batch, make_environment
    from td3.evaluate import Evaluator, held_out
    from td3.resources import available_threads
    from td3.run.directory import Run

    run, purpose = Run(command.run), held_out(command.episode_seed)
    env_arguments = run.env_arguments(command.trust, f"td3 evaluate {command.run}")
    make = partial(make_environment, **env_arguments)
    batch = in_batch(make, available_threads())
    means, episodes, rates = {}, {}, {}
    for seed in run.seeds:
        agent = run.agent(seed, command.which)
        evaluator = Evaluator(make, [seed], command.episodes, worker_backend=batch, purpose=purpose)
        evaluation = evaluator(agent.policy)
        evaluator.close()
        returns = evaluation.returns[0]
        means[seed], episodes[seed] = float(returns.mean()), returns.tolist()
        if not math.isnan(rate := float(evaluation.success_rate[0])):
            rates[seed] = rate
        if not command.json:
            frozen = f" (frozen at env step {run.frozen[seed]['env_steps']:,})" if seed in run.frozen else ""
            held_out_seed = f"(held-out, --episode-seed {command.episode_seed})"
            print(f"seed {seed}{frozen}: return {describe(evaluation)} {held_out_seed}")
    if command.json:
        facts = {"env": run.config.env, "which": command.which, "episode_seed": command.episode_seed}
        successes = {"success_rate": rates} if rates else {}
        print(json.dumps({**facts, "mean_return": means, "returns": episodes, **successes}))
    elif len(means) > 1:
        counted = [means[seed] for seed in run.active_seeds]
        some = f"{len(counted)} of {len(means)}" if len(counted) < len(means) else f"all {len(means)}"
        print(f"{some} seeds: mean return {sum(counted) / len(counted):,.1f}")
    return 0


def watch_command(command: WatchCommand) -> int:
    """Film a trained agent."""
    film = _film(command)
    if command.json:
        print(json.dumps({"video": str(film.path), "frames": film.frames, "returns": film.returns}))
    else:
        returns = ", ".join(f"{value:,.1f}" for value in film.returns)
        print(f"{film.path}: {film.frames} frames, return {returns}")
        if command.gif and film.path.suffix == ".mp4":
            print(film.path.with_suffix(".gif"))
    return 0


def _film(command: WatchCommand) -> Any:
    from td3.report.video import film_run, to_gif

    if command.grid and command.seed is not None:
        raise ConfigError("--grid shows all seeds and --seed chooses one: give one of the two.")
    film = film_run(**{f.name: getattr(command, f.name) for f in fields(command) if f.name not in ("json", "gif")})
    if command.gif and film.path.suffix == ".mp4":
        to_gif(film.path, film.path.with_suffix(".gif"))
    return film


def report_command(command: ReportCommand) -> int:
    """Write the page of one run or several."""
    from td3.report.page import describe_runs, figures, write_report
    from td3.report.records import read_run

    if not command.runs:
        raise ConfigError("`td3 report` needs a run directory: td3 report runs/HalfCheetah-v5/latest")
    runs = [read_run(path) for path in command.runs]
    out = command.out or (runs[0].path / "report.html" if len(runs) == 1 else Path("report.html"))
    write_report(runs, out, command.margin)
    found = {"report": str(out), **figures(runs, command.margin)}
    print(json.dumps(found) if command.json else "\n".join([*describe_runs(found), f"The report is {out}"]))
    return 0


def doctor_command(command: DoctorCommand) -> int:
    """Examine a run."""
    from td3.report.doctor import RULES, all_clear, examine_run, remarks_on
    from td3.report.records import read_run

    records = read_run(command.run)
    findings, remarks = examine_run(records), remarks_on(records)
    if command.json:
        facts = {"findings": [f._asdict() for f in findings], "remarks": [r._asdict() for r in remarks]}
        print(json.dumps({"run": str(command.run), **facts, "notes": records.notes}))
        return 1 if findings else 0
    if not findings:
        looked = f"{len(RULES)} things looked at, {records.env_steps:,} env steps"
        print(f"{command.run}: {all_clear(records)} ({looked}).")
    for finding in findings:
        print(f"{finding.name}: {finding.said}\n  Try: {finding.advice}")
    for remark in remarks:
        print(f"Remark, {remark.name}: {remark.said}\n  {remark.advice}")
    for note in records.notes:
        print(note)
    return 1 if findings else 0


def envs_command(command: EnvsCommand) -> int:
    """List the families of environments."""
    from td3.environments import families, note_on

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
        state += f"; {note}" if not ready and (note := note_on(family)) else ""
        print(f"{family.title} ({state})")
        print("  " + "  ".join(family.examples))
    print("This project's own (ready)\n  Rail-v0")
    print("Any other Gymnasium environment with continuous actions: td3 train your_module:YourEnv-v0, or :YourClass")
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


def export_command(command: ExportCommand) -> int:
    """Export an agent and say how far each file is from it."""
    from td3.export import export_run
    from td3.run.directory import Run

    export = export_run(Run(command.run), command.out, command.seed, command.which, command.sb3, command.trust)
    if command.json:
        print(json.dumps({"export": str(export.path), "difference": export.files}))
        return 0
    for name, difference in export.files.items():
        print(f"{export.path / name}: differs from the agent by {difference:.1e} of half the action range at most")
    if "sb3.zip" in export.files and export.normalized:
        print(f"{export.path / 'sb3.zip'}: what normalizes observations is in its first layers, its clip at 10 is not")
    print(f"Model card: {export.path / 'README.md'}")
    print(f"Next: python {export.path / 'infer.py'}")
    return 0


def push_command(command: PushCommand) -> int:
    """Export and upload."""
    from td3.export import push_run
    from td3.run.directory import Run

    run = Run(command.run)
    address, export = push_run(
        run, command.repo_id, command.private, command.seed, command.which, command.sb3, command.trust
    )
    print(json.dumps({"address": address, "export": str(export.path)}) if command.json else f"Uploaded to {address}")
    return 0


def tune_command(command: TuneCommand) -> int:
    """Search, telling of every trial; Ctrl-C leaves a study that the same command goes on with."""
    from td3.tune import TuneOptions, tune

    out = command.out or Path("runs") / "tune" / command.env.replace("/", "_").replace(":", "_")
    every = max(1, command.steps // 10) if command.eval_every is None else command.eval_every
    given = {name: getattr(command, name) for name in TuneOptions._fields if name != "eval_every"}
    options = TuneOptions(**given, eval_every=every)
    say = (lambda line: None) if command.json else print
    tuning = tune(options, out, command.trials, command.device, command.threads, say)
    figures = {name: str(v) if isinstance(v, Path) else v for name, v in tuning._asdict().items()}
    if command.json:
        print(json.dumps(figures))
        return 130 if tuning.interrupted else 0
    if tuning.interrupted:
        print("Stopped; the same command goes on from here.")
    print(f"{tuning.finished} trials in {tuning.path}, {tuning.pruned} of them stopped early")
    if tuning.plot:
        print(f"Picture: {tuning.plot}")
    if tuning.best_config:
        print(f"Best: trial {tuning.best_trial}, return {tuning.best_value:,.1f}")
        named = f"{command.env} " * (":" in command.env)  # a module that is typed may be imported
        print(f"Next: td3 train {named}--config {tuning.best_config} --seed 100")
    return 130 if tuning.interrupted else 0


def sweep_command(command: SweepCommand) -> int:
    """Train all of it and print the table."""
    from td3.callbacks.progress import sweep_lines
    from td3.sweep import run_sweep

    runs, say = _sweep_runs(command), (lambda line: None) if command.json else partial(print, flush=True)
    sweep = run_sweep(runs, command.out, command.ray_address, command.cpus, command.gpus, say)
    if command.json:
        failed = {o.run.name: o.reason for o in sweep.outcomes if o.reason}
        print(json.dumps({"sweep": str(sweep.path), "results": sweep.table, "failed": failed}))
    else:
        print("\n".join(sweep_lines(sweep.table)))
        print(f"The table is     {sweep.path / 'results.csv'}")
        if any(row["seeds"] for row in sweep.table):
            print(f"The report is    {sweep.path / 'report.html'}")
        if any(row["unfinished"] for row in sweep.table):
            print("Some runs are not finished: the same command goes on with them.")
    if sweep.interrupted:
        return 130
    return 1 if any(outcome.reason for outcome in sweep.outcomes) else 0


def _sweep_runs(command: SweepCommand) -> list[Any]:
    """Every task with every setting and seed, each read as `td3 train` would read it."""
    from td3.sweep import SweepRun, folder_of

    for name in ("seeds", "cpus"):
        if getattr(command, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, but {getattr(command, name)} was given.")
    if not command.envs:
        raise ConfigError("`td3 sweep` needs a task: td3 sweep HalfCheetah-v5 --seeds 5")
    choices = [_choices(text) for text in command.set]
    runs = []
    for env, chosen in product(command.envs, product(*(values for _, values in choices))):
        pairs = [(name, value) for (name, _), value in zip(choices, chosen, strict=True)]
        words = [word for name, value in pairs for word in (f"--{name}", *value.split())]
        setting = "_".join(
            f"{name.removeprefix('td3.')}={value}"
            for (name, value), (_, values) in zip(pairs, choices, strict=True)
            if len(values) > 1
        )
        common = [env, "--steps", str(command.steps), "--preset", command.preset]
        for seed in range(command.seed, command.seed + command.seeds):
            config = _train_config(_parsed("train", [*common, "--seed", str(seed), *words]))
            runs.append(SweepRun(env, setting, replace(config, out=folder_of(command.out, env, setting, seed))))
    return runs


def _choices(text: str) -> tuple[str, list[str]]:
    """A setting and the values it is to have."""
    name, equals, values = text.partition("=")
    option = name.removeprefix("--").replace("_", "-")
    found = [value.strip() for value in values.split(",")]
    if not equals or not all(found):
        raise ConfigError(f"--set must be a setting and its values, as in td3.tau=0.005,0.01, but {text!r} was given.")
    if len({*found}) < len(found):
        raise ConfigError(f"--set {text} has a value twice: each makes runs of its own.")
    known = {f"{o.removeprefix('--')}" for o in _options(TrainConfig)} - {
        "env",
        "seed",
        "seeds",
        "steps",
        "out",
        "preset",
    }
    if option not in known:
        near = difflib.get_close_matches(option, known, 1)
        hint = f"did you mean {near[0]}?" if near else "`td3 train --help` lists what there is."
        raise ConfigError(f"--set cannot vary {name!r}: {hint}")
    return option, found


def explain_command(command: ExplainCommand) -> int:
    """Write the page and open it."""
    from td3.explain import explain

    page, opened = explain(command.out, command.run, command.seed, command.at, command.open, command.trust)
    if command.json:
        print(json.dumps({"page": str(page), "opened": opened}))
    else:
        print(f"{page}: {'opened in your browser' if opened else 'open it in a browser'}")
    return 0


def reproduce_command(command: ReproduceCommand) -> int:
    """List stored results, or train rows again and compare them."""
    from td3.callbacks.progress import ProgressDisplay, RetryingConsole
    from td3.reproduce.command import listing, reproduce
    from td3.run.directory import Run, read_facts
    from td3.training import resume_run, train_run

    def train(config: TrainConfig, out: Path) -> Run:
        if read_facts(out / "status.json").get("status") == "finished":
            return Run(out)
        display = ProgressDisplay(RetryingConsole(stderr=command.json, highlight=False))
        try:
            resumed = (out / "config.json").exists()
            return resume_run(out, None, [display]) if resumed else train_run(replace(config, out=out), [display])
        finally:
            display.close()

    if not command.rows:
        print("\n".join(listing(command.results)))
        return 0
    say = partial(print, file=sys.stderr if command.json else sys.stdout)
    found = reproduce(command.rows, command.results, command.out, command.seeds, train, say)
    if command.json:
        print(json.dumps(found))
    return 0


COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "train": (TrainCommand, train_command),
    "resume": (ResumeCommand, resume_command),
    "evaluate": (EvaluateCommand, evaluate_command),
    "watch": (WatchCommand, watch_command),
    "envs": (EnvsCommand, envs_command),
    "tune": (TuneCommand, tune_command),
    "sweep": (SweepCommand, sweep_command),
    "export": (ExportCommand, export_command),
    "push": (PushCommand, push_command),
    "report": (ReportCommand, report_command),
    "reproduce": (ReproduceCommand, reproduce_command),
    "doctor": (DoctorCommand, doctor_command),
    "ladder": (LadderCommand, ladder_command),
    "explain": (ExplainCommand, explain_command),
    "bench update": (UpdateBench, bench_command),
    "bench loop": (LoopBench, bench_command),
    "bench peers": (PeersBench, bench_command),
    "bench scaling": (ScalingBench, bench_command),
    "bench envs": (EnvsBench, bench_command),
    "bench collectors": (CollectorsBench, bench_command),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a person's mistake becomes one sentence and exit code 2."""
    with library_variables():  # before NumPy and PyTorch are imported
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a path may have characters that the output's encoding lacks
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with sigterm_as_interrupt():
            code = _run(words)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            _print_nothing_more()
            return _refused(f"the output cannot be written ({error.strerror}).")
        return code
    except UserError as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _print_nothing_more()
        return 0
    except OSError as error:  # a full disk, or a folder that went away
        what = error.filename or "something"  # the system does not name a file that was open already
        return _refused(f"{what} could not be read or written ({error.strerror or error}).")
    finally:
        if arguments is None:  # the process ends now; a second Ctrl-C would only interrupt what packages do at exit
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(words: Sequence[str]) -> int:
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
    return run(_parsed(name, _translated(words[len(name.split()) :], name)))


def _refused(sentence: str) -> int:
    print(f"td3: {sentence}", file=sys.stderr)
    return 2


def _print_nothing_more() -> None:
    with contextlib.suppress(OSError):  # it may have no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)  # in a terminal it comes in colors
    lines = [line.strip("│ ") for line in plain.splitlines()[1:]]
    end = next((number for number, line in enumerate(lines) if set(line) <= set("─╰╯")), len(lines))
    said = re.sub(
        r"invalid literal for int\(\) with base 10: ('[^']*')", r"\1 is not a whole number", " ".join(lines[:end])
    )
    return re.sub(r"could not convert string to float: ('[^']*')", r"\1 is not a number", said)


def _no_command(word: str) -> str:
    if word == "bench":
        return "`td3 bench` measures one thing at a time: say update, loop, peers, scaling, envs or collectors."
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


def _translated(words: Sequence[str], command: str = "train") -> list[str]:
    """The same arguments by our own option names."""
    translated: list[str] = []
    env_is_option, spellings = command == "ladder", TRAIN_SPELLINGS if command == "train" else SPELLINGS
    for word in words:
        name, equals, value = word.partition("=")
        if name in ENV_SPELLINGS and env_is_option:
            translated.append("--env" + equals + value)
        elif name in ENV_SPELLINGS:
            translated += [value] if equals else []
        else:
            translated.append(spellings.get(name.replace("_", "-"), name) + equals + value)
    return translated


def _train_defaults(words: Sequence[str]) -> TrainCommand:
    """Defaults as the chosen preset has them, so that --help shows them and the given fields go on top."""
    default = TrainCommand()
    if file := _value_of("--config", words):
        return _defaults_of_file(Path(file), words)
    preset = _value_of("--preset", words) or default.preset
    try:
        steps = int(_value_of("--steps", words) or default.steps)
    except ValueError:  # the parser will say so
        steps = default.steps
    # Fewer than one step gets its sentence from TrainConfig.
    return replace(default, td3=preset_config(preset, _environment_in(words), steps if steps > 0 else default.steps))


def _defaults_of_file(path: Path, words: Sequence[str]) -> TrainCommand:
    """What a file says, with its preset below; what decides a preset's numbers may also be given in words."""
    given: dict[str, Any] = {"env": _environment_in(words) or None, "preset": _value_of("--preset", words)}
    with contextlib.suppress(TypeError, ValueError):  # the parser will say so
        given["steps"] = int(_value_of("--steps", words))  # type: ignore[arg-type]  # None is no number either
    config = read_config(path, **{name: value for name, value in given.items() if value is not None})
    if ":" in config.env and given["env"] is None:  # a module that is typed may be imported
        from td3.run.directory import require_trust

        require_trust(config, path, "--trust" in words, f"td3 train --config {path}")
    return TrainCommand(**{f.name: getattr(config, f.name) for f in fields(TrainConfig)}, config=path)


def _environment_in(words: Sequence[str]) -> str:
    """The word that is neither an option nor an option's value; numbers can only be values."""
    names = ("json", "capture-video", "trust", "track", "tf32", "normalize-observations", "pixels")
    flags = [f"--{no}{name}" for name in names for no in ("", "no-")]
    for before, word in pairwise(["", *words]):
        takes_value = before.startswith("--") and "=" not in before and before.replace("_", "-") not in flags
        if not word.startswith("-") and not word.isdigit() and "=" not in word and not takes_value:
            return word
    return ""


def _value_of(option: str, words: Sequence[str]) -> str | None:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else next(iter(words[index + 1 : index + 2]), None)
    return None
