"""More environments that misbehave; without PyTorch, so that worker processes start in a second."""

import ctypes
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box
from scripted import Scripted


class Greedy(Scripted):
    """Changes the action that it is given, and keeps one observation that it changes later."""

    def __init__(self):
        super().__init__(lengths=(9, 11, 10))
        self.shown = np.zeros(3, np.float32)

    def observation(self, moved):
        self.shown[:] = super().observation(moved)
        return self.shown

    def step(self, action):
        result = super().step(action)
        action *= 5
        return result


class Ending(BaseException):
    """Neither an Exception nor Ctrl-C."""


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


RAISED = {
    "exit": lambda: SystemExit(0),
    "base exception": lambda: Ending("over"),
    "generator exit": lambda: GeneratorExit(),
    "without text": lambda: Mute(),
    "a megabyte": lambda: RuntimeError("x" * 2**20),
    "lines": lambda: RuntimeError("one\ntwo"),
    "surrogates": lambda: RuntimeError("\udcff"),
}
SENTENCES = {
    "exit": "SystemExit: 0",
    "base exception": "Ending: over",
    "generator exit": "GeneratorExit",
    "without text": "Mute: its text cannot be printed",
    "a megabyte": "RuntimeError: " + "x" * 286 + " ...",
    "lines": "RuntimeError: one two",
    "surrogates": "RuntimeError: ",
}


class Raising(Scripted):
    """Raises at its second step or its second reset, whatever its process."""

    def __init__(self, method: str, kind: str):
        super().__init__(lengths=(2,) if method == "reset" else (50,))
        self.method, self.kind, self.resets = method, kind, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.method == "reset" and self.resets == 2:
            raise RAISED[self.kind]()
        return super().reset(seed=seed)

    def step(self, action):
        if self.method == "step" and self.total_steps == 1:
            raise RAISED[self.kind]()
        return super().step(action)


class Talking(Scripted):
    """Shows text or objects in place of numbers from its third step on."""

    def __init__(self, what: str):
        super().__init__(lengths=(50,))
        self.what = what

    def step(self, action):
        observation, *rest = super().step(action)
        if self.total_steps >= 3:
            shown = {"text": ["a", "b", "c"], "objects": [object()] * 3, "nothing": None, "ragged": [[1], [2, 3], []]}
            observation = shown[self.what]
        return observation, *rest


class Image(Scripted):
    """An image of bytes, says its space."""

    def __init__(self, shown: str = "bytes", later: str | None = None):
        super().__init__(lengths=(50,))
        self.observation_space = Box(0, 255, (8, 8), np.uint8)
        self.shown, self.later = shown, later or shown

    def observation(self, moved):
        kind = self.later if self.total_steps >= 3 else self.shown
        image = np.full((8, 8), 7 + self.step_number, np.uint8)
        return {
            "bytes": image,
            "whole numbers": image.astype(np.int64),
            "from 0 to 1": image / 255,
            "too large": image.astype(np.int64) + 300,
            "negative": image.astype(np.int16) - 20,
            "floats": image.astype(np.float32),
        }[kind]


class Slow(Scripted):
    """Takes a third of a second for everything."""

    def step(self, action):
        time.sleep(0.3)
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        time.sleep(0.3)
        return super().reset(seed=seed)


def in_worker() -> bool:
    return multiprocessing.parent_process() is not None


class NotInWorkers(Scripted):
    """Cannot be constructed in a worker process."""

    def __init__(self, kind: str):
        super().__init__()
        if in_worker():
            if kind == "hang":
                time.sleep(3600)
            if kind == "die":
                os._exit(3)
            raise RuntimeError("not here")


class Steady(Scripted):
    """Takes a second for a step, in ten parts; says when it is at its second."""

    def __init__(self, marker: str):
        super().__init__()
        self.marker = Path(marker)

    def step(self, action):
        result = super().step(action)
        for _ in range(10):
            time.sleep(0.1)
            if self.total_steps == 2:
                self.marker.touch()
        return result


class Frozen(Scripted):
    """Hangs in its first step without ever letting another thread of Python run."""

    def step(self, action):
        ctypes.PyDLL(None).sleep(3600)


class Stuck(Scripted):
    """Hangs in its first step."""

    def step(self, action):
        time.sleep(3600)


class Terminating(Scripted):
    """Is told to end while it is constructed, as the whole run would be."""

    def __init__(self, render_mode=None):
        super().__init__()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        raise AssertionError("nobody listened")


class Hopeless(Scripted):
    """Fails at its second step, every time, if its member is the one that does."""

    def __init__(self, folder, members, kind="raise"):
        super().__init__(lengths=(9, 11, 10))
        self.folder, self.members, self.kind = folder, members, kind

    def reset(self, *, seed=None, options=None):
        if seed in self.members.get("reset", ()) and (self.folder / "armed").exists():
            raise RuntimeError("again")
        self.given = seed
        return super().reset(seed=seed)

    def step(self, action):
        if self.given in self.members.get("step", ()) and self.step_number == 1:
            if self.kind == "die":
                os._exit(3)
            raise RuntimeError("again")
        return super().step(action)


class Unlucky(Scripted):
    """Does something terrible at its nth step, once in the life of the marker file."""

    def __init__(self, marker: str, kind: str, at: int = 7):
        super().__init__(lengths=(9, 11, 10))
        self.marker, self.kind, self.at = Path(marker), kind, at

    def step(self, action):
        result = super().step(action)
        if self.total_steps == self.at and not self.marker.exists():
            self.marker.touch()
            return self.misfortune(*result)
        return result

    def misfortune(self, observation, reward, terminated, truncated, info):
        if self.kind == "exception":
            raise RuntimeError("the simulator lost its mind")
        if self.kind == "NaN observation":
            return observation * np.nan, reward, terminated, truncated, info
        if self.kind == "infinite reward":
            return observation, np.inf, terminated, truncated, info
        if self.kind == "shape":
            return observation[:2], reward, terminated, truncated, info
        if self.kind == "hang":
            time.sleep(3600)
        if self.kind == "death":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
        return None
