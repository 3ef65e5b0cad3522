"""Environments that go wrong once, in one of their methods, in a way of choice.

Imports no PyTorch: worker processes that import this module start in a second.
"""

import os
import time
from pathlib import Path

import numpy as np
from scripted import Scripted


class Planted(Scripted):
    """Goes wrong once: in its second reset, in its second step, or when it is constructed after that.

    Which environment does is told by the seeds of its first two episodes.
    """

    def __init__(self, folder: Path, method: str, kind: str, seeds: tuple[int, int]) -> None:
        super().__init__(lengths=(9, 11, 10))
        self.folder, self.method, self.kind, self.seeds = folder, method, kind, seeds
        if method == "construct" and (folder / "step").exists() and self.first("construct"):
            self.go_wrong()

    def first(self, what: str) -> bool:
        try:
            (self.folder / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if self.method == "reset" and self.seed_number == self.seeds[1] and self.first("reset"):
            observation = self.go_wrong(observation)
        return observation, info

    def step(self, action):
        observation, *rest = super().step(action)
        if self.seed_number == self.seeds[0] and self.step_number == 2 and self.first("step"):
            if self.method == "step":
                observation = self.go_wrong(observation)
            if self.method == "construct":  # which is what a fault is followed by
                raise RuntimeError("first this")
        return observation, *rest

    def close(self):
        if self.method == "close" and self.folder.exists() and self.first("close"):
            self.go_wrong()

    def go_wrong(self, observation=None):
        if self.kind == "raise":
            raise RuntimeError("planted")
        if self.kind == "hang":
            time.sleep(3600)
        if self.kind == "die":
            os._exit(3)
        return None if observation is None else observation * np.nan


def planted(folder: Path, method: str, kind: str, seeds: tuple[int, int] = (-1, -1)) -> object:
    """The environment, or, where its construction is to give invalid data, once something else."""
    made = Planted(folder, method, kind, seeds)
    if (method, kind) == ("construct", "invalid data") and (folder / "construct").exists() and made.first("given"):
        return "not an environment"
    return made
