"""Steps 10 to 12: compare what both critics said with the Bellman target, and improve them."""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.encoder import JointOptimizer
from td3.algorithm.optimizer import Optimizer, require_finite
from td3.algorithm.registry import step
from td3.algorithm.step_03_twin_critics import TwinCritics


@step(10, "Both critics score the stored action")
def score_by_critics(
    critics: TwinCritics,
    state: Float[Tensor, "member batch state"],
    action: Float[Tensor, "member batch action"],
) -> Float[Tensor, "2 member batch"]:
    """Two opinions on (s, a), from the critics that learn.

    What: Q1(s, a) and Q2(s, a) for the action that was really done.
    Why: only for that action do we know the reward and the next state.
    If you leave it out: there is no error to learn from.
    """
    return critics(state, action)


@step(11, "Measure the loss of both critics")
def critic_loss(
    scores: Float[Tensor, "2 member batch"], target_score: Float[Tensor, "member batch"]
) -> Float[Tensor, " member"]:
    """How far both critics are from the Bellman target.

    What: MSE(q1, y) + MSE(q2, y): a mean over the batch, a sum over the twins.
    Why: the squared error's minimum is the expected target, which is what a value is.
    If you leave it out: shapes (B, 1) against (B,) silently compare every row with every other.
    """
    return (scores - target_score).square().mean(-1).sum(0)


@step(12, "Backpropagate and improve both critics")
def improve_critics_(
    critics: TwinCritics, optimizer: Optimizer | JointOptimizer, loss: Float[Tensor, " member"]
) -> None:
    """Move both critics, and nothing else, a step towards the Bellman target.

    What: the gradient of the loss in all weights of both critics, and one optimiser step (Adam; lessons say SGD).
    Why: a critic that predicts the target better gives the actor a better slope to climb.
    If you leave it out: the critics keep their random opinions.
    """
    # Members do not share weights, so the gradient of the sum is each member's own gradient.
    total = loss.sum()
    require_finite(total.detach(), "the critics' loss")
    optimizer.step_(*torch.autograd.grad(total, critics.learning))
