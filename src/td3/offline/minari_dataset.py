"""Columns of a local Minari dataset."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Dict

from td3.errors import missing_extra
from td3.offline.transitions import DatasetError
from td3.policy import Array


def find_minari(source: str | Path) -> tuple[str | None, dict[str, Any], Callable[[], dict[str, Array]]]:
    """The environment of a dataset, by name and arguments, and what reads its columns; nothing is downloaded.

    `source` is the id of a local dataset, or its directory.
    """
    try:
        import minari
    except ImportError:
        raise missing_extra(f"the Minari dataset {source}", "minari") from None
    with _readable(source):
        dataset = minari.MinariDataset(source / "data") if isinstance(source, Path) else minari.load_dataset(source)
        spec = dataset.env_spec
    kwargs = {} if spec is None else {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    return (None if spec is None else spec.id), kwargs, partial(_read, source, dataset)


def _read(source: str | Path, dataset: Any) -> dict[str, Array]:
    with _readable(source):
        episodes = [_columns(episode, dataset.observation_space) for episode in dataset.iterate_episodes()]
        return {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}


@contextlib.contextmanager
def _readable(source: str | Path) -> Iterator[None]:
    """What Minari raises, in one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise DatasetError(
            f"{source} is neither a file or directory nor a local Minari dataset: `minari download {source}` fetches "
            "one, and `minari list local` shows those that are there."
        ) from None
    except ImportError as error:
        raise missing_extra(f"the Minari dataset {source} ({error})", "minari") from None
    except Exception as error:  # of a package that is not ours, about a file that is not ours
        said = " ".join(str(error).split())[:300]
        raise DatasetError(f"{source} cannot be read as a Minari dataset ({type(error).__name__}: {said}).") from error


def _columns(episode: Any, space: Any) -> dict[str, Array]:
    observations = _flat(episode.observations, space)
    return {
        "observations": observations[:-1],
        "next_observations": observations[1:],
        "actions": _flat(episode.actions, None),
        "rewards": np.asarray(episode.rewards),
        "terminals": np.asarray(episode.terminations),
    }


def _flat(values: Any, space: Any) -> Array:
    """Arrays of an episode as one; parts of a Dict or Tuple side by side, in the order of its space."""
    if isinstance(values, dict | tuple):
        parts: Any = space.spaces if isinstance(space, Dict) else range(len(values))
        return np.concatenate([_flat(values[part], space[part]) for part in parts], axis=1)
    array = np.asarray(values)
    return array.reshape(len(array), -1)
