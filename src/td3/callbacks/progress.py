"""The live display of a run: a bar in a terminal, one output in a notebook, plain lines elsewhere."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column

from td3.callbacks.callback import Callback, WarningsCallback
from td3.callbacks.notebook import NotebookOutput
from td3.evaluate import Evaluation

if TYPE_CHECKING:
    from td3.training import Trainer


class RetryingConsole(Console):
    """Output that may end, because its reader leaves or its disk is full, while training goes on."""

    def __exit__(self, *error: Any) -> None:
        """Write what was printed; where that fails, say so on stderr and print nothing more."""
        try:
            super().__exit__(*error)
        except OSError as fault:
            self.on_broken_pipe()
            with contextlib.suppress(OSError):
                print(f"td3: the output cannot be written ({fault.strerror}); training goes on.", file=sys.stderr)

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        with contextlib.suppress(OSError):  # it may have no number
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class ProgressDisplay(Callback):
    """Env steps, steps per second, time left, last evaluation and losses, refreshed a few times a second.

    The command line and `td3.train` have it. `verbose` also says how updates are executed.
    """

    def __init__(self, console: Console | None = None, verbose: bool = False) -> None:
        self.console = console or RetryingConsole(highlight=False)
        self.verbose = verbose
        self.last: Evaluation | None = None
        self.path: Path | None = None
        self.env_steps = 0
        self._bar: Progress | None = None
        self._cell = NotebookOutput() if self.console.is_jupyter else None
        self._refreshed = 0.0
        self._marks: list[tuple[float, int]] = []
        self._learning_since: tuple[float, int] | None = None
        self._losses = ""
        self._unit, self._pace = "env steps", "steps/s"

    def on_training_start(self, trainer: "Trainer") -> None:
        """Say what is trained, and show the bar."""
        config = trainer.config
        self.path, self._steps = trainer.path, config.steps
        seeds = f"seed {config.seed}" if config.seeds == 1 else f"seeds {config.seed}..{config.seed + config.seeds - 1}"
        self._unit, self._pace = config.unit, f"{config.unit.split()[-1]}/s" + " per seed" * (config.seeds > 1)
        length = f"{config.steps:,} {self._unit}{', offline' if config.dataset else ''}"
        variant = f", variant {', '.join(config.variant)}" if config.variant else ""
        task = f"Training {config.env} for {length}, {seeds}, preset {config.preset}{variant}"
        self.say(f"{task}, on {trainer.placement}.", style="bold")
        self.say(f"Results: {self.path}. Ctrl-C saves and stops.")
        for warning in config.warnings():
            self.on_warning(trainer, warning)
        if self.console.is_terminal and not self._cell:
            self._bar = Progress(
                TextColumn("{task.fields[steps]}"),
                BarColumn(bar_width=14),
                TaskProgressColumn(),
                # In a narrow terminal the facts are cut at the end; the bar stays whole, on its one line.
                TextColumn("{task.fields[facts]}", table_column=Column(ratio=1, no_wrap=True)),
                console=self.console,
                expand=True,
                auto_refresh=False,
            )
            self._task = self._bar.add_task("train", total=config.steps, steps="", facts="")
            self._bar.start()

    def on_loop_start(self, trainer: "Trainer") -> None:
        """Where it is asked for, how updates are executed."""
        if self.verbose:
            self.say(trainer.engine.description)

    def on_env_step(self, trainer: "Trainer") -> None:
        """Move the bar, at most four times a second."""
        self.env_steps = env_steps = trainer.env_steps
        now = time.monotonic()
        if self._learning_since is None and trainer.agent.updates.any():
            # Random steps are many times as fast: the time left comes from steps with updates.
            self._learning_since, self._marks = (now, env_steps), []
        if now - self._refreshed < 0.25 and env_steps < self._steps:
            return
        self._refreshed = now
        self._marks = [*self._marks[-40:], (now, env_steps)]
        done = f"{env_steps:,} {self._pace.partition('/')[0]}"
        if self._cell:
            self._cell.show(env_steps / self._steps, f"{done}  {self._facts()}")
        if self._bar:
            self._bar.update(self._task, completed=env_steps, steps=done, facts=self._facts())
            self._bar.refresh()

    def on_log(self, trainer: "Trainer", rows: Sequence[dict[str, Any]]) -> None:
        """Keep the newest losses."""
        critic, actor = (_mean([row[name] for row in rows]) for name in ("critic_loss", "actor_loss"))
        self._losses = "" if math.isnan(critic) else f"loss critic {critic:.3g} actor {actor:.3g}"

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """Print the evaluation on a line of its own."""
        self.last, self.env_steps = evaluation, trainer.env_steps
        text = f"{evaluation.env_steps:>9,} {self._unit}: return {describe(evaluation)}"
        if evaluation.env_steps and evaluation.agent and not evaluation.agent.updates.any():
            text += " (nothing learned yet)"
        if not self._bar and (facts := self._facts(with_evaluation=False)):
            text += f"   {facts}"
        self.say(text)

    def on_warning(self, trainer: "Trainer", text: str) -> None:
        """Print it, and stay; from Python, it is a warning of Python's."""
        if not trainer.callbacks.all_of(WarningsCallback):
            self.say(f"Warning: {text}", style="yellow")

    def on_hint(self, trainer: "Trainer", text: str) -> None:
        """Print the hint on a line of its own."""
        self.say(f"Hint: {text}", style="yellow")

    def on_info(self, trainer: "Trainer", text: str) -> None:
        """Print it below the first line."""
        self.say(text)

    def say(self, text: str, style: str | None = None) -> None:
        """One line, as it is: a log file is not wrapped, and brackets in a path are no markup."""
        if self._cell:
            self._cell.say(text)
            return
        self.console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def on_training_end(self, trainer: "Trainer") -> None:
        """Take the bar away."""
        self.close()

    def close(self) -> None:
        """Take the bar away, also where training never began."""
        if self._cell:
            self._cell.end()
        if self._bar:
            self._bar.stop()
            self._bar = None

    def _facts(self, with_evaluation: bool = True) -> str:
        parts = []
        if len(self._marks) > 1 and self._marks[-1][0] > self._marks[0][0]:
            (start, first), (now, last) = self._marks[0], self._marks[-1]
            parts.append(f"{(last - first) / (now - start):,.0f} {self._pace}")
            if self._learning_since is None:
                parts.append("warm-up")
            elif last > self._learning_since[1] and self.env_steps < self._steps:
                since, begun = self._learning_since
                parts.append(f"ETA {_clock((self._steps - self.env_steps) * (now - since) / (last - begun))}")
        if with_evaluation and self.last:
            parts.append(f"last evaluation {np.nanmean(self.last.returns):,.1f}")
            if not np.isnan(self.last.success_rate).all():
                parts.append(f"success rate {np.nanmean(self.last.success_rate):.0%}")
        return "  ".join([*parts, self._losses]).rstrip()


