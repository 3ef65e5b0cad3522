"""A dataset of transitions by its name: a run directory, an .npz or HDF5 file, or a Minari dataset."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.environments import TaskSpaces
from td3.errors import RunError
from td3.offline.files import read_hdf5, read_npz
from td3.offline.minari_dataset import find_minari
from td3.offline.transitions import DatasetError, rows_of_arrays, rows_of_run
from td3.policy import Array
from td3.run.checkpoints import Checkpoints
from td3.run.directory import Run

MINARI_ID = re.compile(r"([\w.-]+/)*[\w.-]+-v\d+")
"""Names of Minari's datasets, such as D4RL/door/human-v2 or mujoco/halfcheetah/medium-v0."""


class Dataset(NamedTuple):
    """Recorded transitions, which are neither read yet nor compared with an environment's spaces."""

    name: str
    """As the run's config.json keeps it: an absolute path, or the id of a Minari dataset."""
    env: str | None
    """The environment it was recorded in, where the dataset says so."""
    env_kwargs: dict[str, Any]
    read: Callable[[], Mapping[str, Array] | list[Array]]
    """Reads columns by name, or the replay buffers `[count, row]` of a run's seeds."""
    action_repeat: int = 1
    """Env steps for which the run repeated each action: its transitions span as many."""

    def rows(self, spaces: TaskSpaces) -> Array:
        """Rows `[count, row]` of a replay buffer of this task; raises `DatasetError` for what is damaged or no fit."""
        found = self.read()
        if isinstance(found, list):
            return rows_of_run(np.concatenate(found), spaces, self.name)
        return rows_of_arrays(found, spaces, self.name)


def find_dataset(source: str | Path) -> Dataset:
    """The dataset of this name, whose transitions are read by `rows`; raises `DatasetError` where there is none."""
    path, name = Path(source), str(source)
    try:
        # Resolved: runs/ENV/latest may be another run tomorrow.
        exists, is_folder, absolute = path.exists(), path.is_dir(), str(path.resolve())
    except (OSError, ValueError) as error:
        raise DatasetError(f"{name} cannot be read ({error}).") from None
    if is_folder and (path / "data" / "metadata.json").is_file():
        return Dataset(absolute, *find_minari(path))
    if is_folder:
        config = Run(path).config
        return Dataset(absolute, config.env, dict(config.env_kwargs), partial(_buffers_of, path), config.action_repeat)
    if exists and path.suffix == ".npz":
        return Dataset(absolute, None, {}, partial(read_npz, path))
    if exists and path.suffix in (".hdf5", ".h5"):
        return Dataset(absolute, None, {}, partial(read_hdf5, path))
    if exists:
        raise DatasetError(f"{name} is no dataset: give a file that ends in .npz, .hdf5 or .h5, or a directory.")
    if MINARI_ID.fullmatch(name) and path.suffix not in (".npz", ".hdf5", ".h5"):
        return Dataset(name, *find_minari(name))
    raise DatasetError(f"{name} does not exist: give a run directory, an .npz or HDF5 file, or a Minari dataset.")


def _buffers_of(path: Path) -> list[Array]:
    """The replay buffers in the newest whole checkpoint, of all seeds that were not frozen."""
    run = Run(path)
    checkpoint, refused = Checkpoints(path).newest()
    if checkpoint is None or not checkpoint.shards:
        why = refused[0] if refused else "it has no checkpoint with transitions"
        raise DatasetError(f"{path} has no replay buffer to train on ({why}): train it with checkpoints first.")
    if run.config.pixels:
        raise DatasetError(f"{path} was trained on images, and offline training reads vectors: give another dataset.")
    members = [run.seeds.index(seed) for seed in run.active_seeds]
    try:
        rows = np.concatenate([chunk for _, chunk in checkpoint.rows()], axis=1)
        # One environment after another, each in its order: as it was recorded they take turns.
        turns = 1 if run.config.workers == "ray" else run.config.rows_per_round
        order = np.argsort((checkpoint.shards[0].first + np.arange(rows.shape[1])) % turns, kind="stable")
        return [rows[member, order] for member in members]
    except (ValueError, IndexError) as error:
        raise RunError(f"the replay buffer of {path} is damaged ({error}).") from None
