"""Environments for worker processes, which import this file and nothing heavy with it."""

import os
import tempfile
import time
from pathlib import Path

from scripted import Scripted

COUNT = 8
PATIENT = 20.0


class Meeting(Scripted):
    """A step that ends only when all environments are in theirs: stepped one after another, it never would."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.round = folder, 0

    def step(self, action):
        self.round += 1
        handle, _ = tempfile.mkstemp(prefix=f"{self.round}-", dir=self.folder)
        os.close(handle)
        until = time.monotonic() + PATIENT
        while len([*self.folder.glob(f"{self.round}-*")]) < COUNT:
            assert time.monotonic() < until, "the others did not come"
            time.sleep(0.001)
        return super().step(action)


class Waiting(Scripted):
    """A step in which the processor has nothing to do."""

    def step(self, action):
        time.sleep(0.01)
        return super().step(action)
