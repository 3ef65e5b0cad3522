"""What a run wrote of itself, read back as arrays: the one source of the report, the doctor and the hints."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from td3.config import TrainConfig
from td3.policy import Array
from td3.run import Run

Table = dict[str, Array]
LAST = 10
"""Evaluations at the end over which a run's result is taken, as in the paper's ablations."""


@dataclass(frozen=True)
class SeedRecords:
    """One seed: evaluations `[evaluation, episode]` and the tables of training, by column."""

    seed: int
    steps: Array
    returns: Array
    metrics: Table
    diagnostics: Table

    @property
    def curve(self) -> Array:
        """Mean return of each evaluation."""
        return np.asarray(self.returns.mean(1))


@dataclass(frozen=True)
class RunRecords:
    """A whole run."""

    path: Path
    config: TrainConfig
    versions: dict[str, str]
    status: dict[str, Any]
    seeds: tuple[SeedRecords, ...]
    """Those that were not frozen: all figures are theirs."""
    times: Table
    frozen: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Seeds that stopped before the others, each with its `env_steps` and the `reason`."""

    @property
    def name(self) -> str:
        """What to call it: the directory's own name, whatever links led there."""
        return self.path.resolve().name

    @property
    def curves(self) -> tuple[Array, Array]:
        """Env steps `[evaluation]` and mean returns `[seed, evaluation]`, as far as all seeds have come."""
        shortest = min(len(seed.steps) for seed in self.seeds)
        return self.seeds[0].steps[:shortest], np.stack([seed.curve[:shortest] for seed in self.seeds])

    @property
    def scores(self) -> Array:
        """A seed's result: the mean over its last ten evaluations (the one before training is none of them)."""
        _, returns = self.curves
        trained = returns[:, 1:] if returns.shape[1] > 1 else returns
        return np.asarray(trained[:, -LAST:].mean(1))

    @property
    def averaged(self) -> str:
        """What `last` is the mean of, in words."""
        count = min(LAST, max(1, self.curves[1].shape[1] - 1))
        return "Last evaluation" if count == 1 else f"Last {count} evaluations"

    @property
    def env_steps(self) -> int:
        """How far it has come."""
        return max(int(self.status.get("env_steps", 0)), int(self.curves[0][-1]))

    @property
    def counted(self) -> str:
        """How many seeds the figures cover, in words."""
        total = len(self.seeds) + len(self.frozen)
        some = f"{len(self.seeds)} of {total}" if self.frozen else f"{total}"
        return f"{some} seed{'s' if total > 1 else ''}"

    @property
    def device(self) -> str:
        """Where it trained."""
        return str(self.times["device"][-1]) if len(self.times.get("device", ())) else self.config.device

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds of each part of the loop."""
        return {name: float(v.sum()) for name, v in self.times.items() if name not in ("env_steps", "device")}


def read_run(path: Path | str) -> RunRecords:
    """Everything that there is; what an older run did not write is empty."""
    run = Run(path)
    seeds = []
    for seed in run.active_seeds:
        steps, returns = run.evaluations(seed)
        folder = run.folder(seed)
        tables = (read_table(folder / name) for name in ("metrics.csv", "diagnostics.csv"))
        seeds.append(SeedRecords(seed, steps, returns, *tables))
    versions, status = (_read_json(run.path / name) for name in ("versions.json", "status.json"))
    frozen = {seed: facts for seed, facts in run.frozen.items() if seed not in run.active_seeds}
    times = read_table(run.path / "times.csv")
    return RunRecords(run.path, run.config, versions, status, tuple(seeds), times, frozen)


def read_table(path: Path) -> Table:
    """The columns of a CSV file: numbers where they are numbers; a row that is being written is not there yet."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
    except (OSError, ValueError, csv.Error):
        return {}
    whole = [row for row in rows if len(row) == len(header)]
    return {name: _column([row[place] for row in whole]) for place, name in enumerate(header)}


def _column(texts: list[str]) -> Array:
    try:
        return np.array([float(text) for text in texts], np.float64)
    except ValueError:
        return np.array(texts, object)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def histogram(text: Any) -> Array:
    """A histogram as diagnostics.csv holds it; empty where there is none."""
    try:
        bars = np.array(json.loads(text), np.float64)
    except (ValueError, TypeError):
        return np.zeros(0)
    return bars if bars.ndim == 1 else np.zeros(0)
