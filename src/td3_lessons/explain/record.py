"""Watch TD3 from outside while it trains, and keep what a few of its updates read, made and changed.

The algorithm has no hook. Python's profiler is asked to call back when the code of a registered step begins and ends;
its arguments and its result are copied then. A watched run equals an unwatched one bit for bit
(tests/lessons/explain/test_record.py).
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3.algorithm.agent import Agent, Task
from td3.algorithm.optimizer import SGD, Adam
from td3.algorithm.registry import STEPS
from td3.algorithm.replacing import Replacement
from td3.algorithm.step_01_replay_buffer import ReplayBuffer, make_replay_buffer
from td3.algorithm.step_04_to_09_bellman_target import (
    bellman_target,
    q_values_of_targets,
    sample_batch,
    target_action,
)
from td3.algorithm.step_10_to_12_critic_update import critic_loss, improve_critics_, q_values_of_critics
from td3.algorithm.step_13_actor_update import improve_actor_
from td3.algorithm.step_14_to_15_polyak import polyak_actor_target_, polyak_critics_target_
from td3.algorithm.streams import MemberStreams
from td3.collect.collector import Collector
from td3.engine import live_policy, update_once
from td3.environments import InProcessVectorEnv
from td3.policy import Array
from td3.settings import TD3Config

Updater = Callable[[Agent, ReplayBuffer, MemberStreams, TD3Config], Any]


class Recorder:
    """Copies of everything that passes through the watched functions, by step number, while it is looking.

    Of a replaced step the replacement is watched, the outermost one where several wrap each other.
    """

    def __init__(self, replacements: Sequence[Replacement] = ()) -> None:
        functions = {number: step.function for number, step in STEPS.items()}
        functions |= {one.number: one.function for one in replacements}
        self._names = {_code(function): number for number, function in functions.items()}
        # Not steps, but what a step asks for within: the drawn numbers, and the gradient.
        self._within = {
            _code(MemberStreams.rows): "rows",
            _code(MemberStreams.normal): "normal",
            _code(Adam.step_): "gradient",
            _code(SGD.step_): "gradient",
        }
        self.calls: dict[int, dict[str, Any]] = {}
        self._current: dict[str, Any] | None = None

    @contextmanager
    def looking(self) -> Iterator[dict[int, dict[str, Any]]]:
        """Watch what happens inside; yields the records of the steps, each with `before`, `after` and `result`."""
        self.calls = {}
        before = sys.getprofile()
        sys.setprofile(self._see)
        try:
            yield self.calls
        finally:
            sys.setprofile(before)

    def _see(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return"):
            return
        number = self._names.get(frame.f_code)
        if number is not None:
            if event == "call":
                self._current = {"before": _copies(frame.f_locals)}
                self.calls[number] = self._current
            else:
                self.calls[number] |= {"after": _copies(_arguments(frame)), "result": _copied(result)}
                self._current = None
        elif self._current is not None and frame.f_code in self._within:
            name = self._within[frame.f_code]
            if name == "gradient" and event == "call":
                self._current[name] = _copied(frame.f_locals["gradient"])
            elif name != "gradient" and event == "return":
                self._current[name] = _copied(result)


def _code(function: Any) -> CodeType:
    code: CodeType = inspect.unwrap(function).__code__
    return code


def _arguments(frame: FrameType) -> dict[str, Any]:
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    return {name: frame.f_locals[name] for name in names}


def _copies(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) for name, value in values.items()}


def _copied(value: Any) -> Any:
    """What a person could look at: numbers, and the tensors inside networks and optimizers."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, tuple | list):
        parts = [_copied(part) for part in value]
        return dict(zip(value._fields, parts, strict=True)) if hasattr(value, "_fields") else parts
    if isinstance(value, Adam | SGD):
        return _copies(value.state())
    if hasattr(value, "parameters"):
        return _copied(value.parameters)
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def train_on(
    agent: Agent,
    buffer: ReplayBuffer,
    environments: InProcessVectorEnv,
    settings: TD3Config,
    seed: int,
    steps: int,
    improve: Updater = update_once,
    around: Callable[[int, Callable[[], Any]], None] = lambda number, one: one(),
    timed_out: Array | None = None,
) -> Array:
    """Ordinary training of one seed, eager and in order: act, update, step, store.

    Every update goes through `around(its number, the update)`, which may observe it. Returns which of the stored rows
    ended at the time limit, which the replay buffer does not know; `timed_out` takes the same, as training goes on.
    """
    streams = MemberStreams([seed])
    low, high = (bound.tolist() for bound in (agent.actor.action_range.low, agent.actor.action_range.high))
    collector = Collector(environments, [seed], low, high, settings.exploration_noise, settings.timeouts)
    policy, timed_out = live_policy(agent), np.zeros(steps, bool) if timed_out is None else timed_out
    for env_step in range(steps):
        actions = collector.act(policy if env_step >= settings.learning_starts else None)
        if env_step >= settings.learning_starts:
            around(int(agent.updates[0]) + 1, lambda: improve(agent, buffer, streams, settings))
        rows, episodes = collector.step(actions)
        buffer.add_(torch.from_numpy(rows))
        timed_out[env_step] = bool(episodes) and not rows[0, 0, -1]
    return timed_out


