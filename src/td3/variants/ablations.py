"""TD3 with one of its ideas removed, as in table 2 of the paper (arXiv 1802.09477), and DDPG, which has none of them.

no-delay      policy_delay = 1: the actor and the targets move in every update.
no-smoothing  target_policy_noise = 0: y is read at the target actor's action itself.
no-twin       y = r + gamma (1 - d) Q1'(s', a~): the target of critic 1 alone, instead of the minimum of two.
ddpg          all three. The critics, their sizes and learning rates are TD3's: it is the paper's "DDPG with our
              architecture", not the code of 2015.

Critic 2 is still trained, and not used.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.replacing import replace_step


@replace_step(8)
@torch.no_grad()
def first_critic(q_values: Float[Tensor, "2 member batch"]) -> Float[Tensor, "member batch"]:
    """The Q-value of target critic 1."""
    return q_values[0]
