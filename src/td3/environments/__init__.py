"""Create environments, check that TD3 can train on them, and step many of them together."""

import gymnasium as gym

from td3.environments.child_processes import single_threaded_children
from td3.environments.in_process import InProcessVectorEnv
from td3.environments.make import families, make_environment, note_on
from td3.environments.processes import ProcessVectorEnv
from td3.environments.requirements import TaskSpaces, check_environment
from td3.environments.workers import WorkerBackend, fastest_workers, in_batch, place, requested_workers

if "Rail-v0" not in gym.registry:
    gym.register("Rail-v0", entry_point="td3.environments.rail:Rail", max_episode_steps=100)
    gym.register("RailGoal-v0", entry_point="td3.environments.rail_goal:RailGoal", max_episode_steps=50)

__all__ = [
    "InProcessVectorEnv",
    "ProcessVectorEnv",
    "TaskSpaces",
    "WorkerBackend",
    "check_environment",
    "families",
    "fastest_workers",
    "in_batch",
    "make_environment",
    "note_on",
    "place",
    "requested_workers",
    "single_threaded_children",
]
