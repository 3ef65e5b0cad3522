"""Offline training: `td3.train_offline`, and the settings of such a run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from td3.callbacks.callback import Callback
from td3.config import TrainConfig, resolve
from td3.environments.spec import parse_env
from td3.errors import ConfigError
from td3.offline import Dataset, find_dataset
from td3.report.analysis import Run
from td3.run.directory import require_trust
from td3.training.api import train_run, with_display
from td3.variants import load_functions, names_of, require_no_import

UNUSED = (
    *("envs", "workers", "ray_address", "max_staleness", "pixels", "frames", "image_size", "action_repeat"),
    *("learning_starts", "exploration_noise", "buffer_size", "train_freq", "utd_ratio", "hindsight_goals"),
    *("image_features", "random_shift"),
)
"""Settings of collecting, which an offline run does not do."""
FIXED = {"learning_starts": 0, "train_freq": "step"}


def train_offline(
    dataset: str | Path,
    env: Any = None,
    *,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    replace_steps: Sequence[Callable[..., Any] | str] = (),
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Train on recorded transitions and return the run: `td3.train_offline("data.npz", "Hopper-v5", steps=100_000)`.

    `dataset` is a run directory, an .npz or HDF5 file of transitions, or the id or directory of a Minari dataset. `env`
    may be left out where the dataset names it; its spaces are needed, and it is evaluated in. One that a run names as
    `module:Class` is given, or imported with `trust`. Everything else is as in `td3.train`, but that `variant` is
    behavior-cloning and `normalize_observations` is True unless given.
    """
    require_no_import("td3.train_offline")
    told = with_display(callbacks, progress)
    found = find_dataset(dataset)
    given = None if env is None else parse_env(env)
    functions = load_functions(replace_steps)
    settings["replace_steps"] = names_of(replace_steps)
    if given is not None:
        settings["env_kwargs"] = given.env_kwargs | settings.get("env_kwargs", {})
    if unused := [name for name in UNUSED if name in settings]:
        raise ConfigError("has no effect offline, where nothing is collected: leave it out.", unused[0])
    config = offline_config(found, given and given.env, **settings)
    if given is None:
        require_trust(config, Path(found.name), trust, f"td3 offline {dataset}")
    return train_run(config, told, given and given.factory, functions)


def offline_config(dataset: Dataset, env: str | None, **given: Any) -> TrainConfig:
    """The settings of a run on this dataset, in this environment or the one that the dataset names."""
    if env is None and dataset.env is None:
        raise ConfigError(
            f"{dataset.name} does not say which environment it was recorded in, and the range of actions and the "
            "evaluation need it: give --env (in Python, env=...)."
        )
    kwargs = dataset.env_kwargs if env in (None, dataset.env) else {}
    usual = {"variant": ("behavior-cloning",), "normalize_observations": True}
    settings = {**usual, **given, **FIXED, "action_repeat": dataset.action_repeat}
    settings["env_kwargs"] = {**kwargs, **given.get("env_kwargs", {})}
    return resolve(env or dataset.env or "", dataset=dataset.name, **settings)
