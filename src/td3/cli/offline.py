"""`td3 offline`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from td3.cli.options import HIDDEN, Commands, EnvKwargs
from td3.cli.parsing import parse_arguments
from td3.cli.train import TrainCommand, run_training
from td3.config import TrainConfig
from td3.errors import ConfigError
from td3.settings import TD3Config
from td3.variant_settings import with_variant


@dataclass(frozen=True)
class OfflineTD3(TD3Config):
    """Hyperparameters of TD3 that an offline run reads."""

    learning_starts: Annotated[int, *HIDDEN] = 0
    exploration_noise: Annotated[float, *HIDDEN] = 0.1
    buffer_size: Annotated[int, *HIDDEN] = 1_000_000
    train_freq: Annotated[Any, *HIDDEN] = "step"
    utd_ratio: Annotated[float, *HIDDEN] = 1.0
    image_features: Annotated[int, *HIDDEN] = 50
    random_shift: Annotated[int, *HIDDEN] = 4
    hindsight_goals: Annotated[int, *HIDDEN] = 4

    def __post_init__(self) -> None:
        """No checks: `TD3Config` does them."""


@dataclass(frozen=True)
class OfflineCommand(TrainCommand):
    """Train on recorded transitions, without collecting: `td3 offline data.npz --env HalfCheetah-v5`."""

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")] = tyro.MISSING
    """A run directory, an .npz or HDF5 file of transitions, or the id or directory of a local Minari dataset."""
    env: str | None = None  # type: ignore[assignment]  # `offline_config` takes the dataset's
    """Environment for spaces and evaluation; by default the one that the dataset names."""
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """Arguments of the environment, as KEY=VALUE (continuous=true gravity=-5.0) or one JSON object."""
    steps: int = 1_000_000
    """Updates of each seed."""
    eval_every: int | None = None
    """Updates between evaluations; by default a round number that gives 20 to 30; 0: at the start and the end only."""
    log_every: int | None = None
    """Updates between rows of metrics.csv; by default 1,000, more in long runs, for at most 1,000 rows."""
    save_every: int | None = None
    """Updates between checkpoints; 0 makes none; by default as often as costs 2 % of the time at most."""
    normalize_observations: bool = True
    """Normalize observations by the dataset's mean and standard deviation, and clip to +-10."""
    variant: tuple[str, ...] = ("behavior-cloning",)
    """Variants of TD3, by name (`td3 steps` lists them); several as a,b."""
    td3: OfflineTD3 = field(default_factory=OfflineTD3)
    """Hyperparameters of TD3."""
    config: Annotated[Any, *HIDDEN] = None
    preset: Annotated[Any, *HIDDEN] = "author"
    envs: Annotated[int, *HIDDEN] = 1
    workers: Annotated[Any, *HIDDEN] = "auto"
    ray_address: Annotated[str | None, *HIDDEN] = None
    max_staleness: Annotated[int, *HIDDEN] = 1_000
    pixels: Annotated[bool, *HIDDEN] = False
    frames: Annotated[int, *HIDDEN] = 3
    image_size: Annotated[int, *HIDDEN] = 84
    action_repeat: Annotated[int, *HIDDEN] = 1


def offline_defaults(words: Sequence[str]) -> OfflineCommand:
    """Defaults with the settings of the chosen variants, so that --help shows them and given options override them."""
    default = OfflineCommand()
    try:
        typed, _ = parse_arguments(
            *(OfflineCommand, "td3 offline", words, "offline", []), add_help=False, return_unknown_args=True
        )
    except ConfigError:  # parsing with the right defaults refuses it again
        return default
    return replace(default, td3=with_variant(default.td3, typed.variant))


def offline_command(command: OfflineCommand) -> int:
    """Train offline, with a live display."""
    from td3.offline import find_dataset
    from td3.run.directory import require_trust
    from td3.training.api import train_run
    from td3.training.offline import UNUSED, offline_config

    dataset = find_dataset(command.dataset)
    typed = {f.name: getattr(command, f.name) for f in fields(TrainConfig)}
    typed |= {f.name: getattr(command.td3, f.name) for f in fields(TD3Config)}
    settings = {name: value for name, value in typed.items() if name not in (*UNUSED, "td3", "env", "dataset")}
    config = offline_config(dataset, command.env, **settings)
    if command.env is None:  # a module named on the command line may be imported
        require_trust(config, Path(dataset.name), command.trust, f"td3 offline {command.dataset}")
    return run_training(command, config, partial(train_run, config))


COMMANDS: Commands = {"offline": (OfflineCommand, offline_command)}
