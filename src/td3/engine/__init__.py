"""How updates are executed. An engine wraps `update()`; it never rewrites it."""

from td3.engine.eager import EagerEngine, live_policy
from td3.engine.graph import TOLERANCE, TOLERANCE_TF32, GraphEngine, disagreement

__all__ = ["TOLERANCE", "TOLERANCE_TF32", "EagerEngine", "GraphEngine", "disagreement", "live_policy"]
