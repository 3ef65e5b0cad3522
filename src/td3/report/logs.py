"""Learning curves from the logs of Stable-Baselines3 and CleanRL, as records that charts and comparisons take."""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from td3.config import TrainConfig
from td3.errors import RunError, missing_extra
from td3.files import read_regular_file, require_plain
from td3.policy import Array
from td3.report.records import RunRecords, SeedRecords
from td3.report.run_files import DIAGNOSTICS_COLUMNS, METRICS_COLUMNS, TIMES_COLUMNS, read_table
from td3.run.directory import LARGEST_TABLE
from td3.run.tables import LARGEST_RETURN, LARGEST_STEP, read_evaluations

SB3, CLEANRL = "Stable-Baselines3", "CleanRL"
UNKNOWN_TASK = "an unnamed task"
EVALUATION_TAG, TRAINING_TAGS = "eval/mean_reward", ("charts/episodic_return", "rollout/ep_rew_mean")
"""Scalars of TensorBoard: Stable-Baselines3's evaluations; returns of training by CleanRL and Stable-Baselines3."""
WINDOWS = (5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10)
"""Env steps over which returns of training episodes are averaged: the first that a log has twenty of."""


class Log(NamedTuple):
    """A learning curve, and what its files say of its origin."""

    source: str
    steps: Array
    returns: Array
    env: str = ""
    experiment: str = ""
    seed: int | None = None
    training: bool = False
    """Whether these are returns of training, with exploration noise."""


def is_log(folder: Path) -> bool:
    """Whether a folder holds a log of another library."""
    return any(next(folder.glob(pattern), None) for pattern in ("evaluations.npz", "*monitor.csv", "events.out.tf*"))


def read_log(folder: Path) -> Log:
    """The evaluations in a folder, or else the returns of its training episodes."""
    monitors, events = sorted(folder.glob("*monitor.csv")), sorted(folder.glob("events.out.tf*"))
    if (folder / "evaluations.npz").exists():
        env = _monitor_header(monitors[0]).get("env_id") if monitors else None
        return Log(SB3, *read_evaluations(folder / "evaluations.npz"), env if isinstance(env, str) else "")
    if monitors:
        return _read_monitors(monitors)
    if events:
        return _read_events(folder, events)
    raise RunError(
        f"{folder} is neither a run nor a log: it has no config.json (td3), evaluations.npz or monitor.csv "
        f"({SB3}), or TensorBoard events ({CLEANRL})."
    )


def records_of(folder: Path, log: Log, seed: int, env: str) -> RunRecords:
    """The curve as records of a run that trained one seed."""
    unit_steps = max(1, int(log.steps[-1]))
    config = TrainConfig(env, steps=unit_steps, seed=seed, eval_episodes=log.returns.shape[1])
    nowhere = folder / "no table"
    tables = (read_table(nowhere, columns) for columns in (METRICS_COLUMNS, DIAGNOSTICS_COLUMNS, TIMES_COLUMNS))
    metrics, diagnostics, times = tables
    width = _window(unit_steps)
    note = (
        f"{folder.name} has no evaluations: its returns are those of training episodes, with exploration noise, "
        f"averaged over {width:,} env steps. They are lower than evaluations of the same agent."
    )
    return RunRecords(
        folder,
        config,
        {},
        {"status": "of unknown status", "env_steps": unit_steps},
        (SeedRecords(seed, log.steps, log.returns, metrics, diagnostics),),
        times,
        source=log.source,
        remarks=(note,) if log.training else (),
    )


