"""Reproducible benchmarks: baselines timed in rotating order in one process, and the machine's peak."""

from importlib import import_module
from typing import Any, NamedTuple

from td3_lab.bench.options import (
    BENCHMARKS,
    AnyBench,
    CollectorsBench,
    EnvsBench,
    LoopBench,
    PeersBench,
    ScalingBench,
    UpdateBench,
)

__all__ = [
    "AnyBench",
    "CollectorsBench",
    "EnvsBench",
    "LoopBench",
    "PeersBench",
    "Report",
    "ScalingBench",
    "UpdateBench",
    "run",
]


class Report(NamedTuple):
    """The results of a benchmark, as data and as text."""

    figures: dict[str, Any]
    text: str


def run(options: AnyBench) -> Report:
    """Run the benchmark that these options belong to."""
    name = next(name for name, kind in BENCHMARKS.items() if kind is type(options))
    # Imported when it runs, so that `td3 --help` does not import PyTorch.
    return Report(*import_module(f"td3_lab.bench.{name}").measure(options))
