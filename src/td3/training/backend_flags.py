"""PyTorch's flags for updates on a GPU."""

import contextlib
from collections.abc import Iterator

import torch

from td3.config import Precision


@contextlib.contextmanager
def backend_flags(precision: Precision = "float32") -> Iterator[None]:
    """PyTorch's flags as updates on a GPU need them; afterwards as they were before."""
    tf32 = precision == "tf32"
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    # cuDNN would otherwise choose TF32, and sums whose order is another one each time.
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = tf32, tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
