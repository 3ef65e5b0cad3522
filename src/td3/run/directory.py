"""A run is a directory: written while it trains, read by everything else.

config.json  versions.json  status.json  checkpoints/ (see checkpoints.py)
seed_0/  metrics.csv  evaluations.csv  evaluations.npz  diagnostics.csv  monitor.csv  infos.csv
         last/agent.*  best/agent.*  snapshots/ENV_STEPS/agent.* (the actor alone, along the way)
seed_1/  ...
"""

import contextlib
import difflib
import json
import logging
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from td3.config import TrainConfig
from td3.environments.spec import FROM_PYTHON, not_found
from td3.errors import ConfigError, RunError
from td3.files import check_run_folder, create, read_json, read_regular_file, write_atomically
from td3.policy import Array
from td3.run.agent_file import SavedAgent, load_agent
from td3.run.tables import read_evaluations

LARGEST_JSON, LARGEST_TABLE = 1 << 20, 1 << 28
"""Larger files (in bytes) are not read."""
MOST_ROWS = 1_000_000
"""Tables with more rows are not read; a run of 1e9 env steps has so many."""
MOST_NAMED = 4
"""Runs that an error suggests."""
PARTS = ("env", "act", "update", "store", "evaluate", "save", "other")
"""Parts of the training loop whose time is recorded: columns of times.csv."""


def absolute_out(config: TrainConfig) -> Path:
    """The directory of a new run, or the parent of a dated one."""
    return (config.out or Path("runs") / config.env.replace("/", "_").replace(":", "_")).absolute()


def new_directory(path: Path, dated: bool = False) -> Path:
    """The directory of a new run, or a dated one in it; one that holds a run or cannot be written is refused."""
    try:
        if dated:
            path = _dated_folder(path)
        else:
            require_new(path)
        path.mkdir(parents=True, exist_ok=True)
        check_run_folder(path)
        os.close(create(path / ".writable"))
        (path / ".writable").unlink()
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): give another --out.") from None
    if dated:
        latest = path.parent / "latest"
        # Optional: not every file system has links, and another run may be creating the same one.
        with contextlib.suppress(OSError):
            if latest.is_symlink():
                latest.unlink()
            latest.symlink_to(path.name)
    return path


def require_new(path: Path) -> None:
    """Refuse an --out that cannot become a run's directory, before anything is made."""
    if path == path.parent:
        raise RunError(f"{path} is no folder for a run: give a folder of its own as --out.")
    with contextlib.suppress(OSError):  # what cannot be looked at cannot be made either, which says so
        require_no_run(path)


def require_no_run(path: Path) -> None:
    """Refuse a directory that holds a run."""
    if (path / "config.json").exists():
        raise RunError(f"{path} already holds a run: give another --out, or go on with it by  td3 resume {path}")


def _dated_folder(parent: Path) -> Path:
    """A new folder named after date and time, unique even for several starts in one second."""
    parent.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for name in (stamp, *(f"{stamp}_{count}" for count in range(2, 10_000))):
        with contextlib.suppress(FileExistsError):
            (parent / name).mkdir()
            return parent / name
    raise RunError(f"{parent} already holds ten thousand runs of this second: give another --out.")


