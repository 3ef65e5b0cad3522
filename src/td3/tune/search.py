"""Hyperparameter search with Optuna: short runs with different settings, pruned early; the best one as a config file.

OUT/
  study.db               parameters, evaluations and outcome of every trial (Optuna's, in SQLite)
  trial_0000/ ...        the run of each trial; trial 0 has the preset's own settings
  best.toml              up to date after every trial
  tuning.png             drawn when the search ends or is interrupted

A trial's parameters depend only on the seed, the trial's number and the trials before it, and a trial that was
interrupted or killed is resumed from its run: the study ends as if nothing had happened.
"""

import contextlib
import importlib.util
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td3.algorithm.streams import derive_seed
from td3.callbacks.callback import WarningsCallback
from td3.config import preset_config, resolve
from td3.environments import check_environment, make_environment
from td3.errors import ConfigError, Diverged, EnvironmentFault, RunError, missing_extra
from td3.evaluate import Evaluation
from td3.files import outside, write_atomically
from td3.run.directory import read_facts
from td3.run.lock import locked
from td3.training import resume_run, train_run

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

SEARCH: dict[str, Any] = {
    "learning_rate": {"low": 1e-4, "high": 3e-3, "log": True},
    "gamma": [0.9, 0.95, 0.98, 0.99, 0.995],
    "hidden_sizes": ["64 64", "128 128", "256 256", "400 300"],
    "batch_size": [64, 100, 256, 512],
    "exploration_noise": {"low": 0.02, "high": 0.3},
    "tau": {"low": 1e-3, "high": 5e-2, "log": True},
    "learning_starts_share": {"low": 0.01, "high": 0.2},
}
"""The search space, ranges and choices; `learning_starts_share` is the share of env steps whose actions are random."""
LAST = 3
"""Evaluations at the end of a run whose mean is the trial's value: a single one is noisy."""
UNPRUNED_TRIALS, UNPRUNED_SHARE = 5, 0.3
"""No pruning in the first trials, and in the first part of each trial's steps."""
OF_TRIALS = ("fields", "seed", "seeds", "eval_every", "eval_episodes")
"""Options of the search alone, which best.toml does not have."""


