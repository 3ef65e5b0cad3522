"""One update of TD3: the steps 4 to 15, called in order."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_memory import ReplayMemory
from td3.algorithm.step_04_to_09_bellman_target import (
    bellman_target,
    next_action_of_target,
    sample_batch,
    score_by_targets,
    smaller_score,
    smooth_next_action,
)
from td3.algorithm.step_10_to_12_critic_update import critic_loss, improve_critics_, score_by_critics
from td3.algorithm.step_13_actor_update import improve_actor_
from td3.algorithm.step_14_to_15_polyak import polyak_actor_target_, polyak_critics_target_
from td3.algorithm.streams import RandomStreams


class Losses(NamedTuple):
    """What an update says of itself, per member, still on the device; the actor's is None when it had to wait."""

    critic: Float[Tensor, " member"]
    actor: Float[Tensor, " member"] | None
    mean_q: Float[Tensor, " member"]


def update(agent: Agent, memory: ReplayMemory, random: RandomStreams, settings: "Settings") -> Losses:
    """Improve the agent once, in place."""
    batch = agent.look_at(sample_batch(memory, random, settings.batch_size), random)  # 4

    next_action = next_action_of_target(agent.actor_target, batch.next_state)  # 5
    smoothed_action = smooth_next_action(  # 6
        next_action, random, settings.target_noise, settings.target_noise_clip, agent.actor.action_range
    )
    target_scores = score_by_targets(agent.critics_target, batch.next_state, smoothed_action)  # 7
    next_score = smaller_score(target_scores)  # 8
    target_score = bellman_target(batch.reward, batch.terminated, next_score, settings.gamma)  # 9

    scores = score_by_critics(agent.critics, batch.state, batch.action)  # 10
    loss = critic_loss(scores, target_score)  # 11
    improve_critics_(agent.critics, agent.critics_optimizer, loss)  # 12

    agent.count_update_()
    actor_loss = None
    if agent.updates[0] % settings.policy_delay == 0:  # members that are updated together count alike
        actor_loss = improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)  # 13
        tau = agent.of_active(settings.tau)
        polyak_actor_target_(agent.actor_target, agent.actor, tau)  # 14
        polyak_critics_target_(agent.critics_target, agent.critics, tau)  # 15

    return Losses(loss.detach(), actor_loss, scores.detach().mean((0, 2)))


@runtime_checkable
class Settings(Protocol):
    """The numbers that an update reads; `td3.config.TD3Config` has them all."""

    @property
    def batch_size(self) -> int: ...  # noqa: D102  # named by what they are; explained once, in config.py
    @property
    def gamma(self) -> float: ...  # noqa: D102  # as above
    @property
    def tau(self) -> float: ...  # noqa: D102  # as above
    @property
    def policy_delay(self) -> int: ...  # noqa: D102  # as above
    @property
    def target_noise(self) -> float: ...  # noqa: D102  # as above
    @property
    def target_noise_clip(self) -> float: ...  # noqa: D102  # as above
