"""TD3 with one part changed, in our own steps: what the page trains beside the unchanged algorithm.

`broken_update` is the reference; the page's own training (`data/train.js`) must give the same networks
(tests/lessons/explain/test_breaks.py).
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.step_04_to_09_bellman_target import (
    bellman_target,
    min_q,
    q_values_of_targets,
    smooth_target_action,
    target_action,
)
from td3.algorithm.step_10_to_12_critic_update import critic_loss, improve_critics_, q_values_of_critics
from td3.algorithm.step_13_actor_update import improve_actor_
from td3.algorithm.step_14_to_15_polyak import polyak_actor_target_, polyak_critics_target_
from td3.algorithm.streams import RandomStreams
from td3.settings import TD3Config


class Race(NamedTuple):
    """A change of TD3 that the page trains: its step, label, the measure that may show it, and what it does to y."""

    step: int
    label: str
    measure: str
    expect: str


RACE_UPDATES = 7_000
"""Updates of every run of a race, as of the recorded run."""
MEASURES = {
    "return": "discounted return, 64 fixed starts",
    "q": "predicted Q",
    "gap": "predicted minus earned",
    "error": "mean |predicted minus earned|",
    "jitter": "movement of y per update",
    "edge": "Q1 of states just before a fall",
    "sharp": "curvature of Q1 at the policy's action",
}
"""What the runs are measured by, as the charts label it; returns are discounted."""
RACES = {
    "ddpg": Race(8, "plain DDPG", "q", "One target critic, no noise on a', no delay."),
    "first": Race(8, "one critic instead of two", "q", "y follows one critic's errors upwards."),
    "mean": Race(8, "mean instead of minimum", "q", "The mean keeps part of every error upwards; y feeds it back."),
    "max": Race(8, "maximum instead of minimum", "q", "The maximum selects errors upwards, and y feeds them back."),
    "notargets": Race(15, "no target networks", "jitter", "y is computed from the networks that are fitted to it."),
    "hardcopy": Race(15, "hard copy (τ = 1)", "jitter", "The targets have no lag, so y jumps with every actor update."),
    "nodelay": Race(13, "no delay", "error", "The critics are fitted once per change of the policy."),
    "nosmooth": Race(6, "no target policy smoothing", "sharp", "y is read at single points, so peaks of Q stay peaks."),
    "timeout": Race(9, "a time-out is a termination", "gap", "Rows at the time limit drop a costly future from y."),
    "nodeath": Race(9, "no (1 \N{MINUS SIGN} d)", "edge", "A fall also pays, by mistake, the value of driving on."),
    "broadcast": Race(11, "shape (B, 1) against (B,)", "error", "All Q-values are pulled to the mean of all y."),
}
"""The changes that the page trains, by the name of their switch."""


def race_setup(settings: TD3Config) -> dict[str, Any]:
    """What the page's training needs to know, apart from its starts."""
    names: tuple[str, ...] = (
        "batch_size",
        "buffer_size",
        "learning_starts",
        "exploration_noise",
        "gamma",
        "tau",
        "policy_delay",
    )
    names += ("policy_delay", "target_policy_noise", "target_noise_clip", "actor_learning_rate", "critic_learning_rate")
    return {
        "sizes": {"actor": [2, *settings.hidden_sizes, 1], "critic": [3, *settings.hidden_sizes, 1]},
        "settings": {name: getattr(settings, name) for name in names},
        "updates": RACE_UPDATES,
    }


def broken_update(
    agent: Agent,
    buffer: ReplayBuffer,
    random: RandomStreams,
    settings: TD3Config,
    change: str = "",
    timed_out: Float[Tensor, " row"] | None = None,
) -> None:
    """One update of TD3 with one part changed; `timed_out` says which stored rows ended at the time limit."""
    ddpg = change == "ddpg"
    rows = random.rows(buffer.filled, settings.batch_size)
    batch = buffer.gather(rows)
    terminated = batch.terminated
    if change == "nodeath":
        terminated = torch.zeros_like(terminated)
    if change == "timeout" and timed_out is not None:
        terminated = torch.maximum(terminated, timed_out[rows])
    actor, critics = agent.actor_target, agent.critics_target
    if change == "notargets":
        actor, critics = agent.actor, agent.critics
    noise = 0.0 if ddpg or change == "nosmooth" else settings.target_policy_noise
    next_action = target_action(actor, batch.next_state)
    smoothed = smooth_target_action(next_action, random, noise, settings.target_noise_clip, agent.actor.action_range)
    q_values = q_values_of_targets(critics, batch.next_state, smoothed)
    kept = {"mean": lambda: q_values.mean(0), "max": lambda: q_values.amax(0), "first": lambda: q_values[0]}
    next_q = kept.get("first" if ddpg else change, lambda: min_q(q_values))()
    target_q = bellman_target(batch.reward, terminated, next_q, settings.gamma)
    if change == "broadcast":  # (B, 1) against (B,): every Q-value is compared with every target
        predicted = q_values_of_critics(agent.critics, batch.state, batch.action)
        loss = (predicted[..., :, None] - target_q[..., None, :]).square().mean((-1, -2)).sum(0)
    else:
        loss = critic_loss(q_values_of_critics(agent.critics, batch.state, batch.action), target_q)
    improve_critics_(agent.critics, agent.critics_optimizer, loss)
    agent.updates += 1
    if agent.updates[0] % (1 if ddpg or change == "nodelay" else settings.policy_delay) == 0:
        improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
        tau = 1.0 if change == "hardcopy" else settings.tau
        polyak_actor_target_(agent.actor_target, agent.actor, tau)
        polyak_critics_target_(agent.critics_target, agent.critics, tau)
