"""Train and resume: what `td3.train`, `td3.resume` and the command line call."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import gymnasium as gym
import torch

from td3.algorithm.replacing import Replacement
from td3.callbacks.callback import Callback, CallbackList, WarningsCallback, checked_callbacks
from td3.callbacks.standard import open_files_of, standard_callbacks
from td3.config import TrainConfig, resolve
from td3.environments import TaskSpaces
from td3.environments.guarded import Make
from td3.environments.side_effects import pytorch_kept
from td3.environments.source import environment_maker, evaluation_maker
from td3.environments.spec import EnvFactory, parse_env
from td3.environments.vector import VectorSource
from td3.errors import ConfigError, RunError
from td3.keywords import Settings
from td3.libraries import library_variables
from td3.report.analysis import Run
from td3.resources import room_for_files
from td3.run.directory import (
    absolute_out,
    new_directory,
    require_new,
    require_no_run,
    require_trust,
    require_trusted_steps,
    write_facts,
)
from td3.run.lock import locked
from td3.signals import stop_signals_as_interrupt
from td3.spellings import own_settings
from td3.training.backend_flags import backend_flags
from td3.training.beginning import begin, dataset_again, read_dataset, try_replaced_steps, try_start
from td3.training.resuming import (
    changed_versions,
    config_to_resume,
    newest_usable,
    require_unfinished,
    with_capacity_of,
)
from td3.training.setup import arguments_of_env, buffer_capacity, choose_device, probe_environment, require_room
from td3.training.state import require_step_state
from td3.training.trainer import Trainer
from td3.variants import (
    RECORD,
    absolute,
    find_replacements,
    load_functions,
    names_of,
    record_after,
    record_of,
    require_no_import,
)
from td3.variants.sources import SOURCES, record_sources, sources_after


def train(
    env: Any,
    *,
    preset: str = "author",
    callbacks: Sequence[Callback] = (),
    replace_steps: Sequence[Callable[..., Any] | str] = (),
    eval_env: Any = None,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Run:
    """Train and return the run: `td3.train("HalfCheetah-v5", steps=100_000, seeds=3, batch_size=128)`.

    Instead of a name, `env` may be a class of environments or a function that makes one, a vector environment
    (`gymnasium.vector.VectorEnv`), or a function `make(num_envs, seed)` that makes one. `eval_env` is where a run on a
    vector environment is evaluated: anything that `env` may be, by default another one of the function's; an instance
    alone is not evaluated, and with False nothing is. `callbacks` are told what happens, and may stop the run
    (`td3.Callback`). `replace_steps` has functions in the place of steps of the algorithm (`td3.replace_step`).
    `progress=False` prints nothing. All other settings are keyword arguments too (`td3.keywords.Settings`, every one
    with its sentence): those of the run, those of the algorithm, and their names in other libraries, such as `lr`.
    """
    require_no_import("td3.train")
    chosen = own_settings(settings)
    given, told = parse_env(env), with_display(callbacks, progress)
    if isinstance(given.factory, VectorSource) and given.factory.instance is not None:
        seeds, count = chosen.get("seeds", 1), given.factory.instance.num_envs
        divides = isinstance(seeds, int) and seeds > 0
        if divides and "envs" not in chosen and count % seeds:
            raise ConfigError(
                f"{given.factory.name} has {count} environments, which cannot be divided among {seeds} seeds: give as "
                "many for each seed."
            )
        chosen.setdefault("envs", max(1, count // seeds) if divides else 1)
    functions = load_functions(replace_steps)
    chosen["replace_steps"] = names_of(replace_steps)
    if given.env_kwargs:
        chosen["env_kwargs"] = given.env_kwargs | chosen.get("env_kwargs", {})
    config = resolve(given.env, preset, **chosen)
    config.require_updates()
    for warning in config.warnings():
        warnings.warn(warning, stacklevel=2)
    return train_run(config, told, given.factory, functions, eval_env)


@library_variables()
@stop_signals_as_interrupt()
def train_run(
    config: TrainConfig,
    callbacks: Sequence[Callback] | None = None,
    factory: EnvFactory | VectorSource | None = None,
    functions: Sequence[Callable[..., Any]] = (),
    eval_env: Any = None,
) -> Run:
    """Train as configured; Ctrl-C saves what was learned, and is then raised as KeyboardInterrupt.

    `factory` makes the environment where its name alone cannot. Without `callbacks`, warnings are Python's own.
    `functions` are those that `replace_steps` names, where they come from Python.
    """
    replacements = find_replacements(config.variant, config.replace_steps, functions)
    record = record_of(replacements)
    # Absolute before the first environment is made: one may change the current folder.
    dated, out = config.out is None, absolute_out(config)
    config = replace(config, out=out, replace_steps=absolute(config.replace_steps))
    if config.init_from is not None:
        config = replace(config, init_from=str(Path(config.init_from).absolute()))
    if not dated:
        require_new(out)
    files = room_for_files(open_files_of(config), config.seeds)
    with files, environment_maker(arguments_of_env(config, factory)) as make:
        spaces = probe_environment(config, make)
        config, rows = read_dataset(config, spaces)
        in_host_ram = require_room(config, spaces)
        notices = try_replaced_steps(config, spaces, replacements)
        config = try_start(config, spaces, replacements)
        with (
            evaluation_maker(make, eval_env, spaces) as eval_make,
            _trainer(config, spaces, make, in_host_ram, replacements, eval_make) as trainer,
        ):
            begin(trainer, rows)
            del rows  # the replay buffer has them
            # Nothing is written before everything that may refuse the run is made.
            path = new_directory(out, dated)
            trainer.config = replace(trainer.config, out=path)
            with locked(path) as trainer.folder:
                require_no_run(path)  # another process may have been faster
                write_facts(path / "versions.json", trainer.versions)
                write_facts(path / "config.json", trainer.config.to_json())
                if record:
                    write_facts(path / RECORD, {"replaced": record})
                if sources := record_sources(_code_of(config, replacements, callbacks, factory, eval_env)):
                    write_facts(path / SOURCES, sources)
                trainer.run(_callbacks(trainer, callbacks), None, notices)
    return Run(path)


def resume(
    path: Path | str,
    *,
    steps: int | None = None,
    env: Any = None,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    replace_steps: Sequence[Callable[..., Any] | str] = (),
    eval_env: Any = None,
    progress: bool = True,
) -> Run:
    """Continue a run that was interrupted or stopped, or, with more steps, a finished one.

    Give the same `callbacks` again: those that keep a state get it back.

    `env` is needed where the run was trained on a function of yours: the same one again. A run whose environment is
    named `module:Class` is resumed with that class as `env`, or with `trust`, which has the module imported. The same
    holds for functions in the place of steps: give them again as `replace_steps`, or `trust` the file they came from.
    `eval_env` and `progress` are as in `train`. A vector environment begins new episodes: its state is not in
    checkpoints.
    """
    require_no_import("td3.resume")
    given, told = None if env is None else parse_env(env), with_display(callbacks, progress)
    again: dict[str, Any] = {"trust": trust, "functions": replace_steps, "eval_env": eval_env}
    if given is None or given.factory is not None:
        return resume_run(Path(path), steps, told, given and given.factory, **again)
    return resume_run(Path(path), steps, told, env=given.env, **again)


@library_variables()
@stop_signals_as_interrupt()
def resume_run(
    path: Path,
    steps: int | None = None,
    callbacks: Sequence[Callback] | None = None,
    factory: EnvFactory | VectorSource | None = None,
    *,
    trust: bool = False,
    env: str | None = None,
    functions: Sequence[Callable[..., Any] | str] = (),
    eval_env: Any = None,
) -> Run:
    """Go on from the newest whole checkpoint, or from the beginning where there is none.

    A module that the run's environment names is imported only with `trust`, or where `env` is that name; a file that
    holds a step of the run, only with `trust`, or not at all where its `functions` are given.
    """
    # An environment may change the current folder, and runs/ENV/latest may become another run.
    path = Path(os.path.realpath(path))
    Run(path)  # nothing is written in a folder that is none
    with locked(path) as folder:
        config = config_to_resume(path, Run(path).config, steps)
        if env is not None and env != config.env:
            raise RunError(f"{path} is a run of {config.env}, and {env} was given: give the environment that it has.")
        require_trust(config, path, trust or env is not None or factory is not None, f"td3 resume {path}")
        require_trusted_steps(config, path, trust or bool(functions), f"td3 resume {path}")
        replacements = find_replacements(config.variant, config.replace_steps, functions)
        if functions:
            config = replace(config, replace_steps=names_of(functions))
        checkpoint, refused = newest_usable(path, config)
        config = with_capacity_of(config, checkpoint)
        require_unfinished(path, config, checkpoint, refused)
        place = "the beginning" if checkpoint is None else f"env step {checkpoint.env_steps:,}"
        notices = [f"{sentence}; continuing from {place}." for sentence in refused]
        record, changed = record_after(path, replacements, checkpoint.env_steps if checkpoint else 0)
        if checkpoint is not None:
            require_step_state(path, replacements, config.seeds, checkpoint)
            notices += changed_versions(checkpoint.facts.get("versions", {})) + changed
        files = room_for_files(open_files_of(config), config.seeds)
        with files, environment_maker(arguments_of_env(config, factory)) as make:
            spaces = probe_environment(config, make, checkpoint.env_steps if checkpoint else 0)
            rows = None if checkpoint else dataset_again(config, spaces)
            in_host_ram = require_room(config, spaces, checkpoint, resumed=True)
            notices += try_replaced_steps(config, spaces, replacements)
            with (
                evaluation_maker(make, eval_env, spaces) as eval_make,
                _trainer(config, spaces, make, in_host_ram, replacements, eval_make) as trainer,
            ):
                trainer.folder = folder
                if checkpoint is None:
                    begin(trainer, rows)
                del rows
                # Before the first checkpoint of an extension: a run that is killed until then still knows its length.
                write_facts(path / "config.json", config.to_json())
                if record:
                    write_facts(path / RECORD, {"replaced": record})
                code = _code_of(config, replacements, callbacks, factory, eval_env)
                sources, edited = sources_after(path, code, checkpoint.env_steps if checkpoint else 0, "".join(changed))
                if sources:
                    write_facts(path / SOURCES, sources)
                notices += edited
                trainer.run(_callbacks(trainer, callbacks), checkpoint, notices)
    return Run(path)


def _code_of(
    config: TrainConfig,
    replacements: Sequence[Replacement],
    callbacks: Sequence[Callback] | None,
    factory: EnvFactory | VectorSource | None,
    eval_env: Any,
) -> list[Any]:
    """What of a run may be the user's own code: functions, objects, and names of modules."""
    module, _, name = config.env.rpartition(":")
    registered = getattr(gym.registry.get(name), "entry_point", None)
    entry_point = registered.partition(":")[0] if isinstance(registered, str) else registered
    made = factory.origin if isinstance(factory, VectorSource) else factory
    evaluated = eval_env.rpartition(":")[0] if isinstance(eval_env, str) else eval_env
    given = (module, entry_point, made, evaluated, *(callbacks or ()))
    return [*(one.function for one in replacements), *(one for one in given if one is not None)]


