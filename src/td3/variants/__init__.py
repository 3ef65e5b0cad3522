"""Changes of named steps: variants of TD3 that come with the package, and functions of your own.

A variant is a set of settings (`td3.variant_settings`) and of functions in the place of steps.
"""

import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from td3.algorithm.registry import STEPS
from td3.algorithm.replacing import Replacement, outer_variables, replacements_of
from td3.errors import ConfigError, RunError
from td3.files import read_regular_file
from td3.user_code import describe, with_lines
from td3.variants.ablations import first_critic
from td3.variants.behavior_cloning import improve_actor_near_data_
from td3.variants.n_step import n_step_batch
from td3.variants.prioritized import prioritized_loss, sample_by_priority
from td3.variants.sources import is_own, plain_function

FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "no-delay": (),
    "no-smoothing": (),
    "no-twin": (first_critic,),
    "ddpg": (first_critic,),
    "layer-norm": (),
    "prioritized": (sample_by_priority, prioritized_loss),
    "n-step": (n_step_batch,),
    "behavior-cloning": (improve_actor_near_data_,),
    "hindsight": (),  # what is stored changes: td3.collect.hindsight_collector
}
"""The functions of each variant. Where several replace the same step, a later one wraps those before it."""
RECORD = "steps.json"
"""File of a run that holds the source of every replaced step."""
LARGEST_RECORD = 1 << 22
LONGEST_CONSTANT = 1000
"""Characters of a variable outside a replaced step that a run records; of a longer one, a hash follows."""
_importing: list[str] = []
"""Files of steps whose import is under way."""


def find_replacements(
    variant: Sequence[str], named: Sequence[str], functions: Sequence[Callable[..., Any] | str] = ()
) -> tuple[Replacement, ...]:
    """All replacements of a run, in order: of its variants, of `FILE.py:NAME`, and functions from Python."""
    own = [function for name in FUNCTIONS if name in variant for function in FUNCTIONS[name]]
    unique = list(dict.fromkeys(own))  # two variants may remove the same idea
    given = load_functions(functions or named)
    try:
        return replacements_of([*unique, *given])
    except ValueError as error:
        raise ConfigError(str(error)) from None


def load_functions(given: Sequence[Callable[..., Any] | str]) -> list[Callable[..., Any]]:
    """Functions, and those named `path/to/file.py:NAME`; executes each file once, so that they may share state."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        only = repr(given) if isinstance(given, str) else getattr(given, "__name__", repr(given))
        raise ConfigError(f"is no list: give replace_steps=[{only}].", "replace_steps")
    modules: dict[str, Any] = {}
    found: list[Callable[..., Any]] = []
    for name in given:
        if not isinstance(name, str):
            found.append(name)
            continue
        path, function = _parts(name)
        if path not in modules:
            modules[path] = _module(path)
        if not hasattr(modules[path], function):
            raise ConfigError(
                f"{path} has no function {function!r}: correct the name; one that is made inside another function can "
                "only be given from Python, replace_steps=[...].",
                "replace_steps",
            )
        found.append(getattr(modules[path], function))
    return found


def _parts(name: str) -> tuple[str, str]:
    """File and function."""
    path, _, function = name.rpartition(":")
    if not path or not function:
        raise ConfigError(f"{name!r} names no function: write path/to/file.py:NAME.", "replace_steps")
    return path, function


def absolute(named: Sequence[str]) -> tuple[str, ...]:
    """The same names with absolute paths, so that a run can be resumed from any folder."""
    parts = [_parts(name) for name in named]
    return tuple(f"{path if path[0] == '<' else Path(path).absolute()}:{function}" for path, function in parts)


def names_of(steps: Sequence[Callable[..., Any] | str]) -> tuple[str, ...]:
    """The names of functions from Python, and of those that were named, as a run's config.json keeps them."""
    return absolute([name_of(step) if callable(step) else step for step in steps])


