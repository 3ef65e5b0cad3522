"""Steps 14 and 15: in the same updates as step 13, Polyak-average the target networks."""

import torch
from torch import Tensor

from td3.algorithm.registry import step
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.step_03_twin_critics import TwinCritics


@step(14, "Polyak-average the actor target")
@torch.no_grad()
def polyak_actor_target_(actor_target: Actor, actor: Actor, tau: float | Tensor) -> None:
    """Move the actor's target by the share tau towards the actor.

    What: target <- (1 - tau) * target + tau * online, weight by weight.
    Why: a target that lags by hundreds of updates keeps y nearly fixed while the critics are fitted to it.
    If you leave it out: a target that never moves keeps its random policy; with tau = 1 there is no lag, and y jumps.
    """
    actor_target.parameters.lerp_(actor.parameters, tau)


@step(15, "Polyak-average both critic targets")
@torch.no_grad()
def polyak_critics_target_(critics_target: TwinCritics, critics: TwinCritics, tau: float | Tensor) -> None:
    """Move both critics' targets by the share tau towards their critics.

    What: the same average for both critic targets, in the same update as the actor target's.
    Why: all targets must lag equally, so that the critic targets evaluate a policy of their own age.
    If you leave it out: the critic targets keep their random initial values, and y never learns about the future.
    """
    for target, online in zip(critics_target.learning, critics.learning, strict=True):
        target.lerp_(online, tau)
