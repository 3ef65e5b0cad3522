"""Steps 4 to 9: sample a batch and compute its Bellman target from the target networks."""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.registry import step
from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer
from td3.algorithm.step_02_actor import ActionRange, Actor
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.algorithm.streams import RandomStreams


@step(4, "Sample a batch of transitions")
def sample_batch(buffer: ReplayBuffer, random: RandomStreams, batch_size: int) -> Batch:
    """Transitions drawn at random from each member's own replay buffer.

    What: `batch_size` rows (s, a, r, s', terminated), uniform, with replacement.
    Why: rows from many different episodes give a gradient that stands for all of them.
    If you leave it out: batches of the newest rows alone are correlated, and the critics fit that stretch of time.
    """
    return buffer.gather(random.rows(buffer.filled, batch_size))


@step(5, "The target actor gives the next action")
@torch.no_grad()
def target_action(
    actor_target: Actor, next_state: Float[Tensor, "member batch state"]
) -> Float[Tensor, "member batch action"]:
    """The action a' that the target actor would take in s'.

    What: a' = actor_target(s'), not the stored action and not the online actor's.
    Why: the value of s' is what the target policy would get from there on, and that policy changes slowly.
    If you leave it out: with the online actor, y changes whenever the actor does.
    """
    return actor_target(next_state)


@step(6, "Add clipped noise and clamp to the action range")
@torch.no_grad()
def smooth_target_action(
    next_action: Float[Tensor, "member batch action"],
    random: RandomStreams,
    noise: float,
    noise_clip: float,
    action_range: ActionRange,
) -> Float[Tensor, "member batch action"]:
    """The smoothed next action ã: target policy smoothing (this is not exploration).

    What: ã = a' + clip(noise * normal, +-noise_clip), in units of each dimension's half range, clamped to the range.
    Why: similar actions should have similar value; averaging y over a small neighborhood flattens false peaks.
    If you leave it out: y is read at the peak of a critic's error, and the actor moves to that peak.
    """
    _, count, size = next_action.shape
    clipped = (random.normal(count, size) * noise).clamp(-noise_clip, noise_clip) * action_range.half
    return (next_action + clipped).clamp(action_range.low, action_range.high)


@step(7, "Both target critics evaluate the smoothed action")
@torch.no_grad()
def q_values_of_targets(
    critics_target: TwinCritics,
    next_state: Float[Tensor, "member batch state"],
    next_action: Float[Tensor, "member batch action"],
) -> Float[Tensor, "2 member batch"]:
    """Two Q-values of (s', ã), from the target critics.

    What: Q1'(s', ã) and Q2'(s', ã), both for the same smoothed action ã.
    Why: where two estimates differ, at least one is wrong; step 8 uses the difference.
    If you leave it out: with a single estimate there is no minimum to take, as in DDPG.
    """
    return critics_target(next_state, next_action)


@step(8, "Keep the smaller Q-value")
@torch.no_grad()
def min_q(q_values: Float[Tensor, "2 member batch"]) -> Float[Tensor, "member batch"]:
    """The smaller of the two Q-values, row by row.

    What: min(Q1', Q2').
    Why: the actor seeks high Q-values, so errors upwards are selected and fed back. The minimum is biased low instead,
    which the actor avoids rather than exploits.
    If you leave it out: with the mean, the maximum or one critic, overestimation feeds itself through y.
    """
    return torch.minimum(q_values[0], q_values[1])


@step(9, "Form the Bellman target")
@torch.no_grad()
def bellman_target(
    reward: Float[Tensor, "member batch"],
    terminated: Float[Tensor, "member batch"],
    next_q: Float[Tensor, "member batch"],
    gamma: float,
) -> Float[Tensor, "member batch"]:
    """The Bellman target y: what the critics should predict for (s, a).

    What: y = r + gamma * (1 - terminated) * min; both critics are fitted to the same y.
    Why: the value now is the reward plus the discounted value of what follows; after a termination nothing follows.
    If you leave it out: without the factor (1 - terminated), y adds the value of a future that does not exist. A
    time-out is no termination: there the future exists, so its row keeps the second term.
    """
    return reward + gamma * (1 - terminated) * next_q
