"""Gymnasium's MuJoCo tasks in batches: one call steps all environments on a pool of threads, without Python.

The environments are Gymnasium's own, made and reset by its code. Only their step is computed here: the physics by
`mj_step` of the installed MuJoCo on the environments' own simulations (`mujoco_batch.c`), observations, rewards and
terminations for all environments at once (`mujoco_tasks.py`). All numbers equal Gymnasium's bit for bit.
"""

import re
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from td3.backends.thread_tuner import ThreadTuner
from td3.environments import guarded
from td3.environments.guarded import UNSTABLE, Array, Make
from td3.environments.in_process import InProcessVectorEnv
from td3.environments.infos import numbers_of
from td3.environments.make import make_environment
from td3.environments.mujoco_library import Batch, physics, stepper
from td3.environments.mujoco_tasks import TASKS
from td3.environments.stepped_vector import StepResult
from td3.user_code import describe

CHECKED_VERSIONS = ("1.2.1", "1.2.2", "1.2.3", "1.3.0", "1.4.0")
"""Versions of Gymnasium whose MuJoCo tasks have the formulas of `mujoco_tasks.py`, compared by reading."""
TRIAL_STEPS = 16
"""Env steps that are compared with Gymnasium's before a run relies on the batch."""
MESSAGE_BYTES = 200
"""Length of a failure's text, as in mujoco_batch.c."""
NO_LIMIT = 2**62
"""The time limit of an environment that has none."""
FIRST_UNSTABLE = 4
"""The first of MuJoCo's four warnings of an unstable simulation (mjWARN_BADQPOS to mjWARN_BADCTRL)."""


