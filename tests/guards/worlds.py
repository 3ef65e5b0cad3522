"""Small tasks and small learners of which everything is known beforehand."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from shapes import unchecked
from vectors import ScriptedVector, TensorVector

from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import StackedMLP, parameter_count
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.callbacks.callback import WarningsCallback
from td3.collect.collector import Collector
from td3.collect.tensor_collector import TensorCollector
from td3.config import TrainConfig
from td3.environments import InProcessVectorEnv
from td3.environments.checked_vector import CheckedVectorEnv
from td3.environments.vector import VectorSource
from td3.policy import Policy
from td3.settings import TD3Config
from td3.training import train_run

# A box that is not symmetric, not the same in both dimensions and not whole: bounds taken for others show.
LOW, HIGH = (-2.0, 0.5), (1.0, 7.25)
MIDDLE, HALF = np.array([-0.5, 3.875], np.float32), np.array([1.5, 3.375], np.float32)
STATE_SIZE, ACTION_SIZE = 3, 2

SETTINGS = TD3Config(
    hidden_sizes=(16, 16),
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
    batch_size=8,
    buffer_size=1_000,
    learning_starts=10,
    target_noise_clip=0.3,
)


def small_agent(
    seeds: Sequence[int] = (0,),
    optimizer: str = "adam",
    dtype: torch.dtype = torch.float32,
    learning_rate: float = 1e-3,
) -> Agent:
    """Newly initialized learners with two hidden layers of sixteen."""
    rates = {"actor_learning_rate": learning_rate, "critic_learning_rate": learning_rate}
    settings = TD3Config(hidden_sizes=(16, 16), optimizer=optimizer, **rates)
    return Agent.create(Task(STATE_SIZE, LOW, HIGH), settings, seeds, dtype=dtype)


def random_rows(members: int = 1, count: int = 100, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Transitions of no task in particular, one in ten terminated."""
    generator = torch.Generator().manual_seed(20)
    rows = torch.randn(members, count, 2 * STATE_SIZE + ACTION_SIZE + 2, generator=generator, dtype=dtype)
    rows[..., -1] = (torch.rand(members, count, generator=generator) < 0.1).to(dtype)
    return rows


def filled_buffer(members: int = 1, count: int = 100, dtype: torch.dtype = torch.float32):
    """A buffer that holds `random_rows`."""
    buffer = make_replay_buffer(members, count, STATE_SIZE, ACTION_SIZE, dtype=dtype)
    buffer.add_(random_rows(members, count, dtype))
    return buffer


class FixedNumbers:
    """Randomness that is none: always these rows; these normal numbers one after the other, the last for ever."""

    def __init__(self, rows: torch.Tensor, *normals: torch.Tensor) -> None:
        self._rows, self._normals = rows, list(normals)

    def rows(self, filled: torch.Tensor, count: int) -> torch.Tensor:
        """The given rows."""
        return self._rows

    def normal(self, count: int, size: int) -> torch.Tensor:
        """The next of the given numbers."""
        return self._normals.pop(0) if len(self._normals) > 1 else self._normals[0]


def critics_by_hand() -> TwinCritics:
    """Q1(s, a) = relu(s + 2a + 1/2) and Q2(s, a) = 2 relu(3a - s + 1) - 10, for one state and one action."""
    sizes = (2, 1, 1)
    network = StackedMLP(sizes, torch.zeros(2, 1, parameter_count(sizes), dtype=torch.float64))
    (hidden_weight, hidden_bias), (weight, bias) = network.layers()
    hidden_weight[0, 0, :, 0] = torch.tensor([1.0, 2.0])
    hidden_weight[1, 0, :, 0] = torch.tensor([-1.0, 3.0])
    hidden_bias[:, 0, 0] = torch.tensor([0.5, 1.0])
    weight[:, 0, 0, 0] = torch.tensor([1.0, 2.0])
    bias[:, 0, 0] = torch.tensor([0.0, -10.0])
    network.parameters.requires_grad_()
    return TwinCritics(network)


