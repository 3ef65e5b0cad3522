"""Callbacks and logs: Stable-Baselines3's own where it is installed, and as much as can be done where it is not."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from td3.errors import ConfigError
from td3.sb3.environments import has_sb3


class Callbacks:
    """Everyone who wants to be told: objects with the methods of Stable-Baselines3's `BaseCallback`, or functions."""

    def __init__(self, given: Any, progress_bar: bool) -> None:
        listed = list(given) if isinstance(given, Sequence) else [] if given is None else [given]
        self._all = [each if hasattr(each, "on_step") else _Function(each) for each in listed]
        if progress_bar:
            self._all.append(_Bar())

    def started(self, model: Any, local_names: dict[str, Any], global_names: dict[str, Any]) -> None:
        """Training begins."""
        for each in self._all:
            each.init_callback(model)
        for each in self._all:
            each.on_training_start(local_names, global_names)

    def stepped(self, local_names: dict[str, Any]) -> bool:
        """Another step of every environment is done; False stops training."""
        go_on = True
        for each in self._all:
            each.update_locals(local_names)
        for each in self._all:
            answer = each.on_step()
            go_on = go_on and (answer is None or bool(answer))
        return go_on

    def told(self, event: str) -> None:
        """Another event that has no details."""
        for each in self._all:
            getattr(each, event)()


class _Silent:
    """The methods of a callback, with nothing in them."""

    def init_callback(self, model: Any) -> None:
        self.model = model

    def on_training_start(self, local_names: dict[str, Any], global_names: dict[str, Any]) -> None:
        self.locals, self.globals = local_names, global_names

    def update_locals(self, local_names: dict[str, Any]) -> None:
        self.locals.update(local_names)

    def on_rollout_start(self) -> None:
        pass

    def on_step(self) -> Any:
        pass

    def on_rollout_end(self) -> None:
        pass

    def on_training_end(self) -> None:
        pass


class _Function(_Silent):
    """A function of (locals, globals), as Stable-Baselines3 takes one; returning False stops training."""

    def __init__(self, function: Any) -> None:
        if not callable(function):
            raise ConfigError(f"callback must be a callback, a function or a list of them, but {function!r} was given.")
        self._function = function

    def on_step(self) -> Any:
        return self._function(self.locals, self.globals)


class _Bar(_Silent):
    """A progress bar."""

    def on_training_start(self, local_names: dict[str, Any], global_names: dict[str, Any]) -> None:
        super().on_training_start(local_names, global_names)
        self._bar = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("learn", total=local_names["total_timesteps"])
        self._bar.start()

    def on_step(self) -> Any:
        self._bar.update(self._task, completed=self.model.num_timesteps)

    def on_training_end(self) -> None:
        self._bar.stop()


class PlainLogger:
    """What a logger is asked for: keeps the newest values, and prints them if asked to."""

    def __init__(self, verbose: int) -> None:
        self.verbose, self.name_to_value = verbose, dict[str, Any]()

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Keep a value until the next `dump`."""
        self.name_to_value[key] = value

    def dump(self, step: int = 0) -> None:
        """Print what was kept."""
        if self.verbose >= 1:
            for name, value in sorted(self.name_to_value.items()):
                print(f"{name:<24} {value:.5g}" if isinstance(value, float) else f"{name:<24} {value}")
            print()
        self.name_to_value.clear()


def check_logging(tensorboard_log: str | None) -> None:
    """Say what is missing for the log before anything is trained."""
    if tensorboard_log is None:
        return
    missing = [name for name in ("stable_baselines3", "tensorboard") if importlib.util.find_spec(name) is None]
    if missing:
        needed = " and ".join(name.replace("_", "-") for name in missing)
        raise ConfigError(f"tensorboard_log needs {needed}: install it with pip, or leave tensorboard_log out.")


def make_logger(verbose: int, tensorboard_log: str | None, name: str, new_run: bool) -> Any:
    """Stable-Baselines3's logger, which its callbacks expect; a plain one where it is not installed."""
    if not has_sb3():
        return PlainLogger(verbose)
    from stable_baselines3.common.utils import configure_logger

    return configure_logger(verbose, tensorboard_log, name, new_run)
