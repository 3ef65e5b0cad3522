"""Collectors as Ray actors: each steps environments of its own with a copy of the actors, and sends what it saw.

Collector k holds the k-th environment of every member and is asked for a chunk: so many env steps, acted with weights
that come with the question. Whoever has answered is asked again, with the newest weights; the learner takes whichever
chunk is there and waits for no particular collector. A row reaches the buffer only if the weights that chose its action
are at most `max_staleness` updates old by then. A collector that dies or hangs is replaced: its unsent chunk, and with
it the episode that it had begun, is lost, and nothing else.
"""

import contextlib
import platform
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

from td3.algorithm.streams import derive_seed
from td3.collect.base import BaseCollector, Episode
from td3.collect.collector import Collector
from td3.collect.ray_connection import connected, look_also_in, module_folders
from td3.config import TrainConfig
from td3.engine import acting_policy
from td3.environments import InProcessVectorEnv, TaskSpaces, make_environment
from td3.environments.guarded import MOST_FAULTS
from td3.errors import ConfigError, EnvironmentFault, UserError
from td3.policy import Array, Policy

if TYPE_CHECKING:
    from td3.training.trainer import Trainer
from td3.user_code import fault_of

LONGEST_CHUNK = 32
"""Env steps of a chunk at most: asking and answering costs about a millisecond, 32 steps of MuJoCo several."""
CHUNKS_WITHIN_BOUND = 6
"""Chunks of every collector that fit into the bound: one under way, up to two waiting, and as much to spare."""
CHUNK_SECONDS = 1.0
"""A chunk is sent after so long, however few steps it has."""
START_SECONDS = 120.0
"""How long a collector may take to start, the import of its packages included."""
LOOK_SECONDS = 0.25
"""How long the learner waits for a chunk before it looks around: for collectors that hang, for Ctrl-C."""

LOST_MACHINE = "its node has died"
"""What Ray says of an actor whose machine is gone, or that it placed there before it noticed the loss."""


class Chunk(NamedTuple):
    """What a collector saw, in the order in which it happened."""

    rows: Array
    """`[member, step, state | action | next_state | reward | terminated]`."""
    episodes: list[tuple[int, Episode]]
    """Episodes that ended, each with the step that ended it."""
    faults: list[str]
    """What went wrong in its environments, which then began new episodes."""


class Collecting:
    """What runs inside a Ray actor: one environment of every member, stepped as in any other run."""

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        seeds: Sequence[int],
        number: int,
        life: int,
        action_low: Sequence[float],
        action_high: Sequence[float],
        exploration_noise: float,
        timeouts: str = "bootstrap",
    ) -> None:
        self._make, self._seeds, self._number = make, tuple(seeds), number
        # A life of its own has random numbers of its own: what a dead collector did is never done again.
        self._own = tuple(derive_seed(seed, f"collector {number}", life) for seed in seeds)
        self._arguments = (action_low, action_high, exploration_noise, timeouts)

    def greet(self, folders: Sequence[str] = ()) -> str:
        """Make the environments, and say which td3 this is; modules are also looked for in these folders."""
        look_also_in(folders)
        try:
            row = InProcessVectorEnv([self._make() for _ in self._seeds], self._make)
            self._collector = Collector(row, self._own, *self._arguments)
        except UserError as error:
            raise fault_of(error, f"on the machine {platform.node()}: {error}") from error.__cause__
        return metadata.version("td3")

    def collect(self, policy: Policy | None, steps: int) -> Chunk:
        """So many env steps, fewer if time is up; without a policy, random ones."""
        began, rows, episodes = time.monotonic(), [], []
        try:
            for step in range(steps):
                row, ended = self._collector.step(self._collector.act(policy))
                rows.append(row)
                episodes += [(step, episode) for episode in ended]
                if self._collector.failed:
                    raise fault_of(next(iter(self._collector.failed.values())))
                if time.monotonic() - began > CHUNK_SECONDS:
                    break
        except EnvironmentFault as fault:
            said = str(fault)
            for own, seed in zip(self._own, self._seeds, strict=True):
                said = said.replace(f"environment 0 of seed {own}", f"environment {self._number} of seed {seed}")
            raise fault_of(fault, said) from fault.__cause__
        faults = [
            f"seed {self._seeds[fault.member]}, environment {self._number}: {fault.reason}; a new episode was begun."
            for fault in self._collector.faults
        ]
        self._collector.faults.clear()
        return Chunk(np.concatenate(rows, 1), episodes, faults)


