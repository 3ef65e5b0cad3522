"""Episodes that depend on their seed and actions only, also in environments that keep state between episodes."""

from typing import Any

import gymnasium as gym


def with_exact_reset(environment: gym.Env[Any, Any], extra: str) -> gym.Env[Any, Any]:
    """The environment with deterministic resets, where it is known not to have them; `extra` is its family."""
    if extra == "pybullet":
        # The first episode of a PyBullet walker is unlike all others: the floor counts as a part of the body only from
        # the end of the first reset on, which changes the first reward slightly. So it is not used.
        environment.reset(seed=0)
        environment.unwrapped.seed()  # type: ignore[attr-defined]  # PyBullet's have it; unseeded resets stay random
    elif type(environment.unwrapped).__name__ == "BipedalWalker":
        return FreshWorld(environment)
    return environment


class FreshWorld(gym.Wrapper[Any, Any, Any, Any]):
    """A new world for every episode: in an old one, the order of contacts depends on earlier episodes."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Destroy the bodies of the old world, and reset in a new one."""
        import Box2D

        walker: Any = self.env.unwrapped
        walker._destroy()
        walker.world = Box2D.b2World()
        return self.env.reset(seed=seed, options=options)
