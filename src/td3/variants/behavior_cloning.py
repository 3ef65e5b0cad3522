"""TD3+BC (Fujimoto and Gu 2021, arXiv 2106.06860): an actor that stays near the actions of a dataset.

    minimize  -lambda mean Q1(s, pi(s)) + mean (pi(s) - a)^2,    lambda = alpha / mean |Q1(s, pi(s))|

over the batch. lambda is a constant for the gradient: it brings Q-values of any size to the scale of the second term.
alpha is `bc_alpha`, 2.5 in the paper; smaller ones imitate more. Actions are measured in units of half their range, in
which the paper's lie within [-1, 1].
"""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.optimizer import Optimizer
from td3.algorithm.replacing import replace_step
from td3.algorithm.step_01_replay_buffer import Batch
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.settings import TD3Config


@replace_step(13)
def improve_actor_near_data_(
    actor: Actor,
    critics: TwinCritics,
    optimizer: Optimizer,
    state: Float[Tensor, "member batch state"],
    settings: TD3Config,
    batch: Batch,
) -> Float[Tensor, " member"]:
    """Move the actor towards higher Q-values and towards the actions of the batch; returns its loss."""
    action = actor(state)
    q_values = critics.first_frozen(state, action)
    scale = settings.bc_alpha / q_values.detach().abs().mean(-1)
    distance = ((action - batch.action) / actor.action_range.half).square().mean((-2, -1))
    loss = distance - scale * q_values.mean(-1)
    (gradient,) = torch.autograd.grad(loss.sum(), actor.parameters)
    optimizer.step_(gradient)
    return loss.detach()
