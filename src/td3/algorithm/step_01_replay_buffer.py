"""Step 1: the replay buffer, a ring of past transitions from which every update draws its batch."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from td3.algorithm.registry import step
from td3.backends.backend import Backend
from td3.backends.pinned import empty_in_host_ram
from td3.backends.torch_backend import TORCH


class Batch(NamedTuple):
    """Transitions, one per row: in `state` the agent did `action`, got `reward` and saw `next_state`."""

    state: Float[Tensor, "member batch state"]
    action: Float[Tensor, "member batch action"]
    reward: Float[Tensor, "member batch"]
    next_state: Float[Tensor, "member batch state"]
    terminated: Float[Tensor, "member batch"]
    indices: Int[Tensor, "member batch"]
    """Where the transitions are in the replay buffer."""


class ReplayBuffer:
    """The newest `capacity` transitions of each member, in one preallocated tensor `[member, capacity, row]`.

    A row is `state | action | next_state | reward | terminated`, so that a batch is one gather. Rows are stored in the
    type and on the device in which they are used: nothing is converted when a batch is drawn. `in_host_ram` leaves
    them in the host's RAM and has the GPU read them there.
    """

    backend: Backend = TORCH
    """Gathers the rows; an engine sets its agent's."""
    stride: int = 1
    """How far apart the rows of one environment are: a member's environments take turns."""
    rows_per_round: int = 1
    """How many rows of a member are stored at a time, at most."""
    rows_per_env_step: int = 1
    """How many of them one env step makes."""
    frozen: Collection[int] = ()
    """Members whose transitions stay as they are; an engine sets its own."""

    def __init__(
        self,
        members: int,
        capacity: int,
        state_size: int,
        action_size: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        in_host_ram: bool = False,
    ) -> None:
        self.widths = [state_size, action_size, state_size, 1, 1]
        # Not zeroed: the operating system hands out the pages only as they are filled.
        empty = empty_in_host_ram if in_host_ram else torch.empty
        self.rows = empty(members, capacity, sum(self.widths), dtype=dtype, device=device)
        self._added = np.zeros(1, np.int64)  # an array, so that views of one member share it
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        """`filled` and `total`: how many transitions can be drawn, and how many were ever stored."""
        self.filled, self.total = self.counts.unbind()

    @property
    def added(self) -> int:
        """The number of transitions ever stored, of each member."""
        return int(self._added[0])

    @property
    def capacity(self) -> int:
        """The number of transitions that are kept."""
        return self.rows.shape[1]

    def __len__(self) -> int:
        """The number of transitions that can be drawn now."""
        return min(int(self._added[0]), self.rows.shape[1])

    @property
    def oldest(self) -> int:
        """The number of the oldest transition that is kept, counted since the beginning."""
        return self.added - len(self)

    @property
    def row_bytes(self) -> int:
        """What a transition takes."""
        return self.rows.shape[2] * self.rows.element_size()

    def member(self, index: int) -> "ReplayBuffer":
        """The buffer of one member only, sharing its rows (to read: only the whole buffer takes new rows)."""
        view = ReplayBuffer.__new__(ReplayBuffer)
        view.__dict__.update(self.__dict__)
        view.rows = self.rows[index : index + 1]
        return view

    def add_(self, rows: Float[Tensor, "member count row"]) -> None:
        """Store new transitions of every member; the oldest make room."""
        capacity = self.rows.shape[1]
        if rows.shape[1] > capacity:
            rows = rows[:, -capacity:]
        if self.frozen:
            rows = self._without_frozen(rows)
        start = int(self._added[0]) % capacity
        before_wrap = min(rows.shape[1], capacity - start)
        kept: Any = self.rows
        news: Any = rows
        if not kept.is_cuda:  # numpy is there sooner than PyTorch with so few numbers
            kept, news = kept.numpy(), news.numpy()
        kept[:, start : start + before_wrap] = news[:, :before_wrap]
        if before_wrap < news.shape[1]:
            kept[:, : news.shape[1] - before_wrap] = news[:, before_wrap:]
        self._added += news.shape[1]
        self._count_()

    def _without_frozen(self, rows: Float[Tensor, "member count row"]) -> Float[Tensor, "member count row"]:
        """The rows, with what frozen members have stored in the places that they go to."""
        places = (self.added + np.arange(rows.shape[1])) % self.capacity
        stored, rows = np.flatnonzero(places < len(self)), rows.clone()  # others hold nothing yet
        for member in self.frozen:
            rows[member, stored] = self.rows[member, places[stored]].to(rows)
        return rows

    def reserve(self, count: int) -> Int64[np.ndarray, "{count}"]:
        """The places in the ring for so many new rows, which count as stored from now on (an engine writes them)."""
        places = (self.added + np.arange(count)) % self.capacity
        self._added += count
        return places

    def places_of(self, ages: Int[np.ndarray, "*any"]) -> Int[np.ndarray, "*any"]:
        """The row numbers of transitions by their age; the newest is of age 0."""
        return (self.added - 1 - ages) % self.capacity

    def state(self) -> dict[str, np.ndarray]:
        """What must be saved beside the transitions to go on exactly: nothing but how many were added."""
        return {}

    def set_cursor_(self, added: int, state: Mapping[str, np.ndarray]) -> None:
        """Count so many transitions as stored; `load_chunk_` brings them."""
        self._added[:] = added
        self._count_()

    def _count_(self) -> None:
        """Have the counts where the steps read them."""
        if self.counts.is_cuda:
            self.filled.fill_(len(self))
            self.total.fill_(self.added)
        else:  # sooner, as above
            self.counts.numpy()[:] = len(self), self._added[0]

    def chunk(self, first: int, end: int) -> dict[str, Tensor]:
        """Transitions by their numbers since the beginning; they must not lie across the end of the ring."""
        start = first % self.capacity
        return {"rows": self.rows[:, start : start + end - first]}

    def load_chunk_(self, first: int, chunk: Mapping[str, Tensor], skipped: int) -> None:
        """Put a piece back where it was in the ring, but for its first few; raises ValueError if it does not fit."""
        rows = chunk["rows"]
        if self.rows.shape[::2] != rows.shape[::2]:
            raise ValueError("the buffer has another shape")
        places = torch.arange(first + skipped, first + rows.shape[1]) % self.capacity
        self.rows[:, places.to(self.rows.device)] = rows[:, skipped:].to(self.rows)

    def gather(self, indices: Int[Tensor, "member batch"]) -> Batch:
        """The transitions at these row numbers, each member's from its own buffer."""
        rows = self.backend.gather(self.rows, indices)
        state, action, next_state, reward, terminated = torch.split(rows, self.widths, -1)
        return Batch(state, action, reward.squeeze(-1), next_state, terminated.squeeze(-1), indices)


@step(1, "Make the replay buffer")
def make_replay_buffer(
    members: int,
    capacity: int,
    state_size: int,
    action_size: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    in_host_ram: bool = False,
) -> ReplayBuffer:
    """An empty replay buffer for each member (the lessons call it a buffer).

    What: a ring buffer that keeps the newest `capacity` transitions (s, a, r, s', terminated).
    Why: consecutive transitions are correlated; a batch drawn from far back is varied, and each transition is reused.
    If you leave it out: the critics fit the last few transitions and forget the rest.
    """
    return ReplayBuffer(members, capacity, state_size, action_size, device, dtype, in_host_ram)
