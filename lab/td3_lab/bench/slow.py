"""An environment made slower. Worker processes import this file: it must stay light."""

import time
from typing import Any

import gymnasium as gym

from td3.environments import make_environment


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    """A step with a delay, as of a simulator or of hardware."""

    def __init__(self, environment: gym.Env[Any, Any], seconds: float) -> None:
        super().__init__(environment)
        self._seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Wait, and step."""
        time.sleep(self._seconds)
        return super().step(action)


def make_slow(env: str, seconds: float) -> gym.Env[Any, Any]:
    """The environment of this name, made slower."""
    return Slow(make_environment(env), seconds)
