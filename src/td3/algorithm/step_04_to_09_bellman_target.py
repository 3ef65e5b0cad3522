"""Steps 4 to 9: draw a batch and work out, from the targets, what its scores ought to be."""

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.registry import step
from td3.algorithm.step_01_replay_memory import Batch, ReplayMemory
from td3.algorithm.step_02_actor import ActionRange, Actor
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.algorithm.streams import RandomStreams


@step(4, "Sample a batch of transitions")
def sample_batch(memory: ReplayMemory, random: RandomStreams, batch_size: int) -> Batch:
    """Transitions drawn at random from each member's own memory.

    What: `batch_size` rows (s, a, r, s', terminated), uniform, with replacement.
    Why: rows from many different moments give a gradient that stands for all of them.
    If you leave it out: learning on the newest rows alone follows their correlations, not the task.
    """
    return memory.gather(random.rows(memory.filled, batch_size))


@step(5, "The target actor plays the next action")
@torch.no_grad()
def next_action_of_target(
    actor_target: Actor, next_state: Float[Tensor, "member batch state"]
) -> Float[Tensor, "member batch action"]:
    """The action a' that the target actor would take in s'.

    What: a' = actor_target(s'), not the stored action and not the online actor's.
    Why: the value of s' is what a good policy would get from there on, and the target is the steady one.
    If you leave it out: with the online actor the Bellman target moves whenever the actor does.
    """
    return actor_target(next_state)


@step(6, "Add clipped noise and clamp to the action range")
@torch.no_grad()
def smooth_next_action(
    next_action: Float[Tensor, "member batch action"],
    random: RandomStreams,
    noise: float,
    noise_clip: float,
    action_range: ActionRange,
) -> Float[Tensor, "member batch action"]:
    """The next action, blurred a little: target policy smoothing (this is not exploration).

    What: a' + clip(noise * normal, +-noise_clip), in units of each dimension's half range, then kept inside the range.
    Why: similar actions should have similar value; averaging over a small neighbourhood flattens false peaks.
    If you leave it out: the actor finds narrow spikes in a critic and believes in them.
    """
    _, count, size = next_action.shape
    blur = (random.normal(count, size) * noise).clamp(-noise_clip, noise_clip) * action_range.half
    return (next_action + blur).clamp(action_range.low, action_range.high)


@step(7, "Both target critics score the next action")
@torch.no_grad()
def score_by_targets(
    critics_target: TwinCritics,
    next_state: Float[Tensor, "member batch state"],
    next_action: Float[Tensor, "member batch action"],
) -> Float[Tensor, "2 member batch"]:
    """Two opinions on (s', a'), from the slow critics.

    What: Q1'(s', a') and Q2'(s', a'), for the same smoothed a'.
    Why: two independent estimates show where one of them dreams.
    If you leave it out: there is nothing to take the minimum of.
    """
    return critics_target(next_state, next_action)


@step(8, "Keep the smaller score")
@torch.no_grad()
def smaller_score(scores: Float[Tensor, "2 member batch"]) -> Float[Tensor, "member batch"]:
    """The more cautious of the two opinions, row by row.

    What: min(Q1', Q2').
    Why: the actor seeks high scores, so errors upwards are found and fed back; errors downwards fade.
    If you leave it out: the mean or the maximum lets overestimation grow with every round.
    """
    return torch.minimum(scores[0], scores[1])


@step(9, "Form the Bellman target")
@torch.no_grad()
def bellman_target(
    reward: Float[Tensor, "member batch"],
    terminated: Float[Tensor, "member batch"],
    next_score: Float[Tensor, "member batch"],
    gamma: float,
) -> Float[Tensor, "member batch"]:
    """What the critics should have said of (s, a).

    What: y = r + gamma * (1 - terminated) * min; both critics learn the same y.
    Why: value now is the reward plus the discounted value of what follows; after a true end nothing follows.
    If you leave it out: without (1 - terminated), death looks as good as life goes on; a time-out is not a death.
    """
    return reward + gamma * (1 - terminated) * next_score