def ddpg_update(agent: Agent, buffer: ReplayBuffer, random: MemberStreams, settings: TD3Config) -> None:
    """DDPG in our own steps, without TD3's three ideas: no noise on a', one target critic, no delay.

    Critic 2 is fitted to the same target and never used.
    """
    batch = sample_batch(buffer, random, settings.batch_size)
    next_action = target_action(agent.actor_target, batch.next_state)
    next_q = q_values_of_targets(agent.critics_target, batch.next_state, next_action)[0]
    target_q = bellman_target(batch.reward, batch.terminated, next_q, settings.gamma)
    loss = critic_loss(q_values_of_critics(agent.critics, batch.state, batch.action), target_q)
    improve_critics_(agent.critics, agent.critics_optimizer, loss)
    agent.updates += 1
    improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
    polyak_actor_target_(agent.actor_target, agent.actor, settings.tau)
    polyak_critics_target_(agent.critics_target, agent.critics, settings.tau)


def new_learner(
    settings: TD3Config,
    seed: int,
    environments: InProcessVectorEnv,
    steps: int,
    replacements: Sequence[Replacement] = (),
) -> tuple[Agent, ReplayBuffer]:
    """A learner and an empty buffer for this task (steps 1 to 3)."""
    space = environments.single_action_space
    size = int(np.prod(environments.single_observation_space.shape or ()))
    low, high = (np.asarray(bound, float).ravel().tolist() for bound in (space.low, space.high))  # type: ignore[attr-defined]  # a Box
    buffer = make_replay_buffer(1, min(settings.buffer_size, steps), size, len(low))
    agent = Agent.create(Task(size, low, high), settings, [seed], replacements=replacements, capacity=buffer.capacity)
    return agent, buffer


def flat(calls: dict[int, dict[str, Any]]) -> dict[str, Array]:
    """One update of one member as arrays without the member axis, by the names that the page uses.

    A replaced step may draw no rows, no noise or make no step of the optimizer: those are 0 then.
    """
    batch, critic_step = calls[4]["result"], calls[12]
    kept = {
        "rows": calls[4].get("rows", np.zeros_like(batch["reward"])),
        "normal": calls[6].get("normal", np.zeros_like(calls[6]["result"])),
        **{name: value for name, value in batch.items() if name != "indices"},  # the rows, again
        "next_action": calls[5]["result"],
        "smoothed_action": calls[6]["result"],
        "target_q_values": calls[7]["result"],
        "next_q": calls[8]["result"],
        "target_q": calls[9]["result"],
        "q_values": calls[10]["result"],
        "loss": calls[11]["result"],
        "critics_before": critic_step["before"]["critics"],
        "critics_after": critic_step["after"]["critics"],
        "critics_gradient": critic_step.get("gradient", np.zeros_like(critic_step["after"]["critics"])),
        **{f"critics_{name}": value for name, value in critic_step["before"]["optimizer"].items()},
        "actor_target_before": calls[5]["before"]["actor_target"],
        "critics_target_before": calls[7]["before"]["critics_target"],
    }
    if 13 in calls:
        actor_step = calls[13]
        kept |= {
            "actor_before": actor_step["before"]["actor"],
            "actor_after": actor_step["after"]["actor"],
            "actor_gradient": actor_step.get("gradient", np.zeros_like(actor_step["after"]["actor"])),
            "actor_loss": actor_step["result"],
            **{f"actor_{name}": value for name, value in actor_step["before"]["optimizer"].items()},
            "actor_target_after": calls[14]["after"]["actor_target"],
            "critics_target_after": calls[15]["after"]["critics_target"],
            # What must not have moved: the critics in step 13, the targets before steps 14 and 15.
            "still": [
                [
                    np.abs(after - before).max()
                    for after, before in (
                        (actor_step["after"]["critics"], actor_step["before"]["critics"]),
                        (calls[14]["before"]["actor_target"], calls[5]["before"]["actor_target"]),
                        (calls[15]["before"]["critics_target"], calls[7]["before"]["critics_target"]),
                    )
                ]
            ],
        }
    return {name: _without_member(name, np.asarray(value)) for name, value in kept.items()}


def _without_member(name: str, value: Array) -> Array:
    """The member axis leads, but where the twins come before it."""
    twins = name.startswith(("critics_", "q_values", "target_q_values"))
    return np.asarray(value[:, 0] if twins else value[0])
