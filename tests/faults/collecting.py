"""Collect from scripted environments in every place where they can be stepped."""

import numpy as np
from scripted import HIGH, LOW

from td3.algorithm.streams import derive_seed
from td3.collect.base import Episode
from td3.collect.collector import Collector
from td3.environments import InProcessVectorEnv, ProcessVectorEnv, WorkerBackend, place

SEED, ENVS = 3, 3
WHERE = ("in process", "threads", "processes")


def scripted_seed(episode: int, seed: int = SEED, environment: int = 0) -> int:
    """What the environment shows as its seed in this episode."""
    return derive_seed(seed, f"environment {environment}", episode) % 2**31 % 1_000_003


def placed(
    make, where: str, count: int = ENVS, workers: int = 1, patience: float = 2.0
) -> InProcessVectorEnv | ProcessVectorEnv:
    kinds = {
        "in process": WorkerBackend(),
        "threads": WorkerBackend("threads", count),
        "processes": WorkerBackend("processes", workers),
    }
    return place(make, count, kinds[where], patience)


def collected(environments, rounds: int = 40, seeds=(SEED,)) -> tuple[np.ndarray, list[Episode], Collector]:
    """Rows `[round, member, environment, row]`, the finished episodes, and the collector."""
    collector = Collector(environments, seeds, LOW, HIGH, 0.2)
    rows, episodes = [], []
    for _ in range(rounds):
        found, ended = collector.step(collector.act(None))
        rows.append(found)
        episodes += ended
    return np.stack(rows), episodes, collector
