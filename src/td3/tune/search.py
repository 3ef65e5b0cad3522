"""Hyperparameter search: short runs with different settings, pruned early; the best one as a config file.

Everything is in one folder: `study.db` (Optuna's, in SQLite), a run per trial, `best.toml` and `tuning.png`. The same
command continues an interrupted study.
"""

import contextlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from td3.algorithm.streams import derive_seed
from td3.callbacks.callback import WarningsCallback
from td3.config import TrainConfig, preset_config, resolve
from td3.environments import check_environment, make_environment
from td3.errors import ConfigError, Diverged, RunError, missing_extra
from td3.evaluate import Evaluation
from td3.files import outside, write_atomically
from td3.training import train_run

if TYPE_CHECKING:
    import optuna

SEARCH: dict[str, Callable[["optuna.Trial"], Any]] = {
    "learning_rate": lambda trial: trial.suggest_float("learning_rate", 1e-4, 3e-3, log=True),
    "gamma": lambda trial: trial.suggest_categorical("gamma", [0.9, 0.95, 0.98, 0.99, 0.995]),
    "hidden_sizes": lambda trial: trial.suggest_categorical("hidden_sizes", ["64 64", "128 128", "256 256", "400 300"]),
    "batch_size": lambda trial: trial.suggest_categorical("batch_size", [64, 100, 256, 512]),
    "exploration_noise": lambda trial: trial.suggest_float("exploration_noise", 0.02, 0.3),
    "tau": lambda trial: trial.suggest_float("tau", 1e-3, 5e-2, log=True),
    "learning_starts_share": lambda trial: trial.suggest_float("learning_starts_share", 0.01, 0.2),
}
"""The search space; `learning_starts_share` is the share of a run's env steps whose actions are random."""
LAST = 3
"""Evaluations at the end of a run whose mean is the trial's value: a single one is noisy."""
UNPRUNED_TRIALS, UNPRUNED_SHARE = 5, 0.3
"""No pruning in the first trials, and in the first part of each trial's steps."""


class TuneOptions(NamedTuple):
    """Options of a study; they are saved with it and cannot change."""

    env: str
    steps: int
    preset: str
    seed: int
    seeds: int
    eval_every: int
    eval_episodes: int
    fields: tuple[str, ...]
    env_kwargs: dict[str, Any] = {}  # noqa: RUF012  # never changed
    normalize_observations: bool = False


class Tuning(NamedTuple):
    """The state of a study."""

    path: Path
    finished: int
    pruned: int
    best_trial: int | None
    best_value: float | None
    best_config: Path | None
    plot: Path | None
    interrupted: bool


class PruningCallback(WarningsCallback):
    """Reports every evaluation to a trial, and stops the run when the study prunes it; `pruned` says why."""

    def __init__(self, trial: "optuna.Trial") -> None:
        self.trial, self.pruned = trial, ""
        self.values: list[float] = []

    def on_evaluation(self, trainer: Any, evaluation: Evaluation) -> None:
        """Report the mean over seeds and episodes."""
        env_steps = evaluation.env_steps
        if env_steps == 0 or self.pruned:
            return  # before training all trials are alike
        value = float(evaluation.returns.mean())
        self.values.append(value)
        if not math.isfinite(value):
            self.pruned = f"the return was {value}"
        else:
            self.trial.report(value, env_steps)
            if self.trial.should_prune():
                self.pruned = f"below the median at {env_steps:,} env steps"
        if self.pruned:
            trainer.stop(self.pruned)

    @property
    def value(self) -> float:
        """The trial's value."""
        return float(np.mean(self.values[-LAST:]))


