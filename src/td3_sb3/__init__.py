"""Stable-Baselines3's TD3 with this package's engine: change the import to `from td3_sb3 import TD3`."""

import importlib.util

from td3.errors import missing_extra

if importlib.util.find_spec("stable_baselines3") is None:
    raise missing_extra("td3_sb3", "sb3")

from td3_sb3.model import TD3

__all__ = ["TD3"]
