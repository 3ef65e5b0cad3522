"""Making environments, checking that TD3 can serve them, and stepping many of them as one."""

from td3.environments.check import TaskSpaces, check_environment
from td3.environments.make import families, make_environment
from td3.environments.pool import EnvironmentPool, single_threaded_children
from td3.environments.vectorise import EnvironmentRow

__all__ = [
    "EnvironmentPool",
    "EnvironmentRow",
    "TaskSpaces",
    "check_environment",
    "families",
    "make_environment",
    "single_threaded_children",
]
