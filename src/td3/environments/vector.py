"""Vector environments of the user's own: a Gymnasium `VectorEnv`, or a function or class that makes one.

A function with an argument `num_envs` makes vector environments. It is called once for training, with the environments
of all seeds together, and once for evaluation; a function that also has an argument `seed` gets one, and seeds them.
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from td3.environments.checked_vector import CheckedVectorEnv
from td3.environments.guarded import Array
from td3.environments.observations import holds_image
from td3.environments.requirements import TaskSpaces, check_environment
from td3.environments.spec import found_here, name_of, object_named
from td3.errors import ConfigError, EnvironmentFault, UserError
from td3.user_code import describe, with_lines

Factory = Callable[..., VectorEnv[Any, Any, Any]]
RESTARTS = (
    "The state of a vector environment is not in checkpoints: resuming this run restarts its unfinished episodes, so "
    "it is not an exact continuation."
)
"""What exact resume cannot promise there."""


class VectorSource:
    """Where the vector environments of a run come from; an instance is used for training and stays open."""

    def __init__(self, source: Any, env_kwargs: Mapping[str, Any] | None = None) -> None:
        self.name = name_of(type(source.unwrapped) if isinstance(source, VectorEnv) else source)
        self.instance = source if isinstance(source, VectorEnv) else None
        self._make: Factory | None = None if isinstance(source, VectorEnv) else source
        self._env_kwargs = dict(env_kwargs or {})
        self._training: CheckedVectorEnv | None = None
        if self.instance is not None and self._env_kwargs:
            raise ConfigError(
                f"{self.name} was given as an instance, and env_kwargs are for making one: give a function instead."
            )

    @property
    def origin(self) -> Any:
        """The instance, or what makes one."""
        return self.instance if self._make is None else self._make

    def training(self, num_envs: int, seed: int) -> CheckedVectorEnv:
        """Those of training: made once, and checked before anything else of a run."""
        if self._training is None:
            self._training = self.make(num_envs, seed)
        return self._training

    def close(self) -> None:
        """Close the environments of training."""
        if self._training is not None:
            self._training.close()

    def with_kwargs(self, env_kwargs: Mapping[str, Any]) -> "VectorSource":
        """The same with arguments for the function."""
        return VectorSource(self.instance if self._make is None else self._make, env_kwargs)

    def make(self, num_envs: int, seed: int) -> CheckedVectorEnv:
        """So many environments in one; raises `EnvironmentFault` where they are others than asked for."""
        made = self.instance if self._make is None else self._made(self._make, num_envs, seed)
        if not isinstance(made, VectorEnv):
            raise EnvironmentFault(
                f"{self.name} made {type(made).__name__}, and not a gymnasium.vector.VectorEnv: return one, or leave "
                "out the argument num_envs where a single environment is meant."
            )
        if made.num_envs != num_envs:
            with contextlib.suppress(Exception):
                if self.instance is None:
                    made.close()
            raise EnvironmentFault(
                f"{self.name} has {made.num_envs} environments, but {num_envs} are needed, which is the number of "
                "seeds times envs in training, and times eval_episodes in evaluation: make the two agree."
            )
        return CheckedVectorEnv(made, self.name, seeded=self._takes_seed, closes=self.instance is None)

    @property
    def _takes_seed(self) -> bool:
        return self._make is not None and "seed" in inspect.signature(self._make).parameters

    def _made(self, make: Factory, num_envs: int, seed: int) -> Any:
        arguments = {"seed": seed} if self._takes_seed else {}
        try:
            with found_here(self.name):
                return make(num_envs=num_envs, **arguments, **self._env_kwargs)
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # of code that is not ours
            raise with_lines(EnvironmentFault(f"{self.name} cannot be made: {describe(error)}"), error) from error


def makes_vectors(source: Any) -> bool:
    """Whether this is a vector environment, or a function or class that makes one: it has an argument `num_envs`."""
    if isinstance(source, VectorEnv):
        return True
    if not callable(source):
        return False
    if isinstance(source, type):
        return issubclass(source, VectorEnv)
    try:
        return "num_envs" in inspect.signature(source).parameters
    except (TypeError, ValueError):
        return False


def vector_source_named(env: str) -> VectorSource | None:
    """The source that `module:function` names, if it makes vector environments; nothing else is ever called."""
    with found_here(env):
        try:
            loaded = object_named(env)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of code that is not ours
            raise with_lines(EnvironmentFault(f"{env} cannot be made: {describe(error)}"), error) from error
    return VectorSource(loaded) if not isinstance(loaded, VectorEnv) and makes_vectors(loaded) else None


def check_vector(environments: CheckedVectorEnv) -> TaskSpaces:
    """The task's spaces, after a reset and a step of all; raises `EnvironmentFault` when it cannot be trained on."""
    spaces = check_environment(FirstOfVector(environments), environments.name)
    count, single = environments.num_envs, environments.single_action_space
    batched = getattr(environments.given.action_space, "shape", None)
    if batched not in (single.shape, (count, *(single.shape or ()))):  # EnvPool's is the space of one
        raise EnvironmentFault(
            f"{environments.name} has an action_space of shape {batched}, which is not that of {count} environments "
            f"with a single_action_space of shape {single.shape}: make the two agree."
        )
    return spaces


class FirstOfVector(gym.Env[Any, Any]):
    """The first of the environments, for the checks of a single one; all of them do its action."""

    def __init__(self, environments: CheckedVectorEnv) -> None:
        self._environments = environments
        self.observation_space = environments.single_observation_space
        self.action_space = environments.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """The first observation of the first environment."""
        return self._first(self._environments.reset(seed=seed)[0]), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """The first environment's step."""
        actions = np.repeat(action[None], self._environments.num_envs, axis=0)
        observations, rewards, terminated, truncated, infos = self._environments.step(actions)
        if (terminated | truncated)[0] and self._environments.autoreset == AutoresetMode.SAME_STEP:
            observations = infos["final_obs"]
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        """Close all."""
        self._environments.close()

    def _first(self, observations: Array) -> Array:
        space = self.observation_space
        first = observations[0].reshape(space.shape or ())
        return np.asarray(first, np.uint8 if holds_image(space) else np.float32)
