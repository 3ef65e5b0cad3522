"""TD3 (Twin Delayed DDPG): train, evaluate, explain. `td3.train(...)`, `td3.load(path).act(observation)`."""

import os
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  # as sys.path has it
    # `python -m td3` looks for every module in the current folder first, where a downloaded run may lie. Nothing is
    # taken from there but an environment's own module (environments/spec.py).
    del sys.path[0]

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from td3.algorithm.replacing import replace_step
    from td3.callbacks import Callback
    from td3.callbacks.progress import ProgressDisplay
    from td3.config import TrainConfig
    from td3.report.analysis import Run
    from td3.report.comparison import compare
    from td3.run.directory import load
    from td3.settings import TD3Config
    from td3.training import resume, train, train_offline

__version__ = "0.1.0"
__all__ = [
    "Callback",
    "ProgressDisplay",
    "Run",
    "TD3Config",
    "TrainConfig",
    "compare",
    "load",
    "replace_step",
    "resume",
    "train",
    "train_offline",
]

_HOMES = {
    "train": "td3.training",
    "train_offline": "td3.training",
    "resume": "td3.training",
    "load": "td3.run.directory",
    "Run": "td3.report.analysis",
    "compare": "td3.report.comparison",
    "Callback": "td3.callbacks",
    "ProgressDisplay": "td3.callbacks.progress",
    "replace_step": "td3.algorithm.replacing",
    "TD3Config": "td3.config",
    "TrainConfig": "td3.config",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `td3 --help` need not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'td3' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
