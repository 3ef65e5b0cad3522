"""Step 1 for images: a replay buffer that keeps each frame once, as bytes.

A state is the newest few frames, and the next state is the same but one. So a transition here is a list of frame
numbers, and frames lie in a ring of their own. When a frame is overwritten, no transition up to the last one that shows
it can be drawn any more.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer
from td3.backends.pinned import empty_in_host_ram

SPARE = 25
"""One frame more for so many transitions: an episode of n transitions has n + 1 frames. Where episodes are shorter, the
buffer is full of frames before it is full of transitions, and lets go of the oldest a little earlier."""


def frames_kept(capacity: int, frames: int) -> int:
    """Places in the ring of frames."""
    return capacity + capacity // SPARE + 4 * (frames + 1)


def frame_buffer_bytes(capacity: int, frames: int, frame_size: int, action_size: int) -> int:
    """What a member's buffer takes: frames and who shows each, frame numbers, and actions, rewards, terminations."""
    return frames_kept(capacity, frames) * (frame_size + 8) + capacity * (8 * 2 * frames + 4 * (action_size + 2))


class FrameReplayBuffer(ReplayBuffer):
    """As `ReplayBuffer`, for states that are `frames` images of `frame_size` bytes each.

    It takes the same rows, and hands out exactly what it was given, as bytes: frames are shared only where they are
    equal, with what the same environment showed last, and within a row. Rows are numbered from the oldest that can be
    drawn.
    """

    def __init__(
        self,
        members: int,
        capacity: int,
        frames: int,
        frame_size: int,
        action_size: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        in_host_ram: bool = False,
    ) -> None:
        self.frames = frames
        self.widths = [frames * frame_size, action_size, frames * frame_size, 1, 1]
        empty = empty_in_host_ram if in_host_ram else torch.empty
        kept = frames_kept(capacity, frames)
        self.rows = empty(members, capacity, action_size + 2, dtype=dtype, device=device)
        self.images = empty(members, kept, frame_size, dtype=torch.uint8, device=device)
        self.numbers = np.zeros((members, capacity, 2 * frames), np.int64)
        self._shown_by = np.full((members, kept), -1, np.int64)  # the newest row that shows the frame in this place
        self._added = np.zeros(1, np.int64)
        self._frames_added, self._oldest = np.zeros(members, np.int64), np.zeros(members, np.int64)
        self._filled = torch.zeros(members, dtype=torch.int64, device=device)
        self.filled = self._filled[0] if members == 1 else self._filled.amin()

    def __len__(self) -> int:
        """The number of transitions that can be drawn now, of every member."""
        return int(self.added - self._oldest.max())

    @property
    def oldest(self) -> int:
        """The number of the oldest transition that some member still has, counted since the beginning."""
        return int(self._oldest.min())

    @property
    def row_bytes(self) -> int:
        """About what a transition takes on disk."""
        return int(self.images.shape[2] + 8 * self.numbers.shape[2] + 4 * self.rows.shape[2])

    def member(self, index: int) -> "FrameReplayBuffer":
        """The buffer of one member only, sharing its rows (to read: only the whole buffer takes new rows)."""
        view, one = FrameReplayBuffer.__new__(FrameReplayBuffer), slice(index, index + 1)
        view.frames, view.widths, view._added = self.frames, self.widths, self._added
        for name in ("rows", "images", "numbers", "_shown_by", "_frames_added", "_oldest", "_filled"):
            setattr(view, name, getattr(self, name)[one])
        view.filled = self._filled[index]
        return view

    def places_of(self, ages: Int[np.ndarray, "*any"]) -> Int[np.ndarray, "*any"]:
        """The row numbers of transitions by their age; the newest is of age 0."""
        return len(self) - 1 - ages

    def add_(self, rows: Float[Tensor, "member count row"]) -> None:
        """Store new transitions of every member; the oldest make room."""
        state, action, next_state, reward, terminated = torch.split(rows, self.widths, -1)
        others = torch.cat((action, reward, terminated), -1)
        stacks = [part.to(torch.uint8).view(*rows.shape[:2], self.frames, -1) for part in (state, next_state)]
        members, count, _ = rows.shape
        for place in range(count):
            row = self.added
            # What a frozen member has stored stays; in rows that hold nothing yet there must be something to save.
            stays = self.frozen if row >= self.capacity else ()
            for member in range(members):
                if member in stays:
                    continue
                self.rows[member, row % self.capacity] = others[member, place]
                # Environments take turns: so many rows ago, this one showed what should be its state now.
                before = row - count
                known = self.numbers[member, before % self.capacity, self.frames :] if before >= 0 else ()
                seen = self._kept(member, stacks[0][member, place], known)
                seen += self._kept(member, stacks[1][member, place], seen[1:])
                self._show(member, row, seen)
            self._added += 1
        np.maximum(self._oldest, self.added - self.capacity, out=self._oldest)
        self._count()

    def _kept(self, member: int, stack: Tensor, known: Sequence[int] | np.ndarray) -> list[int]:
        """The numbers of these frames: known ones where they are the same, new ones for the rest."""
        ring = self.images.shape[1]
        kept: list[int] = []
        safe = self._frames_added[member] + 2 * self.frames - ring  # older ones may be overwritten by this very row
        for index, frame in enumerate(stack):
            for number in (*known[index : index + 1], *kept[-1:]):
                if number >= safe and torch.equal(frame, self.images[member, number % ring]):
                    kept.append(int(number))
                    break
            else:
                number = int(self._frames_added[member])
                if number >= ring:
                    self._oldest[member] = max(self._oldest[member], self._shown_by[member, number % ring] + 1)
                self.images[member, number % ring] = frame
                self._frames_added[member] += 1
                kept.append(number)
        return kept

    def _show(self, member: int, row: int, numbers: Sequence[int] | np.ndarray) -> None:
        self.numbers[member, row % self.capacity] = numbers
        self._shown_by[member, np.asarray(numbers) % self.images.shape[1]] = row

    def _count(self) -> None:
        self._filled.copy_(torch.from_numpy(self.added - self._oldest))
        if len(self._filled) > 1:
            self.filled = self._filled.amin()

    def gather(self, indices: Int[Tensor, "member batch"]) -> Batch:
        """The transitions at these row numbers, each member's from its own buffer; states are bytes."""
        device, ring = self.rows.device, self.images.shape[1]
        others: list[Tensor] = []
        states: list[Tensor] = []
        next_states: list[Tensor] = []
        for member, own in enumerate((indices.cpu().numpy() + self._oldest[:, None]) % self.capacity):
            others.append(self.rows[member].index_select(0, torch.from_numpy(own).to(device)))
            numbers = torch.from_numpy(self.numbers[member, own] % ring).to(device)
            for part, found in zip(torch.split(numbers, self.frames, 1), (states, next_states), strict=True):
                found.append(self.images[member].index_select(0, part.flatten()).view(len(own), -1))
        action, reward, terminated = torch.split(torch.stack(others), [self.widths[1], 1, 1], -1)
        state, next_state = torch.stack(states), torch.stack(next_states)
        return Batch(state, action, reward.squeeze(-1), next_state, terminated.squeeze(-1), indices)

    def state(self) -> dict[str, np.ndarray]:
        """What must be saved beside the transitions to go on exactly."""
        return {"frames_added": self._frames_added, "oldest": self._oldest}

    def set_cursor_(self, added: int, state: Mapping[str, np.ndarray]) -> None:
        """Count as many transitions as when `state` was taken; `load_chunk_` brings them."""
        self._added[:], self._frames_added[:], self._oldest[:] = added, state["frames_added"], state["oldest"]
        if not np.all((max(0, added - self.capacity) <= self._oldest) & (self._oldest <= added)):
            raise ValueError("the buffer's oldest transitions are missing")
        self._count()

    def chunk(self, first: int, end: int) -> dict[str, Tensor]:
        """Transitions by their numbers since the beginning, with every frame that they show."""
        places, ring = slice(first % self.capacity, first % self.capacity + end - first), self.images.shape[1]
        numbers = self.numbers[:, places]
        found = {"rows": self.rows[:, places], "numbers": torch.from_numpy(numbers)}
        for member, own in enumerate(numbers):
            # What a member can no longer draw may show frames that are gone.
            low = max(int(own.min()), int(self._frames_added[member]) - ring)
            shown = torch.arange(low, max(low, int(own.max()) + 1)).to(self.images.device)
            found[f"frames.{member}"] = self.images[member].index_select(0, shown % ring)
            found[f"first_frame.{member}"] = torch.tensor([low])
        return found

    def load_chunk_(self, first: int, chunk: Mapping[str, Tensor], skipped: int) -> None:
        """Put a piece back, but for its first few; raises ValueError if it is not one of this buffer's."""
        rows, numbers = chunk["rows"], chunk["numbers"].numpy()
        members, count, width = rows.shape
        if numbers.shape != (members, count, self.numbers.shape[2]) or self.rows.shape[::2] != (members, width):
            raise ValueError("the buffer has another shape")
        ring = self.images.shape[1]
        for member in range(members):
            frames, low = chunk[f"frames.{member}"], int(chunk[f"first_frame.{member}"][0])
            if frames.dtype != torch.uint8 or frames.ndim != 2 or frames.shape[1] != self.images.shape[2]:
                raise ValueError("the buffer has frames of another size")
            frames = frames[-ring:]
            shown = (torch.arange(len(frames)) + low + len(chunk[f"frames.{member}"]) - len(frames)) % ring
            self.images[member, shown.to(self.images.device)] = frames.to(self.images.device)
            for index in range(skipped, count):
                self._show(member, first + index, numbers[member, index])
        places = torch.arange(first + skipped, first + count) % self.capacity
        self.rows[:, places.to(self.rows.device)] = rows[:, skipped:].to(self.rows)
