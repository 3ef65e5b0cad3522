"""How a learner looks from inside, once an evaluation: what the report shows and the doctor judges.

Everything here is a function of the agent, its buffer, its seed and the env step: nothing is kept between calls,
nothing that learns is touched, and a member's numbers do not depend on its company. On a GPU it is a few dozen small
kernels and one copy, beside the graphs.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.networks import StackedMLP, layer_views
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import derive_seed
from td3.policy import Array

ROWS = 256
"""Transitions looked at: so many from anywhere in the buffer, and as many of the newest."""
BINS = 20
"""Bars of a histogram of actions, over the whole action range."""
EDGE = 0.99
"""A tanh output beyond this counts as saturated: its slope has fallen to 0.02."""
FIGURES = (
    "saturation",
    "stuck",
    "actor_dead",
    "critic_dead",
    "actor_gradient",
    "exploration",
    "observation_scale",
    "observation_spread",
    "reward_scale",
)


OF_CRITICS = ("critic_dead", "actor_gradient")
"""Those that say nothing where the critics are not trained."""


def examine(
    agent: Agent, buffer: ReplayBuffer, seeds: Sequence[int], env_steps: int, waiting: int = 0
) -> list[dict[str, Any]]:
    """One row of figures for each member; `waiting` of the newest transitions may not have reached the buffer yet."""
    own = [buffer.member(index) for index in range(len(seeds))]
    stored = [len(one) - waiting for one in own]
    if min(stored) < 1:
        nothing = {**dict.fromkeys(FIGURES, float("nan")), "policy_actions": "[]", "played_actions": "[]"}
        return [dict(nothing) for _ in seeds]
    newest = np.arange(min(*stored, ROWS))
    ages = np.stack(
        [
            np.append(
                np.random.default_rng(derive_seed(seed, "diagnostics", env_steps)).integers(count, size=ROWS), newest
            )
            for seed, count in zip(seeds, stored, strict=True)
        ]
    )
    placed = np.stack([one.places_of(waiting + of_one) for one, of_one in zip(own, ages, strict=True)])
    places = torch.from_numpy(placed).to(buffer.rows.device)
    if buffer.rows.is_cuda and agent.encoder is None:
        found = _figures(agent, buffer, places)
    else:  # one by one: a product over several members may round differently from that of one alone
        each = range(len(seeds))
        found = torch.cat([_figures(agent.member(i), own[i], places[i : i + 1]) for i in each])
    unknown = {} if agent.trains_critics else dict.fromkeys(OF_CRITICS, float("nan"))
    return [_as_row(values) | unknown for values in found.cpu().tolist()]


def _as_row(values: list[float]) -> dict[str, Any]:
    figures, bars = values[: len(FIGURES)], [round(value) for value in values[len(FIGURES) :]]
    histograms = {"policy_actions": json.dumps(bars[:BINS]), "played_actions": json.dumps(bars[BINS:])}
    return {**dict(zip(FIGURES, figures, strict=True)), **histograms}


def _figures(agent: Agent, buffer: ReplayBuffer, places: Tensor) -> Float[Tensor, "member figure"]:
    batch = buffer.gather(places)
    batch = batch._replace(state=agent.features(batch.state))
    state, action_range = batch.state[:, :ROWS], agent.actor.action_range
    weights = agent.actor.parameters.detach().requires_grad_()
    with torch.enable_grad():
        squashed, actor_hidden = _forward(weights, agent.actor.network, state, torch.tanh)
        action = action_range.middle + action_range.half * squashed
        critics = agent.critics.parameters.detach()
        q_values, critic_hidden = _forward(critics, agent.critics.network, torch.cat((state, action), -1))
        (gradient,) = torch.autograd.grad(-q_values[0].mean((-1, -2)).sum(), weights)
    with torch.no_grad():
        newest_state, played = batch.state[:, ROWS:], batch.action[:, ROWS:]
        meant, _ = _forward(weights, agent.actor.network, newest_state, torch.tanh)
        played = (played - action_range.middle) / action_range.half
        figures = [
            (squashed.abs() > EDGE).double().mean((-1, -2)),
            ((squashed > EDGE).all(-2) | (squashed < -EDGE).all(-2)).double().mean(-1),
            _silent(actor_hidden),
            _silent(critic_hidden).mean(0),
            _root_mean_square(gradient, agent.actor.network.sizes),
            (played - meant).double().square().mean((-1, -2)).sqrt(),
            state.double().square().mean(-2).sqrt().amax(-1),
            state.double().std(-2, correction=0).amax(-1),
            batch.reward[:, :ROWS].double().square().mean(-1).sqrt(),
        ]
        return torch.cat((torch.stack(figures, -1), _histogram(squashed), _histogram(played)), -1)


def _forward(
    parameters: Tensor, network: StackedMLP, inputs: Tensor, ending: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Outputs and hidden activations, in memory of their own: the network's buffers belong to the updates."""
    outputs, hidden = network.over(parameters).with_hidden(inputs)
    return outputs if ending is None else ending(outputs), hidden


