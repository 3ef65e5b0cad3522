"""`td3 tune` and `td3 sweep`: many runs, for settings and for statistics."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from td3.cli.options import Commands, EnvKwargs, EnvName, Json, own_names
from td3.cli.parsing import option_names
from td3.cli.train import parse_train, train_config
from td3.config import Device, Preset, TrainConfig
from td3.errors import ConfigError
from td3.spellings import nearest

if TYPE_CHECKING:
    from td3.sweep import SweepRun


@dataclass(frozen=True)
class TuneCommand:
    """Search for settings that suit a task: `td3 tune Pendulum-v1 --steps 10000 --trials 30`."""

    env: EnvName
    """Gymnasium's name of the environment."""
    trials: int = 30
    """Total number of trials; the same command resumes a study that was interrupted."""
    steps: int = 100_000
    """Env steps of each trial."""
    seeds: int = 1
    """Seeds of each trial, trained together; the objective is their mean return."""
    seed: int = 0
    """The first seed, the same in every trial."""
    preset: Preset = "author"
    """Source of the settings that are not searched; its own values are the first trial."""
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """Arguments of the environment, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    normalize_observations: bool = False
    """Normalize observations by running mean and standard deviation, and clip to +-10."""
    fields: tuple[str, ...] = (
        *("learning_rate", "gamma", "hidden_sizes", "batch_size", "exploration_noise", "tau", "learning_starts_share"),
    )
    """Settings to search."""
    eval_every: int | None = None
    """Env steps between evaluations, at which a trial may be pruned; by default a tenth of the steps."""
    eval_episodes: int = 10
    """Noise-free episodes of an evaluation."""
    device: Device = "auto"
    """Device of networks and replay buffer; auto uses a GPU if there is one."""
    threads: int = 0
    """CPU threads for the updates; 0 takes what the machine allows."""
    out: Path | None = None
    """The study's folder; by default runs/tune/ENV."""
    json: Json = False


@dataclass(frozen=True)
class SweepCommand:
    """Train tasks x settings x seeds, here or on a Ray cluster: `td3 sweep Hopper-v5 Ant-v5 --set td3.tau=0.005,0.01`.

    Each is a run in its own folder; repeating the command resumes unfinished runs.
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
    """Source of the defaults under td3."""
    out: Path = Path("runs/sweep")
    """The sweep's folder; on a cluster, on a file system that all machines share."""
    ray_address: str | None = None
    """HOST:PORT of a Ray cluster; without it, the cores of this machine."""
    cpus: int = 1
    """CPU cores of each run, which is also its number of threads."""
    gpus: float = 0.0
    """GPUs of each run; 0.25 lets four runs share one, 0 trains on CPU cores."""
    json: Json = False


