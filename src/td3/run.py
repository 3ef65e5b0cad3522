"""A run is a directory: written while it trains, read by everything else.

config.json  versions.json  status.json
seed_0/  metrics.csv  evaluations.csv  evaluations.npz  diagnostics.csv  monitor.csv
         last/agent.*  best/agent.*  snapshots/ENV_STEPS/agent.* (the actor alone, along the way)
seed_1/  ...
"""

import contextlib
import csv
import json
import platform
import time
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from td3.checkpoint import SavedAgent, load_agent, write_atomically
from td3.config import TrainConfig
from td3.errors import RunError
from td3.policy import Array

if TYPE_CHECKING:
    import td3.collect  # only to write: a run is read without PyTorch

METRICS = (
    *("env_steps", "updates", "episodes", "timeouts", "episode_return", "episode_length"),
    *("critic_loss", "actor_loss", "mean_q"),
)
DIAGNOSTICS = (
    *("env_steps", "q_start", "return_start", "saturation", "stuck", "actor_dead", "critic_dead", "actor_gradient"),
    *("exploration", "observation_scale", "observation_spread", "reward_scale", "policy_actions", "played_actions"),
)


def new_directory(config: TrainConfig) -> Path:
    """Where a new run goes; refuses a directory that holds a run or that cannot be written."""
    path = config.out
    if path is None:
        folder = Path("runs") / config.env.replace("/", "_").replace(":", "_")
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        path = next(p for n in range(1, 1000) if not (p := folder / (stamp if n == 1 else f"{stamp}_{n}")).exists())
    try:
        if (path / "config.json").exists():
            raise RunError(f"{path} already holds a run: give another --out, or remove that directory first.")
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): give another --out.") from None
    if config.out is None:
        latest = path.parent / "latest"
        # A convenience: not every file system has links, and another run may be making the same one.
        with contextlib.suppress(OSError):
            if latest.is_symlink():
                latest.unlink()
            latest.symlink_to(path.name)
    return path


def versions() -> dict[str, str]:
    """What the results depend on besides the configuration; the physics engine changes the tasks."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("td3", "torch", "numpy", "gymnasium", "mujoco", "pybullet"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


class MemberWriter:
    """The files of one seed, kept complete up to the last row while training goes on."""

    def __init__(self, folder: Path, env: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._start = folder, time.time()
        self._metrics = (folder / "metrics.csv").open("w", newline="")
        self._evaluations = (folder / "evaluations.csv").open("w", newline="")
        self._monitor = (folder / "monitor.csv").open("w", newline="")
        self._diagnostics = (folder / "diagnostics.csv").open("w", newline="")
        _rows(self._metrics).writerow(METRICS)
        _rows(self._diagnostics).writerow(DIAGNOSTICS)
        _rows(self._evaluations).writerow(("env_steps", "mean_return", "std_return", "mean_length"))
        self._monitor.write("#" + json.dumps({"t_start": self._start, "env_id": env}) + "\nr,l,t\n")
        self._history: list[tuple[int, Array, Array]] = []

    def metrics(self, row: Mapping[str, Any]) -> None:
        """One row of training."""
        _rows(self._metrics).writerow([_plain(row[name]) for name in METRICS])

    def diagnostics(self, row: Mapping[str, Any]) -> None:
        """One row of how the learner looks from inside."""
        _rows(self._diagnostics).writerow([_plain(row[name]) for name in DIAGNOSTICS])

    def episode(self, episode: "td3.collect.Episode") -> None:
        """One finished episode, in the form that Stable-Baselines3's tools read."""
        elapsed = round(time.time() - self._start, 6)
        _rows(self._monitor).writerow((round(episode.episode_return, 6), episode.length, elapsed))

    def evaluation(self, env_steps: int, returns: Array, lengths: Array) -> None:
        """One evaluation, as a row and in the form that Stable-Baselines3's tools read."""
        row = (env_steps, returns.mean(), returns.std(), lengths.mean())
        _rows(self._evaluations).writerow([_plain(value) for value in row])
        self._history.append((env_steps, returns, lengths))
        steps, all_returns, all_lengths = (np.array(column) for column in zip(*self._history, strict=True))
        temporary = self.folder / ".evaluations.npz"
        with temporary.open("wb") as file:
            np.savez(file, timesteps=steps, results=all_returns, ep_lengths=all_lengths)
        temporary.replace(self.folder / "evaluations.npz")
        self.flush()

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        for file in (self._metrics, self._evaluations, self._diagnostics, self._monitor):
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in (self._metrics, self._evaluations, self._diagnostics, self._monitor):
            file.close()