def resting_policy(members: int = 1) -> Policy:
    """Plays the middle of the range in every state."""
    layers = [(np.zeros((members, STATE_SIZE, ACTION_SIZE), np.float32), np.zeros((members, ACTION_SIZE), np.float32))]
    return Policy(layers, LOW, HIGH, (STATE_SIZE,), (ACTION_SIZE,))


def lively_policy(members: int = 1) -> Policy:
    """Plays something else in every state."""
    generator = np.random.default_rng(3)
    layers = [
        (
            generator.normal(0, 0.3, (members, STATE_SIZE, ACTION_SIZE)).astype(np.float32),
            generator.normal(0, 0.3, (members, ACTION_SIZE)).astype(np.float32),
        )
    ]
    return Policy(layers, LOW, HIGH, (STATE_SIZE,), (ACTION_SIZE,))


class Ending(NamedTuple):
    """How an episode of the scripted task ends."""

    length: int
    terminated: bool
    truncated: bool


TIME_OUT, DEATH, BOTH = Ending(3, False, True), Ending(2, True, False), Ending(2, True, True)
SCRIPTS = ((TIME_OUT, DEATH, BOTH), (DEATH, BOTH, Ending(1, False, True), TIME_OUT))


class ScriptedTask(gym.Env):
    """Shows (place, episode, moment), whatever is done, and pays 10 * episode + moment; it ends as its script says."""

    def __init__(self, script: Sequence[Ending] = SCRIPTS[0], place: int = 0) -> None:
        self.observation_space = Box(-100, 100, (STATE_SIZE,), np.float32)
        self.action_space = Box(np.float32(LOW), np.float32(HIGH))
        self.script, self.place, self.episode, self.moment = script, place, -1, 0
        self.over = True
        self.seeds: list[int | None] = []
        self.states: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.moment, self.over = self.episode + 1, 0, False
        return self._observation(), {}

    def step(self, action):
        assert not self.over, "an episode that had ended was stepped on"
        self.states.append(self._observation())
        self.actions.append(np.array(action))
        ending = self.script[self.episode % len(self.script)]
        self.moment += 1
        self.over = self.moment == ending.length
        terminated, truncated = (self.over and flag for flag in ending[1:])
        return self._observation(), 10.0 * self.episode + self.moment, terminated, truncated, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.place, self.episode, self.moment], np.float32)


class Transition(NamedTuple):
    """A row of the buffer, without the action."""

    state: tuple[float, ...]
    next_state: tuple[float, ...]
    reward: float
    terminated: float


def script_transitions(place: int, count: int) -> list[Transition]:
    """What the scripted task at this place ought to leave in the buffer."""
    found: list[Transition] = []
    episode = 0
    while len(found) < count:
        ending = SCRIPTS[place][episode % len(SCRIPTS[place])]
        for moment in range(ending.length):
            dies = ending.terminated and moment + 1 == ending.length
            found.append(
                Transition((place, episode, moment), (place, episode, moment + 1), 10 * episode + moment + 1, dies)
            )
        episode += 1
    return found[:count]


AUTORESET_MODES = (AutoresetMode.DISABLED, AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)


def scripted_row(mode: AutoresetMode, places: int = 2):
    """Scripted tasks side by side, reset in this way."""
    makers = [lambda place=place: ScriptedTask(SCRIPTS[place % 2], place) for place in range(places)]
    if mode == AutoresetMode.DISABLED:
        row = InProcessVectorEnv([make() for make in makers])
        row.seeds_episodes = False  # the scripts run on from episode to episode
        return row
    return SyncVectorEnv(makers, autoreset_mode=mode)


