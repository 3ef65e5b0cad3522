"""Random numbers for the learner: every member draws from its own seed alone, and a counter says where it stands."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH

PURPOSES = ("sampling", "smoothing", "shifting")
"""What a member's numbers are for."""
BLOCK = 64
"""Updates whose numbers are drawn at once; fixed, because it is part of what a seed means."""


def derive_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A seed for one purpose of one member: streams of different purposes never overlap or shift each other."""
    words = np.random.SeedSequence([seed, crc32(purpose.encode()), index]).generate_state(2, np.uint32)
    return int(words[0]) << 31 | int(words[1]) >> 1


@runtime_checkable
class RandomStreams(Protocol):
    """What the steps ask of randomness; tests pass numbers of their own."""

    def rows(self, filled: Int[Tensor, ""], count: int) -> Int[Tensor, "member {count}"]:
        """Row numbers, uniform in [0, filled), with replacement."""

    def normal(self, count: int, size: int) -> Float[Tensor, "member {count} {size}"]:
        """Standard normal numbers."""


class MemberStreams:
    """Numbers for update 0, 1, 2, ... of each member, drawn in blocks on the device where they are used.

    Block b of a member is seeded by (its seed, the purpose, b): to go on from update n it is enough to know n.

    Each purpose has two blocks of every member in memory: while updates use the one, the other may be drawn. A call
    reads the next update's numbers; with `held`, those at a cursor, which work that is recorded moves by itself: then
    `follow` has the numbers of an update in place before it.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        position: int = 0,
        held: bool = False,
        backend: Backend = TORCH,
    ) -> None:
        self.seeds, self.device, self.dtype, self.held = tuple(seeds), torch.device(device), dtype, held
        self._backend, self._generator = backend, torch.Generator(self.device)
        self._numbers: dict[str, Tensor] = {}
        self._drawn: dict[tuple[str, int], list[int]] = {}
        """The two blocks that are in memory, by purpose and member."""
        self.cursor = torch.arange(len(self.seeds), device=self.device) * 2 * BLOCK
        """Of each member, where its next update's numbers are among those of all."""
        self.seek(position)

    def seek(self, position: int | Sequence[int]) -> None:
        """Stand before the numbers of this update, or of one for each member."""
        self._next = [position] * len(self.seeds) if isinstance(position, int) else [*position]
        self._current = [*self._next]
        self._calls: Counter[str] = Counter()
        self._ahead: dict[tuple[str, int], None] = {}
        for member, number in enumerate(self._next):
            self._enter(member, number)

    def follow(self, positions: Sequence[int], members: Sequence[int]) -> None:
        """Have the numbers of these updates of these members in place; cheap where they come after the last call's."""
        for member in members:
            position = positions[member]
            if position != self._next[member] or position % BLOCK == 0:
                self._enter(member, position)
            self._current[member], self._next[member] = position, position + 1

    def prepare(self) -> None:
        """Draw a share of the blocks that come next; in as many calls as a block has updates, they are complete."""
        for _ in range(-(-len(self._drawn) // BLOCK)):
            if self._ahead:
                (purpose, member), _ = self._ahead.popitem()
                self._require(purpose, member, self._next[member] // BLOCK + 1)

    @property
    def positions(self) -> dict[str, int]:
        """The update whose numbers come next, by purpose."""
        return {purpose: self._next[0] + self._calls[purpose] for purpose in PURPOSES}

    def rows(self, filled: Int[Tensor, ""], count: int) -> Int[Tensor, "member {count}"]:
        """Row numbers, uniform in [0, filled), with replacement (63 random bits: the remainder's bias is nil)."""
        if self.held:
            return self._backend.indices_at(self._ready("sampling", torch.int64, count), self.cursor, filled)
        return self._take("sampling", torch.int64, count).remainder(filled)

    def normal(self, count: int, size: int) -> Float[Tensor, "member {count} {size}"]:
        """Standard normal numbers."""
        return self._take("smoothing", self.dtype, count, size)

    def shifts(self, count: int, most: int) -> Int[Tensor, "member {count} 4"]:
        """Whole numbers from 0 to `most`, uniform: by how much images are moved."""
        return self._take("shifting", torch.int64, count, 4).remainder(most + 1)

    def _take(self, purpose: str, dtype: torch.dtype, *shape: int) -> Tensor:
        if self.held:
            return self._ready(purpose, dtype, *shape).flatten(0, 1).index_select(0, self.cursor)
        position = self._next[0] + self._calls[purpose]
        self._calls[purpose] += 1
        numbers = self._ready(purpose, dtype, *shape)
        for member in range(len(self.seeds)):
            self._require(purpose, member, position // BLOCK)
        return numbers[:, position % (2 * BLOCK)].clone()  # the memory is used again

    def _ready(self, purpose: str, dtype: torch.dtype, *shape: int) -> Tensor:
        """The memory of a purpose; made where it is asked for first, or in another shape."""
        numbers = self._numbers.get(purpose)
        if numbers is None or numbers.shape[2:] != shape:
            with _disable_current_modes():  # not a part of what is being recorded
                numbers = torch.empty(len(self.seeds), 2 * BLOCK, *shape, dtype=dtype, device=self.device)
                self._numbers[purpose] = numbers
                for member, position in enumerate(self._current):
                    self._drawn[purpose, member] = [-1, -1]
                    if self.held:
                        self._require(purpose, member, position // BLOCK)
        return numbers

    def _enter(self, member: int, position: int) -> None:
        """Complete the block that a member comes into, and turn to the next."""
        if not self.held:
            return
        self.cursor[member].fill_(member * 2 * BLOCK + position % (2 * BLOCK))
        for purpose in self._numbers:
            self._require(purpose, member, position // BLOCK)
            self._ahead[purpose, member] = None

    def _require(self, purpose: str, member: int, block: int) -> None:
        """Have a block of a member in memory."""
        if self._drawn[purpose, member][block % 2] != block:
            start = block % 2 * BLOCK
            self.draw_member_(purpose, block, member, self._numbers[purpose][member, start : start + BLOCK])
            self._drawn[purpose, member][block % 2] = block

    def draw_member_(self, purpose: str, block: int, index: int, own: Tensor) -> Tensor:
        """Fill a dense `[update, ...]` with one member's numbers of one block."""
        self._generator.manual_seed(derive_seed(self.seeds[index], purpose, block))
        if own.is_floating_point():
            return own.normal_(generator=self._generator)
        return own.random_(generator=self._generator)
