"""Ideas that are no rung of their own: target networks, and TD3's three changes of DDPG one at a time."""

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
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
from td3.algorithm.streams import MemberStreams
from td3_lessons.ladder import rung_6_td3 as td3_rung
from td3_lessons.ladder.common import Task, Transition, Watch


class Idea(NamedTuple):
    """One idea: the rung it is added to, its title, what it changes, and its equations."""

    rung: int
    title: str
    told: str
    formulas: str


IDEAS = {
    "target_network": Idea(
        2,
        "target networks",
        "Q is fitted to a target that moves with every step of Q itself. A slow copy of the network computes the "
        "target instead. Rungs 5 and 6 use it for every network, so half of TD3's six networks are targets.",
        "y = r + gamma * (1 - terminated) * max_a' Q'(s', a')    Q' is the target network\n"
        "theta' <- tau * theta + (1 - tau) * theta'    Polyak averaging",
    ),
    "twin": Idea(
        5,
        "DDPG with twin critics",
        "The smaller of two target critics forms y.",
        "y = r + gamma * (1 - terminated) * min(Q1'(s', a'), Q2'(s', a'))",
    ),
    "delay": Idea(
        5,
        "DDPG with delay",
        "The actor and all targets move at every second update.",
        "actor and targets: at updates 2, 4, 6, ...; gamma, tau and the critics as in DDPG",
    ),
    "smoothing": Idea(
        5,
        "DDPG with target policy smoothing",
        "Clipped noise is added to the target policy's action.",
        "y = r + gamma * (1 - terminated) * Q'(s', clip(pi'(s') + clip(noise, -c, c), low, high))",
    ),
}
PARTS = ("twin", "delay", "smoothing")
"""The three changes that make TD3 of DDPG."""


def idea_module(name: str) -> Any:
    """What a rung's file has (SERVES, Settings, Learner, train), for an idea."""
    if name == "target_network":
        return import_module("td3_lessons.ladder.idea_target_network")
    return SimpleNamespace(
        SERVES=td3_rung.SERVES, Settings=td3_rung.Settings, Learner=_learner(name), train=_training(_learner(name))
    )


def ddpg_with(
    change: str, agent: Agent, buffer: ReplayBuffer, random: MemberStreams, settings: td3_rung.Settings
) -> None:
    """One update of DDPG with one of TD3's changes, in the steps of the algorithm; critic 2 counts for `twin` alone."""
    batch = sample_batch(buffer, random, settings.batch_size)
    next_action = target_action(agent.actor_target, batch.next_state)
    if change == "smoothing":
        noise = settings.target_policy_noise, settings.target_noise_clip
        next_action = smooth_target_action(next_action, random, *noise, agent.actor.action_range)
    q_values = q_values_of_targets(agent.critics_target, batch.next_state, next_action)
    next_q = min_q(q_values) if change == "twin" else q_values[0]
    target_q = bellman_target(batch.reward, batch.terminated, next_q, settings.gamma)
    loss = critic_loss(q_values_of_critics(agent.critics, batch.state, batch.action), target_q)
    improve_critics_(agent.critics, agent.critics_optimizer, loss)
    agent.updates += 1
    if change != "delay" or agent.updates[0] % settings.policy_delay == 0:
        improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
        polyak_actor_target_(agent.actor_target, agent.actor, settings.tau)
        polyak_critics_target_(agent.critics_target, agent.critics, settings.tau)


def _learner(change: str) -> type[td3_rung.Learner]:
    class Changed(td3_rung.Learner):
        """Rung 6's learner with another update."""

        def improve(self) -> None:
            ddpg_with(change, self.agent, self.buffer, self.streams, self.settings)

    return Changed


def _training(learner: type[td3_rung.Learner]) -> Callable[[Task, int, td3_rung.Settings, Watch], td3_rung.Learner]:
    def train(task: Task, seed: int, settings: td3_rung.Settings, watch: Watch) -> td3_rung.Learner:
        made, state = learner(task, seed, settings), task.reset(seed)
        for number in range(1, settings.steps + 1):
            action = made.act(state)
            step = Transition(state, action, *task.step(action))
            made.learn(step)
            state = task.reset() if step.ended else step.next_state
            watch(number, made)
        return made

    return train