def tune(
    options: TuneOptions,
    out: Path,
    trials: int,
    device: str = "auto",
    threads: int = 0,
    say: Callable[[str], None] = print,
) -> Tuning:
    """Search until the study has so many finished trials, counting those it already had; Ctrl-C loses one at most."""
    if importlib.util.find_spec("optuna") is None or importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("tuning", "tune")
    _check(options, trials)
    with _quiet_optuna():
        study = _open_study(options, out)
        done = _finished(study)
        if done:
            say(f"Going on with {out / 'study.db'}: {len(done)} of {trials} trials are finished.")
        interrupted = False
        with contextlib.suppress(KeyboardInterrupt):
            interrupted = True
            if len(done) < trials:
                study.optimize(
                    lambda trial: _run_trial(trial, options, out, device, threads),
                    n_trials=None,
                    callbacks=[
                        lambda study, trial: _tell(study, trial, options, out, say),
                        lambda study, _: study.stop() if len(_finished(study)) >= trials else None,
                    ],
                )
            interrupted = False
        return _result(study, out, interrupted)


def config_of(options: TuneOptions, parameters: dict[str, Any]) -> TrainConfig:
    """The full configuration of one trial."""
    return resolve(
        options.env,
        options.preset,
        steps=options.steps,
        seed=options.seed,
        seeds=options.seeds,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        env_kwargs=options.env_kwargs,
        normalize_observations=options.normalize_observations,
        **_settings(options, parameters),
    )


def _settings(options: TuneOptions, parameters: dict[str, Any]) -> dict[str, Any]:
    """A trial's parameters as fields of the configuration."""
    settings: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "learning_rate":
            settings |= {"actor_learning_rate": value, "critic_learning_rate": value}
        elif name == "hidden_sizes":
            settings[name] = tuple(int(size) for size in value.split())
        elif name == "learning_starts_share":
            settings["learning_starts"] = max(1, round(value * options.steps))
        else:
            settings[name] = value
    return settings


def _usual(options: TuneOptions) -> dict[str, Any]:
    """The preset's values, as the first trial and baseline."""
    preset = preset_config(options.preset, options.env, options.steps)
    usual: dict[str, Any] = {
        "learning_rate": preset.actor_learning_rate,
        "hidden_sizes": " ".join(map(str, preset.hidden_sizes)),
        "learning_starts_share": min(max(preset.learning_starts / options.steps, 0.01), 0.2),
    }
    return {name: usual.get(name, getattr(preset, name, None)) for name in options.fields}


def _check(options: TuneOptions, trials: int) -> None:
    if trials < 1:
        raise ConfigError(f"must be a whole number of at least 1, but {trials} was given.", "trials")
    for name in options.fields:
        if name not in SEARCH:
            raise ConfigError(f"--fields names what to search, of {', '.join(SEARCH)}; {name!r} is none of them.")
    if not options.fields:
        raise ConfigError(f"--fields names what to search, of {', '.join(SEARCH)}; nothing was given.")
    config = config_of(options, {})  # refuses what cannot work
    with contextlib.closing(make_environment(**config.env_arguments)) as probe:
        check_environment(probe, options.env)


def _open_study(options: TuneOptions, out: Path) -> "optuna.Study":
    import optuna

    try:
        out.mkdir(parents=True, exist_ok=True)
        if links := [entry for entry in out.iterdir() if outside(entry, out)]:
            raise RunError(f"{links[0]} is a link that leads out of its study: remove it, or give another --out.")
        storage = optuna.storages.RDBStorage(f"sqlite:///{(out / 'study.db').resolve()}")
        study = optuna.create_study(
            storage=storage,
            study_name="td3",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(UNPRUNED_TRIALS, round(UNPRUNED_SHARE * options.steps)),
        )
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): give another --out.") from None
    except RunError:
        raise
    except Exception as error:  # Optuna's and SQLAlchemy's own kinds: a foreign, damaged or locked file
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(f"{out / 'study.db'} cannot be used ({first}): give another --out.") from None
    _same_study(study, options, out)
    # The samples depend on the number of trials: a continued study does not repeat the first settings.
    study.sampler = optuna.samplers.TPESampler(seed=derive_seed(options.seed, "tune", len(study.trials)) % 2**31)
    return study


