"""Steps 10 to 12: compare both critics' Q-values with the Bellman target, and improve them."""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.optimizer import JointOptimizer, Optimizer, require_finite
from td3.algorithm.registry import step
from td3.algorithm.step_03_twin_critics import TwinCritics


@step(10, "Both critics evaluate the stored action")
def q_values_of_critics(
    critics: TwinCritics,
    state: Float[Tensor, "member batch state"],
    action: Float[Tensor, "member batch action"],
) -> Float[Tensor, "2 member batch"]:
    """Two Q-values of (s, a), from the critics that are trained.

    What: Q1(s, a) and Q2(s, a) for the action that was really taken.
    Why: only for that action are the reward and the next state known.
    If you leave it out: without a prediction to compare with y, there is no error to learn from.
    """
    return critics(state, action)


@step(11, "Measure the loss of both critics")
def critic_loss(
    q_values: Float[Tensor, "2 member batch"], target_q: Float[Tensor, "member batch"]
) -> Float[Tensor, " member"]:
    """How far both critics are from the Bellman target.

    What: MSE(q1, y) + MSE(q2, y): a mean over the batch, a sum over the two critics.
    Why: the squared error is smallest at the expected y, and an expectation is what a Q-value is.
    If you leave it out: without a loss nothing tells the critics which way to move. With shapes (B, 1) and (B,) it
    exists and is wrong: every row is compared with every other.
    """
    return (q_values - target_q).square().mean(-1).sum(0)


@step(12, "Backpropagate and improve both critics")
def improve_critics_(
    critics: TwinCritics, optimizer: Optimizer | JointOptimizer, loss: Float[Tensor, " member"]
) -> None:
    """Move both critics, and nothing else, a step towards the Bellman target.

    What: the gradient of the loss with respect to all weights of both critics, and one optimizer step (Adam; the
    lessons say SGD). y is a constant here.
    Why: a critic that predicts y better gives the actor a better gradient.
    If you leave it out: the critics keep their random initial values.
    """
    # Members do not share weights, so the gradient of the sum is each member's own gradient.
    total = loss.sum()
    require_finite(total.detach(), "the critics' loss")
    optimizer.step_(*torch.autograd.grad(total, critics.learning))
