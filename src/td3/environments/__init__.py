"""Making environments, checking that TD3 can serve them, and stepping many of them as one."""

import gymnasium as gym

from td3.environments.check import TaskSpaces, check_environment
from td3.environments.make import families, make_environment, note_on
from td3.environments.placing import Placing, as_asked, fastest, place
from td3.environments.pool import EnvironmentPool, single_threaded_children
from td3.environments.vectorise import EnvironmentRow

if "Rail-v0" not in gym.registry:
    gym.register("Rail-v0", entry_point="td3.environments.rail:Rail", max_episode_steps=100)

__all__ = [
    "EnvironmentPool",
    "EnvironmentRow",
    "Placing",
    "TaskSpaces",
    "as_asked",
    "check_environment",
    "families",
    "fastest",
    "make_environment",
    "note_on",
    "place",
    "single_threaded_children",
]