class MujocoBatch(InProcessVectorEnv):
    """Gymnasium's MuJoCo environments with the interface of an `InProcessVectorEnv`, on up to `threads` threads.

    The caller of `finish_step` is one of them; the others start at `begin_step`. How many take part is measured.
    """

    def __init__(self, environments: Sequence[gym.Env[Any, Any]], make: Make | None = None, threads: int = 1) -> None:
        super().__init__(environments, make)
        env: Any = self.environments[0].unwrapped
        self._model = env.model  # they are equal, and one stays in the caches: 2 to 9 % faster
        name, limit = _task_of(self.environments[0])
        self._task_class, self._v4 = TASKS[name[:-3]], name.endswith("v4")
        count, action_size = self.num_envs, env.model.nu
        self._actions, self._squared_actions = np.zeros((count, action_size), np.float32), np.zeros(count, np.float32)
        self._elapsed, self._truncated = np.zeros(count, np.int64), np.zeros(count, bool)
        self._failures, self._current = np.zeros(count, f"S{MESSAGE_BYTES}"), self._observations.copy()
        self._stepping = self._all = np.arange(count)
        self._all_address = self._all.ctypes.data
        self._batch = self._described(env, limit)
        for index in range(count):
            self._update_addresses(index)
        library, threads = stepper(), min(threads, count)
        assert library, "ask `why_not` first"
        self._library, self._pool, self._helpers = library, library.create(self._batch, threads - 1), threads - 1
        if not self._pool:
            raise MemoryError("there is no memory for a pool of threads")
        self._tuner = ThreadTuner(threads, self._use_threads, lambda: None) if threads > 1 else None

    def _described(self, env: Any, limit: int) -> Batch:
        """The batch for the C library, with arrays that this object keeps; and the task that reads them."""
        functions, observation_size = physics(), self._current.shape[1]
        assert functions, "ask `why_not` first"
        lengths = [array.size for array in self._task_class.state_arrays(env)]
        parts = self._task_class.observation_parts(env, self._v4)
        if parts and sum(part.numbers.size for part in parts) != observation_size:
            raise ValueError("observations have another size than this task's")
        self._lengths = np.array([*lengths, *(part.numbers.size for part in parts)], np.int64)
        self._bounds = np.array([(part.low, part.high) for part in parts], np.float64)
        widths = {"models": 1, "simulations": 1, "controls": 1, "state_arrays": len(lengths), "observed": len(parts)}
        self._addresses = {
            name: np.zeros((self.num_envs, width), np.uintp) for name, width in {**widths, "warnings": 1}.items()
        }
        self._state, self._state_before = (np.zeros((self.num_envs, sum(lengths))) for _ in range(2))
        ends = np.cumsum([0, *lengths]).tolist()
        self._task = self._task_class(env, self._v4, *(self._state[:, start:end] for start, end in pairwise(ends)))
        inputs = *self._addresses.values(), self._lengths, self._bounds, self._actions
        outputs = self._state, self._current, self._squared_actions, self._elapsed, self._truncated, self._failures
        sizes = len(lengths), self._state.shape[1], len(parts), observation_size, self._actions.shape[1]
        after = functions.contact_forces if self._task.needs_contact_forces else None
        pointers = (array.ctypes.data for array in (*inputs, *outputs))
        return Batch(functions.step, after, *functions.handlers, *pointers, *sizes, env.frame_skip, limit)

    def _use_threads(self, count: int) -> None:
        self._helpers = count - 1

    def _update_addresses(self, index: int) -> None:
        """Look up the addresses of an environment's arrays; they are fixed while it exists."""
        env: Any = self.environments[index].unwrapped
        unstable = env.data.warning.number[FIRST_UNSTABLE:]
        if unstable.strides != (8,):
            raise ValueError("MuJoCo counts warnings in another way here")
        addresses = self._addresses
        addresses["models"][index], addresses["simulations"][index] = self._model._address, env.data._address
        addresses["controls"][index], addresses["warnings"][index] = env.data.ctrl.ctypes.data, unstable.ctypes.data
        addresses["state_arrays"][index] = [array.ctypes.data for array in self._task_class.state_arrays(env)]
        parts = self._task_class.observation_parts(env, self._v4)
        addresses["observed"][index] = [part.numbers.ctypes.data for part in parts]

    def reset_some(self, seeds: Sequence[int | None], indices: Sequence[int]) -> Array:
        """Start new episodes in these environments; returns the observations of all."""
        observations = super().reset_some(seeds, indices)
        for index in indices:
            if index not in self.faults:
                self._library.read_state(self._batch, index)
                self._elapsed[index], self._current[index] = 0, observations[index]
        self._progress, self._state_before[:] = self._task.progress(), self._state
        return observations

    def begin_step(self, actions: Array, indices: Sequence[int] | None = None) -> None:
        """Send the actions; the pool's threads start immediately."""
        self._began = time.perf_counter()
        self._actions[:] = actions.reshape(self._actions.shape)
        whole = indices is None or len(indices) == self.num_envs
        self._stepping = self._all if whole else np.array(indices, np.int64)
        address = self._all_address if whole else self._stepping.ctypes.data
        self._library.begin(self._pool, address, len(self._stepping), self._helpers)
        self._began -= time.perf_counter()

    def finish_step(self) -> StepResult:
        """Step together with the pool's threads; compute rewards and terminations."""
        started = time.perf_counter()
        failed, stepped = self._library.finish(self._pool), self._stepping
        if self._tuner and len(stepped) >= self._tuner.candidates[-1]:  # as many as there can be threads
            self._tuner((time.perf_counter() - started - self._began) / len(stepped))
        with np.errstate(over="ignore", invalid="ignore"):  # the collector reports what is not finite
            progress = self._task.progress()
            rewards, terminated = self._task.outcome(self._progress, progress, self._actions, self._squared_actions)
            self._task.write_observations(self._current)
        self._progress, truncated = progress, self._truncated.copy()
        ended = terminated | truncated
        self.faults = self._failed(stepped) if failed else {}
        if self.faults or stepped is not self._all:
            others = np.ones(self.num_envs, bool)
            others[stepped] = False
            others[list(self.faults)] = True
            self._current[others], rewards[others] = self._observations[others], 0
            terminated[others] = truncated[others] = ended[others] = False
        self._observations = self._current.copy()
        last = {index: self._info(index) for index in np.flatnonzero(ended).tolist()} if ended.any() else {}
        infos = {index: info for index, info in last.items() if info}
        self._state_before[:] = self._state
        return self._observations, rewards, terminated, truncated, infos

    def _info(self, index: int) -> dict[str, float]:
        """The numbers in the info of the latest step: Gymnasium's own step, with the physics that was already done."""
        env: Any = self.environments[index].unwrapped
        arrays, after = self._task_class.state_arrays(env), self._state[index].copy()
        _write(arrays, self._state_before[index])
        env.do_simulation = lambda action, frames: _write(arrays, after)
        try:
            return numbers_of(env.step(self._actions[index].copy())[4])
        finally:
            del env.do_simulation
            _write(arrays, after)

    def _failed(self, stepped: Array) -> dict[int, str]:
        texts = {index: " ".join(self._failures[index].decode(errors="replace").split()) for index in stepped.tolist()}
        return {
            index: UNSTABLE if text == "unstable" else f"an environment failed in step(): MuJoCo: {text}"
            for index, text in texts.items()
            if text
        }

    def replace(self, index: int) -> list[int]:
        """Replace a faulty environment; returns which others lost their episode: none.

        Where it cannot be constructed, `faults` says why, and the old one stays.
        """
        lost = super().replace(index)
        self._update_addresses(index)
        return lost

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads and close every environment."""
        self._library.destroy(self._pool)
        super().close_extras(**kwargs)


def _write(arrays: Sequence[Array], numbers: Array) -> None:
    """Put numbers into the arrays of a simulation, one after another."""
    start = 0
    for array in arrays:
        array.reshape(-1)[:] = numbers[start : start + array.size]
        start += array.size


def why_not(make: Make) -> str | None:
    """Why environments made by this function cannot be stepped in a batch; None if they can."""
    if not _is_registered(make):
        return "it is not a MuJoCo task that Gymnasium registers"
    if gym.__version__ not in CHECKED_VERSIONS or int(np.__version__.split(".")[0]) < 2:
        return f"gymnasium {gym.__version__} with NumPy {np.__version__} is not among the versions that were compared"
    try:
        with guarded.opened(make) as environment:
            if not _task_of(environment)[0]:
                return "it has wrappers or renders"
            if stepper() is None:
                return "no C compiler was found, or what it made could not be loaded"
            if physics() is None:
                return "this version of MuJoCo lacks a function that is needed"
            return None if _equals_gymnasium(environment, make) else "its numbers differ from Gymnasium's"
    except Exception as error:  # anything unexpected: stepping without the batch works, or raises the error
        return describe(error)


def _is_registered(make: Make) -> bool:
    """Whether this makes, by its name, a MuJoCo task of Gymnasium's own; without creating one."""
    if not isinstance(make, partial) or make.func is not make_environment:
        return False
    env = make.keywords.get("env", make.args[0] if make.args else None)
    spec = gym.registry.get(env) if isinstance(env, str) else None
    return spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco.")


