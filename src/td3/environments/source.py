"""What makes a run's environments: one at a time by name, class or function, or a vector of the user's own."""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from td3.environments.guarded import Make, opened
from td3.environments.make import make_environment
from td3.environments.requirements import TaskSpaces, check_environment
from td3.environments.spec import parse_env
from td3.environments.vector import VectorSource, check_vector, vector_source_named
from td3.errors import ConfigError


@contextlib.contextmanager
def environment_maker(env_arguments: Mapping[str, Any]) -> Iterator[Make | VectorSource]:
    """What makes the environments of these arguments of `make_environment`; a vector is closed afterwards."""
    env = env_arguments["env"]
    source = env if isinstance(env, VectorSource) else vector_source_named(env) if isinstance(env, str) else None
    if source is None:
        yield partial(make_environment, **env_arguments)
        return
    if unknown := [name.replace("_", "-") for name in ("pixels", "action_repeat") if env_arguments.get(name)]:
        raise ConfigError(
            f"{source.name} is a vector environment, and --{unknown[0]} wraps single ones: wrap it where it is made."
        )
    with contextlib.closing(source.with_kwargs(env_arguments.get("env_kwargs", {}))) as source:
        yield source


@contextlib.contextmanager
def evaluation_maker(
    make: Make | VectorSource, eval_env: Any, spaces: TaskSpaces
) -> Iterator[Make | VectorSource | None]:
    """What makes the environments of evaluation; None where nothing is evaluated.

    By default that is `make`, except for a vector environment that was given as an instance.
    """
    if not isinstance(make, VectorSource):
        if eval_env is not None:
            raise ConfigError("eval_env is for runs on a vector environment, and this run has none: leave it out.")
        yield make
        return
    if eval_env is None or eval_env is False:
        yield None if make.instance is not None or eval_env is False else make
        return
    spec = parse_env(eval_env)
    env_arguments = {"env": spec.env if spec.factory is None else spec.factory, "env_kwargs": spec.env_kwargs}
    with environment_maker(env_arguments) as eval_make:
        eval_task = _spaces_of(eval_make, spec.env)
        if eval_task[:5] != spaces[:5]:
            raise ConfigError(
                f"eval_env {spec.env} has observations of shape {eval_task.observation_shape} and actions of shape "
                f"{eval_task.action_shape} in {eval_task.action_low}..{eval_task.action_high}, but {make.name} has "
                f"{spaces.observation_shape} and {spaces.action_shape} in {spaces.action_low}..{spaces.action_high}: "
                "give one with the same spaces."
            )
        yield eval_make


def _spaces_of(make: Make | VectorSource, name: str) -> TaskSpaces:
    if isinstance(make, VectorSource):
        return check_vector(make.training(make.instance.num_envs if make.instance else 1, 0))
    with opened(make) as probe:
        return check_environment(probe, name)
