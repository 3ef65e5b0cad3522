"""Prioritized replay by LAP, loss-adjusted prioritized experience replay (Fujimoto et al. 2020, arXiv 2007.06049).

    p(i) = max(|delta_i|, 1)^alpha,   P(i) = p(i) / sum p,   delta_i: the larger error of the two critics

    loss = mean of Huber(delta),   Huber(x) = x^2 / 2 where |x| < 1, else |x| - 1/2

Transitions with a large error are sampled more often. The gradient of Huber's loss does not grow with the error there,
so that sampling takes the place of what the squared error does, without importance sampling weights. New transitions
get the largest priority so far.

Priorities are kept less 1, so that memory of zeros is what they begin with: a priority of 1, the smallest and at first
the largest. Sums over 64 rows, and over 64 times 64, let a row be found in three short searches. They are made anew
from what they sum, so that rounding errors do not add up.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm.replacing import State, replace_step
from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer
from td3.algorithm.streams import RandomStreams
from td3.backends.torch_backend import TORCH
from td3.settings import TD3Config

BLOCK, SHIFT = 64, 6
"""Numbers in a sum, and the power of two that this is."""
STATE: State = {
    "excess": "capacity/64*64",
    "sums": "capacity/4096*64",
    "sums_of_sums": "capacity/4096",
    "largest": 1,
    "entered": 1,
}
"""`excess` is a row's priority less 1, `largest` the largest so far, and `entered` the number of rows that were stored
when the last batch was sampled, modulo `COUNTED`."""
COUNTED = 1 << 23
"""float32 counts exactly up to here."""
FINE = 1 << 53
"""So many different random numbers, evenly in [0, 1)."""
BELOW_1 = 1 - 2**-22


@replace_step(4, state=STATE)
@torch.no_grad()
def sample_by_priority(
    buffer: ReplayBuffer, random: RandomStreams, batch_size: int, step_state: dict[str, Tensor], settings: TD3Config
) -> Batch:
    """Transitions drawn from each member's own replay buffer, with probabilities that follow their priorities.

    What: `batch_size` rows with replacement; row i with probability p(i) / sum p.
    Why: the rows that the critics predict worst are learned sooner.
    If you leave it out: every row is drawn alike, however well it is known.
    """
    _enter_new_rows(step_state, buffer, settings)
    fraction = random.rows(torch.full_like(buffer.filled, FINE), batch_size).double() / FINE
    sums = step_state["sums_of_sums"].double()
    indices, fraction = _search(sums + _stored(buffer.filled.double(), sums.shape[1], BLOCK**2), fraction)
    for name, rows in (("sums", BLOCK), ("excess", 1)):
        excess = _block(step_state[name], indices)
        remaining = (buffer.filled - indices * rows * BLOCK).clamp(max=rows * BLOCK).to(excess.dtype).unsqueeze(-1)
        found, rest = _search(excess + _stored(remaining, BLOCK, rows), fraction.to(excess.dtype).unsqueeze(-1))
        indices, fraction = (indices << SHIFT) + found.squeeze(-1), rest.squeeze(-1)
    return buffer.gather(torch.minimum(indices, buffer.filled - 1))  # where priorities are not finite


@replace_step(11, state=STATE)
def prioritized_loss(
    q_values: Float[Tensor, "2 member batch"],
    target_q: Float[Tensor, "member batch"],
    step_state: dict[str, Tensor],
    settings: TD3Config,
    batch: Batch,
) -> Float[Tensor, " member"]:
    """Huber's loss of both critics; the batch gets its new priorities."""
    error = (q_values - target_q).abs()
    with torch.no_grad():
        excess = error.amax(0).clamp(min=1) ** settings.priority_exponent - 1
        largest = step_state["largest"]
        largest.copy_(torch.maximum(largest, excess.amax(-1, keepdim=True)))
        _set(step_state, batch.indices, excess)
    return torch.where(error < 1, 0.5 * error.square(), error - 0.5).mean(-1).sum(0)


def _enter_new_rows(state: dict[str, Tensor], buffer: ReplayBuffer, settings: TD3Config) -> None:
    """Give the rows that were stored since the last batch the largest priority so far.

    Before the first batch there may be any number of them, and the largest priority is what all have. Later they are
    the rows of 1 / `utd_ratio` env steps, and of the rest of the round in which the update is made.
    """
    per_update = math.ceil(buffer.rows_per_env_step / settings.utd_ratio)
    most = min(buffer.capacity, buffer.rows_per_round + per_update)
    ages = torch.arange(most, device=buffer.total.device).expand(len(state["largest"]), -1)
    slots = (buffer.total - 1 - ages) % buffer.capacity
    new = (buffer.total - state["entered"].long()) % COUNTED
    _set(state, slots, torch.where(ages < new, state["largest"], state["excess"].gather(1, slots)))
    state["entered"].copy_(buffer.total % COUNTED)


def _set(state: dict[str, Tensor], indices: Int[Tensor, "member count"], excess: Float[Tensor, "member count"]) -> None:
    """Store these priorities, and the sums that they are part of.

    Of a row that occurs twice the larger one is kept: a rule that depends on no order.
    """
    state["excess"].scatter_(1, indices, 0.0)
    state["excess"].scatter_reduce_(1, indices, excess, "amax")
    for below, above in (("excess", "sums"), ("sums", "sums_of_sums")):
        indices = indices >> SHIFT
        state[above].scatter_(1, indices, _block(state[below], indices).sum(-1))


def _block(
    level: Float[Tensor, "member all"], indices: Int[Tensor, "member count"]
) -> Float[Tensor, "member count 64"]:
    """What is summed in these sums of the next level; where priorities are not finite, what lies inside at least."""
    blocks = level.view(len(level), -1, BLOCK)
    return TORCH.gather(blocks, indices.clamp(max=blocks.shape[1] - 1))


def _stored(remaining: Float[Tensor, "*some"], count: int, rows: int) -> Float[Tensor, "*others"]:
    """How many of the next `count` times `rows` rows are stored: each has a priority of 1 beside its excess."""
    starts = torch.arange(0, count * rows, rows, dtype=remaining.dtype, device=remaining.device)
    return (remaining - starts).clamp(0, rows)


def _search(
    weights: Float[Tensor, "*some count"], fraction: Float[Tensor, "*some wanted"]
) -> tuple[Int[Tensor, "*some wanted"], Float[Tensor, "*some wanted"]]:
    """The place that a fraction of the total weight falls on, and the fraction of its own weight that remains."""
    ends = weights.cumsum(-1)
    wanted = fraction * ends[..., -1:]
    found = torch.searchsorted(ends, wanted, right=True).clamp(max=weights.shape[-1] - 1)
    own = weights.gather(-1, found)
    return found, ((wanted - ends.gather(-1, found) + own) / own).clamp(0, BELOW_1)
