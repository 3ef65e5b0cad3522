"""Variables that numerical libraries read by themselves, set while a run needs them and taken back afterwards."""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

VARIABLES = {
    # MKL's strict mode: the same numbers whatever the number of threads, at no cost that could be measured.
    "MKL_CBWR": "AUTO,STRICT",
    # NumPy only multiplies small matrices here, next to PyTorch's threads; more threads would compete with those.
    "OPENBLAS_NUM_THREADS": "1",
}
"""Both are read once in a process: MKL's at PyTorch's first product on a CPU, OpenBLAS's when NumPy is imported.

A script has imported NumPy before it trains: there OpenBLAS is told by a call.
"""


@contextlib.contextmanager
def library_variables() -> Iterator[None]:
    """Set what is not set; what a library has read in the meantime stays with it until the process ends."""
    missing = {name: value for name, value in VARIABLES.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        late = "OPENBLAS_NUM_THREADS" in missing and "numpy" in sys.modules
        with _openblas().limit(limits=1) if late else contextlib.nullcontext():
            yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@functools.cache
def _openblas() -> ThreadpoolController:
    """NumPy's OpenBLAS, and others that are loaded by now; to look for them takes milliseconds."""
    controller: ThreadpoolController = ThreadpoolController().select(internal_api="openblas")
    return controller
