"""What each benchmark can be told, and which values make sense. Imports nothing heavy: `--help` reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from td3.errors import ConfigError

BenchDevice = Literal["cpu", "cuda"]
Sweep = Literal["batch", "width", "members", "memory", "envs"]
EnvName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
AUTHOR_WIDTH = 256
"""Units of each hidden layer in the author's code, which has no option for it."""


@dataclass(frozen=True)
class UpdateBench:
    """Updates per second, beside baselines and the machine's ceiling: `td3 bench update --author ~/TD3 --json`."""

    author: Path | None = None
    """A checkout of the paper author's code, to be measured beside ours."""
    threads: int = 0
    """CPU threads; 0 measures one thread and all of them, and leads with the faster."""
    batch_size: int = 256
    """Transitions per update."""
    width: int = 256
    """Units of each of the two hidden layers."""
    members: int = 1
    """Learners updated side by side; their updates are added up."""
    device: BenchDevice = "cpu"
    """Where the updates run."""
    seconds: float = 20.0
    """Time to measure for, all rivals together."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class LoopBench:
    """Where the time of a training run goes: `td3 bench loop Hopper-v5`."""

    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment."""
    threads: int = 0
    """CPU threads for the updates; 0 leaves the choice to the run."""
    members: int = 1
    """Seeds trained side by side."""
    envs: int = 1
    """Environments of each seed."""
    device: BenchDevice = "cpu"
    """Where the updates run."""
    seconds: float = 20.0
    """Time to measure for, after the warm-up."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class PeersBench:
    """Env steps per second of td3 and of other libraries, one update per env step: `td3 bench peers`."""

    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment."""
    author: Path | None = None
    """A checkout of the paper author's code; its update alone is measured, without an environment."""
    threads: int = 0
    """CPU threads of the PyTorch libraries; 0 gives each the faster of one and all (JAX always takes them all)."""
    batch_size: int = 256
    """Transitions per update."""
    width: int = 256
    """Units of each of the two hidden layers."""
    device: BenchDevice = "cpu"
    """Where the updates run."""
    seconds: float = 60.0
    """Time to measure for, all libraries together."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class ScalingBench:
    """How the cost grows with batch, width, members, memory, environments: `td3 bench scaling --out docs/images`."""

    sweeps: tuple[Sweep, ...] = ("batch", "width", "members", "memory", "envs")
    """What to vary, one at a time, around preset author."""
    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment, where environments are varied."""
    threads: int = 0
    """CPU threads for the updates; 0 takes what the machine allows."""
    device: BenchDevice = "cpu"
    """Where the updates run."""
    seconds: float = 20.0
    """Time to measure each sweep for."""
    out: Path | None = None
    """A directory for scaling.json, scaling.md and scaling.png."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class EnvsBench:
    """How fast environments step: here, in threads, processes, a batch: `td3 bench envs Pendulum-v1 --step-ms 10`."""

    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment."""
    envs: int = 8
    """Environments, stepped together."""
    step_ms: float = 0.0
    """Milliseconds by which every step is made longer, as if it waited for a simulator."""
    seconds: float = 20.0
    """Time to measure for, all ways together."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class CollectorsBench:
    """How fast Ray collectors deliver, and what asking them costs: `td3 bench collectors --collectors 1 2 4 8`."""

    env: EnvName = "td3.bench.collectors:Waiting-v0"
    """Gymnasium's name of the environment; by default one that waits 10 ms in every step."""
    collectors: tuple[int, ...] = (1, 2, 4, 8)
    """How many, one after another; the first is what the others are compared with."""
    ray_address: str | None = None
    """HOST:PORT of a Ray cluster; without it, one is started on this machine."""
    seconds: float = 10.0
    """Time to measure each for."""
    json: bool = False
    """Print the figures as one JSON object instead of words."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


AnyBench = UpdateBench | LoopBench | PeersBench | ScalingBench | EnvsBench | CollectorsBench


def _at_least(low: int) -> Callable[[Any], bool]:
    return lambda given: bool(given >= low)


_RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("threads", "a whole number from 0 to 10,000", lambda given: 0 <= given <= 10_000),
    ("batch_size", "a whole number of at least 1", _at_least(1)),
    ("width", "a whole number of at least 1", _at_least(1)),
    ("members", "a whole number of at least 1", _at_least(1)),
    ("envs", "a whole number of at least 1", _at_least(1)),
    ("step_ms", "a number of at least 0", lambda given: 0 <= given < float("inf")),
    ("seconds", "a positive number", lambda given: 0 < given < float("inf")),
    ("collectors", "whole numbers of at least 1", lambda given: len(given) > 0 and min(given) >= 1),
    ("sweeps", "one or more of batch, width, members, memory, envs", lambda given: len(given) > 0),
)


def _check(options: Any) -> None:
    for name, rule, holds in _RULES:
        if hasattr(options, name) and not holds(getattr(options, name)):
            raise ConfigError(f"must be {rule}, but {getattr(options, name)!r} was given.", name)
    if getattr(options, "author", None) is not None and options.width != AUTHOR_WIDTH:
        raise ConfigError(
            f"the author's networks are {AUTHOR_WIDTH} wide, but width {options.width} was given: "
            "leave out --width or --author."
        )
