"""A user's vector environment with checked results: what the collector may rely on, or one sentence on what is wrong.

Arrays and PyTorch tensors are accepted. They become arrays of this process or, with `as_tensors`, stay on their device.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from td3.environments.guarded import Array, not_bytes
from td3.environments.infos import numbers_at, numbers_of
from td3.environments.observations import holds_image
from td3.environments.requirements import guarded_call
from td3.errors import EnvironmentFault

FINAL = ("final_obs", "final_observation")
"""Where Gymnasium 1 and ManiSkill put the true last observations of episodes that were reset in the same step."""


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor; PyTorch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_array(value: Any) -> Array:
    """A tensor, on whatever device, or anything else that NumPy understands, as an array."""
    return np.asarray(value.detach().cpu().numpy() if is_tensor(value) else value)


def last_numbers(infos: Mapping[Any, Any], index: int, mode: AutoresetMode) -> dict[str, float]:
    """The numbers in the last info of an episode that has ended, wherever its vector environment has them."""
    last = infos.get("final_info", {}) if mode == AutoresetMode.SAME_STEP else infos
    return numbers_at(last, index) if isinstance(last, Mapping) else numbers_of(last[index])


class CheckedVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps and resets a vector environment, and checks shapes, types, autoreset mode and final observations.

    Observations are float32 vectors `[environment, number]`. In mode SAME_STEP `infos["final_obs"]` has the true last
    observation of every episode that ended, `[environment, number]`.
    """

    as_tensors = False
    """Whether observations, rewards and ends stay tensors on the environment's device."""

    def __init__(
        self, given: VectorEnv[Any, Any, Any], name: str, *, seeded: bool = False, closes: bool = True
    ) -> None:
        """`seeded`: it was made with a seed; `closes`: it is closed with this."""
        self.given, self.name, self._seeded, self._closes = given, name, seeded, closes
        self.num_envs = given.num_envs
        self.single_observation_space, self.single_action_space = (
            given.single_observation_space,
            given.single_action_space,
        )
        self.observation_space, self.action_space = given.observation_space, given.action_space
        self.autoreset = self._mode(given)
        self.metadata = {"autoreset_mode": self.autoreset}
        self._shape = self.single_observation_space.shape or ()
        self._image = holds_image(self.single_observation_space)
        self.device: Any = None
        """The device of the observations, if they are tensors; known from the first reset on."""
        self._latest: Any = None

    def _mode(self, environment: VectorEnv[Any, Any, Any]) -> AutoresetMode:
        declared = environment.metadata.get("autoreset_mode") if isinstance(environment.metadata, Mapping) else None
        try:
            return AutoresetMode(declared)
        except ValueError:
            raise EnvironmentFault(
                f"{self.name} has the autoreset_mode {declared!r} in its metadata, and without it an observation after "
                "a reset would be taken for the last one of an episode: set metadata['autoreset_mode'] to NEXT_STEP, "
                "SAME_STEP or DISABLED of gymnasium.vector.AutoresetMode."
            ) from None

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes, in all environments or in those of `options["reset_mask"]`; the others go on."""
        arguments: dict[str, Any] = {}
        if seed is not None:
            # One for each environment where that is understood; else the first, as VectorEnv's own reset takes it.
            listed = isinstance(self.given.unwrapped, SyncVectorEnv | AsyncVectorEnv)
            arguments["seed"] = seed if isinstance(seed, int) else list(seed) if listed else seed[0]
        mask = None if options is None else np.asarray(options["reset_mask"], bool)
        if mask is not None:
            arguments["options"] = {"reset_mask": mask.copy()}
        with warnings.catch_warnings():
            if self._seeded:  # EnvPool takes a seed only where it is made, and warns of others
                warnings.filterwarnings("ignore", message="EnvPool seeds are fixed")
            result = guarded_call(f"{self.name}.reset()", lambda: self.given.reset(**arguments))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise EnvironmentFault(f"{self.name}.reset() must return (observations, infos), the Gymnasium way.")
        self._latest = self._observations(result[0], mask)
        return self._latest, {}

    def _observations(self, returned: Any, mask: Array | None) -> Any:
        """What a reset gave; with a mask the other environments keep their observations, and must have kept them."""
        source = f"{self.name}.reset()"
        if is_tensor(returned):
            self.device = returned.device
        if mask is None:
            return self._vectors(returned, source)
        kept = np.flatnonzero(~mask).tolist()
        if len(returned) == mask.sum() < self.num_envs:  # of the mask alone, as EnvPool has it
            observations = self._latest.clone() if self.as_tensors else self._latest.copy()
            observations[np.flatnonzero(mask).tolist()] = self._vectors(returned, source, len(returned))
            return observations
        observations = self._vectors(returned, source)
        before = as_array(self._latest[kept])
        sound = np.isfinite(before).all(1)  # the collector has stopped looking at others
        if not np.array_equal(before[sound], as_array(observations[kept])[sound]):
            raise EnvironmentFault(
                f"{self.name}.reset(options={{'reset_mask': ...}}) changed environments outside the mask: reset only "
                "those of the mask, or use another autoreset_mode than DISABLED."
            )
        return observations

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every environment."""
        if self.device is not None and not is_tensor(actions):
            actions = sys.modules["torch"].from_numpy(actions).to(self.device)
        result = guarded_call(f"{self.name}.step()", lambda: self.given.step(actions))
        if not (isinstance(result, tuple) and len(result) == 5):
            raise EnvironmentFault(
                f"{self.name}.step() must return (observations, rewards, terminated, truncated, infos), the Gymnasium "
                "way."
            )
        self._latest = observations = self._vectors(result[0], f"{self.name}.step()")
        rewards, terminated, truncated = (
            self._numbers(value, what, "iuf" if what == "rewards" else "b")
            for value, what in zip(result[1:4], ("rewards", "terminated", "truncated"), strict=True)
        )
        infos: dict[str, Any] = {}
        if bool((ended := terminated | truncated).any()):
            returned = result[4] if isinstance(result[4], Mapping) else {}
            infos = self._with_masks(returned)
            if self.autoreset == AutoresetMode.SAME_STEP:
                infos["final_obs"] = self._final(returned, ended)
        return observations, rewards, terminated, truncated, infos

    def _with_masks(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays with a number for each environment get the mask that Gymnasium's have, if they lack it."""
        masked = dict(infos)
        for name, value in infos.items():
            if name == "final_info" and isinstance(value, Mapping):
                masked[name] = self._with_masks(value)
            elif not isinstance(value, Mapping) and getattr(value, "shape", None) == (self.num_envs,):
                masked[name] = as_array(value)
                if not str(name).startswith("_"):  # a mask itself
                    masked.setdefault(f"_{name}", np.ones(self.num_envs, bool))
        return masked

    def _final(self, infos: Mapping[str, Any], ended: Any) -> Any:
        """The true last observations of episodes that ended, in the rows of their environments."""
        name = next((name for name in FINAL if name in infos), None)
        rows = np.flatnonzero(as_array(ended)).tolist()
        if name is None or not as_array(infos.get(f"_{name}", ended))[rows].all():
            raise EnvironmentFault(
                f"{self.name} resets in the step in which an episode ends (SAME_STEP), but gave no infos['final_obs'] "
                "for it, and without the true last observation the next state is unknown: add it."
            )
        final = infos[name]
        if is_tensor(final) or (isinstance(final, np.ndarray) and final.dtype != object):
            return self._vectors(final, f"{self.name}.step() in infos[{name!r}]")
        whole = np.zeros((self.num_envs, int(np.prod(self._shape))), np.float32)
        for row in rows:
            observation = as_array(final[row])
            if observation.shape != self._shape:
                raise EnvironmentFault(
                    f"{self.name}.step() gave infos[{name!r}][{row}] of shape {observation.shape}, but its "
                    f"single_observation_space says {self._shape}: make the two agree."
                )
            whole[row] = observation.ravel()
        return self._on_device(whole)

    def _vectors(self, observations: Any, source: str, count: int | None = None) -> Any:
        """A copy as float32 vectors: the environment may write into its own in the next step."""
        array: Any = observations
        if not (self.as_tensors and is_tensor(observations)):
            array = guarded_call(source, lambda: as_array(observations))
        count = self.num_envs if count is None else count
        if tuple(array.shape) != (count, *self._shape):
            raise EnvironmentFault(
                f"{source} gave observations of shape {tuple(array.shape)}, but {count} environments with its "
                f"single_observation_space have the shape {(count, *self._shape)}: make the two agree."
            )
        if is_tensor(array):
            return array.detach().reshape(count, -1).to(sys.modules["torch"].float32, copy=True)
        if array.dtype.kind not in "fiub":
            raise EnvironmentFault(f"{source} gave observations of type {array.dtype}: return numbers.")
        if self._image and (problem := not_bytes(array)):
            raise EnvironmentFault(f"{source} gave {problem}.")
        with np.errstate(over="ignore", invalid="ignore"):  # the collector finds what is not finite
            return self._on_device(np.array(array, np.float32).reshape(count, -1))

    def _numbers(self, value: Any, what: str, kinds: str) -> Any:
        """Rewards, or flags, one for each environment."""
        array: Any
        if self.as_tensors and is_tensor(value):
            letter = "b" if value.dtype == sys.modules["torch"].bool else "f" if value.is_floating_point() else "i"
            array = value.detach()
        else:
            array = guarded_call(f"{self.name}.step()", lambda: as_array(value))
            letter = array.dtype.kind
        if tuple(array.shape) != (self.num_envs,) or letter not in kinds:
            expected = "numbers" if what == "rewards" else "True or False"
            raise EnvironmentFault(
                f"{self.name}.step() gave {what} of shape {tuple(array.shape)} and type {array.dtype}: return "
                f"{expected}, one for each of its {self.num_envs} environments."
            )
        return array.clone() if is_tensor(array) else self._on_device(array.copy())

    def _on_device(self, array: Array) -> Any:
        return sys.modules["torch"].from_numpy(array).to(self.device) if self.as_tensors else array

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment, unless it was given as an instance."""
        if self._closes:
            guarded_call(f"{self.name}.close()", self.given.close)
