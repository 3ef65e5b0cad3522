"""Small tasks whose answers are known, and a run on one of them to be asked for its opinions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from safetensors.numpy import load_file

from td3.algorithm.agent import Agent, Task
from td3.config import resolve
from td3.run.agent_file import network_tensors
from td3.training import train_run

Array = np.ndarray


class Probe(gym.Env[Array, Array]):
    """A task by its start, its step, and nothing else."""

    low: tuple[float, ...] = (-1.0,)
    high: tuple[float, ...] = (1.0,)
    state_size = 1

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (self.state_size,), np.float32)
        self.action_space = Box(np.array(self.low, np.float32), np.array(self.high, np.float32))

    def start(self) -> Sequence[float]:
        """The first state."""
        raise NotImplementedError

    def move(self, state: Array, action: Array) -> tuple[Sequence[float], float, bool]:
        """The next state, the reward, and whether the task has ended."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.asarray(self.start(), np.float32)
        return self.state, {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        state, reward, terminated = self.move(self.state, action)
        self.state = np.asarray(state, np.float32)
        return self.state, float(reward), bool(terminated), False, {}


class ConstantReward(Probe):
    """One step, and one for it."""

    def start(self):
        return (0.5,)

    def move(self, state, action):
        return (0.5,), 1.0, True


class RewardIsTheState(Probe):
    """One step, paid by the sign that is seen."""

    def start(self):
        return (self.np_random.choice((-1.0, 1.0)),)

    def move(self, state, action):
        return (0.0,), state[0], True


class DelayedReward(Probe):
    """Two steps; only the second one pays."""

    def start(self):
        return (0.0,)

    def move(self, state, action):
        return (1.0,), state[0], state[0] == 1


class BestActionInside(Probe):
    """One step; the best action lies inside an asymmetric range and depends on the state."""

    low, high = (-2.0, 0.5), (1.0, 3.0)
    state_size = 2

    @staticmethod
    def best(state: Array) -> Array:
        return np.stack((-0.8 + 0.7 * state[..., 0], 1.4 - 0.5 * state[..., 1]), axis=-1)

    def start(self):
        return self.np_random.uniform(-1, 1, 2)

    def move(self, state, action):
        half = (np.array(self.high) - np.array(self.low)) / 2
        return (0.0, 0.0), 1 - np.square((action - self.best(state)) / half).sum(), True


class PaidForWaiting(Probe):
    """Nothing for the first step and one for each later one, for ever; registered with a time limit."""

    def start(self):
        return (0.0,)

    def move(self, state, action):
        return (1.0,), state[0], False


class PaidUntilTheEnd(Probe):
    """One for each of five steps, then a true end; the state says how many are done."""

    length = 5

    def start(self):
        return (0.0,)

    def move(self, state, action):
        done = round(float(state[0]) * self.length) + 1
        return (done / self.length,), 1.0, done == self.length


class LinearQuadratic(Probe):
    """Push a point in two dimensions to the origin: linear dynamics, quadratic cost, no noise, cut by a time limit.

    The range is a little wider than the best policy needs, so that it is never a bound of it.
    """

    low, high = (-2.25,), (2.25,)
    state_size = 2
    dynamics = np.array([[1.0, 0.3], [-0.1, 0.9]])
    push = np.array([[0.1], [0.5]])
    state_cost = np.diag([4.0, 1.2])
    action_cost = 1.2

    def start(self):
        return self.np_random.uniform(-1, 1, 2)

    def move(self, state, action):
        cost = state @ self.state_cost @ state + self.action_cost * action[0] ** 2
        return self.dynamics @ state + self.push @ action, -cost, False

    @classmethod
    def riccati_gain(cls, gamma: float) -> Array:
        """The gain k of the best policy, action = -k state, for costs discounted by gamma."""
        value = cls.state_cost
        for _ in range(10_000):
            weight = cls.action_cost + gamma * cls.push.T @ value @ cls.push
            gain = gamma * np.linalg.solve(weight, cls.push.T @ value @ cls.dynamics)
            value = cls.state_cost + gamma * cls.dynamics.T @ value @ (cls.dynamics - cls.push @ gain)
        return gain[0]


for task, limit in (
    (ConstantReward, None),
    (RewardIsTheState, None),
    (DelayedReward, None),
    (BestActionInside, None),
    (PaidForWaiting, 5),
    (PaidUntilTheEnd, None),
    (LinearQuadratic, 2),  # half of all states are starts, so that the whole square is seen
):
    gym.register(f"{task.__name__}-v0", entry_point=task, max_episode_steps=limit)


class Learnt:
    """A finished run on a task: what its critics say and what its actor does."""

    def __init__(self, task: type[Probe], path: Path, seed: int = 0, **settings: Any) -> None:
        chosen = {
            "hidden_sizes": (64, 64),
            "batch_size": 64,
            "actor_learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "learning_starts": 200,
            "exploration_noise": 0.3,
            "tau": 0.05,  # quick targets: the tasks are small
            **settings,
        }
        config = resolve(
            f"{task.__name__}-v0", seed=seed, out=path, device="cpu", threads=1, eval_every=0, eval_episodes=1, **chosen
        )
        run = train_run(config)
        self.gamma = config.td3.gamma
        self.tensors = load_file(run.folder(seed) / "last" / "agent.safetensors")
        self.actions = run.agent(seed, "last").act
        self._assert_that_it_learned(run, task)

    def _assert_that_it_learned(self, run: Any, task: type[Probe]) -> None:
        settings, seed = run.config.td3, run.config.seed
        metrics = np.atleast_1d(np.genfromtxt(run.folder(seed) / "metrics.csv", delimiter=",", names=True))
        assert metrics["updates"][-1] == (run.config.steps - settings.learning_starts) * settings.utd_ratio
        trained = metrics[metrics["updates"] > 0]
        assert np.isfinite(trained["critic_loss"]).all()
        assert np.isfinite(trained["actor_loss"]).all()
        new_learner = Agent.create(Task(task.state_size, task.low, task.high), settings, [seed])
        for name, tensor in network_tensors(new_learner, 0).items():
            assert not np.array_equal(tensor, self.tensors[name]), name

    def q_values(self, state: Sequence[float], action: Sequence[float]) -> list[float]:
        """Both critics' scores."""
        return [self._network(f"critic_{twin}", np.array([*state, *action])) for twin in (1, 2)]

    def _network(self, name: str, inputs: Array) -> float:
        layers = [self.tensors[f"{name}.{depth}.{part}"] for depth in range(3) for part in ("weight", "bias")]
        hidden = np.maximum(layers[0] @ inputs + layers[1], 0)
        hidden = np.maximum(layers[2] @ hidden + layers[3], 0)
        return float((layers[4] @ hidden + layers[5])[0])
