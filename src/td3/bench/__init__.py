"""Benchmarks that anyone can repeat: rivals side by side in one process, and what the machine itself could do."""

from importlib import import_module
from typing import Any, NamedTuple

from td3.bench.options import (
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
    """What a benchmark found, for programs and for people."""

    figures: dict[str, Any]
    text: str


def run(options: AnyBench) -> Report:
    """Run the benchmark that these options belong to."""
    homes = {
        UpdateBench: "update",
        LoopBench: "loop",
        PeersBench: "peers",
        ScalingBench: "scaling",
        EnvsBench: "envs",
        CollectorsBench: "collectors",
    }
    # Imported when it is asked for: `td3 --help` need not wait for PyTorch.
    return Report(*import_module(f"td3.bench.{homes[type(options)]}").measure(options))