def _task_of(environment: gym.Env[Any, Any]) -> tuple[str, int]:
    """The task, such as ant_v5, and the time limit; an empty name if there is more than Gymnasium's class."""
    limit = NO_LIMIT
    while isinstance(environment, gym.Wrapper):
        if type(environment) is TimeLimit:
            limit = min(limit, environment._max_episode_steps)
        elif type(environment) is not OrderEnforcing:
            return "", limit
        environment = environment.env
    module = re.fullmatch(r"gymnasium\.envs\.mujoco\.((\w+)_v[45])", type(environment).__module__)
    is_known = module is not None and module[2] in TASKS and environment.render_mode is None
    return module[1] if module and is_known else "", limit


def _equals_gymnasium(environment: gym.Env[Any, Any], make: Make) -> bool:
    """Whether the first steps of an episode are the same as Gymnasium's, bit for bit."""
    ordinary, batch = InProcessVectorEnv([guarded.construct(make)]), MujocoBatch([environment])
    try:
        environment.action_space.seed(0)
        pairs = [(batch.reset(seed=0)[0], ordinary.reset(seed=0)[0])]
        for _ in range(TRIAL_STEPS):
            action = environment.action_space.sample()[None]
            pairs += zip(batch.step(action)[:4], ordinary.step(action)[:4], strict=True)
        return all(ours.tobytes() == theirs.tobytes() for ours, theirs in pairs) and batch.faults == ordinary.faults
    finally:
        batch.close()
        ordinary.close()