def _rows(file: TextIO) -> Any:
    return csv.writer(file, lineterminator="\n")


def _plain(value: Any) -> Any:
    return repr(float(value)) if isinstance(value, float | np.floating) else value


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """A small file of facts."""
    write_atomically(path, json.dumps(values, indent=2).encode())


class Run:
    """A run directory, to be read."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            values = json.loads((self.path / "config.json").read_bytes())
        except OSError:
            raise RunError(f"{self.path} is not a run: it has no config.json. `td3 train` makes one.") from None
        except (ValueError, RecursionError):
            raise RunError(f"{self.path / 'config.json'} is damaged: it is not JSON.") from None
        if not isinstance(values, dict):
            raise RunError(f"{self.path / 'config.json'} is damaged: it is not an object.")
        self.config = TrainConfig.from_json(values)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were trained."""
        return self.config.member_seeds

    def folder(self, seed: int) -> Path:
        """The files of one seed."""
        return self.path / f"seed_{seed}"

    def evaluations(self, seed: int) -> tuple[Array, Array]:
        """Env steps `[evaluation]` and returns `[evaluation, episode]` of one seed."""
        try:
            # Opened here: np.load leaves a damaged file open.
            with (
                (self.folder(seed) / "evaluations.npz").open("rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                steps, returns = arrays["timesteps"], arrays["results"]
        except (OSError, EOFError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile) as error:
            raise RunError(f"{self.folder(seed)} has no readable evaluations.npz ({error}).") from None
        if steps.ndim != 1 or returns.ndim != 2 or len(steps) != len(returns) or returns.size == 0:
            raise RunError(f"{self.folder(seed)} has an evaluations.npz without evaluations in it.")
        return steps, returns

    def learning_curve(self) -> tuple[Array, Array]:
        """Env steps `[evaluation]` and mean returns `[seed, evaluation]`."""
        curves = [self.evaluations(seed) for seed in self.seeds]
        shortest = min(len(steps) for steps, _ in curves)
        return curves[0][0][:shortest], np.stack([returns[:shortest].mean(1) for _, returns in curves])

    def best_seed(self) -> int:
        """The seed whose last evaluation was highest."""
        return max(self.seeds, key=lambda seed: float(self.evaluations(seed)[1][-1].mean()))

    def agent(self, seed: int | None = None, which: str = "best") -> SavedAgent:
        """A saved agent: of one seed (by default the best one), as it was at its best or at the end."""
        if which not in ("best", "last"):
            raise RunError(f"an agent is kept as it was at its best or at the last step; {which!r} is neither.")
        chosen = self.best_seed() if seed is None else seed
        if chosen not in self.seeds:
            raise RunError(f"{self.path} has no seed {chosen}: it trained {_listed(self.seeds)}.")
        return load_agent(self.folder(chosen) / which)

    def __repr__(self) -> str:
        """Where it is and what it trained."""
        return f"Run({str(self.path)!r}, env={self.config.env!r}, seeds={list(self.seeds)})"


def _listed(seeds: Sequence[int]) -> str:
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def load(path: Path | str, seed: int | None = None, which: str = "best") -> SavedAgent:
    """The agent in a run directory, or in an agent's own folder."""
    folder = Path(path)
    if (folder / "agent.json").exists():
        return load_agent(folder)
    return Run(folder).agent(seed, which)