def describe(evaluation: Evaluation) -> str:
    """Mean and spread in words: over episodes for one seed, over seeds for several, without frozen ones (NaN)."""
    seeds, episodes = evaluation.returns.shape
    rate = evaluation.success_rate[~np.isnan(evaluation.success_rate)]
    success = f", success rate {rate.mean():.0%}" if rate.size else ""
    valid = evaluation.returns[~np.isnan(evaluation.returns).any(1)]
    some = f"{len(valid)} of {seeds} seeds" if len(valid) < seeds else f"{seeds} seeds"
    if len(valid) == 1:
        counted = "1 episode" if episodes == 1 else f"{episodes} episodes"
        return f"{valid.mean():,.1f} +- {valid.std():,.1f} over {counted}{f', {some}' if seeds > 1 else ''}{success}"
    means = valid.mean(1)
    return f"{means.mean():,.1f} +- {means.std(ddof=1):,.1f} over {some}{success}"


def sweep_lines(table: Sequence[dict[str, Any]]) -> list[str]:
    """The table of a sweep: a line for each task and setting."""
    header = ("task", "setting", "seeds", "IQM", "95 % interval", "mean +- std")
    rows = [header]
    for row in table:
        figures = ("", "", "")
        if row["seeds"]:
            between = f"{row['low']:,.1f} to {row['high']:,.1f}" if row["seeds"] > 1 else "one seed"
            figures = (f"{row['iqm']:,.1f}", between, f"{row['mean']:,.1f} +- {row['std']:,.1f}")
        seeds = f"{row['seeds']}" + (f" of {row['seeds'] + row['unfinished']}" if row["unfinished"] else "")
        rows.append((row["task"], row["setting"] or "-", seeds, *figures))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
