"""How updates are executed. An engine wraps `update()`; it never rewrites it."""

from td3.engine.eager import EagerEngine, acting_policy, live_policy
from td3.engine.graph import TOLERANCE, TOLERANCE_TF32, GraphEngine, disagreement

__all__ = ["TOLERANCE", "TOLERANCE_TF32", "EagerEngine", "GraphEngine", "acting_policy", "disagreement", "live_policy"]
