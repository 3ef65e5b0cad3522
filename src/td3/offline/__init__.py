"""Transitions recorded earlier, to train on without collecting: read, checked, and brought into the buffer's rows."""

from td3.offline.source import Dataset, find_dataset

__all__ = ["Dataset", "find_dataset"]