def versions() -> dict[str, str]:
    """Versions that affect the results; the physics engine changes the tasks."""
    from td3.backends.choose import choose_backend  # here: it imports PyTorch, which reading a run does not need

    kernels = "C" if choose_backend("cpu").slower_because is None else "PyTorch"
    by_name = {"python": platform.python_version(), "machine": platform.machine(), "kernels": kernels}
    packages = ("td3", "torch", "numpy", "gymnasium", "mujoco", "pybullet")
    tasks = ("pybullet_envs_gymnasium", "box2d", "dm-control", "gymnasium-robotics", "envpool")
    for package in (*packages, *tasks):
        try:
            by_name[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return by_name


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a small JSON file."""
    write_atomically(path, json.dumps(values, indent=2).encode())


def write_facts(path: Path, values: Mapping[str, Any]) -> None:
    """The same before training; raises RunError if it cannot be written."""
    try:
        write_json(path, values)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): make room or give another --out.") from None


def read_facts(path: Path) -> dict[str, Any]:
    """The content of a small JSON file such as status.json; empty if it cannot be read."""
    try:
        facts = read_json(path, LARGEST_JSON)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


class Run:
    """Read access to a run directory."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        check_run_folder(self.path)
        try:
            values = read_json(self.path / "config.json", LARGEST_JSON)
        except (FileNotFoundError, NotADirectoryError):
            near = runs_near(self.path)
            hint = f"did you mean {near[0]}?" if near else "`td3 train` makes one."
            others = f" Others are {', '.join(map(str, near[1:]))}." if near[1:] else ""
            raise RunError(
                f"{self.path} is not a run: it has no config.json. {hint[0].upper()}{hint[1:]}{others}"
            ) from None
        except OSError as error:
            raise RunError(f"{self.path / 'config.json'} cannot be read ({error.strerror}).") from None
        except ValueError as error:
            raise RunError(f"{self.path / 'config.json'} is damaged: it is not JSON ({error}).") from None
        if not isinstance(values, dict):
            raise RunError(f"{self.path / 'config.json'} is damaged: it is not an object.")
        try:
            self.config = TrainConfig.from_json(values)
        except ConfigError as error:
            raise ConfigError(f"{self.path / 'config.json'} cannot be used: {error}") from None

    def env_arguments(self, trust: bool, command: str) -> dict[str, Any]:
        """Arguments of `make_environment`; `command` is the command line for the error message."""
        require_trust(self.config, self.path, trust, command)
        return self.config.env_arguments

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were trained."""
        return self.config.member_seeds

    @property
    def frozen(self) -> dict[int, dict[str, Any]]:
        """Seeds that stopped before the others, each with its `env_steps` and the `reason`."""
        recorded = read_facts(self.path / "status.json").get("frozen")
        if not isinstance(recorded, dict):
            return {}
        by_seed = {seed: recorded.get(str(seed)) for seed in self.seeds}
        return {
            seed: {"env_steps": facts["env_steps"], "reason": facts["reason"]}
            for seed, facts in by_seed.items()
            if isinstance(facts, dict)
            and isinstance(facts.get("env_steps"), int)
            and isinstance(facts.get("reason"), str)
        }

    @property
    def active_seeds(self) -> tuple[int, ...]:
        """The seeds that were not frozen; means over seeds cover these."""
        frozen = self.frozen
        return tuple(seed for seed in self.seeds if seed not in frozen) or self.seeds

    def folder(self, seed: int) -> Path:
        """The files of one seed."""
        return self.path / f"seed_{seed}"

    @property
    def evaluated(self) -> bool:
        """Whether it has evaluations; a run on a vector environment may have none."""
        return any((self.folder(s) / "evaluations.npz").exists() or self._evaluation_rows(s) for s in self.seeds)

    def _evaluation_rows(self, seed: int) -> bool:
        try:
            rows = read_regular_file(self.folder(seed) / "evaluations.csv", LARGEST_TABLE)
            return not rows or b"\n" in rows.rstrip()
        except (OSError, ValueError):
            return True  # there should be some: `evaluations` says what is wrong

    def evaluations(self, seed: int) -> tuple[Array, Array]:
        """Env steps `[evaluation]` and returns `[evaluation, episode]` of one seed."""
        path = self.folder(seed) / "evaluations.npz"
        if not self.evaluated:
            raise RunError(
                f"{self.path} has no evaluations: its returns of training are in {self.folder(seed) / 'metrics.csv'}, "
                "and a vector environment is evaluated where td3.train gets an eval_env."
            )
        return read_evaluations(path)

    def learning_curve(self) -> tuple[Array, Array]:
        """Env steps `[evaluation]` and mean returns `[seed, evaluation]` of the seeds that were not frozen."""
        curves = [self.evaluations(seed) for seed in self.active_seeds]
        shortest = min(len(steps) for steps, _ in curves)
        return curves[0][0][:shortest], np.stack([returns[:shortest].mean(1) for _, returns in curves])

    def best_seed(self) -> int:
        """The seed with the highest evaluation, of those not frozen; without evaluations the first one."""
        if not self.evaluated:
            return self.active_seeds[0]
        return max(self.active_seeds, key=lambda seed: float(self.evaluations(seed)[1].mean(1).max()))

    def agent(self, seed: int | None = None, which: str = "best") -> SavedAgent:
        """A saved agent: the best one, which had the highest evaluation of its seed, or the last one.

        An evaluation counts by its mean return, and the earliest of equal ones is taken. Without `seed`, the seed is
        the one with the highest evaluation of all.
        """
        if which not in ("best", "last"):
            raise RunError(f"an agent is kept as it was at its best or at the last step; {which!r} is neither.")
        if which == "best" and not self.evaluated and (self.folder(self.active_seeds[0]) / "last").exists():
            raise RunError(
                f"{self.path} has no best agent, because it evaluated nothing: use the last one (which='last', on the "
                "command line --which last)."
            )
        chosen = self.best_seed() if seed is None else seed
        if chosen not in self.seeds:
            raise RunError(f"{self.path} has no seed {chosen}: it trained {named_seeds(self.seeds)}.")
        if which == "last" and not (self.folder(chosen) / "last").exists() and (self.folder(chosen) / "best").exists():
            raise RunError(
                f"{self.path} has no agent of its last step yet, because it is still training or was killed: use the "
                f"best one (--which best), or let it finish with  td3 resume {self.path}"
            )
        agent = load_agent(self.folder(chosen) / which)
        if which == "best" and agent.facts.get("updates") == 0:
            logging.getLogger("td3").warning(
                f"Warning: the best agent of seed {chosen} is untrained: no evaluation was higher than that at env "
                f"step {agent.facts.get('env_steps', 0):,}, before the first update. To take the agent at the end of "
                "training: --which last (in Python: which='last')."
            )
        return agent

    def __repr__(self) -> str:
        """Path, environment and seeds."""
        return f"Run({str(self.path)!r}, env={self.config.env!r}, seeds={list(self.seeds)})"


def runs_near(path: Path) -> list[Path]:
    """Runs that may have been meant: in this folder, in one of that name below runs, or beside it; newest first."""
    for folder in (path, Path("runs") / path, path.parent):
        try:
            found = [entry for entry in folder.iterdir() if (entry / "config.json").is_file()]
            found.sort(key=lambda run: (run.is_symlink(), run.stat().st_mtime), reverse=True)
        except OSError:
            continue
        if found and folder != Path():
            close = difflib.get_close_matches(path.name, [run.name for run in found], 1)
            return sorted(found, key=lambda run: run.name not in close)[:MOST_NAMED]
    return []


def require_trust(config: TrainConfig, path: Path, trust: bool, command: str) -> None:
    """Refuse to import the module in an environment's name, unless the run is trusted."""
    module, names_module, name = config.env.partition(":")
    if module == "__main__" and not trust:
        raise RunError(
            f"{path} is a run of {name}, a class of the script that trained it, which no command can import: move the "
            f"class to a file of its own, such as {name.lower()}.py, and train {name.lower()}:{name}, or continue this "
            f"run from the script with  td3.resume(RUN, env={name})."
        )
    if module == FROM_PYTHON and not trust:
        raise not_found(config.env)
    if names_module and not trust:
        raise RunError(
            f"{path} is a run of {config.env}, and to make that environment executes the code of the module {module}: "
            f"if you trust it, say so with  {command} --trust  (in Python: env=... or trust=True)."
        )


def resume_command(path: Path, config: TrainConfig) -> str:
    """The command that continues a run, with `--trust` where code of its own is imported again."""
    return f"td3 resume {shlex.quote(str(path))}{trust_option(config)}"


def trust_option(config: TrainConfig) -> str:
    """What a command needs that imports code of the run's own again."""
    return " --trust" if ":" in config.env or config.replace_steps else ""


def require_trusted_steps(config: TrainConfig, path: Path, trust: bool, command: str) -> None:
    """Refuse to execute the files of replaced steps that a run or a file of settings names, unless they are trusted."""
    if config.replace_steps and not trust:
        by = f" with  td3 steps {path}, " if path.is_dir() else ""
        raise RunError(
            f"{path} replaces steps by {', '.join(config.replace_steps)}, and this command executes that code: read it"
            f"{by} and if you trust it, say so with  {command} --trust  (in Python: replace_steps=[...] or trust=True)."
        )


def named_seeds(seeds: Sequence[int]) -> str:
    """Seeds in a row, in words."""
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def load(path: Path | str, seed: int | None = None, which: str = "best") -> SavedAgent:
    """The agent in a run directory or in an agent's folder."""
    folder = Path(path)
    if (folder / "agent.json").exists():
        return load_agent(folder)
    return Run(folder).agent(seed, which)
