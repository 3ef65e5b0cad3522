"""One script of batches and noise that any implementation can be made to follow, from the same weights.

The weights and rows are chosen so that every branch of an update is taken: targets differ from their online networks,
actors come close to the ends of the range, some rows are terminated.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import layer_views
from td3.algorithm.step_01_replay_buffer import ReplayBuffer, make_replay_buffer
from td3.config import preset_config
from td3.settings import TD3Config

STATE_SIZE = 5
MEMORY_ROWS = 1_000
SEED = 20_180_226

PRESETS = {
    "author": preset_config("author", "HalfCheetah-v5", 1_000_000),
    "paper": preset_config("paper", "HalfCheetah-v5", 1_000_000),
    "course": preset_config("course", "HalfCheetah-v5", 1_000_000),
    "course with sgd": replace(preset_config("course", "HalfCheetah-v5", 1_000_000), optimizer="sgd"),
    "bullet": preset_config("bullet", "Walker2DBulletEnv-v0", 1_000_000),
}

ACTION_RANGES = {
    "symmetric": ((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0)),
    "asymmetric": ((-2.0, 0.5), (1.0, 3.0)),
    "one dimension": ((-2.0,), (2.0,)),
    "tiny": ((-1e-2, 0.0), (3e-2, 1e-2)),
}

EVERY_PAIR = [(preset, action_range) for preset in PRESETS for action_range in ACTION_RANGES]
# For long runs: every preset and every range at least once.
EVERY_ONE = [
    ("author", "asymmetric"),
    ("paper", "tiny"),
    ("course", "one dimension"),
    ("course with sgd", "symmetric"),
    ("bullet", "asymmetric"),
]


def one_by_default(chosen: int) -> list[Any]:
    """Every one, all but the chosen in the long tier: the reference and Stable-Baselines3 have one each by default."""
    return [pytest.param(*pair, marks=[pytest.mark.long] * (pair != EVERY_ONE[chosen])) for pair in EVERY_ONE]


class Script:
    """Transitions, and for each update which of them are drawn and which noise is added."""

    def __init__(self, updates: int, settings: TD3Config, low: Sequence[float], high: Sequence[float]) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self.low, self.high = (torch.tensor(bound, dtype=torch.float64) for bound in (low, high))
        size = len(low)

        def normal(*shape: int) -> Tensor:
            # Rounded to float32, so that no implementation loses anything by storing them so.
            return torch.randn(*shape, generator=generator, dtype=torch.float64).float().double()

        self.state, self.next_state = normal(MEMORY_ROWS, STATE_SIZE), normal(MEMORY_ROWS, STATE_SIZE)
        self.unit_action = (2 * torch.rand(MEMORY_ROWS, size, generator=generator, dtype=torch.float64) - 1).float()
        self.unit_action = self.unit_action.double()
        self.action = (self.low + self.high) / 2 + self.unit_action * (self.high - self.low) / 2
        self.reward = normal(MEMORY_ROWS) + self.unit_action.sum(1).float().double()
        self.terminated = (torch.rand(MEMORY_ROWS, generator=generator) < 0.1).double()
        self.rows = torch.randint(MEMORY_ROWS, (updates, settings.batch_size), generator=generator)
        self.noise = normal(updates, settings.batch_size, size)

    def buffer(self, dtype: torch.dtype) -> ReplayBuffer:
        """All transitions, as the package stores them."""
        buffer = make_replay_buffer(1, MEMORY_ROWS, STATE_SIZE, self.action.shape[1], dtype=dtype)
        columns = (self.state, self.action, self.next_state, self.reward[:, None], self.terminated[:, None])
        buffer.add_(torch.cat(columns, 1).unsqueeze(0).to(dtype))
        return buffer


class ScriptedStreams:
    """The randomness of an update, read from a script."""

    def __init__(self, script: Script, dtype: torch.dtype) -> None:
        self._rows, self._noise = iter(script.rows), iter(script.noise.to(dtype))

    def rows(self, filled: Tensor, count: int) -> Tensor:
        rows = next(self._rows).unsqueeze(0)
        assert int(filled) == MEMORY_ROWS
        assert rows.shape[1] == count
        return rows

    def normal(self, count: int, size: int) -> Tensor:
        noise = next(self._noise).unsqueeze(0)
        assert noise.shape[1:] == (count, size)
        return noise


def make_agent(settings: TD3Config, low: Sequence[float], high: Sequence[float], dtype: torch.dtype) -> Agent:
    """An agent in the middle of its life: targets lag behind, and the actors use the whole range."""
    task = Task(STATE_SIZE, low, high)
    agent = Agent.create(task, settings, [7], dtype=dtype)
    born, lagging = (Agent.create(task, settings, [seed]) for seed in (7, 8))
    with torch.no_grad():
        # From float32 in either case: a seed does not draw the same numbers in another type.
        agent.actor.parameters.copy_(born.actor.parameters)
        agent.critics.parameters.copy_(born.critics.parameters)
        agent.actor_target.parameters.copy_(born.actor.parameters.lerp(lagging.actor.parameters, 0.2))
        agent.critics_target.parameters.copy_(born.critics.parameters.lerp(lagging.critics.parameters, 0.2))
        for actor in (agent.actor, agent.actor_target):
            last_weight, _ = layer_views(actor.parameters, actor.network.sizes)[-1]
            last_weight *= 30
    return agent


def named_layers(agent: Agent) -> dict[str, Tensor]:
    """The lone member's six networks and its optimizers' moments by name, as PyTorch's own linear layers have them."""
    flat = {
        "actor": (agent.actor.network, agent.actor.parameters[0]),
        "actor_target": (agent.actor_target.network, agent.actor_target.parameters[0]),
    }
    for twin in range(2):
        flat[f"critic_{twin + 1}"] = agent.critics.network, agent.critics.parameters[twin, 0]
        flat[f"critic_target_{twin + 1}"] = agent.critics_target.network, agent.critics_target.parameters[twin, 0]
    for moment in ("first_moment", "second_moment"):
        if moment in agent.actor_optimizer.state():
            flat[f"actor {moment}"] = agent.actor.network, agent.actor_optimizer.state()[moment][0]
            for twin in range(2):
                twin_moment = agent.critics_optimizer.state()[moment][twin, 0]
                flat[f"critic_{twin + 1} {moment}"] = agent.critics.network, twin_moment
    named = {}
    for name, (network, parameters) in flat.items():
        for depth, (weight, bias) in enumerate(layer_views(parameters.detach(), network.sizes)):
            named[f"{name} weight {depth}"], named[f"{name} bias {depth}"] = weight.T.clone(), bias.clone()
    return named


