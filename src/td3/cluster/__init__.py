"""Across machines: environments stepped by Ray actors wherever there is a core, the learner where the GPU is."""

from td3.cluster.collect import RayCollector
from td3.cluster.connection import connected, look_also_in, module_folders, require_cluster

__all__ = ["RayCollector", "connected", "look_also_in", "module_folders", "require_cluster"]
