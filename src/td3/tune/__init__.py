"""Search for settings that suit a task: `td3 tune ENV`."""

from td3.tune.search import SEARCH, tune

__all__ = ["SEARCH", "tune"]