def _monitor_header(path: Path) -> dict[str, object]:
    """The first line of a monitor.csv: JSON behind a number sign."""
    try:
        text = read_regular_file(path, LARGEST_TABLE).partition(b"\n")[0].decode()
        values = json.loads(text.removeprefix("#"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not a monitor.csv of {SB3} ({error}): leave it out.") from None
    return values if isinstance(values, dict) else {}


def _read_monitors(paths: list[Path]) -> Log:
    """The episodes of all environments of one run, in the order in which they ended."""
    episodes: list[tuple[float, float, float]] = []
    env = ""
    for path in paths:
        header = _monitor_header(path)
        begun, name = header.get("t_start"), header.get("env_id")
        start = float(begun) if isinstance(begun, int | float) else 0.0
        env = name if isinstance(name, str) and not env else env
        episodes += [(start + end, length, value) for value, length, end in _episodes(path)]
    if not episodes:
        raise RunError(f"{paths[0].parent} has a monitor.csv without episodes.")
    _, lengths, returns = np.array(sorted(episodes)).T
    return Log(SB3, *_averaged(paths[0], np.cumsum(lengths), returns), env, training=True)


def _episodes(path: Path) -> Iterator[tuple[float, float, float]]:
    lines = read_regular_file(path, LARGEST_TABLE).decode(errors="replace").splitlines()[1:]
    for number, row in enumerate(csv.DictReader(lines), 3):
        try:
            yield float(row["r"]), float(row["l"]), float(row["t"])
        except (KeyError, TypeError, ValueError):
            if number < len(lines) + 1:  # a last line may be in the middle of being written
                raise RunError(f"{path}, row {number} has no numbers in r, l and t: restore the file.") from None


def _read_events(folder: Path, events: list[Path]) -> Log:
    """The scalars of TensorBoard; CleanRL names the folder ENV__EXPERIMENT__SEED__TIME."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise missing_extra(f"reading the TensorBoard events in {folder}", "tensorboard") from None
    for path in events:
        try:
            require_plain(path)
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error.strerror}).") from None
    accumulator = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    known = accumulator.Tags()["scalars"]
    tag = next((tag for tag in (EVALUATION_TAG, *TRAINING_TAGS) if tag in known), None)
    if tag is None:
        tags = ", ".join((EVALUATION_TAG, *TRAINING_TAGS))
        raise RunError(f"{folder} has TensorBoard events without returns: none of {tags}.")
    scalars = accumulator.Scalars(tag)
    steps, values = (np.array([getattr(s, name) for s in scalars], np.float64) for name in ("step", "value"))
    source = CLEANRL if tag == TRAINING_TAGS[0] else SB3
    parts = folder.resolve().name.split("__")
    env, experiment = (parts[0], parts[1]) if len(parts) == 4 else ("", "")
    seed = int(parts[2]) if len(parts) == 4 and parts[2].isdecimal() else None
    training = tag != EVALUATION_TAG
    steps, returns = _averaged(events[0], steps, values) if training else _once(events[0], steps, values)
    return Log(source, steps, returns, env, experiment, seed, training)


def _averaged(path: Path, steps: Array, values: Array) -> tuple[Array, Array]:
    """The mean return of the episodes that ended in each window of env steps, at the window's end."""
    order = np.argsort(steps, kind="stable")
    steps, values = _checked(path, steps[order], values[order])
    width = _window(int(steps[-1]))
    ends = (np.ceil(steps / width) * width).astype(np.int64)
    windows, indices = np.unique(ends, return_inverse=True)
    return windows, (np.bincount(indices, values) / np.bincount(indices))[:, None]


def _once(path: Path, steps: Array, values: Array) -> tuple[Array, Array]:
    """The last value at each env step."""
    steps, values = _checked(path, steps, values)
    kept = {int(step): value for step, value in zip(steps, values, strict=True)}
    return np.array(sorted(kept)), np.array([kept[step] for step in sorted(kept)])[:, None]


def _checked(path: Path, steps: Array, values: Array) -> tuple[Array, Array]:
    if not len(steps) or not ((steps >= 0) & (steps <= LARGEST_STEP) & (np.abs(values) <= LARGEST_RETURN)).all():
        raise RunError(f"{path} has env steps or returns that are not numbers: restore the file.")
    return steps, values


def _window(length: int) -> int:
    return next((width for width in WINDOWS if length >= 20 * width), 1) if length and math.isfinite(length) else 1
