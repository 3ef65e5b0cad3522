"""Observations brought to a mean of 0 and a spread of 1 by all that were seen so far, where a run asks for it.

Not one of the fifteen steps: the buffer keeps observations as they came, and every batch is normalized by what is known
when it is drawn, so that old transitions never carry old statistics.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer

CLIP = 10.0
"""Normalized observations stay within this many standard deviations."""
LEAST_VARIANCE = 1e-8
"""Added to every variance: a dimension that never changes is no reason to divide by nothing."""


class Normalizer:
    """Running mean and variance of every dimension, of each member.

    Everything is changed in place: a CUDA graph, a view of one member and a policy in numpy read it where it is.
    """

    NAMES = ("count", "exact_mean", "squares", "mean", "scale")

    def __init__(
        self, members: int, size: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self.count = torch.zeros(members, 1, dtype=torch.float64, device=device)
        self.exact_mean = torch.zeros(members, size, dtype=torch.float64, device=device)
        self.squares = torch.zeros_like(self.exact_mean)
        self.mean = torch.zeros(members, size, dtype=dtype, device=device)
        self.scale = torch.ones_like(self.mean)

    def observe_(
        self, states: Float[Tensor, "member count state"], active: Int[Tensor, " member"] | None = None
    ) -> None:
        """Take new observations into account (Chan, Golub and LeVeque's way, exact to rounding for any number).

        Of members that are not `active` nothing changes.
        """
        new = states.double()
        seen = torch.ones_like(self.count) if active is None else active.unsqueeze(-1).double()
        count = seen * states.shape[1]
        new_mean = new.mean(1)
        difference = new_mean - self.exact_mean
        self.count += count
        share = count / self.count.clamp(min=1)
        self.exact_mean += difference * share
        self.squares += (new - new_mean.unsqueeze(1)).square().sum(1) * seen
        self.squares += difference.square() * (self.count - count) * share
        self.mean.copy_(self.exact_mean)
        scale = (self.squares / self.count + LEAST_VARIANCE).rsqrt()
        self.scale.copy_(scale if active is None else torch.where(self.count > 0, scale, self.scale))

    def continue_from_(self, mean: Float[Tensor, " state"], scale: Float[Tensor, " state"], count: float) -> None:
        """Know what another one knew of so many observations; of all members."""
        self.count.fill_(count)
        self.exact_mean.copy_(mean)
        self.squares.copy_((scale.double() ** -2 - LEAST_VARIANCE).clamp(min=0) * count)
        self.mean.copy_(mean)
        self.scale.copy_(scale)

    def __call__(self, states: Float[Tensor, "member count state"]) -> Float[Tensor, "member count state"]:
        """States as the networks read them."""
        return ((states - self.mean.unsqueeze(1)) * self.scale.unsqueeze(1)).clamp(-CLIP, CLIP)

    def tensors(self) -> dict[str, Tensor]:
        """Everything it knows, by name."""
        return {name: getattr(self, name) for name in self.NAMES}

    def member(self, index: int) -> "Normalizer":
        """One member's, sharing memory."""
        return self._holding({name: tensor[index : index + 1] for name, tensor in self.tensors().items()})

    def copied(self, device: torch.device | str) -> "Normalizer":
        """The same again, in memory of its own."""
        return self._holding({name: tensor.to(device, copy=True) for name, tensor in self.tensors().items()})

    @classmethod
    def _holding(cls, tensors: dict[str, Tensor]) -> "Normalizer":
        made = cls.__new__(cls)
        made.__dict__.update(tensors)
        return made


class NormalizedReplayBuffer(ReplayBuffer):
    """The same buffer, its states handed out normalized, and everything stored in it taken into account."""

    def __init__(self, buffer: ReplayBuffer, normalizer: Normalizer) -> None:
        self.__dict__.update(buffer.__dict__)
        self.normalizer = normalizer

    def member(self, index: int) -> "NormalizedReplayBuffer":
        """The buffer of one member only, sharing its rows."""
        return NormalizedReplayBuffer(super().member(index), self.normalizer.member(index))

    def add_(self, rows: Float[Tensor, "member count row"]) -> None:
        """Store new transitions of every member; the oldest make room."""
        super().add_(rows)
        active = None
        if self.frozen:
            flags = [member not in self.frozen for member in range(len(rows))]
            active = torch.tensor(flags, dtype=torch.int32, device=rows.device)
        self.normalizer.observe_(rows[..., : self.widths[0]], active)

    def gather(self, indices: Int[Tensor, "member batch"]) -> Batch:
        """The transitions at these row numbers, their states normalized."""
        batch = super().gather(indices)
        return batch._replace(state=self.normalizer(batch.state), next_state=self.normalizer(batch.next_state))
