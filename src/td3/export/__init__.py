"""A trained agent for use elsewhere: one folder with ONNX, PyTorch and our own files, a model card, and their proof."""

from td3.export.folder import Export, export_run
from td3.export.hub import push_run

__all__ = ["Export", "export_run", "push_run"]
