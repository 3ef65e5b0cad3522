"""Exploration noise, for those who have no Stable-Baselines3; its own noise objects work as well.

As there, noise is a share of half the action range, and comes from numpy's global generator, which `TD3(seed=...)`
seeds.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from td3.errors import ConfigError
from td3.policy import Array


class NormalActionNoise:
    """Independent normal numbers."""

    def __init__(self, mean: Any, sigma: Any) -> None:
        self._mu, self._sigma = np.asarray(mean, np.float64), np.asarray(sigma, np.float64)

    def __call__(self) -> Array:
        """The noise of one step."""
        return np.asarray(np.random.normal(self._mu, self._sigma), np.float32)

    def reset(self) -> None:
        """Nothing: every step is independent."""


class OrnsteinUhlenbeckActionNoise:
    """Noise that drifts, pulled back to its mean; it starts anew with every episode."""

    def __init__(self, mean: Any, sigma: Any, theta: float = 0.15, dt: float = 1e-2, initial_noise: Any = None) -> None:
        self._mu, self._sigma = np.asarray(mean, np.float64), np.asarray(sigma, np.float64)
        self._theta, self._dt, self.initial_noise = theta, dt, initial_noise
        self._previous: Array = np.zeros_like(self._mu)
        self.reset()

    def __call__(self) -> Array:
        """The noise of one step."""
        pull = self._theta * (self._mu - self._previous) * self._dt
        self._previous = self._previous + pull + self._sigma * np.sqrt(self._dt) * np.random.normal(size=self._mu.shape)
        return np.asarray(self._previous, np.float32)

    def reset(self) -> None:
        """Go back to the start."""
        start = np.zeros_like(self._mu) if self.initial_noise is None else self.initial_noise
        self._previous = np.asarray(start, np.float64)


class StackedNoise:
    """One noise for each environment: drifting noise must not be shared, and starts anew with its own episode."""

    def __init__(self, noise: Any, envs: int) -> None:
        if noise is not None and not callable(noise):
            raise ConfigError(
                "action_noise must be None or an object to be called, such as NormalActionNoise, "
                f"but {noise!r} was given."
            )
        noises = getattr(noise, "noises", None)  # Stable-Baselines3's VectorizedActionNoise
        if noise is None:
            noises = []
        elif noises is None:
            noises = [noise, *(copy.deepcopy(noise) for _ in range(envs - 1))]
        elif len(noises) != envs:
            raise ConfigError(
                f"action_noise serves {len(noises)} environments, but there are {envs}: make one for each."
            )
        self.noises: Sequence[Any] = list(noises)
        for each in self.noises:
            _reset(each)

    def added_to(self, actions: Array) -> Array:
        """Actions `[environment, action]` within [-1, 1], with noise, kept there."""
        if not self.noises:
            return actions
        noise = np.stack([np.asarray(each(), np.float32) for each in self.noises])
        return np.clip(actions + noise.reshape(actions.shape), -1, 1)

    def episode_ended(self, environment: int) -> None:
        """Start this environment's noise anew."""
        if self.noises:
            _reset(self.noises[environment])


def _reset(noise: Any) -> None:
    if hasattr(noise, "reset"):
        noise.reset()


def described(noise: Any) -> dict[str, Any] | None:
    """The two usual kinds of noise in plain numbers, whoever's class it is; None for another kind."""
    kind = type(noise).__name__
    if kind == "NormalActionNoise":
        return {"kind": kind, "mean": np.asarray(noise._mu).tolist(), "sigma": np.asarray(noise._sigma).tolist()}
    if kind == "OrnsteinUhlenbeckActionNoise":
        numbers = {"theta": float(noise._theta), "dt": float(noise._dt)}
        initial = None if noise.initial_noise is None else np.asarray(noise.initial_noise).tolist()
        mean, sigma = np.asarray(noise._mu).tolist(), np.asarray(noise._sigma).tolist()
        return {"kind": kind, "mean": mean, "sigma": sigma, **numbers, "initial_noise": initial}
    return None


def from_description(given: dict[str, Any] | None) -> Any:
    """The noise that `described` told of."""
    if given is None:
        return None
    kinds = {kind.__name__: kind for kind in (NormalActionNoise, OrnsteinUhlenbeckActionNoise)}
    return kinds[given["kind"]](**{name: value for name, value in given.items() if name != "kind"})