def named_linears(
    networks: dict[str, torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Tensor]:
    """The same names for networks made of PyTorch's linear layers."""
    named = {}
    for name, network in networks.items():
        linears = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
        for depth, linear in enumerate(linears):
            for part, parameter in (("weight", linear.weight), ("bias", linear.bias)):
                named[f"{name} {part} {depth}"] = parameter.detach().clone()
                for optimizer in optimizers:
                    state = optimizer.state.get(parameter, {})
                    for key, moment in (("exp_avg", "first_moment"), ("exp_avg_sq", "second_moment")):
                        if key in state:
                            named[f"{name} {moment} {part} {depth}"] = state[key].clone()
    return named


def copy_weights_(networks: dict[str, torch.nn.Module], agent: Agent) -> None:
    """Give networks made of PyTorch's linear layers the agent's weights."""
    ours = named_layers(agent)
    with torch.no_grad():
        for name, network in networks.items():
            linears = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
            for depth, linear in enumerate(linears):
                linear.weight.copy_(ours[f"{name} weight {depth}"])
                linear.bias.copy_(ours[f"{name} bias {depth}"])


def largest_difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Of any number; whatever PyTorch's Adam has not made yet (an actor's moments before its first step) is zero."""
    assert theirs.keys() <= ours.keys()
    assert all(ours[name].count_nonzero() == 0 for name in ours.keys() - theirs.keys())
    return max((ours[name].double() - theirs[name].double()).abs().max().item() for name in theirs)
