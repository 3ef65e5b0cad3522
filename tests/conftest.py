"""What tests share: one thread each, and one small trained run on a scripted environment."""

import os

import pytest

# Set before PyTorch's first product, as the `td3` command does: MKL reads it once, and a run in a process where other
# tests have multiplied before must round like a run in a process of its own.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
# For the processes that tests start; here NumPy may be imported already, and the Makefile sets it for all.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_pytorch():
    """Tests run side by side, one to a core: more threads would wait for each other's cores."""
    import torch

    torch.set_num_threads(1)


WHOLE_RUNS = {"bench", "collect", "docs", "explain", "export", "faults", "ladder", "learning", "offline", "report"}
WHOLE_RUNS |= {"parity", "sb3", "tune"}
"""Folders whose tests train whole runs, many times over: there they are as fast as in training."""
MANY_UPDATES = {"test_graph", "test_recording"}
"""Files whose tests compare hundreds of updates."""


@pytest.fixture
def unchecked():
    """For one test of many updates."""
    import jaxtyping

    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module", autouse=True)
def _without_shape_checks(request):
    """Shapes are checked in all other folders; checking them again here would take most of the time."""
    import jaxtyping

    before = jaxtyping.config.jaxtyping_disable
    unchecked = request.path.parent.name in WHOLE_RUNS or request.path.stem in MANY_UPDATES
    jaxtyping.config.update("jaxtyping_disable", before or unchecked)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Two seeds trained for 60 steps on the scripted environment; not to be written to."""
    # Imported here: this file is read before the shape checks are in place, and what it imports would escape them.
    from scripted import SMALL

    import td3

    out = tmp_path_factory.mktemp("runs") / "trained"
    return td3.train("Scripted-v0", steps=60, seeds=2, eval_every=25, out=out, **SMALL)
