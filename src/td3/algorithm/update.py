"""One update of TD3: the steps 5 to 15, called in order on a batch that step 4 has sampled."""

import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_buffer import Batch
from td3.algorithm.step_04_to_09_bellman_target import (
    bellman_target,
    min_q,
    q_values_of_targets,
    sample_batch,
    smooth_target_action,
    target_action,
)
from td3.algorithm.step_10_to_12_critic_update import critic_loss, improve_critics_, q_values_of_critics
from td3.algorithm.step_13_actor_update import improve_actor_
from td3.algorithm.step_14_to_15_polyak import polyak_actor_target_, polyak_critics_target_
from td3.algorithm.streams import RandomStreams
from td3.settings import TD3Config


class Losses(NamedTuple):
    """What an update says of itself, per member, still on the device; the actor's is None when it had to wait."""

    critic: Float[Tensor, " member"]
    actor: Float[Tensor, " member"] | None
    mean_q: Float[Tensor, " member"]


def update(agent: Agent, batch: Batch, random: RandomStreams, settings: TD3Config, move_actor: bool) -> Losses:
    """Improve the agent once, in place.

    Nothing is counted here: who calls it counts, and has the actor and the targets move in every `policy_delay`-th
    update (`moves_actor`).
    """
    batch = agent.encode_batch(batch, random)  # features in the place of images; else as it is

    next_action = target_action(agent.actor_target, batch.next_state)  # 5
    smoothed_action = smooth_target_action(  # 6
        next_action, random, settings.target_policy_noise, settings.target_noise_clip, agent.actor.action_range
    )
    target_q_values = q_values_of_targets(agent.critics_target, batch.next_state, smoothed_action)  # 7
    next_q = min_q(target_q_values)  # 8
    target_q = bellman_target(batch.reward, batch.terminated, next_q, settings.gamma)  # 9

    q_values = q_values_of_critics(agent.critics, batch.state, batch.action)  # 10
    loss = critic_loss(q_values, target_q)  # 11
    improve_critics_(agent.critics, agent.critics_optimizer, loss)  # 12

    actor_loss = None
    if move_actor:
        actor_loss = improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)  # 13
        tau = agent.of_active(settings.tau)
        polyak_actor_target_(agent.actor_target, agent.actor, tau)  # 14
        polyak_critics_target_(agent.critics_target, agent.critics, tau)  # 15

    return Losses(loss.detach(), actor_loss, q_values.detach().mean((0, 2)))


class Steps(NamedTuple):
    """What an engine calls: step 4, and steps 5 to 15."""

    sample_batch: Callable[..., Batch]
    update: Callable[..., Losses]


def steps_of(agent: Agent, settings: TD3Config) -> Steps:
    """Step 4 and `update`; where the agent has replacements, the same code, in which their names stand for those."""
    changes = agent.changes
    if changes is None:
        return Steps(sample_batch, update)
    functions: dict[str, Any] = changes.functions(settings)
    plain = inspect.unwrap(update)
    changed = types.FunctionType(plain.__code__, {**plain.__globals__, **functions}, plain.__name__)

    def update_on(agent: Agent, batch: Batch, *others: Any) -> Losses:
        changes.batch = batch
        losses: Losses = changed(agent, batch, *others)
        return losses if losses.actor is None else losses._replace(actor=losses.actor.detach())

    return Steps(functions.get("sample_batch", sample_batch), update_on)


def moves_actor(updates: int, settings: TD3Config) -> bool:
    """Whether the next update, after so many, moves the actor and the targets too (steps 13 to 15)."""
    return (updates + 1) % settings.policy_delay == 0
