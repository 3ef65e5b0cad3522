"""Does an engine compute what eager execution computes? Asked when a run starts, and on a schedule while it runs."""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.normalizer import NormalizedReplayBuffer
from td3.algorithm.optimizer import NonFinite
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import MemberStreams
from td3.algorithm.update import steps_of
from td3.engine.checked_steps import CheckedSteps
from td3.engine.once import update_once
from td3.engine.watching import Unrepeated, noting_reads, watched
from td3.errors import ConfigError
from td3.settings import TD3Config

TOLERANCE, TOLERANCE_TF32 = 1e-5, 1e-3
"""Largest difference of a CUDA graph from eager execution that a run accepts: the same kernels in the same order."""
TWICE, EACH = 2, 3
"""The check at the start runs a few updates of both kinds, twice: the first time an engine only records them."""
ROWS = 512
"""Made-up transitions; fewer where a replaced step keeps a number for each row of a smaller replay buffer."""
FIRST, EVERY, UPDATES = 1_000, 10_000, 2
"""While a run goes on, updates are compared: two after the first 1,000, and in every 10,000; one moves the actor."""
SHARE = 0.005
"""Most of the time that comparisons may take: where updates are very short, the next one waits accordingly."""


def max_difference(
    agent: Agent,
    seeds: Sequence[int],
    settings: TD3Config,
    make_engine: Callable[[Agent, ReplayBuffer], Any],
    alone: bool = False,
) -> float:
    """How far a few updates by an engine and by eager execution drift apart, relative to the size of the weights.

    Both start from copies of the same learners, the same made-up transitions and the same random numbers. `alone`: the
    engine will have to update members one after another too.
    """
    first = max(0, settings.policy_delay - 2)  # so that a few updates are of both kinds: the actor waits, and moves
    learners = []
    for eagerly in (False, True):
        learner, buffer = _trial(agent, seeds)
        if eagerly:
            _update_eagerly(learner, buffer, seeds, settings, first)
        else:
            engine = make_engine(learner, buffer)
            for repeated in range(TWICE):
                learner.updates[:] = first
                engine.seek()
                with contextlib.suppress(NonFinite):  # eager execution must break down likewise
                    for counts in _counts(len(seeds), alone and repeated > 0):
                        engine.update(counts)
            engine.close()
        learners.append(learner)
    return difference(*learners)


def _counts(members: int, alone: bool) -> list[list[int]]:
    """The updates of every member, all at once or, as where episodes end at different times, one after another."""
    if not alone:
        return [[EACH] * members]
    return [[EACH * (member == other) for other in range(members)] for member in range(members)]


def _trial(agent: Agent, seeds: Sequence[int]) -> tuple[Agent, ReplayBuffer]:
    """A copy of the agent, and made-up transitions."""
    device, sizes = agent.actor.parameters.device, agent.actor.network.sizes
    learner = agent.copied(device)
    capacity = min(ROWS, (learner.changes and learner.changes.capacity) or ROWS)
    buffer = ReplayBuffer(len(seeds), capacity, sizes[0], sizes[-1], device)
    if learner.normalizer is not None:
        buffer = NormalizedReplayBuffer(buffer, learner.normalizer)
    buffer.backend = learner.backend
    rows = torch.randn(buffer.rows.shape, generator=torch.Generator().manual_seed(0))
    rows[..., -1] = (rows[..., -1] > 1).float()
    buffer.add_(rows.to(device))
    return learner, buffer


def try_changes(agent: Agent, seeds: Sequence[int], settings: TD3Config) -> list[str]:
    """Execute the replaced steps a few times, on a copy; raises `ConfigError` where one cannot be used.

    Returns warnings: what is not finite of made-up transitions may be so of the run's own.
    """
    if agent.encoder is not None:
        raise ConfigError(
            "steps cannot be replaced where observations are images: leave out --replace-steps, and variants that do."
        )
    learner, buffer = _trial(agent, seeds)
    assert learner.changes is not None
    members = 1 if learner.actor.parameters.device.type == "cpu" else len(seeds)  # as in `_update_eagerly`
    checked = CheckedSteps(learner.changes.replacements, members, settings.batch_size, agent.actor.network.sizes)
    learner.changes.replacements = checked.replacements
    try:
        _update_eagerly(learner, buffer, seeds, settings, max(0, settings.policy_delay - 2))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"an update with {checked} failed ({type(error).__name__}: {error}).") from error
    if len(seeds) > 1 and _mixes_seeds(agent, seeds, settings):
        mixing = (
            f"{checked} mixes the seeds where they are updated together: reduce over the last axis, as in `mean(-1)`"
        )
        if agent.actor.parameters.is_cuda:
            raise ConfigError(f"{mixing}.")
        checked.warnings.append(f"{mixing}; this run updates them one after another, but a GPU would not.")
    return checked.warnings


def _mixes_seeds(agent: Agent, seeds: Sequence[int], settings: TD3Config) -> bool:
    """Whether the losses of the first member depend on whether others are updated with it."""
    losses = []
    try:
        for alone in (False, True):
            learner, buffer = _trial(agent, seeds)
            buffer.rows[1:, :, -2] += 100  # so that rewards of others show
            if alone:
                learner, buffer, seeds = learner.member(0), buffer.member(0), seeds[:1]
            sample_batch, update = steps_of(learner, settings)
            streams = MemberStreams(seeds, learner.actor.parameters.device)
            found = update(learner, sample_batch(buffer, streams, settings.batch_size), streams, settings, True)
            losses.append(torch.stack([loss[0] for loss in (found.critic, found.actor) if loss is not None]))
    except NonFinite:  # another check names them
        return False
    except Exception:  # it works for one seed alone: its shapes are those of one
        return True
    together, by_itself = losses
    return not torch.allclose(together, by_itself, rtol=0.02, atol=1e-6, equal_nan=True)


