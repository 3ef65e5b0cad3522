"""n-step returns: the rewards of the next n steps, then the target critics' value.

    y = r_0 + gamma r_1 + ... + gamma^(m-1) r_(m-1) + gamma^m (1 - d_(m-1)) min(Q1', Q2')(s_m, a~),   m <= n

A reward then reaches the value of an action n steps before it in one update instead of n. The later actions are those
of an older policy with its exploration noise, and nothing corrects for that, as in D4PG (Barth-Maron et al. 2018, arXiv
1804.08617) and Rainbow (Hessel et al. 2017, arXiv 1710.02298). The method: Watkins 1989; Sutton and Barto 2018,
chapter 7.

The return has fewer than n rewards (m < n) where the episode terminates, where it was cut by a time limit or by a new
episode, and at the newest rows. There the value of the last next state is used as in step 9.
"""

from collections.abc import Callable

import torch

from td3.algorithm.replacing import replace_step
from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer
from td3.algorithm.streams import RandomStreams
from td3.settings import TD3Config

Sampler = Callable[[ReplayBuffer, RandomStreams, int], Batch]


@replace_step(4)
@torch.no_grad()
def n_step_batch(
    buffer: ReplayBuffer, random: RandomStreams, batch_size: int, original: Sampler, settings: TD3Config
) -> Batch:
    """The sampled transitions, each with the discounted rewards and the next state of up to `n_step` steps.

    The row `stride` places later continues a transition if it was stored later and begins in the very state in which
    the transition ended. A state that is equal by chance, after a reset, is as good: what follows depends on the state.
    `terminated` becomes 1 - gamma^(m-1) (1 - d), so that gamma (1 - terminated) of step 9 is gamma^m (1 - d).
    """
    batch = original(buffer, random, batch_size)
    state, next_state = slice(buffer.widths[0]), slice(-2 - buffer.widths[0], -2)
    age = (buffer.total - 1 - batch.indices) % buffer.capacity  # the newest row has age 0
    last, row = batch.indices, buffer.backend.gather(buffer.rows, batch.indices)
    continues, reward, discount = torch.ones_like(last, dtype=torch.bool), batch.reward, torch.ones_like(batch.reward)
    for steps in range(1, settings.n_step):
        following = (last + buffer.stride) % buffer.capacity
        next_row = buffer.backend.gather(buffer.rows, following)
        same_state = (next_row[..., state] == row[..., next_state]).all(-1)
        continues = continues & (age >= steps * buffer.stride) & (row[..., -1] == 0) & same_state
        reward = torch.where(continues, reward + settings.gamma**steps * next_row[..., -2], reward)
        discount = torch.where(continues, discount * settings.gamma, discount)
        last, row = torch.where(continues, following, last), next_row
    end = buffer.gather(last)
    terminated = 1 - discount * (1 - end.terminated)
    return batch._replace(reward=reward, next_state=end.next_state, terminated=terminated)
