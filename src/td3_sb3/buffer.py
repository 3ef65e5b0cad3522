"""Stable-Baselines3's replay buffer on the memory that an engine reads."""

import copyreg
import warnings
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.preprocessing import is_image_space

from td3.policy import Array
from td3.resources import available_memory, gigabytes
from td3_sb3.errors import SettingError

VIEWS = ("observations", "actions", "next_observations", "rewards")


class RowReplayBuffer(ReplayBuffer):
    """A replay buffer whose arrays are views of rows `state | action | next_state | reward | terminated`.

    All methods and attributes are Stable-Baselines3's; pickled, it is their class with plain arrays. `terminated` is
    what an update reads: `dones` without time limits. Nothing is converted when an engine draws a batch.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ) -> None:
        one = n_envs  # the smallest buffer there is: the arrays are replaced below
        super().__init__(
            one, observation_space, action_space, device, n_envs, optimize_memory_usage, handle_timeout_termination
        )
        self.buffer_size = max(int(buffer_size) // n_envs, 1)
        self.generation = 0
        self.added = 0
        self._make_rows()

    def _make_rows(self) -> None:
        state_size, action_size = int(np.prod(self.obs_shape)), self.action_dim
        widths = [state_size, action_size, state_size, 1, 1]
        shape = self.buffer_size, self.n_envs
        needed = 4 * self.buffer_size * self.n_envs * sum(widths)
        free = available_memory()
        try:
            self.rows = np.zeros((self.buffer_size * self.n_envs, sum(widths)), np.float32)
            self.dones, self.timeouts = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        except (MemoryError, ValueError):
            raise SettingError(
                f"a replay buffer of {self.buffer_size:,} x {self.n_envs:,} transitions needs {gigabytes(needed)}, "
                "which cannot be allocated: reduce buffer_size."
            ) from None
        if free is not None and needed > free:
            warnings.warn(
                f"the replay buffer will need {gigabytes(needed)} when it is full, and {gigabytes(free)} are free: "
                "reduce buffer_size.",
                stacklevel=2,
            )
        columns = np.split(self.rows.reshape(*shape, -1), np.cumsum(widths)[:-1], -1)
        self.observations = columns[0].reshape(*shape, *self.obs_shape)
        self.actions = columns[1]
        self.next_observations = columns[2].reshape(*shape, *self.obs_shape)
        self.rewards, self._terminated = columns[3][..., 0], columns[4][..., 0]

    @classmethod
    def from_plain(cls, plain: ReplayBuffer) -> "RowReplayBuffer":
        """The same transitions in rows."""
        made = cls(
            plain.buffer_size * plain.n_envs,
            plain.observation_space,
            plain.action_space,
            plain.device,
            plain.n_envs,
            handle_timeout_termination=plain.handle_timeout_termination,
        )
        made.device = plain.device
        made._fill(vars(plain))
        return made

    def _fill(self, state: dict[str, Any]) -> None:
        self.pos, self.full, size = state["pos"], state["full"], self.buffer_size
        filled = size if self.full else self.pos
        for name in (*VIEWS, "dones", "timeouts"):
            getattr(self, name)[:filled] = state[name][:filled]
        self._terminated[:filled] = self.dones[:filled] * (1 - self.timeouts[:filled])
        self.added = filled * self.n_envs

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store a transition of each environment."""
        place = self.pos
        super().add(obs, next_obs, action, reward, done, infos)
        np.multiply(self.dones[place], 1 - self.timeouts[place], out=self._terminated[place])
        self.added += self.n_envs

    def reset(self) -> None:
        """Forget all transitions."""
        super().reset()
        self.generation, self.added = self.generation + 1, 0

    def newest_rows(self, count: int) -> Array:
        """The newest transitions `[transition, row]`, oldest first."""
        end = self.pos * self.n_envs
        return np.asarray(self.rows[np.arange(end - count, end) % len(self.rows)])

    def _plain_state(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in ("rows", "generation", "added")}
        del state["_terminated"]
        return state | {name: np.ascontiguousarray(state[name]) for name in VIEWS}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """A plain buffer of Stable-Baselines3: whoever reads the file needs nothing of this package."""
        return copyreg._reconstructor, (ReplayBuffer, object, None), self._plain_state()  # type: ignore[attr-defined]  # Python's own

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowReplayBuffer":
        """A copy with rows of its own."""
        return self.from_plain(self)


def rows_serve(observation_space: Any) -> bool:
    """Whether observations are plain vectors of numbers, which rows can hold as networks read them."""
    return isinstance(observation_space, Box) and not is_image_space(observation_space)
