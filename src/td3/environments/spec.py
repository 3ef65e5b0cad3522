"""Environments given as Python objects: a function that creates one, a class, or an instance."""

import contextlib
import copy
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper

from td3.errors import EnvironmentFault

if TYPE_CHECKING:
    from td3.environments.vector import VectorSource

EnvFactory = Callable[..., gym.Env[Any, Any]]
FROM_PYTHON = "given"
"""Prefix of the name of an instance with wrappers, which the name alone would not restore."""


class EnvSpec(NamedTuple):
    """An environment: a name for config.json, arguments, and the factory if the name is not enough."""

    env: str
    env_kwargs: dict[str, Any]
    factory: "EnvFactory | VectorSource | None"


class PickledFactory(CloudpickleWrapper[Any]):
    """A function that is sent to worker processes with cloudpickle, as Gymnasium does."""

    def __call__(self, **kwargs: Any) -> Any:
        """The environment for these arguments."""
        return self.fn(**kwargs)


def parse_env(env: Any) -> EnvSpec:
    """A name, a class, a function that makes an environment, or an instance that can be copied; or a vector of them."""
    from td3.environments.vector import VectorSource, makes_vectors  # which needs names and folders from here

    if isinstance(env, str):
        spec = gym.registry.get(env)
        if spec is None or not callable(spec.entry_point) or not _is_of_notebook(spec.entry_point):
            return EnvSpec(env, {}, None)
        return EnvSpec(env, {}, PickledFactory(partial(gym.make, spec, disable_env_checker=True)))
    if isinstance(env, VectorEnv):
        return EnvSpec(f"{FROM_PYTHON}:{type(env.unwrapped).__name__}", {}, VectorSource(env))
    if makes_vectors(env):
        return EnvSpec(name_of(env), {}, VectorSource(env))
    if isinstance(env, gym.Env):
        return _of_instance(env)
    if callable(env):
        name = name_of(env)
        return EnvSpec(name, {}, None if class_named(name) is env and not _is_of_notebook(env) else PickledFactory(env))
    raise EnvironmentFault(
        f"an environment is given by its name, its class or a function that makes it, but {env!r} was given."
    )


def _is_of_notebook(env: Any) -> bool:
    """Whether it was defined in a notebook or typed in, where worker processes have no file to import it from."""
    return env.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")


def _of_instance(env: Any) -> EnvSpec:
    name = type(env.unwrapped).__name__
    if env.spec is None:
        raise EnvironmentFault(
            f"training makes environments of its own, to learn in and to evaluate, and from this {name} it cannot make "
            f"another: give its class or a function that makes it, such as  td3.train({name})  or  "
            f"td3.train(lambda: {name}(...))."
        )
    spec = copy.deepcopy(env.spec)
    spec.kwargs.pop("render_mode", None)
    usual = gym.registry.get(spec.id)
    if usual is not None and not spec.additional_wrappers and _is_plain(spec.kwargs):
        changed = {key: value for key, value in spec.kwargs.items() if usual.kwargs.get(key, ...) != value}
        if spec.max_episode_steps not in (None, usual.max_episode_steps):
            changed["max_episode_steps"] = spec.max_episode_steps
        return EnvSpec(spec.id, changed, None)
    return EnvSpec(f"{FROM_PYTHON}:{spec.id}", {}, PickledFactory(partial(gym.make, spec, disable_env_checker=True)))


def _is_plain(values: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(values)) == values)
    except (TypeError, ValueError):
        return False


def name_of(factory: Any) -> str:
    """The name of a function or a class, in the form of an environment's name."""
    factory = getattr(factory, "fn", factory)  # as Cloudpickle's wrapper keeps it
    while isinstance(factory, partial):
        factory = factory.func
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return (
        f"{named.__module__ or '__main__'}:{named.__qualname__}".replace("<locals>.", "")
        .replace("<", "")
        .replace(">", "")
    )


@contextlib.contextmanager
def found_here(env: str) -> Iterator[None]:
    """While `module:Name` is imported and made, look for its module in the current folder too, last of all.

    Only then: else any file there with the name of an optional package would be executed by every command.
    """
    module, names_module, _ = env.partition(":")
    try:
        here = str(Path.cwd())
    except OSError:  # it was removed
        here = ""
    added = bool(names_module and here) and module not in sys.modules and here not in sys.path
    if added:
        sys.path.append(here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)


def class_named(env: str) -> type[gym.Env[Any, Any]] | None:
    """The environment class that `module:Class` names, if it is one.

    Only classes of environments are looked up so: whatever else untrusted config.json may name is never called.
    """
    loaded = object_named(env)
    return loaded if isinstance(loaded, type) and issubclass(loaded, gym.Env) else None


def object_named(env: str) -> Any:
    """What `module:name` names, if it is there; imports the module, and calls nothing."""
    module_name, colon, path = env.partition(":")
    if not colon or "-v" in path:
        return None
    try:
        loaded: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        for attribute in path.split("."):
            loaded = getattr(loaded, attribute)
    except (AttributeError, ImportError, ValueError):
        return None
    return loaded


def not_found(env: str) -> EnvironmentFault:
    """The error for `module:name` without an environment."""
    module, _, name = env.partition(":")
    if module == FROM_PYTHON:
        return EnvironmentFault(
            f"{name} was given from Python, with more than its name, and no command can make it again: evaluate it "
            "there with the actions of  td3.load(RUN, which='last').act(observation),  or continue the run with  "
            "td3.resume(RUN, env=...)"
        )
    if module in sys.modules and isinstance(loaded := object_named(env), type):  # nothing is imported for a message
        return EnvironmentFault(
            f"{module} has no environment class {name!r}: derive it from Gymnasium's,  class {loaded.__name__}"
            "(gymnasium.Env):  (that of the old package gym is another one)."
        )
    return EnvironmentFault(
        f"{module} has no environment class {name!r} nor a function of that name with an argument num_envs, nor "
        "registers one. A run that was trained from Python on a function of yours goes on there, with that function:  "
        "td3.resume(RUN, env=...)"
    )
