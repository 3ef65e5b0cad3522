"""Random numbers for the learner: every member draws from its own seed alone, and a counter says where it stands."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

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
    """

    def __init__(
        self,
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        position: int = 0,
    ) -> None:
        self.seeds, self.device, self.dtype = tuple(seeds), torch.device(device), dtype
        self._generator = torch.Generator(self.device)
        self._drawn: dict[str, tuple[int, Tensor]] = {}
        self.seek(position)

    def seek(self, position: int) -> None:
        """Stand before the numbers of this update."""
        self._next = {"sampling": position, "smoothing": position, "shifting": position}

    @property
    def positions(self) -> dict[str, int]:
        """The update whose numbers come next, by purpose."""
        return dict(self._next)

    def rows(self, filled: Int[Tensor, ""], count: int) -> Int[Tensor, "member {count}"]:
        """Row numbers, uniform in [0, filled), with replacement (63 random bits: the remainder's bias is nil)."""
        return self._take("sampling", torch.int64, count).remainder(filled)

    def normal(self, count: int, size: int) -> Float[Tensor, "member {count} {size}"]:
        """Standard normal numbers."""
        return self._take("smoothing", self.dtype, count, size)

    def shifts(self, count: int, most: int) -> Int[Tensor, "member {count} 4"]:
        """Whole numbers from 0 to `most`, uniform: by how much images are moved."""
        return self._take("shifting", torch.int64, count, 4).remainder(most + 1)

    def _take(self, purpose: str, dtype: torch.dtype, *shape: int) -> Tensor:
        block, slot = divmod(self._next[purpose], BLOCK)
        self._next[purpose] += 1
        number, draws = self._drawn.get(purpose, (-1, torch.empty(0)))
        if number != block or draws.shape[2:] != shape:
            draws = self.draw_block_(
                purpose, block, torch.empty(BLOCK, len(self.seeds), *shape, dtype=dtype, device=self.device)
            )
            self._drawn[purpose] = block, draws
        return draws[slot]

    def draw_block_(self, purpose: str, block: int, draws: Tensor) -> Tensor:
        """Fill `[update, member, ...]` with the numbers of one block."""
        # Drawn apart and then put in: PyTorch fills a strided tensor with other normal numbers than a dense one, and a
        # member's numbers would depend on its company.
        own = torch.empty_like(draws[:, 0], memory_format=torch.contiguous_format)
        for index in range(len(self.seeds)):
            draws[:, index] = self.draw_member_(purpose, block, index, own)
        return draws

    def draw_member_(self, purpose: str, block: int, index: int, own: Tensor) -> Tensor:
        """Fill a dense `[update, ...]` with one member's numbers of one block."""
        self._generator.manual_seed(derive_seed(self.seeds[index], purpose, block))
        if own.is_floating_point():
            return own.normal_(generator=self._generator)
        return own.random_(generator=self._generator)
