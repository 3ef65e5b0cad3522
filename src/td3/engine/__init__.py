"""How updates are executed. An engine wraps `update()`; it never rewrites it."""

from td3.engine.cuda import TOLERANCE, TOLERANCE_TF32, CudaEngine, disagreement
from td3.engine.eager import EagerEngine, live_policy

__all__ = ["TOLERANCE", "TOLERANCE_TF32", "CudaEngine", "EagerEngine", "disagreement", "live_policy"]