def _silent(hidden: list[Tensor]) -> Tensor:
    """The share of hidden units that are 0 whatever the state."""
    return torch.cat([(layer == 0).all(-2) for layer in hidden], -1).double().mean(-1)


def _root_mean_square(gradient: Tensor, sizes: Sequence[int]) -> Tensor:
    # Row by row: a sum over everything at once would be split among threads, and round as many ways.
    squares = gradient.double().square()
    parts = [weight.sum(-1).sum(-1) + bias.sum(-1) for weight, bias in layer_views(squares, sizes)]
    return (torch.stack(parts).sum(0) / gradient.shape[-1]).sqrt()


def _histogram(squashed: Tensor) -> Tensor:
    bins = ((squashed + 1) * (BINS / 2)).long().clamp(0, BINS - 1)
    return torch.nn.functional.one_hot(bins, BINS).sum((-2, -3)).double()


def value_against_return(agent: Agent, visits: Array) -> list[dict[str, float]]:
    """What critic 1 expected at the first states of the evaluation's episodes, and the observed return, per member.

    The observed return is the discounted sum of rewards. A truncated episode is continued by critic 1's value
    of its last state, as the Bellman target does; else a time limit would look like overestimation. Where critics are
    not trained, both are NaN.
    """
    if not agent.trains_critics:
        return [dict.fromkeys(("q_start", "return_start"), float("nan"))] * agent.members
    states, width = torch.from_numpy(visits[..., 2:].astype(np.float32)), agent.task.state_size
    device = agent.actor.parameters.device
    expected = []
    for member in range(agent.members):
        learner = agent.member(member)
        both = learner.normalized(torch.cat((states[member, :, :width], states[member, :, width:]))[None].to(device))
        with torch.no_grad():
            both = learner.features(both)
            squashed, _ = _forward(learner.actor.parameters, learner.actor.network, both, torch.tanh)
            action = learner.actor.action_range.middle + learner.actor.action_range.half * squashed
            q_values, _ = _forward(learner.critics.parameters, learner.critics.network, torch.cat((both, action), -1))
        expected.append(q_values[0, 0, :, 0].double())
    # Fetched together: each fetch would wait for all that the GPU is at.
    fetched, rows = torch.stack(expected).cpu().numpy().reshape(agent.members, 2, -1), []
    for (first, last), visit in zip(fetched, visits, strict=True):
        came = visit[:, 0] + visit[:, 1] * last
        rows.append({"q_start": float(first.mean()), "return_start": float(came.mean())})
    return rows


def largest_rewards(buffer: ReplayBuffer, newest: int | None = None) -> list[float]:
    """Each seed's largest absolute reward in the buffer, or among so many of the newest transitions."""
    stored = min(buffer.added, buffer.capacity)
    count = stored if newest is None else min(newest, stored)
    if not count:
        return [0.0] * len(buffer.rows)
    slots = torch.arange(buffer.added - count, buffer.added, device=buffer.rows.device) % buffer.capacity
    largest: list[float] = buffer.rows[:, slots, -2].abs().amax(1).tolist()
    return largest


class TimeBudget:
    """Where the wall-clock time went: `lap(part)` books everything since the previous lap on that part."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._spent = clock, defaultdict[str, float](float)
        self._last = clock()

    def lap(self, part: str) -> None:
        """What was done since the previous lap was this."""
        now = self._clock()
        self._spent[part] += now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """Seconds of each part since the previous call."""
        spent, self._spent = self._spent, defaultdict(float)
        return dict(spent)
