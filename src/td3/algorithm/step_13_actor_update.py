"""Step 13: every second update, move the actor uphill on critic 1."""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.optimizer import Optimizer
from td3.algorithm.registry import step
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.step_03_twin_critics import TwinCritics


@step(13, "Improve the actor, uphill on critic 1")
def improve_actor_(
    actor: Actor, critics: TwinCritics, optimizer: Optimizer, state: Float[Tensor, "member batch state"]
) -> Float[Tensor, " member"]:
    """Move the actor towards actions of higher Q-value; returns its loss, minus the mean Q-value of critic 1.

    What: the gradient of Q1(s, actor(s)) with respect to the actor's weights, by the chain rule through critic 1, whose
    weights stay. The optimizer minimizes, so the loss is minus Q1.
    Why: this is where the policy improves; every second update, so that the critics are fitted in between.
    If you leave it out: the actor keeps its random policy, however good the critics become.
    """
    loss = -critics.first_frozen(state, actor(state)).mean(-1)
    (gradient,) = torch.autograd.grad(loss.sum(), actor.parameters)
    optimizer.step_(gradient)
    return loss.detach()