def _module(path: str) -> Any:
    if not Path(path).exists():
        if Path(path).is_absolute():
            again = "td3.resume(RUN, replace_steps=[...])"
            raise ConfigError(
                f"{path} does not exist: correct the path; where the file of a run has moved, put it back, or give the "
                f"functions from Python, {again}.",
                "replace_steps",
            )
        raise ConfigError(f"{path} does not exist (in {Path.cwd()}): write path/to/file.py:NAME.", "replace_steps")
    digest = hashlib.sha256(str(Path(path).absolute()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"td3_steps_{Path(path).stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a file of Python: write path/to/file.py:NAME.", "replace_steps")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up there
    try:
        with _import_of(path):
            spec.loader.exec_module(module)
    except ConfigError:
        raise
    except SystemExit as error:
        raise ConfigError(
            f"{path} calls sys.exit({error}) when it is imported: remove it, or put it under "
            '`if __name__ == "__main__":`.'
        ) from None
    except Exception as error:
        refused = ConfigError(f"{path} cannot be imported: {describe(error)}.", "replace_steps")
        raise with_lines(refused, error) from error
    return module


@contextmanager
def _import_of(path: str) -> Iterator[None]:
    """With the file's folder on `sys.path`, so that it can import its neighbors."""
    folder = str(Path(path).absolute().parent)
    sys.path.insert(0, folder)
    _importing.append(path)
    try:
        yield
    finally:
        _importing.remove(path)
        with suppress(ValueError):  # the file may have removed it
            sys.path.remove(folder)


def require_no_import(name: str) -> None:
    """Refuse to train while a file of steps is imported: a script that holds a step would begin to train again."""
    if _importing:
        raise ConfigError(
            f"{_importing[-1]} calls {name} when it is imported for its steps: put training under "
            '`if __name__ == "__main__":`, or the function into a file of its own.'
        )


def name_of(function: Callable[..., Any]) -> str:
    """FILE.py:NAME of a function from Python."""
    try:
        return f"{inspect.getsourcefile(inspect.unwrap(function))}:{getattr(function, '__name__', function)}"
    except TypeError:  # built in
        return f"<python>:{getattr(function, '__name__', function)}"


def record_of(replacements: Sequence[Replacement], env_step: int = 0) -> list[dict[str, Any]]:
    """What a run keeps of its replaced steps from an env step on: for people; nothing of it is executed."""
    sources = [(one, source_of(one.function), used_by(one.function)) for one in replacements]
    return [
        {
            "number": one.number,
            "step": one.step_name,
            "function": one.function.__name__,
            "source": source,
            "uses": uses,
            "sha256": hashlib.sha256((uses + source).encode()).hexdigest(),
            "state": dict(one.state),
            "from_env_step": env_step,
        }
        for one, source, uses in sources
    ]


def source_of(function: Callable[..., Any]) -> str:
    """Its source, or what stands for it where there is no file."""
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return f"# no source; bytecode {inspect.unwrap(function).__code__.co_code.hex()}\n"


def used_by(function: Callable[..., Any]) -> str:
    """Constants and own functions that a function uses or has captured, and what those use: for people."""
    found: dict[tuple[str, str], str] = {}

    def visit(one: FunctionType) -> None:
        file = one.__code__.co_filename
        for name, value in outer_variables(one).items():
            inner = plain_function(value)
            if isinstance(inner, FunctionType):
                inner = inspect.unwrap(inner)
                key = name, inner.__code__.co_filename
                if key not in found and (key[1] == file or is_own(key[1])):
                    found[key] = source_of(inner)
                    visit(inner)
            elif not callable(value) and not isinstance(value, ModuleType) and (text := _text(value)):
                found[name, file] = f"{name} = {text}\n"

    own = inspect.unwrap(function)
    visit(own)
    itself = function.__name__, own.__code__.co_filename
    return "\n".join(text for key, text in sorted(found.items()) if key != itself)


def _text(value: Any) -> str:
    """A value for people, with a hash where it is cut off; empty where it differs each time, as an address does."""
    text = repr(sorted(value, key=repr)) if isinstance(value, (set, frozenset)) else repr(value)
    if " at 0x" in text:
        return ""
    if isinstance(value, (Tensor, np.ndarray)):
        whole = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value).tobytes()
    elif len(text) > LONGEST_CONSTANT:
        whole = text.encode()
    else:
        return text
    return f"{text[:LONGEST_CONSTANT]}  # sha256 {hashlib.sha256(whole).hexdigest()[:16]}"


def read_record(run: Path) -> list[dict[str, Any]]:
    """The replaced steps of a run, as it recorded them, all of them again where some changed; empty without any."""
    if not (run / RECORD).exists():
        return []
    try:
        found = json.loads(read_regular_file(run / RECORD, LARGEST_RECORD))["replaced"]
        return [
            {
                **one,
                "step": STEPS[one["number"]].function.__name__,
                "function": str(one["function"]),
                "source": str(one["source"]),
                "uses": str(one["uses"]),
                "sha256": str(one["sha256"]),
                "from_env_step": int(one["from_env_step"]),
            }
            for one in found
        ]
    except (OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{run / RECORD} is damaged ({error!r}).") from None


def record_after(
    run: Path, replacements: Sequence[Replacement], env_step: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """The record of a run that is resumed at an env step, and a sentence where its functions have changed.

    What was recorded at this env step or later belongs to training that is lost.
    """
    before = [one for one in read_record(run) if one["from_env_step"] < env_step]
    now = record_of(replacements, env_step)
    if not before:
        late = bool(now and env_step)
        return now, ["steps are replaced from here on: the run continues, but not as it would have."] * late
    latest = [one for one in before if one["from_env_step"] == before[-1]["from_env_step"]]
    known = [(one["number"], one["sha256"]) for one in latest]
    if known == [(one["number"], one["sha256"]) for one in now]:
        return before, []
    names = [f"step {one['number']} ({one['function']})" for one in now if (one["number"], one["sha256"]) not in known]
    changed = ", ".join(names) or "a replaced step"
    since = f"env step {before[-1]['from_env_step']:,}" if before[-1]["from_env_step"] else "the run began"
    have = "have" if len(names) > 1 else "has"
    return before + now, [f"{changed} {have} changed since {since}: the run continues, but not as it would have."]
