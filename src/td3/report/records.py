"""What a run wrote of itself, read back as arrays: the one source of the report, the doctor and the hints."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from td3.config import TrainConfig
from td3.files import read_plain
from td3.policy import Array
from td3.run import LARGEST_TABLE, Run, read_facts

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
    times: Table

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
    for seed in run.seeds:
        steps, returns = run.evaluations(seed)
        folder = run.folder(seed)
        tables = (read_table(folder / name) for name in ("metrics.csv", "diagnostics.csv"))
        seeds.append(SeedRecords(seed, steps, returns, *tables))
    versions, status = (read_facts(run.path / name) for name in ("versions.json", "status.json"))
    return RunRecords(run.path, run.config, versions, status, tuple(seeds), read_table(run.path / "times.csv"))


def read_table(path: Path) -> Table:
    """The columns of a CSV file: numbers where they are numbers; a row that is being written is not there yet."""
    try:
        header, *rows = csv.reader(io.StringIO(read_plain(path, LARGEST_TABLE).decode(), newline=""))
    except (OSError, ValueError, csv.Error):
        return {}
    whole = [row for row in rows if len(row) == len(header)]
    return {name: _column([row[place] for row in whole]) for place, name in enumerate(header)}


def _column(texts: list[str]) -> Array:
    try:
        return np.array([float(text) for text in texts], np.float64)
    except ValueError:
        return np.array(texts, object)


def histogram(text: Any) -> Array:
    """A histogram as diagnostics.csv holds it; empty where there is none."""
    try:
        bars = np.array(json.loads(text), np.float64)
    except (ValueError, TypeError):
        return np.zeros(0)
    return bars if bars.ndim == 1 else np.zeros(0)
