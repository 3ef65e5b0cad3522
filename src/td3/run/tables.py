"""The tables of one seed: CSV files, and evaluations in the form of Stable-Baselines3."""

import contextlib
import csv
import io
import json
import math
import os
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from td3.errors import RunError
from td3.files import create, open_plain, read_regular_file
from td3.policy import Array

if TYPE_CHECKING:
    import td3.collect.collector  # only to write: a run is read without PyTorch

LARGEST_NPZ = 1 << 25
"""A larger file (in bytes) is not read."""
LARGEST_STEP, LARGEST_RETURN = 2**53, 1e100
"""No run has more env steps; returns up to this can be squared and added up."""
METRICS = (
    *("env_steps", "updates", "episodes", "timeouts", "episode_return", "episode_length"),
    *("critic_loss", "actor_loss", "mean_q"),
)
DIAGNOSTICS = (
    *("env_steps", "q_start", "return_start", "saturation", "stuck", "actor_dead", "critic_dead", "actor_gradient"),
    *("exploration", "observation_scale", "observation_spread", "reward_scale", "policy_actions", "played_actions"),
)


class MemberWriter:
    """The files of one seed, kept complete up to the last row while training goes on.

    `position` is what an earlier writer of the same files returned: rows written after that are cut off.
    """

    FILES = ("metrics.csv", "evaluations.csv", "diagnostics.csv", "monitor.csv", "infos.csv")

    def __init__(self, folder: Path, env: str, position: Mapping[str, int] | None = None, seconds: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._start = folder, time.time() - seconds
        self._history: list[tuple[int, Array, Array, Array]] = []
        if position is not None:
            check_position(folder, position)
        mode = "w" if position is None else "r+"
        with contextlib.ExitStack() as opened:  # closes the first ones if another cannot be opened
            self._files = {name: opened.enter_context(open_plain(folder / name, mode)) for name in self.FILES}
            opened.pop_all()
        if position is not None:
            for name, file in self._files.items():
                file.truncate(position[name])
                file.seek(0, os.SEEK_END)
            return
        self._row("metrics.csv", METRICS)
        self._row("diagnostics.csv", DIAGNOSTICS)
        self._row("evaluations.csv", ("env_steps", "mean_return", "std_return", "mean_length", "success_rate"))
        self._row("infos.csv", ("env_steps", "name", "mean", "episodes"))
        self._files["monitor.csv"].write("#" + json.dumps({"t_start": self._start, "env_id": env}) + "\nr,l,t\n")

    def metrics(self, row: Mapping[str, Any]) -> None:
        """One row of training."""
        self._row("metrics.csv", [_plain(row[name]) for name in METRICS])

    def diagnostics(self, row: Mapping[str, Any]) -> None:
        """One row of diagnostics."""
        self._row("diagnostics.csv", [_plain(row[name]) for name in DIAGNOSTICS])

    def episode(self, episode: "td3.collect.base.Episode") -> None:
        """One finished episode, in the form that Stable-Baselines3's tools read."""
        elapsed = round(time.time() - self._start, 6)
        self._row("monitor.csv", (round(episode.episode_return, 6), episode.length, elapsed))

    def infos(self, env_steps: int, infos: Sequence[Mapping[str, float]]) -> None:
        """What the infos of so many episodes said on average, a row for each name."""
        for name in sorted({name for info in infos for name in info}):
            values = [info[name] for info in infos if name in info]
            self._row("infos.csv", (env_steps, name, _plain(float(np.mean(values))), len(values)))

    def evaluation(self, env_steps: int, returns: Array, lengths: Array, successes: Array) -> None:
        """One evaluation, as a row and in the form that Stable-Baselines3's tools read."""
        reported = successes[~np.isnan(successes)]
        row = (env_steps, returns.mean(), returns.std(), lengths.mean(), reported.mean() if reported.size else np.nan)
        self._row("evaluations.csv", [_plain(value) for value in row])
        self._history.append((env_steps, returns, lengths, successes))
        self._write_history()
        self.flush()

    @property
    def history(self) -> dict[str, Array]:
        """All evaluations so far."""
        names, columns = ("env_steps", "returns", "lengths", "successes"), zip(*self._history, strict=True)
        return {name: np.array(column) for name, column in zip(names, columns, strict=False)}

    def restore_history(self, history: Mapping[str, Array]) -> None:
        """Continue the evaluations of an earlier writer."""
        if history:
            columns = (history[name] for name in ("returns", "lengths", "successes"))
            self._history = list(zip(history["env_steps"].tolist(), *columns, strict=True))
            self._write_history()

    def flush(self) -> None:
        """Flush all rows to the operating system."""
        for file in self._files.values():
            file.flush()

    def position(self) -> dict[str, int]:
        """Bytes of each file, after they have been synced to disk."""
        self.flush()
        for file in self._files.values():
            os.fsync(file.fileno())
        return {name: os.fstat(file.fileno()).st_size for name, file in self._files.items()}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _row(self, name: str, values: Sequence[Any]) -> None:
        csv.writer(self._files[name], lineterminator="\n").writerow(values)

    def _write_history(self) -> None:
        history = self.history
        temporary = self.folder / ".evaluations.npz"
        with os.fdopen(create(temporary), "wb") as file:
            columns: dict[str, Any] = {"timesteps": history["env_steps"], "results": history["returns"]}
            columns["ep_lengths"] = history["lengths"]
            if not np.isnan(history["successes"]).all():
                columns["successes"] = history["successes"]
            np.savez(file, **columns)
        temporary.replace(self.folder / "evaluations.npz")


def check_position(folder: Path, position: Mapping[str, int]) -> None:
    """Raise ValueError if rows that were written are missing."""
    for name in MemberWriter.FILES:
        size = (folder / name).stat().st_size if (folder / name).is_file() else -1
        if size < position[name]:
            raise ValueError(f"{folder.name}/{name} is shorter than it was")


def _plain(value: Any) -> Any:
    return repr(float(value)) if isinstance(value, float | np.floating) else value


def read_evaluations(path: Path) -> tuple[Array, Array]:
    """Env steps `[evaluation]` and returns `[evaluation, episode]` of an evaluations.npz, ours or another library's."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_regular_file(path, LARGEST_NPZ))) as archive:
            steps, returns = (_read_array(archive, name) for name in ("timesteps", "results"))
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"{path.parent} has no readable evaluations.npz ({error}).") from None
    if steps.ndim != 1 or returns.ndim != 2 or len(steps) != len(returns) or returns.size == 0:
        raise RunError(f"{path.parent} has an evaluations.npz without evaluations in it.")
    in_order = steps[0] >= 0 and (np.diff(steps) > 0).all() and steps[-1] <= LARGEST_STEP
    # All comparisons are false for NaN.
    if not in_order or not (np.abs(returns) <= LARGEST_RETURN).all():
        raise RunError(f"{path} has env steps that do not increase, or returns that are not numbers: restore the file.")
    return steps, returns


def _read_array(archive: zipfile.ZipFile, name: str) -> Array:
    """A numeric array from an archive; raises ValueError if its header does not match its size."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} is not an array as numpy writes them")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "if" or by_columns or size > LARGEST_NPZ or size != info.file_size - file.tell():
            raise ValueError(f"{name} is not an array of numbers of the size it says")
        return np.frombuffer(file.read(size), dtype).reshape(shape)
