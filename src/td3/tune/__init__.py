"""Search for settings that suit a task: `td3 tune ENV`."""

from td3.tune.search import SEARCH, TuneOptions, Tuning, tune

__all__ = ["SEARCH", "TuneOptions", "Tuning", "tune"]
