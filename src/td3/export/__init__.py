"""A trained agent for other programs: a folder with ONNX, PyTorch and td3 files, each compared with the agent."""

from td3.export.folder import Export, export_run
from td3.export.hub import push, require_hub

__all__ = ["Export", "export_run", "push", "require_hub"]