class Collected(NamedTuple):
    """What a collector brought home: rows by place, and the episodes that ended."""

    rows: dict[int, list[np.ndarray]]
    lengths: list[int]
    returns: list[float]

    def transitions(self, place: int) -> list[Transition]:
        """The rows of one place, taken apart."""
        return [
            Transition(tuple(row[:3].tolist()), tuple(row[5:8].tolist()), float(row[8]), float(row[9]))
            for row in self.rows[place]
        ]


def own_vector(mode: AutoresetMode, tensors: bool, made: type[ScriptedVector] | None = None) -> CheckedVectorEnv:
    """The scripted tasks in a vector environment of the user's own, checked as a run does."""
    tasks = iter([ScriptedTask(SCRIPTS[place], place) for place in (0, 1)])
    vector = (made or (TensorVector if tensors else ScriptedVector))(2, mode, make=lambda: next(tasks))
    environments = VectorSource(vector).make(2, 0)
    environments.as_tensors, environments.device = tensors, torch.device("cpu") if tensors else None
    return environments


def collect(mode: AutoresetMode, rounds: int = 16) -> Collected:
    """Step the scripted tasks with random actions."""
    return collected_by(Collector(scripted_row(mode), (0,), LOW, HIGH, 0.1), rounds)


def collect_own(mode: AutoresetMode, tensors: bool) -> Collected:
    """The same in a vector environment of the user's own, in arrays or in tensors."""
    kind = TensorCollector if tensors else Collector
    return collected_by(kind(own_vector(mode, tensors), (0,), LOW, HIGH, 0.1), 16)


def collected_by(collector: Collector, rounds: int) -> Collected:
    """Step with random actions."""
    collected = Collected({0: [], 1: []}, [], [])
    for _ in range(rounds):
        rows, episodes = collector.step(collector.act(None))
        for row in np.asarray(rows[0]):
            collected.rows[int(row[0])].append(row)
        collected.lengths.extend(episode.length for episode in episodes)
        collected.returns.extend(episode.episode_return for episode in episodes)
    collector.environments.close()
    return collected


class ShortTask(gym.Env):
    """Keep a drifting point near the origin; it ends when the point is lost or after seven steps."""

    def __init__(self) -> None:
        self.observation_space = Box(-10, 10, (STATE_SIZE,), np.float32)
        self.action_space = Box(np.float32(LOW), np.float32(HIGH))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.point, self.moment = self.np_random.uniform(-1, 1, STATE_SIZE).astype(np.float32), 0
        return self.point.copy(), {}

    def step(self, action):
        push = np.array([action[0], action[1] / 2 - 2, action[0] * action[1] / 8], np.float32)
        self.point = np.clip(0.9 * self.point + 0.3 * push, -10, 10).astype(np.float32)
        self.moment += 1
        lost = bool(np.abs(self.point).max() > 1.5)
        return self.point.copy(), -float(np.square(self.point).sum()), lost, self.moment >= 7, {}


SHORT_TASK = "td3-guards/Short-v0"
gym.register(SHORT_TASK, ShortTask)


class Watcher(WarningsCallback):
    """Keeps the rows of metrics that a run reports."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def on_log(self, trainer, rows) -> None:
        """Keep the rows."""
        self.rows.extend(rows)


def short_run(settings: TD3Config = SETTINGS, watcher: Watcher | None = None, **fields) -> bytes:
    """Train on the short task for forty env steps; returns the six networks of the last agent, as saved.

    Without shape checks, which take most of the time of so short a run: steps by themselves are guarded with them.
    """
    usual = {"env": SHORT_TASK, "steps": 40, "eval_every": 0, "eval_episodes": 1, "threads": 1, "device": "cpu"}
    with tempfile.TemporaryDirectory() as folder, unchecked():
        config = TrainConfig(**{**usual, **fields}, td3=settings, out=Path(folder) / "run")
        run = train_run(config, None if watcher is None else [watcher])
        return (run.folder(run.seeds[0]) / "last" / "agent.safetensors").read_bytes()