def tune_command(command: TuneCommand) -> int:
    """Search and print every trial; after Ctrl-C the same command continues the study."""
    from td3.tune.search import best_of, ended, tune

    given = vars(command) | {"out": command.out or Path("runs/tune") / command.env.replace("/", "_").replace(":", "_")}
    if command.eval_every is None:
        given["eval_every"] = max(1, command.steps // 10)
    say: Callable[[str], None] = (lambda line: None) if given.pop("json") else partial(print, flush=True)
    try:
        study = tune(**given, say=say)
    except KeyboardInterrupt:
        say("Stopped; the same command continues the study.")
        raise
    states, best = [trial.state.name for trial in ended(study)], best_of(study)
    figures = {"path": str(given["out"]), "finished": len(states), "plot": str(given["out"] / "tuning.png")}
    figures |= {"pruned": states.count("PRUNED"), "failed": states.count("FAIL")}
    figures |= {"best_trial": best and best.number, "best_value": best and best.value}
    figures["best_config"] = str(given["out"] / "best.toml") if best else None
    if command.json:
        print(json.dumps(figures))
        return 0
    print("{finished} trials in {path}: {pruned} pruned, {failed} failed\nPlot: {plot}".format(**figures))
    if best:
        print(f"Best: trial {best.number}, return {best.value:,.1f}")
        named = f"{command.env} " * (":" in command.env)  # a module that is typed may be imported
        print(f"Next: td3 train {named}--config {figures['best_config']} --seed 100")
    return 0


def sweep_command(command: SweepCommand) -> int:
    """Train all runs and print the table."""
    from td3.callbacks.progress import sweep_lines
    from td3.sweep import run_sweep

    runs, say = sweep_runs(command), (lambda line: None) if command.json else partial(print, flush=True)
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
            print("Some runs are not finished: the same command resumes them.")
    if sweep.interrupted:
        return 130
    return 1 if any(outcome.reason for outcome in sweep.outcomes) else 0


def sweep_runs(command: SweepCommand) -> "list[SweepRun]":
    """Every task with every setting and seed, each with the configuration that `td3 train` would use."""
    from td3.sweep import SweepRun, folder_of

    for name in ("seeds", "cpus"):
        if getattr(command, name) < 1:
            raise ConfigError(f"must be at least 1, but {getattr(command, name)} was given.", name)
    if not command.gpus >= 0:
        raise ConfigError(f"must be 0 or more, but {command.gpus} was given.", "gpus")
    if not command.envs:
        raise ConfigError("`td3 sweep` needs a task: td3 sweep HalfCheetah-v5 --seeds 5")
    choices = [_choices(text) for text in command.set]
    runs = []
    for env, chosen in product(command.envs, product(*(values for _, values in choices))):
        pairs = [(name, value) for (name, _), value in zip(choices, chosen, strict=True)]
        words = [word for name, value in pairs for word in _words(name, value)]
        setting = "_".join(
            f"{name.removeprefix('td3.')}={value}"
            for (name, value), (_, values) in zip(pairs, choices, strict=True)
            if len(values) > 1
        )
        common = [env, "--steps", str(command.steps), "--preset", command.preset]
        for seed in range(command.seed, command.seed + command.seeds):
            config = train_config(parse_train([*common, "--seed", str(seed), *words]))
            runs.append(SweepRun(env, setting, replace(config, out=folder_of(command.out, env, setting, seed))))
    return runs


def _words(option: str, value: str) -> list[str]:
    """A setting and its value as options of `td3 train`: true and false of a switch are --SETTING and --no-SETTING."""
    group, dot, name = option.rpartition(".")
    off = f"{group}{dot}no-{name}"
    if f"--{off}" not in option_names(TrainConfig):
        return [f"--{option}", *value.split()]
    if value not in ("true", "false"):
        raise ConfigError(f"--set {option} takes true or false, but {value!r} was given.")
    return [f"--{option if value == 'true' else off}"]


def _choices(text: str) -> tuple[str, list[str]]:
    """The setting and the values of one --set."""
    name, equals, values = text.partition("=")
    (option, *_) = own_names([f"--{name.removeprefix('--').replace('_', '-')}"])
    option = option.removeprefix("--")
    choices = [value.strip() for value in values.split(",")]
    if not equals or not all(choices):
        raise ConfigError(f"--set must be a setting and its values, as in td3.tau=0.005,0.01, but {text!r} was given.")
    if len({*choices}) < len(choices):
        raise ConfigError(f"--set {text} has a value twice: each makes runs of its own.")
    fixed = {"env", "seed", "seeds", "steps", "out", "preset"}  # options of the sweep itself
    settings = {o.removeprefix("--") for o in option_names(TrainConfig)} - fixed
    if option not in settings:
        near = nearest(option, settings)
        hint = f"did you mean {near}?" if near else "`td3 train --help-all` lists what there is."
        raise ConfigError(f"--set cannot vary {name!r}: {hint}")
    return option, choices


COMMANDS: Commands = {"tune": (TuneCommand, tune_command), "sweep": (SweepCommand, sweep_command)}