def find_unrepeated(agent: Agent, seeds: Sequence[int], settings: TD3Config) -> list[Unrepeated]:
    """What replaced steps do that recorded updates would not repeat: sentences without their end.

    Notes on the agent, too, whether its critics change in updates.
    """
    learner, buffer = _trial(agent, seeds)
    assert learner.changes is not None
    replacements = learner.changes.replacements
    found: list[set[Unrepeated]] = [set() for _ in replacements]
    both = list(zip(replacements, found, strict=True))
    learner.changes.replacements = tuple(one._replace(function=_watched(one.function, does)) for one, does in both)
    first, before = max(0, settings.policy_delay - 2), learner.critics.parameters.detach().clone()
    _update_eagerly(learner, buffer, seeds, settings, first)
    updated = torch.from_numpy(learner.updates > first).to(before.device)  # an update may break down here
    changed = (learner.critics.parameters != before).any(-1).any(0)
    assert agent.changes is not None
    agent.changes.trains_critics = bool(changed.any() or not updated.any())
    return [
        each._replace(what=f"step {one.number}, replaced by {one.function.__name__}, {each.what}")
        for one, does in both
        for each in sorted(does)
    ]


def _watched(function: Callable[..., Any], does: set[Unrepeated]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        with watched(function, does):
            given = (noting_reads(one, does) if isinstance(one, ReplayBuffer) else one for one in arguments)
            return function(*given, **keywords)

    return called


def difference(by_engine: Agent, eager: Agent) -> float:
    """How far two agents are apart, relative to the size of their numbers; 0: bit for bit the same.

    Compared are the networks, and the state of replaced steps, which later updates read.
    """
    ours, theirs = by_engine.tensors(), eager.tensors()
    return max(
        _apart(ours[name], theirs[name]) for name in (*NETWORKS, *(eager.changes.tensors() if eager.changes else ()))
    )


def _apart(one: Tensor, other: Tensor) -> float:
    differing = (one != other) & ~(one.isnan() & other.isnan())  # state may begin as NaN or infinity
    if not differing.any():
        return 0.0
    one, other = one[differing].double(), other.double()
    found = float((one - other[differing]).norm() / other[other.isfinite()].norm().clamp(min=1e-12))
    return found if math.isfinite(found) else math.inf


NETWORKS = ("actor", "actor_target", "critics", "critics_target")


def _update_eagerly(agent: Agent, buffer: ReplayBuffer, seeds: Sequence[int], settings: TD3Config, first: int) -> None:
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
                update_once(learner, rows, streams, settings)
                for purpose, call in (("sampling", "rows"), ("smoothing", "normal")):
                    if streams.positions[purpose] > first + number % EACH + 1:  # a resumed run could not find its place
                        raise ConfigError(
                            f"the replaced steps call random.{call} more than once in an update: call it once, and "
                            "split the result."
                        )


class ScheduledCheck:
    """Compares an engine's own updates with eager execution on a copy: a few of them, every `EVERY` updates.

    The run's numbers are only read. Call `before_update` and `after_update` around every update. `eager_of` gives the
    eager updates of a copy: called as the engine's own, with the members that are updated.
    """

    def __init__(
        self,
        agent: Agent,
        eager_of: Callable[[Agent], Callable[[Sequence[int], bool], object]],
        policy_delay: int,
        allowed: float,
    ) -> None:
        self._agent, self._eager_of, self._delay, self._allowed = agent, eager_of, policy_delay, allowed
        self._not_before = 0.0
        self.start_after(0)

    def start_after(self, updates: int) -> None:
        """Have the next comparison follow the next multiple of `EVERY` updates; the first comes sooner."""
        self._next = FIRST if updates < FIRST < EVERY else (updates // EVERY + 1) * EVERY
        self._copy: Agent | None = None

    def before_update(self, done: int, members: Sequence[int], masked: bool) -> None:
        """Update the copy eagerly where a comparison is due; `done` updates were made before this one."""
        if self._copy is None:
            if done < self._next or (not masked and (done + UPDATES) % self._delay):
                return
            if time.monotonic() < self._not_before:
                return
            self._began, self._left = time.monotonic(), UPDATES
            self._copy = self._agent.copied(self._agent.device)
            self._copy.share_learning_rates(self._agent)
            self._eagerly = self._eager_of(self._copy)
        with contextlib.suppress(NonFinite):  # the engine's own update must break down likewise
            self._eagerly(members, masked)

    def after_update(self, done: int) -> float | None:
        """How far the engine is from eager execution, where a comparison has ended and found more than is allowed."""
        if self._copy is None:
            return None
        self._left -= 1
        if self._left:
            return None
        apart = difference(self._agent, self._copy)
        self.start_after(done)
        self._not_before = time.monotonic() + (time.monotonic() - self._began) / SHARE
        return None if apart <= self._allowed else apart
