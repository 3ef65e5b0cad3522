"""How updates are executed. An engine wraps `update()`; it never rewrites it."""

from td3.engine.eager import EagerEngine

__all__ = ["EagerEngine"]
