"""Options of each benchmark, with checks. Imports nothing heavy, because `--help` reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from td3.config import Precision
from td3.errors import ConfigError

BenchDevice = Literal["cpu", "cuda"]
Sweep = Literal["batch", "width", "seeds", "buffer", "envs"]
EnvName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
AUTHOR_WIDTH = 256
"""Units of each hidden layer in the author's code, which has no option for it."""


@dataclass(frozen=True)
class UpdateBench:
    """Updates per second, compared with baselines and the machine's peak: `td3 bench update --author ~/TD3 --json`."""

    author: Path | None = None
    """A checkout of the paper author's code, to be measured as a baseline."""
    compile: bool = False
    """Also measure a plain PyTorch TD3 compiled by torch.compile; compiling takes a minute."""
    threads: int = 0
    """CPU threads; 0 measures one thread and all of them, and reports the faster first."""
    batch_size: int = 256
    """Transitions per update."""
    width: int = 256
    """Units of each of the two hidden layers."""
    members: int = 1
    """Seeds updated together; their updates are added up."""
    variant: tuple[str, ...] = ()
    """Variants of TD3, to be measured beside the unchanged updates; several as a,b."""
    replace_steps: tuple[str, ...] = ()
    """Functions in the place of steps, as FILE.py:NAME, to be measured beside the unchanged updates."""
    device: BenchDevice = "cpu"
    """Device of the updates."""
    precision: Precision = "float32"
    """Of products of matrices on a GPU."""
    seconds: float = 20.0
    """Seconds to measure, all baselines together."""
    json: bool = False
    """Print the results as one JSON object instead of text."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class LoopBench:
    """Where the time of a training run goes: `td3 bench loop Hopper-v5`."""

    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment."""
    threads: int = 0
    """CPU threads for the updates; 0: chosen by the run."""
    members: int = 1
    """Seeds trained together."""
    envs: int = 1
    """Environments per seed."""
    device: BenchDevice = "cpu"
    """Device of the updates."""
    precision: Precision = "float32"
    """Of products of matrices on a GPU."""
    eval_every: int = 0
    """Env steps between evaluations of ten episodes; 0: no evaluation."""
    seconds: float = 20.0
    """Seconds to measure, after the warm-up."""
    json: bool = False
    """Print the results as one JSON object instead of text."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class PeersBench:
    """Env steps per second of td3 and of other libraries, one update per env step: `td3 bench peers`."""

    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment."""
    author: Path | None = None
    """A checkout of the paper author's code; only its update is measured, without an environment."""
    threads: int = 0
    """CPU threads of the PyTorch libraries; 0 gives each the faster of one and all (JAX always takes them all)."""
    batch_size: int = 256
    """Transitions per update."""
    width: int = 256
    """Units of each of the two hidden layers."""
    device: BenchDevice = "cpu"
    """Device of the updates."""
    seconds: float = 60.0
    """Seconds to measure, all libraries together."""
    json: bool = False
    """Print the results as one JSON object instead of text."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class ScalingBench:
    """How cost grows with batch, width, seeds, buffer, environments: `td3 bench scaling --out docs/images`."""

    sweeps: tuple[Sweep, ...] = ("batch", "width", "seeds", "buffer", "envs")
    """Settings to vary, one at a time, around preset author."""
    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment, for the sweep over environments."""
    threads: int = 0
    """CPU threads for the updates; 0: all that the machine allows."""
    device: BenchDevice = "cpu"
    """Device of the updates."""
    seconds: float = 20.0
    """Seconds to measure each sweep."""
    out: Path | None = None
    """A directory for scaling.json, scaling.md and scaling.png."""
    json: bool = False
    """Print the results as one JSON object instead of text."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class EnvsBench:
    """Env steps per second, by kind of worker: `td3 bench envs Pendulum-v1 --step-ms 10`."""

    env: EnvName = "HalfCheetah-v5"
    """Gymnasium's name of the environment."""
    envs: int = 8
    """Environments, stepped together."""
    step_ms: float = 0.0
    """Milliseconds added to every step, to simulate a slow environment."""
    seconds: float = 20.0
    """Seconds to measure, all workers together."""
    json: bool = False
    """Print the results as one JSON object instead of text."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


@dataclass(frozen=True)
class CollectorsBench:
    """Throughput of Ray collectors, and the cost of a request: `td3 bench collectors --collectors 1 2 4 8`."""

    env: EnvName = "td3_lab.bench.collectors:Waiting-v0"
    """Gymnasium's name of the environment; by default one that waits 10 ms in every step."""
    collectors: tuple[int, ...] = (1, 2, 4, 8)
    """Numbers of collectors, one after another; the first is the baseline."""
    ray_address: str | None = None
    """HOST:PORT of a Ray cluster; without it, one is started on this machine."""
    seconds: float = 10.0
    """Seconds to measure each."""
    json: bool = False
    """Print the results as one JSON object instead of text."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one sentence."""
        _check(self)


AnyBench = UpdateBench | LoopBench | PeersBench | ScalingBench | EnvsBench | CollectorsBench
BENCHMARKS: dict[str, type[AnyBench]] = {
    "update": UpdateBench,
    "loop": LoopBench,
    "peers": PeersBench,
    "scaling": ScalingBench,
    "envs": EnvsBench,
    "collectors": CollectorsBench,
}
"""The options of `td3 bench NAME`, which the module `td3_lab.bench.NAME` measures."""


def _at_least(low: int) -> Callable[[Any], bool]:
    return lambda given: bool(given >= low)


_RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("threads", "a whole number from 0 to 10,000", lambda given: 0 <= given <= 10_000),
    ("batch_size", "a whole number of at least 1", _at_least(1)),
    ("width", "a whole number of at least 1", _at_least(1)),
    ("members", "a whole number of at least 1", _at_least(1)),
    ("envs", "a whole number of at least 1", _at_least(1)),
    ("eval_every", "a whole number of at least 0", _at_least(0)),
    ("step_ms", "a number of at least 0", lambda given: 0 <= given < float("inf")),
    ("seconds", "a positive number", lambda given: 0 < given < float("inf")),
    ("collectors", "whole numbers of at least 1", lambda given: len(given) > 0 and min(given) >= 1),
    ("sweeps", "one or more of batch, width, seeds, buffer, envs", lambda given: len(given) > 0),
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
