"""How updates are executed. An engine wraps `update()`; it never rewrites it."""

from td3.engine.check import TOLERANCE, TOLERANCE_TF32, max_difference
from td3.engine.eager import EagerEngine, MemberUpdate, acting_policy, live_policy
from td3.engine.graph import GraphEngine

__all__ = [
    "TOLERANCE",
    "TOLERANCE_TF32",
    "EagerEngine",
    "GraphEngine",
    "MemberUpdate",
    "acting_policy",
    "live_policy",
    "max_difference",
]
