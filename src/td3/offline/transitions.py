"""From columns of recorded transitions to rows of the replay buffer; what does not fit gets one sentence."""

from collections.abc import Mapping

import numpy as np

from td3.environments import TaskSpaces
from td3.errors import UserError
from td3.policy import Array

COLUMNS = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminals": ("terminals", "terminations"),
    "next_observations": ("next_observations",),
    "timeouts": ("timeouts", "truncations"),
}
"""Columns by D4RL's names, and the names under which each may come: D4RL's first, then Gymnasium's."""
REQUIRED = ("observations", "actions", "rewards", "terminals")
BEYOND = 1e-4
"""Actions may lie outside the range by this share of its width: they were stored in another precision."""


class DatasetError(UserError):
    """A dataset that cannot be read or does not fit its environment."""


def wanted(name: str) -> bool:
    """Whether a column of this name is read."""
    return any(name in names for names in COLUMNS.values())


def rows_of_arrays(arrays: Mapping[str, Array], spaces: TaskSpaces, source: str) -> Array:
    """Rows `[count, state | action | next_state | reward | terminated]` of columns.

    Without `next_observations`, an observation is followed by the next one of its episode: rows at a time-out and the
    last one, whose next observation was not recorded, are left out. A termination needs none.
    """
    found = {name: arrays[key] for name, keys in COLUMNS.items() for key in keys if key in arrays}
    if missing := [name for name in REQUIRED if name not in found]:
        names = " or ".join(COLUMNS[missing[0]])
        raise DatasetError(
            f"{source} has no {names}: it needs {', '.join(REQUIRED)} and next_observations or timeouts."
        )
    if "next_observations" not in found and "timeouts" not in found:
        raise DatasetError(
            f"{source} has neither next_observations nor timeouts, and where episodes end is unknown: add one of them."
        )
    _check_shapes(found, spaces, source)
    states, actions = (_flat(found[name]) for name in ("observations", "actions"))
    rewards, terminated = (found[name].reshape(-1) for name in ("rewards", "terminals"))
    if not np.isin(terminated, (0, 1)).all():
        raise DatasetError(f"{source} has terminals other than 0 and 1: mark with 1 where the task itself ended.")
    if "next_observations" in found:
        return _checked(states, actions, _flat(found["next_observations"]), rewards, terminated, spaces, source)
    known = terminated.astype(bool) | ~found["timeouts"].reshape(-1).astype(bool)
    known[-1] = bool(terminated[-1])
    next_states = np.where(terminated.astype(bool)[:, None], states, np.roll(states, -1, axis=0))
    states, actions, next_states = states[known], actions[known], next_states[known]
    return _checked(states, actions, next_states, rewards[known], terminated[known], spaces, source)


def rows_of_run(rows: Array, spaces: TaskSpaces, source: str) -> Array:
    """Rows of another run's replay buffer, as they are."""
    width = 2 * spaces.state_size + spaces.action_size + 2
    if rows.shape[1] != width:
        raise DatasetError(
            f"{source} has transitions of {rows.shape[1]} numbers, and the environment's have {width}: give the "
            "environment that the run was trained on."
        )
    sizes = np.cumsum([spaces.state_size, spaces.action_size, spaces.state_size, 1])
    states, actions, next_states, rewards, terminated = np.split(rows, sizes, axis=1)
    return _checked(states, actions, next_states, rewards[:, 0], terminated[:, 0], spaces, source)


def _check_shapes(found: Mapping[str, Array], spaces: TaskSpaces, source: str) -> None:
    count = len(found["rewards"]) if found["rewards"].ndim else 0
    if found["rewards"].shape[:1] == (0,):
        raise DatasetError(f"{source} has no transitions: give a dataset that has some.")
    sizes = {"observations": spaces.state_size, "next_observations": spaces.state_size, "actions": spaces.action_size}
    for name, array in found.items():
        size = sizes.get(name, 1)
        if array.dtype.kind not in "biuf":
            raise DatasetError(f"{source} has {name} of type {array.dtype}: give arrays of numbers.")
        if array.ndim == 0 or len(array) != count:
            raise DatasetError(
                f"{source} has {name} of shape {array.shape} beside {count} rewards: give one row for each transition."
            )
        if array.size != count * size:
            raise DatasetError(
                f"{source} has {name} of shape {array.shape}, and the environment has {size} number"
                f"{'s' * (size > 1)} there: give the environment that it was recorded in (--env)."
            )


def _checked(
    states: Array,
    actions: Array,
    next_states: Array,
    rewards: Array,
    terminated: Array,
    spaces: TaskSpaces,
    source: str,
) -> Array:
    if len(states) == 0:
        raise DatasetError(f"{source} has no transition whose next observation is known: it is empty.")
    with np.errstate(over="ignore"):  # found below, as infinity
        rows = np.concatenate(
            (states, actions, next_states, rewards[:, None], terminated[:, None]), 1, dtype=np.float32
        )
    if not np.isfinite(rows).all():
        count = int((~np.isfinite(rows)).any(1).sum())
        too_large = all(np.isfinite(array).all() for array in (states, actions, next_states, rewards))
        problem = "numbers that are too large for float32" if too_large else "NaN or infinity"
        raise DatasetError(f"{source} has {problem} in {count:,} of {len(rows):,} transitions: remove them.")
    low, high = (np.asarray(bound, np.float32) for bound in (spaces.action_low, spaces.action_high))
    given, beyond = rows[:, spaces.state_size : spaces.state_size + spaces.action_size], BEYOND * (high - low)
    if (given < low - beyond).any() or (given > high + beyond).any():
        raise DatasetError(
            f"{source} has actions from {given.min():.4g} to {given.max():.4g}, and the environment allows "
            f"{low.min():.4g} to {high.max():.4g}: rescale or clip them, or give another environment (--env)."
        )
    np.clip(given, low, high, out=given)
    return rows


def _flat(array: Array) -> Array:
    return array.reshape(len(array), -1)
