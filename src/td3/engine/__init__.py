"""How updates are executed. An engine wraps `update()`; it never rewrites it."""

from td3.engine.acting import acting_policy, live_policy
from td3.engine.check import TOLERANCE, TOLERANCE_TF32, max_difference
from td3.engine.engine import Engine
from td3.engine.make import make_engine
from td3.engine.once import update_once

__all__ = [
    "TOLERANCE",
    "TOLERANCE_TF32",
    "Engine",
    "acting_policy",
    "live_policy",
    "make_engine",
    "max_difference",
    "update_once",
]
