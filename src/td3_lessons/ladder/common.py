"""What the rungs share and what is no lesson: the task as a rung sees it, small seeded networks, one descent step."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from torch import Tensor, nn

from td3.environments import make_environment
from td3.errors import EnvironmentFault

Array = NDArray[Any]
States = Literal["cells", "vectors"]
Actions = Literal["list", "range"]

HIDDEN = (32, 32)
"""Units of the hidden layers of every network on the ladder."""
CHOICES = 5
"""Forces to choose from where a rung needs a list of actions and the task has a range of them."""
MOST_CELL_DIMENSIONS = 3
"""A table over more dimensions than this would never be filled."""


class Unserved(EnvironmentFault):
    """An environment of a kind that this rung cannot learn; its text is the first half of a sentence."""


class Transition(NamedTuple):
    """What one env step showed; in a batch every field is a tensor with one row per transition."""

    state: Any
    action: Any
    next_state: Any
    reward: Any
    terminated: Any
    truncated: Any

    @property
    def ended(self) -> bool:
        """Whether the episode is over, for whatever reason."""
        return bool(self.terminated or self.truncated)


@runtime_checkable
class Learner(Protocol):
    """What every rung's learner can be asked, for many states at once."""

    def policy(self, states: Array) -> Array:
        """The action that it would take, without exploration: its number in the list, or the action itself."""

    def value(self, states: Array) -> Array | None:
        """What it expects to earn from there on; None if it keeps no values."""


@runtime_checkable
class Watch(Protocol):
    """Someone who sees the learner after every env step."""

    def __call__(self, step: int, learner: Any) -> None:
        """Env step number `step` is done."""


class Task:
    """An environment as a rung sees it: states as vectors, actions as numbers of a list or as points of a range."""

    def __init__(self, env: str, states: States, actions: Actions, **kwargs: Any) -> None:
        self.env, self.takes_list = env, actions == "list"
        self.environment = make_environment(env, **kwargs)
        below = getattr(self.environment, "env", self.environment)
        if states == "cells" and isinstance(below.observation_space, Discrete):
            self.environment = below  # a table needs no one-hot vector
        self._read_states(states)
        self._read_actions(actions)

    def _read_states(self, states: States) -> None:
        space = self.environment.observation_space
        self.cells: int | None = None
        if isinstance(space, Discrete):
            self.cells = int(space.n)
            self.low, self.high = np.array([space.start - 0.5]), np.array([space.start + space.n - 0.5])
        elif isinstance(space, Box) and space.dtype != np.uint8:
            self.low, self.high = space.low.ravel(), space.high.ravel()
        else:
            raise Unserved(f"{self.env} gives observations of the kind {space}")
        self.state_size = len(self.low)
        if states == "cells" and self.state_size > MOST_CELL_DIMENSIONS:
            raise Unserved(f"{self.env} has {self.state_size} state dimensions, too many for a table")
        if states == "cells" and not np.all(np.abs([self.low, self.high]) < 1e6):
            raise Unserved(f"{self.env} has states without bounds, which no table can hold")

    def _read_actions(self, actions: Actions) -> None:
        space = self.environment.action_space
        if isinstance(space, Discrete) and actions == "list":
            self.choices: list[Any] = list(range(int(space.start), int(space.start + space.n)))
        elif isinstance(space, Box) and np.all(np.isfinite([space.low, space.high])):
            if actions == "list" and space.shape != (1,):
                raise Unserved(f"{self.env} has {int(np.prod(space.shape))} action dimensions, too many to list")
            self.action_low, self.action_high = space.low.ravel(), space.high.ravel()
            self.middle, self.half = (self.action_high + self.action_low) / 2, (self.action_high - self.action_low) / 2
            self.choices = list(np.linspace(space.low, space.high, CHOICES, dtype=np.float32))
            self._action_shape = space.shape
        else:
            raise Unserved(f"{self.env} has actions of the kind {space}")

    def reset(self, seed: int | None = None, state: Any = None) -> Array:
        """A new episode; Rail can be told the state to start from."""
        observation, _ = self.environment.reset(seed=seed, options=None if state is None else {"state": state})
        return _vector(observation)

    def step(self, action: Any) -> tuple[Array, float, bool, bool]:
        """Next state, reward, terminated, truncated."""
        observation, reward, terminated, truncated, _ = self.environment.step(self.outward(action))
        return _vector(observation), float(reward), bool(terminated), bool(truncated)

    def outward(self, action: Any) -> Any:
        """The action as the environment takes it: the one of that number, or the point, kept inside the range."""
        if self.takes_list:
            return self.choices[int(action)]
        return np.clip(action, self.action_low, self.action_high).astype(np.float32).reshape(self._action_shape)


def network(inputs: int, outputs: int, seed: Sequence[int]) -> nn.Sequential:
    """A small ReLU network whose weights follow from the seed alone."""
    sizes = (inputs, *HIDDEN, outputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        layers = [layer for narrow, wide in pairwise(sizes) for layer in (nn.Linear(narrow, wide), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Actor(nn.Module):
    """A network whose output, squeezed by tanh, is stretched to the range of the task's actions."""

    def __init__(self, task: Task, seed: Sequence[int]) -> None:
        super().__init__()
        self.network = network(task.state_size, len(task.half), seed)
        self.middle, self.reach = torch.as_tensor(task.middle), torch.as_tensor(task.half)

    def forward(self, states: Tensor) -> Tensor:
        """The action for each state."""
        return self.middle + self.reach * torch.tanh(self.network(states))


def stack(transitions: Sequence[Transition]) -> Transition:
    """One batch of many transitions: numbers become float32 tensors, numbers of actions stay whole."""
    columns = (np.array(column) for column in zip(*transitions, strict=True))
    return Transition(*(_tensor(column) for column in columns))


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step downhill on the loss, for the weights that the optimizer holds and for no others."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    optimizer.step()


def _tensor(column: Array) -> Tensor:
    return torch.as_tensor(column if column.dtype == np.int64 else column.astype(np.float32))


def _vector(observation: Any) -> Array:
    return np.atleast_1d(np.asarray(observation, np.float32)).ravel()
