"""Observations of every kind as one vector, the input of the networks."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.wrappers import FlattenObservation


def as_vector(environment: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment with its observations flattened, if they are not an array already and can be.

    A Discrete number is a name and not an amount: it becomes as many numbers as it has values, one of them 1. Boxes of
    whole numbers are amounts and stay as they are.
    """
    space = environment.observation_space
    if isinstance(space, Dict | Tuple | Discrete | MultiBinary | MultiDiscrete):
        flat = space.is_np_flattenable and not holds_image(space)
        return FlattenObservation(environment) if flat else environment
    return environment


def holds_image(space: Space[Any]) -> bool:
    """Whether it is an image, or a Dict or Tuple with one."""
    if isinstance(space, Dict):
        return any(map(holds_image, space.values()))
    if isinstance(space, Tuple):
        return any(map(holds_image, space))
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) >= 2


def flattened_from(environment: gym.Env[Any, Any]) -> str:
    """The flattened space as text, such as Dict(goal 3, position 10); empty if nothing was flattened."""
    while isinstance(environment, gym.Wrapper):
        if isinstance(environment, FlattenObservation):
            return described(environment.env.observation_space)
        environment = environment.env
    return ""


def described(space: Space[Any]) -> str:
    """A short description of a space."""
    if isinstance(space, Dict):
        return f"Dict({', '.join(f'{name} {described(part)}' for name, part in space.items())})"
    if isinstance(space, Tuple):
        return f"Tuple({', '.join(map(described, space))})"
    if isinstance(space, Box):
        return str(int(np.prod(space.shape)))
    return str(space)
