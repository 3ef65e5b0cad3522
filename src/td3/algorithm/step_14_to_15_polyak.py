"""Steps 14 and 15: in the same updates as step 13, the targets glide a little after the online networks."""

import torch
from torch import Tensor

from td3.algorithm.registry import step
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.step_03_twin_critics import TwinCritics


@step(14, "Polyak-average the actor's target")
@torch.no_grad()
def polyak_actor_target_(actor_target: Actor, actor: Actor, tau: float | Tensor) -> None:
    """Move the actor's target by the share tau towards the actor.

    What: target <- (1 - tau) * target + tau * online, weight by weight.
    Why: a target that lags by hundreds of updates keeps the Bellman target still enough to be learnt.
    If you leave it out: a target that never moves stays a beginner; one that is copied whole jumps.
    """
    actor_target.parameters.lerp_(actor.parameters, tau)


@step(15, "Polyak-average both critics' targets")
@torch.no_grad()
def polyak_critics_target_(critics_target: TwinCritics, critics: TwinCritics, tau: float | Tensor) -> None:
    """Move both critics' targets by the share tau towards their critics.

    What: the same average for all four critics, in the same update as the actor's.
    Why: actor and critics must age together, or the one is judged by a stranger.
    If you leave it out: moving them at every update halves the lag that the delay was to give.
    """
    for target, online in zip(critics_target.learning, critics.learning, strict=True):
        target.lerp_(online, tau)