def with_display(given: Sequence[Callback], progress: bool) -> list[Callback]:
    """Callbacks from Python, checked, with Python's own warnings and, unless there is one, a display of progress."""
    from td3.callbacks.progress import ProgressDisplay

    callbacks = checked_callbacks(given)
    shown = any(isinstance(callback, ProgressDisplay) for callback in callbacks)
    return [WarningsCallback(), *([ProgressDisplay()] if progress and not shown else []), *callbacks]


def _callbacks(trainer: Trainer, given: Sequence[Callback] | None) -> CallbackList:
    return CallbackList(standard_callbacks(trainer, [WarningsCallback()] if given is None else given))


@contextlib.contextmanager
def _trainer(
    config: TrainConfig,
    spaces: TaskSpaces,
    make: Make | VectorSource,
    in_host_ram: bool,
    replacements: Sequence[Replacement],
    eval_make: Make | VectorSource | None,
) -> Iterator[Trainer]:
    """The trainer of a run, closed afterwards; a GPU without enough memory gets one sentence, also while it trains."""
    try:
        with backend_flags(config.precision), pytorch_kept():
            device, capacity = choose_device(config.device), buffer_capacity(config)
            trainer = Trainer(config, spaces, make, device, capacity, in_host_ram, replacements, eval_make)
            with contextlib.closing(trainer):
                yield trainer
    except torch.OutOfMemoryError:
        raise ConfigError(
            "the GPU has no memory left: train fewer seeds, lower --td3.buffer-size, or use --device cpu."
        ) from None
