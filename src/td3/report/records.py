"""Recorded files of a run, read as validated arrays: the only source of report, doctor and hints.

Everything after `read_run` may rely on it: columns are there, and numbers and texts are valid (run_files.py).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from td3.config import TrainConfig
from td3.errors import RunError
from td3.policy import Array
from td3.report.run_files import (
    DIAGNOSTICS_COLUMNS,
    EVALUATIONS_COLUMNS,
    METRICS_COLUMNS,
    TIMES_COLUMNS,
    Frozen,
    Table,
    read_status,
    read_table,
    read_versions,
)
from td3.run.directory import PARTS, Run
from td3.statistics import at_the_end


@dataclass(frozen=True)
class SeedRecords:
    """One seed: evaluations `[evaluation, episode]` and the tables of training, by column."""

    seed: int
    steps: Array
    returns: Array
    metrics: Table
    diagnostics: Table
    frozen: Frozen | None = None
    success_rates: Array = field(default_factory=lambda: np.empty(0))
    """Of each row of evaluations.csv; NaN where the environment tells no `is_success`."""

    @property
    def curve(self) -> Array:
        """Mean return of each evaluation."""
        return np.asarray(self.returns.mean(1))

    @property
    def success_rate(self) -> float:
        """At the last evaluation; NaN where it is not known."""
        rate = float(self.success_rates[-1]) if len(self.success_rates) else math.nan
        return rate if math.isfinite(rate) else math.nan


@dataclass(frozen=True)
class RunRecords:
    """A whole run, or several runs of one seed each that are shown as one (see `combine`)."""

    path: Path
    config: TrainConfig
    versions: dict[str, str]
    status: dict[str, Any]
    seeds: tuple[SeedRecords, ...]
    times: Table
    separate: tuple["RunRecords", ...] = ()
    """The runs that were combined into this one, if any: each trained separately, with its own times."""
    label: str = ""
    """The name that several runs got as one."""
    source: str = ""
    """The library that wrote the log; empty for a run of td3."""
    remarks: tuple[str, ...] = ()
    """Notes of whoever read or combined the files."""

    @property
    def runs(self) -> tuple["RunRecords", ...]:
        """The trained runs: itself, or those that were combined."""
        return self.separate or (self,)

    @property
    def name(self) -> str:
        """The label, or the directory's name, with links resolved."""
        return self.label or self.path.resolve().name

    @property
    def title(self) -> str:
        """The label, or the path as it was given."""
        return self.label or str(self.path)

    @property
    def whole_seeds(self) -> tuple[SeedRecords, ...]:
        """Active seeds: those that are not frozen, or all if all are frozen."""
        return tuple(seed for seed in self.seeds if seed.frozen is None) or self.seeds

    @property
    def all_frozen(self) -> bool:
        """Whether no seed was trained to the end, so that there is no result."""
        return all(seed.frozen is not None for seed in self.seeds)

    @property
    def curves(self) -> tuple[Array, Array]:
        """Env steps `[evaluation]` that all active seeds have, and their mean returns `[seed, evaluation]`."""
        shared = shared_steps(seed.steps for seed in self.whole_seeds)
        return shared, np.stack([seed.curve[np.isin(seed.steps, shared)] for seed in self.whole_seeds])

    @property
    def evaluated(self) -> bool:
        """Whether there is an evaluation that all active seeds have."""
        return len(self.curves[0]) > 0

    @property
    def final(self) -> Array:
        """Each seed's final evaluation, at the last env step that all of them have."""
        return np.asarray(self.curves[1][:, -1])

    @property
    def last_tenth(self) -> Array:
        """Each seed's mean over the evaluations in the last tenth of the run's env steps; NaN without evaluations."""
        steps, returns = self.curves
        if not len(steps):
            return np.full(len(returns), math.nan)
        return np.asarray(returns[:, at_the_end(steps)].mean(1))

    @property
    def success_rate(self) -> float:
        """The mean of the seeds' success rates at the last evaluation; NaN where no environment tells `is_success`."""
        rates = [seed.success_rate for seed in self.whole_seeds if not math.isnan(seed.success_rate)]
        return float(np.mean(rates)) if rates else math.nan

    @property
    def end_steps(self) -> Array:
        """The env steps of those evaluations."""
        steps, _ = self.curves
        return np.asarray(steps[at_the_end(steps)]) if self.evaluated else steps

    @property
    def critics_trained(self) -> bool:
        """Whether the critics of the package were trained, in any of the runs; replaced steps may have others."""
        return any(run.status.get("critics_trained", True) for run in self.runs)

    @property
    def notes(self) -> list[str]:
        """Notes on the curves: seeds that are frozen, or whose evaluations end early."""
        notes = [
            *self.remarks,
            *(remark for run in self.separate for remark in run.remarks),
        ]
        notes += [
            f"Seed {seed.seed} has been frozen since env step {seed.frozen.env_steps:,} and is not counted: "
            f"{seed.frozen.reason.rstrip('.')}."
            for seed in self.seeds
            if seed.frozen
        ]
        if self.all_frozen:
            notes.append("Every seed is frozen: the returns shown are those before that, and no result of the run.")
        if not self.evaluated:
            notes.append("This run evaluated nothing: its returns are those of training, with exploration noise.")
        if not self.critics_trained:
            notes.append(
                "The replaced steps do not train the critics of the package: figures of critics are left out, and "
                "saved agents have none."
            )
        ends = {int(seed.steps.max(initial=0)) for seed in self.whole_seeds}
        if len(ends) > 1:
            notes.append(
                f"The seeds' evaluations end at different env steps ({', '.join(f'{end:,}' for end in sorted(ends))}): "
                f"figures over seeds use those that all have, up to {int(self.curves[0][-1]):,}."
            )
        return notes

    @property
    def env_steps(self) -> int:
        """Env steps so far."""
        return max(int(self.status.get("env_steps", 0)), int(self.curves[0].max(initial=0)))

    @property
    def trained_steps(self) -> int:
        """Env steps of all seeds together."""
        return sum(s.frozen.env_steps if s.frozen else run.env_steps for run in self.runs for s in run.seeds)

    @property
    def device(self) -> str:
        """The device."""
        devices = [str(r.times["device"][-1]) if len(r.times["device"]) else r.config.device for r in self.runs]
        return _joined(devices)

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds of each part of the loop; those of separate runs are added up."""
        return {phase: float(sum(run.times[phase].sum() for run in self.runs)) for phase in PARTS}


def shared_steps(steps: Iterable[Array]) -> Array:
    """The env steps that occur in all of these."""
    return np.asarray(reduce(np.intersect1d, steps))


def combine(path: Path, runs: Sequence[RunRecords], label: str = "", remarks: Sequence[str] = ()) -> RunRecords:
    """Runs of one task as one run of all their seeds; each run keeps its own times."""
    first, seeds = runs[0], tuple(seed for run in runs for seed in run.seeds)
    names = dict.fromkeys(name for run in runs for name in run.versions)
    versions = {name: _joined([run.versions.get(name, "none") for run in runs]) for name in names}
    status = {
        "status": _joined([str(run.status.get("status", "running")) for run in runs]),
        "env_steps": max(run.env_steps for run in runs),
    }
    config = replace(first.config, seed=min(run.config.seed for run in runs), seeds=len(seeds))
    source = _joined([run.source for run in runs])
    combined = RunRecords(
        path, config, versions, status, seeds, first.times, tuple(runs), label, source, tuple(dict.fromkeys(remarks))
    )
    _require_shared(combined)
    return combined


def _joined(texts: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(texts))


def read_run(path: Path | str) -> RunRecords:
    """All records of a run; tables that an older version did not write are empty."""
    run = Run(path)
    status = read_status(run.path / "status.json", run.seeds)
    seeds = []
    for seed in run.seeds:
        steps, returns = run.evaluations(seed) if run.evaluated else (np.empty(0, int), np.empty((0, 1)))
        folder = run.folder(seed)
        metrics = read_table(folder / "metrics.csv", METRICS_COLUMNS)
        diagnostics = read_table(folder / "diagnostics.csv", DIAGNOSTICS_COLUMNS)
        rates = read_table(folder / "evaluations.csv", EVALUATIONS_COLUMNS)["success_rate"]
        seeds.append(SeedRecords(seed, steps, returns, metrics, diagnostics, status["frozen"].get(seed), rates))
    times = read_table(run.path / "times.csv", TIMES_COLUMNS)
    versions = read_versions(run.path / "versions.json")
    records = RunRecords(run.path, run.config, versions, status, tuple(seeds), times)
    _require_shared(records)
    return records


def _require_shared(records: RunRecords) -> None:
    if not records.evaluated and any(len(seed.steps) for seed in records.seeds):
        remedy = "give runs with the same --eval-every" if records.separate else "restore its files"
        raise RunError(f"{records.title} has seeds without one evaluation at the same env step: {remedy}.")