class _Asked(NamedTuple):
    """A question that a collector has not answered yet."""

    number: int
    steps: int
    """Env steps asked for; 0 is the greeting."""
    updates: int
    """How many updates the weights had seen that came with it."""
    moment: float
    random: bool


class _Arrived(NamedTuple):
    """A chunk that waits to be stored."""

    chunk: Chunk
    asked: _Asked
    taken: int
    """Steps of it that are stored already."""


class RayCollector(BaseCollector):
    """Steps every environment of every member on a cluster; rows come in the order in which chunks arrive."""

    lost_because = "is stepped on a cluster, where collectors begin anew"

    remote = True

    def __init__(
        self, config: TrainConfig, spaces: TaskSpaces, make: Callable[[], gym.Env[Any, Any]] | None = None
    ) -> None:
        super().__init__(config.envs)
        self.config = config
        self.said: list[str] = []
        """Sentences about what went wrong and was fixed."""
        self.most_stale = 0
        """The oldest weights, in updates, that acted a row which was stored."""
        count, ratio = config.envs, config.td3.utd_ratio
        fitting = config.max_staleness / (CHUNKS_WITHIN_BOUND * count * ratio)
        self.chunk_steps = int(np.clip(fitting, 1, LONGEST_CHUNK))
        self._lengths = [self.chunk_steps] * count
        self._lives = np.zeros(count, np.int64)
        self._faults_in_a_row = [0] * count
        names = ("chunks", "stored_steps", "replaced", "lost_chunks", "discarded_steps")
        self._counts = dict.fromkeys(names, 0)
        self._requested = 0
        self._staleness_sum = 0
        self._queue: deque[_Arrived] = deque()
        self.actors: list[Any] = [None] * count
        self._pending: dict[Any, _Asked] = {}
        self._weights: tuple[int, Any] = (-1, None)
        self._looked = time.monotonic()
        self._make = make or partial(make_environment, **config.env_arguments)
        own = config.td3.exploration_noise, config.td3.timeouts
        self._bounds = (spaces.action_low, spaces.action_high, *own)
        self._stack = contextlib.ExitStack()
        self._ray = self._stack.enter_context(connected(config.ray_address))
        from ray import exceptions

        self._exceptions = exceptions
        self._class = self._ray.remote(Collecting)
        # A core for each where there are enough; else they share what there is.
        self._cpus = int(self._ray.available_resources().get("CPU", 0) >= count)

    @property
    def queued_steps(self) -> int:
        """Env steps of each member that have arrived and are not stored yet."""
        return sum(waiting.chunk.rows.shape[1] - waiting.taken for waiting in self._queue)

    def collect(self, trainer: "Trainer") -> tuple[Array, list[Episode]] | None:
        """As everywhere, but that other machines act and step while this process updates."""
        agent = trainer.agent
        self.send(int(agent.updates.max()), lambda: acting_policy(agent))
        trainer.time.lap("act")
        trainer.update(self.envs_per_member)
        came = self.take(int(agent.updates.max()))
        for sentence in self.said:
            trainer.warn(f"env step {trainer.env_steps:,}: {sentence}")
        self.said.clear()
        return came

    def send(self, updates: int, policy: Callable[[], Policy]) -> None:
        """Ask every collector that has nothing to do for a chunk, with the weights as they are after so many updates.

        Unless as much as all of them send at once is waiting already: then the learner is what limits, and older
        weights would only make more rows of the same kind.
        """
        if not any(self.actors):
            for number in range(self.envs_per_member):
                self._start(number, self._cpus)
        if self.queued_steps >= self.envs_per_member * self.chunk_steps:
            return
        busy = {asked.number for asked in self._pending.values()}
        for number in range(self.envs_per_member):
            if number in busy:
                continue
            left = 0 if self.config.init_from else self.config.td3.learning_starts - self._requested
            steps = min(self._lengths[number], left) if left > 0 else self._lengths[number]
            weights = None if left > 0 else self._broadcast(updates, policy)
            reference = self.actors[number].collect.remote(weights, steps)
            self._pending[reference] = _Asked(number, steps, updates, time.monotonic(), left > 0)
            self._requested += steps

    def take(self, updates: int) -> tuple[Array, list[Episode]] | None:
        """The next rows `[member, environments, row]`, and the episodes that ended in them; None if they are not there.

        The learner, which has done so many updates, waits a moment for them at most.
        """
        self._receive(updates, 0.0)
        self._drop_the_stale(updates)
        if self.queued_steps < self.envs_per_member:
            self._receive(updates, LOOK_SECONDS)
            self._drop_the_stale(updates)
        if self.queued_steps < self.envs_per_member:
            return None
        chunks: list[Array] = []
        episodes: list[Episode] = []
        missing = self.envs_per_member
        while missing:
            chunk, asked, taken = self._queue.popleft()
            end = min(taken + missing, chunk.rows.shape[1])
            chunks.append(chunk.rows[:, taken:end])
            episodes += [episode for step, episode in chunk.episodes if taken <= step < end]
            if end < chunk.rows.shape[1]:
                self._queue.appendleft(_Arrived(chunk, asked, end))
            missing -= end - taken
            staleness = 0 if asked.random else updates - asked.updates
            self.most_stale = max(self.most_stale, staleness)
            self._staleness_sum += staleness * (end - taken)
            self._counts["stored_steps"] += end - taken
        return np.concatenate(chunks, 1), episodes

    def _drop_the_stale(self, updates: int) -> None:
        """Keep the bound: what was acted with older weights is not stored."""
        bound = self.config.max_staleness
        kept = [w for w in self._queue if w.asked.random or updates - w.asked.updates <= bound]
        if len(kept) < len(self._queue):
            dropped = self.queued_steps
            self._queue = deque(kept)
            dropped -= self.queued_steps
            if not self._counts["discarded_steps"]:
                self.said.append(
                    f"{dropped} env steps came too late: they were acted with weights more than {bound:,} updates "
                    "old, and are not stored. If that goes on (status.json counts them), raise --max-staleness or "
                    "collect on faster machines."
                )
            self._counts["discarded_steps"] += dropped
            self._requested -= dropped

    def _receive(self, updates: int, patience: float) -> None:
        """Take in all answers that are there; if there are none, wait this long for the first."""
        ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=patience) if self._pending else ([], [])
        if ready:
            ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        for reference in ready:
            asked = self._pending.pop(reference)
            try:
                self._welcome(asked, self._ray.get(reference, timeout=START_SECONDS), updates)
            except self._exceptions.RayTaskError as error:
                if isinstance(error.cause, UserError):
                    raise error.cause from error
                self._replace(asked, f"failed ({_one_line(error.cause)})")
            except self._exceptions.RayError as error:
                lost = LOST_MACHINE in str(error)
                self._replace(asked, "lost its machine" if lost else f"died ({type(error).__name__})", not lost)
        now = time.monotonic()
        # While the learner evaluates or saves, it does not look: that time does not count as a collector's delay.
        away, self._looked = max(0.0, now - self._looked - patience - LOOK_SECONDS), now
        for reference, asked in list(self._pending.items()):
            if away:
                asked = self._pending[reference] = asked._replace(moment=asked.moment + away)
            allowed = CHUNK_SECONDS + self.config.env_timeout if asked.steps else START_SECONDS
            if now - asked.moment > allowed:
                del self._pending[reference]
                self._replace(asked, f"gave no answer for {allowed:.0f} s")

    def _welcome(self, asked: _Asked, answer: Any, updates: int) -> None:
        number = asked.number
        if not asked.steps:
            ours = metadata.version("td3")
            if answer != ours:
                raise ConfigError(
                    f"a machine of the cluster has td3 {answer}, and this one {ours}: install the same on all."
                )
            return
        self._queue.append(_Arrived(answer, asked, 0))
        self.said += answer.faults
        self._counts["chunks"] += 1
        self._faults_in_a_row[number] = 0
        self._requested -= asked.steps - answer.rows.shape[1]
        if not asked.random:
            # Whoever is slow beside the learner sends less at a time, so that it still comes within the bound.
            age, bound = updates - asked.updates, self.config.max_staleness
            longer = min(2 * self._lengths[number], self.chunk_steps) if 8 * age < bound else self._lengths[number]
            self._lengths[number] = max(1, self._lengths[number] // 2) if 2 * age > bound else longer

    def _replace(self, asked: _Asked, what: str, fault: bool = True) -> None:
        """A new collector, on whichever machine has room, for one that is no more, by a fault of its own or not."""
        number = asked.number
        self._faults_in_a_row[number] += fault
        self._requested -= asked.steps
        if self._faults_in_a_row[number] >= MOST_FAULTS:
            raise EnvironmentFault(
                f"collector {number} {what}; this was time {MOST_FAULTS} in a row: look at its machine, or at the "
                "environment."
            )
        self._counts["replaced"] += 1
        self._counts["lost_chunks"] += asked.steps > 0
        lost = "; the episode that it had begun is lost" if asked.steps else ""
        self.said.append(f"collector {number} {what} and was replaced{lost}.")
        with contextlib.suppress(Exception):  # one that hangs, or was only out of sight
            self._ray.kill(self.actors[number])
        self._start(number, 0)  # after the loss of a machine no core may be free: it shares one

    def _start(self, number: int, cpus: int) -> None:
        born = self._class.options(num_cpus=cpus, scheduling_strategy="SPREAD", max_restarts=0)
        life = int(self._lives[number])
        actor = born.remote(self._make, self.config.member_seeds, number, life, *self._bounds)
        self._lives[number] += 1
        self.actors[number] = actor
        self._pending[actor.greet.remote(module_folders(self.config.env))] = _Asked(
            number, 0, 0, time.monotonic(), True
        )

    def _broadcast(self, updates: int, policy: Callable[[], Policy]) -> Any:
        """The weights in the cluster's memory, put there once, however many collectors are asked with them."""
        if self._weights[0] != updates:
            self._weights = updates, self._ray.put(policy())
        return self._weights[1]

    def state(self) -> dict[str, Array]:
        """Which lives were begun: those of a resumed run are others. Episodes under way are not kept."""
        counts = [self._counts[name] for name in sorted(self._counts)]
        return {"lives": self._lives, "counts": np.array([*counts, self.most_stale, self._staleness_sum], np.int64)}

    def restore(self, state: Mapping[str, Array]) -> list[int]:
        """Go on from `state`, with collectors that begin anew: every unfinished episode is lost."""
        self._lives = state["lives"].copy()
        *counts, self.most_stale, self._staleness_sum = state["counts"].tolist()
        self._counts = dict(zip(sorted(self._counts), counts, strict=True))
        self._requested = self._counts["stored_steps"]
        return list(range(len(self.config.member_seeds) * self.envs_per_member))

    def figures(self) -> dict[str, Any]:
        """What to write into status.json."""
        mean = self._staleness_sum / max(1, self._counts["stored_steps"])
        staleness = {"bound": self.config.max_staleness, "most": self.most_stale, "mean": round(mean, 3)}
        return {"collectors": {"count": self.envs_per_member, **self._counts, "staleness_in_updates": staleness}}

    def close(self) -> None:
        """End the collectors, and the cluster if it was started here."""
        for actor in filter(None, self.actors):
            with contextlib.suppress(Exception):  # a cluster that is gone has ended them
                self._ray.kill(actor)
        self._stack.close()


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