class TrialCallback(WarningsCallback):
    """Reports every evaluation to a trial, and stops its run where the study prunes it."""

    def __init__(self, trial: "Trial") -> None:
        self.trial = trial
        self.values: dict[int, float] = dict(trial.study.trials[trial.number].intermediate_values)
        """Mean return by env step; an interrupted trial has reported some already."""

    def on_evaluation(self, trainer: Any, evaluation: Evaluation) -> None:
        """Report the mean over seeds and episodes; before training all trials are alike."""
        value = float(evaluation.returns.mean())
        if evaluation.env_steps and not self.outcome():
            self._report(evaluation.env_steps, value if math.isfinite(value) else math.nan)
            if outcome := self.outcome():
                trainer.stop(outcome)

    def _report(self, env_steps: int, value: float) -> None:
        if env_steps not in self.values:
            self.values[env_steps] = value
            self.trial.report(value, env_steps)

    def state(self) -> dict[str, Any]:
        """What was reported, also where the study could not be written: a resumed run does not evaluate it again."""
        return {"values": list(self.values.items())}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Report what the study does not have."""
        for env_steps, value in state["values"]:
            self._report(env_steps, value)

    def outcome(self) -> str:
        """Why training ends early, by what was reported; empty if it does not."""
        if any(map(math.isnan, self.values.values())):
            return "diverged: a return is not a number"
        return "pruned: below the median" if self.values and self.trial.should_prune() else ""


def tune(
    env: str,
    out: Path,
    trials: int = 30,
    fields: Sequence[str] = tuple(SEARCH),
    preset: str = "author",
    steps: int = 100_000,
    device: str = "auto",
    threads: int = 0,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> "Study":
    """Search until so many trials have ended, counting those of earlier calls; `settings` are those of `td3.train`.

    After Ctrl-C, raised as KeyboardInterrupt, or a kill the same call resumes the trial that was interrupted.
    """
    if importlib.util.find_spec("optuna") is None or importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("tuning", "tune")
    if trials < 1:
        raise ConfigError(f"must be a whole number of at least 1, but {trials} was given.", "trials")
    unknown = [repr(name) for name in fields if name not in SEARCH]
    if unknown or not fields:
        problem = f"{unknown[0]} is none of them" if unknown else "nothing was given"
        raise ConfigError(f"--fields names what to search, of {', '.join(SEARCH)}; {problem}.")
    config = resolve(env, preset, steps=steps, **settings)  # refuses what cannot work
    with contextlib.closing(make_environment(**config.env_arguments)) as probe:
        check_environment(probe, env)
    options = json.loads(json.dumps({"env": env, "steps": steps, "preset": preset, "fields": fields, **settings}))
    out = out.absolute()  # an environment may change the current folder
    _require_folder(out)
    with locked(out), _quiet_optuna():
        study = _opened(options, out)
        if begun := len(study.trials):
            resumed = f"; trial {begun - 1} is resumed" * (begun > len(ended(study)))
            say(f"Going on with {out / 'study.db'}: {len(ended(study))} of {trials} trials are finished{resumed}.")
        try:
            while len(ended(study)) < trials:
                trial = _resumed_or_next(study, options)
                _run_trial(trial, options, out / f"trial_{trial.number:04}", device, threads)
                _write_best(study, options, out)
                say(_described(study.trials[trial.number], best_of(study)))
        finally:
            _write_best(study, options, out)  # it may have been killed just before the same line above
            _draw(study, options, out)
        return study


def ended(study: "Study") -> list["FrozenTrial"]:
    """All trials but one that is under way or was interrupted."""
    return [trial for trial in study.trials if trial.state.is_finished()]


def best_of(study: "Study") -> "FrozenTrial | None":
    """The first of the trials with the highest value; None where none has finished."""
    finished = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    return max(finished, key=value_of, default=None)


def value_of(trial: "FrozenTrial") -> float:
    """The value of a finished trial, or the last return of one that ended early."""
    return math.nan if trial.value is None else trial.value


def _require_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if links := [entry for entry in out.iterdir() if outside(entry, out)]:
            raise RunError(f"{links[0]} is a link that leads out of its study: remove it, or give another --out.")
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): give another --out.") from None


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _opened(options: dict[str, Any], out: Path) -> "Study":
    """The study of this folder; a new one if there is none, and only if it has the same options."""
    import optuna

    pruner = optuna.pruners.MedianPruner(UNPRUNED_TRIALS, round(UNPRUNED_SHARE * options["steps"]))
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{(out / 'study.db').resolve()}")
        given: dict[str, Any] = {"storage": storage, "pruner": pruner, "direction": "maximize"}
        study = optuna.create_study(study_name="td3", load_if_exists=True, **given)
    except Exception as error:  # Optuna's and SQLAlchemy's own kinds: a foreign, damaged or locked file
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(f"{out / 'study.db'} cannot be used ({first}): give another --out.") from None
    if not study.trials:
        if folders := sorted(out.glob("trial_*")):
            raise RunError(f"{folders[0]} is a trial of a study that {out} no longer has: give another --out.")
        study.set_user_attr("options", options)
    before = study.user_attrs["options"]
    for name in {**before, **options}:
        if before.get(name) != options.get(name):
            raise ConfigError(
                f"the study in {out} was begun with {name} = {before.get(name)}, and {options.get(name)} was given "
                "now: say the same again, or give another --out."
            )
    return study


def _resumed_or_next(study: "Study", options: dict[str, Any]) -> "Trial":
    """The trial that was interrupted, or else a new one."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    number = len(study.trials)
    if number == len(ended(study)):
        space: dict[str, BaseDistribution] = {
            name: FloatDistribution(**SEARCH[name]) if "low" in SEARCH[name] else CategoricalDistribution(SEARCH[name])
            for name in options["fields"]
        }
        sampler = optuna.samplers.TPESampler(seed=derive_seed(options.get("seed", 0), "tune", number) % 2**31)
        copy = optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(study.trials)
        usual = baseline(options["env"], options["preset"], options["steps"], options["fields"])
        parameters = copy.ask(space).params if number else usual
        # Number and parameters are written in one transaction: a kill leaves all of a trial or nothing.
        running = optuna.trial.TrialState.RUNNING
        study.add_trial(optuna.trial.create_trial(state=running, params=parameters, distributions=space))
    return optuna.trial.Trial(study, study.trials[-1]._trial_id)


