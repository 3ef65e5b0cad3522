"""Does an engine compute what plain execution computes? Asked when a run starts."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from td3.algorithm import Agent, MemberStreams, NormalizedReplayBuffer, ReplayBuffer, update
from td3.algorithm.optimizer import NonFinite
from td3.algorithm.update import Settings

TOLERANCE, TOLERANCE_TF32 = 1e-5, 1e-3
"""Largest disagreement of a graph with plain execution that a run accepts: the same kernels in the same order."""
TWICE, EACH = 2, 3
"""The check runs a few updates of both kinds, and these again: the first time an engine only records them."""


def max_difference(
    agent: Agent, seeds: Sequence[int], settings: Settings, make_engine: Callable[[Agent, ReplayBuffer], Any]
) -> float:
    """How far a few updates by an engine and by plain execution drift apart, relative to the size of the weights.

    Both start from copies of the same learners, the same made-up transitions and the same random numbers.
    """
    device, sizes = agent.actor.parameters.device, agent.actor.network.sizes
    first = max(0, settings.policy_delay - 2)  # so that a few updates are of both kinds: the actor waits, and moves
    results = []
    for eagerly in (False, True):
        learner = agent.copied(device)
        buffer = ReplayBuffer(len(seeds), 512, sizes[0], sizes[-1], device)
        if learner.normalizer is not None:
            buffer = NormalizedReplayBuffer(buffer, learner.normalizer)
        rows = torch.randn(buffer.rows.shape, generator=torch.Generator().manual_seed(0))
        rows[..., -1] = (rows[..., -1] > 1).float()
        buffer.add_(rows.to(device))
        if eagerly:
            _update_eagerly(learner, buffer, seeds, settings, first)
        else:
            engine = make_engine(learner, buffer)
            for _ in range(TWICE):
                learner.updates[:] = first
                engine.seek()
                with contextlib.suppress(NonFinite):  # plain execution must break down likewise
                    engine.update([EACH] * len(seeds))
            engine.close()
        results.append({name: tensor.double() for name, tensor in learner.tensors().items()})
    by_engine, plain = results
    return max(
        float((by_engine[name] - plain[name]).norm() / plain[name].norm().clamp(min=1e-12))
        for name in ("actor", "actor_target", "critics", "critics_target")
    )


def _update_eagerly(agent: Agent, buffer: ReplayBuffer, seeds: Sequence[int], settings: Settings, first: int) -> None:
    device = agent.actor.parameters.device
    together = device.type != "cpu"  # where members share a kernel, so they do here
    for index in [None] if together else range(len(seeds)):
        learner, rows = (agent, buffer) if index is None else (agent.member(index), buffer.member(index))
        streams = MemberStreams(seeds if index is None else [seeds[index]], device)
        with contextlib.suppress(NonFinite):
            for number in range(TWICE * EACH):
                if number % EACH == 0:
                    learner.updates[:] = first
                    streams.seek(first)
                update(learner, rows, streams, settings)