def _same_study(study: "optuna.Study", options: TuneOptions, out: Path) -> None:
    asked = {name: list(value) if isinstance(value, tuple) else value for name, value in options._asdict().items()}
    kept = study.user_attrs.get("options")
    if kept is None:
        study.set_user_attr("options", asked)
        study.enqueue_trial(_usual(options))
        return
    kept = {**TuneOptions._field_defaults, **kept}  # fields that an earlier version did not have
    for name, value in asked.items():
        if kept.get(name) != value:
            raise ConfigError(
                f"the study in {out} was begun with {name} = {kept.get(name)}, and {value} was given now: "
                "say the same again, or give another --out."
            )


def _run_trial(trial: "optuna.Trial", options: TuneOptions, out: Path, device: str, threads: int) -> float:
    import optuna

    config = config_of(options, {name: SEARCH[name](trial) for name in options.fields})
    folder = out / f"trial_{trial.number:04}"
    callback = PruningCallback(trial)
    # An interrupted trial starts again, so checkpoints are not needed.
    try:
        train_run(replace(config, out=folder, device=device, threads=threads, save_every=0), [callback])  # type: ignore[arg-type]  # checked there
    except Diverged as error:  # a search also tries settings that diverge
        raise optuna.TrialPruned(str(error)) from error
    if callback.pruned:
        raise optuna.TrialPruned(callback.pruned)
    return callback.value


def _finished(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    """Finished and pruned trials, without interrupted ones."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _best(study: "optuna.Study") -> "optuna.trial.FrozenTrial | None":
    from optuna.trial import TrialState

    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(complete, key=lambda trial: value_of(trial), default=None)


def value_of(trial: "optuna.trial.FrozenTrial") -> float:
    """The value of a finished trial, or the last return of a pruned one."""
    if trial.value is not None and trial.state.name == "COMPLETE":
        return trial.value
    return max(trial.intermediate_values.items(), default=(0, math.nan))[1]


def _tell(
    study: "optuna.Study",
    trial: "optuna.trial.FrozenTrial",
    options: TuneOptions,
    out: Path,
    say: Callable[[str], None],
) -> None:
    """Print a line for every finished trial; write the config file whenever there is a better one."""
    best = _best(study)
    told = f"return {value_of(trial):,.1f}"
    if trial.state.name != "COMPLETE":
        told = f"stopped at {max(trial.intermediate_values, default=0):,} env steps, {told}"
    settings = "  ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
    mark = "  <- best so far" if best is not None and best.number == trial.number else ""
    say(f"trial {trial.number}: {told}   {settings}{mark}")
    if mark:
        content = config_file(options, trial.params, trial.number, value_of(trial))
        write_atomically(out / "best.toml", content.encode())


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def config_file(options: TuneOptions, parameters: dict[str, Any], number: int, value: float) -> str:
    """A file for `td3 train --config` with the settings found; all others come from the preset."""
    lines = [
        f"# Trial {number} of `td3 tune` on {_toml(options.env)}: return {value:,.1f} at {options.steps:,} env steps",
        f"# (the mean of the last {LAST} evaluations).",
        f"env = {_toml(options.env)}",
        f"steps = {options.steps}",
        f'preset = "{options.preset}"',
        *([f"env_kwargs = {_toml(options.env_kwargs)}"] if options.env_kwargs else []),
        *(["normalize_observations = true"] if options.normalize_observations else []),
        "",
        "[td3]",
    ]
    for name, found in _settings(options, parameters).items():
        lines.append(f"{name} = {list(found) if isinstance(found, tuple) else repr(found)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A plain value on one line; JSON and TOML differ in tables alone (and in null, which TOML does not have)."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _result(study: "optuna.Study", out: Path, interrupted: bool) -> Tuning:
    done, best = _finished(study), _best(study)
    config, plot = out / "best.toml", out / "tuning.png"
    if done:
        from td3.tune.plot import draw

        draw(study.user_attrs["options"], done, best, plot)
    return Tuning(
        out,
        len(done),
        sum(trial.state.name == "PRUNED" for trial in done),
        best.number if best else None,
        best.value if best else None,
        config if config.exists() else None,
        plot if done else None,
        interrupted,
    )


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Silence Optuna's log lines; ours are printed instead."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
