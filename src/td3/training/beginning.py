"""What a new run begins with besides new networks and an empty buffer: a dataset's rows, or a saved agent's weights."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from td3.algorithm.replacing import Replacement, state_numbers
from td3.config import TrainConfig
from td3.engine.check import try_changes
from td3.environments import TaskSpaces
from td3.offline import find_dataset
from td3.offline.transitions import DatasetError
from td3.policy import Array
from td3.resources import require_state_memory
from td3.run.initial_weights import start_from_
from td3.training.backend_flags import backend_flags
from td3.training.setup import buffer_capacity, choose_device, make_agent

if TYPE_CHECKING:
    from td3.training.trainer import Trainer

CHUNK = 1 << 16
"""Rows that are put into the buffer, and into what normalizes observations, at a time."""


def read_dataset(config: TrainConfig, spaces: TaskSpaces) -> tuple[TrainConfig, Array | None]:
    """The rows of an offline run's dataset, and its settings with a buffer of their number; None of another run."""
    if config.dataset is None:
        return config, None
    dataset = find_dataset(config.dataset)
    rows = dataset.rows(spaces)
    if len(rows) < config.td3.batch_size:
        raise DatasetError(
            f"{config.dataset} has {len(rows):,} transitions, fewer than a batch of {config.td3.batch_size:,}: lower "
            "--td3.batch-size or give a larger dataset."
        )
    return replace(config, dataset=dataset.name, td3=replace(config.td3, buffer_size=len(rows))), rows


def dataset_again(config: TrainConfig, spaces: TaskSpaces) -> Array | None:
    """The same rows for a run that begins again because it has no checkpoint."""
    same, rows = read_dataset(config, spaces)
    if same != config:
        raise DatasetError(
            f"{config.dataset} has {same.td3.buffer_size:,} transitions, and {config.td3.buffer_size:,} when the run "
            "began: bring it back, or train a new run on it."
        )
    return rows


def try_start(config: TrainConfig, spaces: TaskSpaces, replacements: Sequence[Replacement]) -> TrainConfig:
    """Refuse a saved agent that this run cannot start from, before anything is written; returns the settings.

    In these, links are resolved: runs/ENV/latest is about to become this run.
    """
    if config.init_from is None:
        return config
    path = Path(config.init_from).resolve()
    agent = make_agent(replace(config, seeds=1), spaces, torch.device("cpu"), replacements)
    for seed in config.member_seeds:
        start_from_(agent, path, [seed], spaces)
    return replace(config, init_from=str(path))


def try_replaced_steps(config: TrainConfig, spaces: TaskSpaces, replacements: Sequence[Replacement]) -> list[str]:
    """Refuse replaced steps that cannot be used, before anything is written; returns warnings."""
    if not replacements:
        return []
    device = choose_device(config.device)
    capacity = buffer_capacity(config)
    require_state_memory(4 * config.seeds * state_numbers(replacements, capacity), config.seeds, device)
    tried = replace(config, seeds=min(2, config.seeds)) if device.type == "cpu" else config  # on a GPU, all at once
    with backend_flags(config.precision):
        return try_changes(make_agent(tried, spaces, device, replacements), tried.member_seeds, config.td3)


def begin(trainer: "Trainer", rows: Array | None) -> None:
    """Fill the buffer of an offline run, and load the weights that a run starts from."""
    config, buffer, agent = trainer.config, trainer.buffer, trainer.agent
    if rows is not None:
        for first in range(0, len(rows), CHUNK):
            chunk = torch.from_numpy(rows[first : first + CHUNK]).to(buffer.rows.device)
            buffer.add_(chunk.expand(agent.members, -1, -1))
        trainer.beginning.append(
            f"Offline: every step is an update on the {len(rows):,} transitions of {config.dataset}; "
            f"{config.env} is only evaluated in."
        )
    if config.init_from is not None:
        trainer.beginning.append(start_from_(agent, Path(config.init_from), config.member_seeds, trainer.spaces))