def _run_trial(trial: "Trial", options: dict[str, Any], folder: Path, device: str, threads: int) -> None:
    """Train or resume the run of a trial, and record its outcome."""
    from optuna.trial import TrialState

    callback = TrialCallback(trial)
    try:
        if callback.outcome() or read_facts(folder / "status.json").get("status") == "finished":
            pass  # it was killed when training had ended
        elif (folder / "config.json").exists():
            resume_run(folder, callbacks=[callback], env=options["env"])
        else:
            given = {name: value for name, value in options.items() if name != "fields"}
            given |= settings_of(trial.params, options["steps"])
            train_run(resolve(**given, out=folder, device=device, threads=threads), [callback])
        outcome = callback.outcome()
    except Diverged as error:  # a search also tries settings that diverge
        outcome = f"diverged: {error}"
    except (ConfigError, EnvironmentFault) as error:
        outcome = f"failed: {error}"
    if outcome:
        trial.set_user_attr("outcome", outcome)
        trial.study.tell(trial, state=TrialState.FAIL if outcome.startswith("failed") else TrialState.PRUNED)
    else:
        last = [value for _, value in sorted(callback.values.items())][-LAST:]
        trial.study.tell(trial, sum(last) / len(last))
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # for resuming alone, and large: they hold the buffer


def settings_of(parameters: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """A trial's parameters as settings of a run."""
    settings = dict(parameters)
    if (rate := settings.pop("learning_rate", None)) is not None:
        settings |= {"actor_learning_rate": rate, "critic_learning_rate": rate}
    if (sizes := settings.pop("hidden_sizes", None)) is not None:
        settings["hidden_sizes"] = tuple(int(size) for size in sizes.split())
    if (share := settings.pop("learning_starts_share", None)) is not None:
        settings["learning_starts"] = max(1, round(share * steps))
    return settings


def baseline(env: str, preset: str, steps: int, fields: Sequence[str]) -> dict[str, Any]:
    """The preset's own values, as parameters of trial 0."""
    usual = preset_config(preset, env, steps)
    values: dict[str, Any] = {
        **vars(usual),
        "learning_rate": usual.actor_learning_rate,
        "hidden_sizes": " ".join(map(str, usual.hidden_sizes)),
        "learning_starts_share": min(max(usual.learning_starts / steps, 0.01), 0.2),
    }
    return {name: values[name] for name in fields}


def _described(trial: "FrozenTrial", best: "FrozenTrial | None") -> str:
    """A line on a trial: how it ended, and its parameters."""
    early, value = trial.user_attrs.get("outcome"), f"return {value_of(trial):,.1f}"
    ending = f"ended at {max(trial.intermediate_values, default=0):,} env steps, {early}, {value}" if early else value
    settings = "  ".join(
        f"{name} {v:.3g}" if isinstance(v, float) else f"{name} {v}" for name, v in trial.params.items()
    )
    mark = "  <- best so far" if best is not None and best.number == trial.number else ""
    return f"trial {trial.number}: {ending}   {settings}{mark}"


def _write_best(study: "Study", options: dict[str, Any], out: Path) -> None:
    """The best settings as a file for `td3 train --config`."""
    if best := best_of(study):
        of_run = {name: value for name, value in options.items() if name not in OF_TRIALS}
        lines = [
            f"# Trial {best.number} of `td3 tune` on {json.dumps(options['env'])}: "
            f"return {value_of(best):,.1f} at {options['steps']:,} env steps (mean of the last {LAST} evaluations)",
            *(f"{name} = {_toml(value)}" for name, value in of_run.items()),
            "\n[td3]",
            *(f"{name} = {_toml(value)}" for name, value in settings_of(best.params, options["steps"]).items()),
        ]
        write_atomically(out / "best.toml", ("\n".join(lines) + "\n").encode())


def _draw(study: "Study", options: dict[str, Any], out: Path) -> None:
    from td3.tune.plot import draw

    if trials := ended(study):
        title = f"td3 tune {options['env']}: {len(trials)} trials of {options['steps']:,} env steps"
        draw(title, {name: SEARCH[name] for name in options["fields"]}, trials, best_of(study), out / "tuning.png")


def _toml(value: Any) -> str:
    """A plain value on one line; JSON and TOML differ in tables alone (and in null, which TOML does not have)."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
