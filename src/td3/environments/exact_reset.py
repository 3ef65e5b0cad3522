"""Episodes that follow from their seed and their actions alone, also in environments that remember earlier ones."""

from typing import Any

import gymnasium as gym


def with_exact_reset(environment: gym.Env[Any, Any], extra: str) -> gym.Env[Any, Any]:
    """The environment, made to repeat itself where it is known not to; `extra` is the family it comes with."""
    if extra == "pybullet":
        # The first episode of a PyBullet walker is unlike all others: the floor counts as a part of the body only from
        # the end of the first reset on, which changes the first reward by a little. So nobody plays it.
        environment.reset(seed=0)
        environment.unwrapped.seed()  # type: ignore[attr-defined]  # PyBullet's have it; unseeded resets stay random
    elif type(environment.unwrapped).__name__ == "BipedalWalker":
        return FreshWorld(environment)
    return environment


class FreshWorld(gym.Wrapper[Any, Any, Any, Any]):
    """A new world for every episode: in an old one, contacts are looked at in an order that earlier episodes left."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Destroy what is in the old world, and begin in a new one."""
        import Box2D

        walker: Any = self.env.unwrapped
        walker._destroy()
        walker.world = Box2D.b2World()
        return self.env.reset(seed=seed, options=options)
