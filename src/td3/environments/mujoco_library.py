"""The C library that steps MuJoCo simulations (`mujoco_batch.c`), and the functions of MuJoCo that it calls."""

import ctypes
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from td3.backends.compiler import compiled, find_compiler, open_library, ready_made

SOURCE = Path(__file__).with_name("mujoco_batch.c")
FLAGS = ("-O2", "-std=gnu11", "-ffp-contract=off")
"""Without contraction, which would round sums of products in another way than NumPy."""


class Batch(ctypes.Structure):
    """`struct Batch` of mujoco_batch.c."""

    _fields_ = [  # as ctypes wants it
        *(
            (name, ctypes.c_void_p)
            for name in ("step", "after", "get_error", "set_error", "get_warning", "set_warning")
        ),
        *((name, ctypes.c_void_p) for name in ("models", "simulations", "controls", "state_arrays", "observed")),
        *((name, ctypes.c_void_p) for name in ("warnings", "lengths", "bounds", "actions", "state", "observations")),
        *((name, ctypes.c_void_p) for name in ("squared_actions", "elapsed", "truncated", "failures")),
        *((name, ctypes.c_long) for name in ("state_parts", "state_size", "observation_parts", "observation_size")),
        *((name, ctypes.c_long) for name in ("action_size", "frame_skip", "limit")),
    ]


class Physics:
    """Addresses of MuJoCo's functions, in the library that its Python package has loaded."""

    def __init__(self, library: Any) -> None:
        names = "get_tls_error_fn", "set_tls_error_fn", "get_tls_warning_fn", "set_tls_warning_fn"
        self.step, self.contact_forces, *self.handlers = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in ("mj_step", "mj_rnePostConstraint", *(f"_mjPRIVATE__{name}" for name in names))
        )


@cache
def physics() -> Physics | None:
    """MuJoCo's functions; None where this version lacks one: a thread must be able to catch an error by itself."""
    mujoco = sys.modules.get("mujoco")
    folder = Path(str(mujoco.__file__)).parent if mujoco else Path()
    for path in (*folder.glob("libmujoco*"), *folder.glob("mujoco.dll")):
        try:
            return Physics(ctypes.CDLL(str(path)))
        except (AttributeError, OSError):
            continue
    return None


@cache
def stepper() -> ctypes.CDLL | None:
    """The compiled library; None without a compiler, or with TD3_KERNELS=torch, which turns off all compiled code."""
    if os.environ.get("TD3_KERNELS", "") == "torch":
        return None
    try:
        if (library := ready_made(SOURCE, _load)) is not None:
            return library
        compiler = find_compiler()
        return None if compiler is None else compiled(SOURCE, FLAGS, compiler, _load)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _load(path: Path) -> ctypes.CDLL:
    library = open_library(path, ("create", "begin", "finish", "destroy", "square_sum", "read_state"))
    pool, batch, integer = ctypes.c_void_p, ctypes.POINTER(Batch), ctypes.c_long
    library.create.argtypes, library.create.restype = [batch, integer], pool
    library.begin.argtypes, library.begin.restype = [pool, ctypes.c_void_p, integer, integer], None
    library.finish.argtypes, library.finish.restype = [pool], ctypes.c_int
    library.destroy.argtypes, library.destroy.restype = [pool], None
    library.square_sum.argtypes, library.square_sum.restype = [ctypes.c_void_p, integer], ctypes.c_float
    library.read_state.argtypes, library.read_state.restype = [batch, integer], None
    return library
