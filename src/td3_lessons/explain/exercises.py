"""The notebook's exercises: fifteen functions to write, each checked on the update that the page opens with.

`check(9, bellman)` compares what a function gives with what the step gives, and names the first row that differs. With
TD3_NOTEBOOK_SOLUTIONS=1 in the environment, a function that is still empty is replaced by its solution.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.networks import StackedMLP
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.step_04_to_09_bellman_target import q_values_of_targets, sample_batch, target_action
from td3.algorithm.step_10_to_12_critic_update import improve_critics_, q_values_of_critics
from td3.algorithm.step_13_actor_update import improve_actor_
from td3.algorithm.streams import MemberStreams
from td3.settings import TD3Config
from td3_lessons.explain.trace import lesson_trace

Function = Callable[..., Any]


class NotSolved(AssertionError):
    """An exercise that is still empty, or not right yet; its text says which number should have been which."""


def store(buffer: list[Any], row: Any, capacity: int) -> list[Any]:
    return [*buffer, row][-capacity:]


def policy(output: Tensor, low: float, high: float) -> Tensor:
    return (low + high) / 2 + (high - low) / 2 * torch.tanh(output)


def make_targets(critic_1: Tensor, critic_2: Tensor) -> Any:
    return critic_1.clone(), critic_2.clone()


def sample(filled: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(filled, (count,), generator=generator)


def next_action(actor: Function, actor_target: Function, next_state: Tensor) -> Any:
    return actor_target(next_state)


def smooth(next_action: Tensor, normal: Tensor, sigma: float, c: float, low: float, high: float) -> Tensor:
    return (next_action + (sigma * normal).clamp(-c, c)).clamp(low, high)


def target_q(q1_target: Function, q2_target: Function, next_state: Tensor, smoothed: Tensor) -> Any:
    return q1_target(next_state, smoothed), q2_target(next_state, smoothed)


def min_q(q1: Tensor, q2: Tensor) -> Tensor:
    return torch.minimum(q1, q2)


def bellman(reward: Tensor, terminated: Tensor, timed_out: Tensor, next_q: Tensor, gamma: float) -> Tensor:
    return reward + gamma * (1 - terminated) * next_q


def predict(q1: Function, q2: Function, state: Tensor, action: Tensor, policy_action: Tensor) -> Any:
    return q1(state, action), q2(state, action)


def loss(q1: Tensor, q2: Tensor, y: Tensor) -> Tensor:
    return (q1 - y).square().mean() + (q2 - y).square().mean()


def improve(critics: list[Tensor], targets: list[Tensor], gradients: list[Tensor], step: Function) -> Any:
    return [step(p, g) for p, g in zip(critics, gradients, strict=True)], targets


def actor_loss(q1: Tensor, q2: Tensor) -> Tensor:
    return -q1.mean()


def polyak(target: Tensor, online: Tensor, tau: float) -> Tensor:
    return target + tau * (online - target)


def polyak_both(targets: list[Tensor], critics: list[Tensor], tau: float, update: int, delay: int) -> Any:
    return targets if update % delay else [t + tau * (q - t) for t, q in zip(targets, critics, strict=True)]


SOLUTIONS: tuple[Function, ...] = (
    *(store, policy, make_targets, sample, next_action, smooth, target_q, min_q),
    *(bellman, predict, loss, improve, actor_loss, polyak, polyak_both),
)
"""By the number of the step, less 1."""


@cache
def update() -> dict[str, Any]:
    """The recorded update: its batch, networks and results, as tensors without the axis of seeds."""
    trace = lesson_trace()
    index = trace.facts["updates"].index(trace.facts["start"])
    names = {name.rpartition(".")[0]: value for name, value in trace.arrays.items() if name.endswith(f".{index}")}
    made: dict[str, Any] = {name: torch.tensor(value) for name, value in names.items()}
    places = names["rows"].astype(int)
    rows = torch.tensor(trace.arrays["memory"][places])
    made |= {"state": rows[:, :2], "action": rows[:, 2:3], "next_state": rows[:, 3:5], "reward": rows[:, 5]}
    return made | {"terminated": rows[:, 6], "timed_out": torch.tensor(trace.arrays["timed_out"][places])}


def _network(parameters: Tensor, kind: str) -> Function:
    network = StackedMLP(lesson_trace().facts["sizes"][kind], parameters[None])
    if kind == "actor":
        return lambda state: torch.tanh(network(state[None])[0])
    return lambda state, action: network(torch.cat((state, action), -1)[None])[0, :, 0]


def arguments(step: int) -> tuple[Any, ...]:
    """What the function of a step is called with in its check."""
    u, settings = update(), TD3Config(**{name: lesson_trace().facts["settings"][name] for name in ("tau", "gamma")})
    before, targets = list(u["critics_before"]), list(u["critics_target_before"])
    actor, follower = (_network(u[f"actor{name}_before"], "actor") for name in ("", "_target"))
    critics, judges = ([_network(p, "critic") for p in pair] for pair in (before, targets))
    gradients = list(u["critics_gradient"])
    return (
        ([1, 2, 3, 4], 5, 4),
        (torch.linspace(-3, 3, 7), -0.3, 1.0),
        (before[0][:6].clone(), before[1][:6].clone()),
        (1_282, 64, torch.Generator().manual_seed(0)),
        (actor, follower, u["next_state"]),
        (u["next_action"], u["normal"], 0.6, 0.5, -1.0, 1.0),
        (*judges, u["next_state"], u["smoothed_action"]),
        (*u["target_q_values"],),
        (u["reward"], u["terminated"], u["timed_out"], u["next_q"], settings.gamma),
        (*critics, u["state"], u["action"], actor(u["state"])),
        (*u["q_values"], u["target_q"]),
        (before, targets, gradients, lambda p, g: p - 0.001 * g),
        (*(_network(p, "critic")(u["state"], actor(u["state"])) for p in u["critics_after"]),),
        (u["actor_target_before"], u["actor_after"], settings.tau),
        (targets, list(u["critics_after"]), settings.tau, 284, 2),
    )[step - 1]


def solution(step: int) -> str:
    """The lines of a function that passes."""
    return inspect.getsource(SOLUTIONS[step - 1])


def check(step: int, function: Function) -> Function:
    """The function if it does what the step does; else one sentence says which number should have been which."""
    given, wanted = _called(step, function), _called(step, SOLUTIONS[step - 1])
    if given is None and os.environ.get("TD3_NOTEBOOK_SOLUTIONS"):
        function = SOLUTIONS[step - 1]
        given = _called(step, function)
    if given is None:
        raise NotSolved(
            f"Step {step}: the function returns nothing yet. `print(solution({step}))` shows one that does."
        )
    problem = _sampled(given) if step == 4 else _compared(step, _flat(given), _flat(wanted))
    if problem:
        raise NotSolved(f"Step {step}: {problem}")
    print(f"Step {step}: right.")
    return function


def _called(step: int, function: Function) -> Any:
    if step == 3:
        critics = arguments(3)
        made = function(*critics)
        for critic in critics:
            critic.fill_(9.0)  # the critics are trained on: copies must not follow
        return made
    if step == 4:
        drawn = [function(1_282, 64, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
        return None if drawn[0] is None else drawn
    if step == 15:
        parts = arguments(15)
        made = [function(*parts[:3], number, parts[4]) for number in (283, 284)]
        return None if made[0] is None else made
    return function(*arguments(step))


def _sampled(drawn: list[Any]) -> str:
    first, again, other = (np.asarray(rows).astype(int) for rows in drawn)
    if len(first) != 64:
        return f"it draws {len(first)} rows; it should have been 64."
    if first.min() < 0 or first.max() >= 1_282:
        return f"row {first.min() if first.min() < 0 else first.max()} was drawn; rows go from 0 to 1281."
    if not (first == again).all() or (first == other).all():
        return "one seed must give the same rows, and another seed others: draw with the generator."
    spread = first.max() - first.min()
    return "" if spread > 700 else f"the rows span {spread} places; 64 of 1,282 drawn uniformly span nearly all."


def _flat(values: Any) -> list[float]:
    if isinstance(values, Tensor | np.ndarray | float | int):
        return [float(value) for value in np.asarray(torch.as_tensor(values).detach()).ravel()]
    return [number for value in values for number in _flat(value)]


def _compared(step: int, given: list[float], wanted: list[float]) -> str:
    if len(given) != len(wanted):
        return f"it gives {len(given):,} numbers; it should have been {len(wanted):,}."
    bad = [j for j, (a, b) in enumerate(zip(given, wanted, strict=True)) if not abs(a - b) <= 1e-5 * (1 + abs(b))]
    if not bad:
        return ""
    first = bad[0]
    numbers = f"yours is {given[first]:.5g}, it should have been {wanted[first]:.5g}"
    return f"{_place(step, first, len(wanted))}: {numbers} ({len(bad)} of {len(wanted)} numbers differ)."


def _place(step: int, index: int, count: int) -> str:
    if count % 64 or step not in range(5, 11):
        return f"number {index + 1}"
    row = index % 64
    kind = ", which terminated" if update()["terminated"][row] else ", a time-out" if update()["timed_out"][row] else ""
    return f"row {row + 1}{kind}"


def exam(
    functions: Mapping[int, Function], buffer: ReplayBuffer, agent: Agent, settings: TD3Config, updates: int
) -> float:
    """The largest difference of any weight after so many updates by these functions and by `td3.engine.update_once`."""
    from td3.engine import update_once

    ours, theirs = agent.copied(), agent.copied()
    streams = [MemberStreams([0], position=0) for _ in range(2)]
    for number in range(1, updates + 1):
        update_once(ours, buffer, streams[0], settings)
        _update_by(functions, theirs, buffer, streams[1], settings, number)
    return max(float((ours.tensors()[name] - tensor).abs().max()) for name, tensor in theirs.tensors().items())


def _update_by(
    by: Mapping[int, Function],
    agent: Agent,
    buffer: ReplayBuffer,
    random: MemberStreams,
    settings: TD3Config,
    number: int,
) -> None:
    batch = sample_batch(buffer, random, settings.batch_size)
    action = target_action(agent.actor_target, batch.next_state)
    noise = settings.target_policy_noise, settings.target_noise_clip, -1.0, 1.0
    smoothed = by[6](action, random.normal(settings.batch_size, 1), *noise)
    next_q = by[8](*q_values_of_targets(agent.critics_target, batch.next_state, smoothed))
    y = by[9](batch.reward, batch.terminated, torch.zeros_like(batch.reward), next_q, settings.gamma)
    total = by[11](*q_values_of_critics(agent.critics, batch.state, batch.action), y)
    improve_critics_(agent.critics, agent.critics_optimizer, total[None])
    agent.updates += 1
    if number % settings.policy_delay == 0:
        improve_actor_(agent.actor, agent.critics, agent.actor_optimizer, batch.state)
        with torch.no_grad():
            online = agent.actor.parameters.detach()
            agent.actor_target.parameters.copy_(by[14](agent.actor_target.parameters, online, settings.tau))
    with torch.no_grad():
        critics = list(agent.critics.parameters.detach())
        moved = by[15](list(agent.critics_target.parameters), critics, settings.tau, number, settings.policy_delay)
        agent.critics_target.parameters.copy_(torch.stack(list(moved)))
