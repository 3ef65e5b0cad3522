"""Across machines: environments stepped by Ray actors wherever there is a core, the learner where the GPU is."""

from td3.collect.ray_collector import RayCollector
from td3.collect.ray_connection import connected, look_also_in, module_folders, require_cluster

__all__ = ["RayCollector", "connected", "look_also_in", "module_folders", "require_cluster"]
