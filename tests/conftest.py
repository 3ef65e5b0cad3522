"""What tests share: one thread each, and one small trained run on a scripted environment."""

import os

import pytest
import shapes

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


@pytest.fixture(scope="session", autouse=True)
def short_measurements():
    """Runs of several environments measure how to step them: here for a shorter time."""
    from td3.environments import workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "PROBE_SECONDS", workers.PROBE_SECONDS / 20)
        patch.setattr(workers, "TRIAL_SECONDS", workers.TRIAL_SECONDS / 10)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Syncing to disk matters after a power failure, which no test makes; test_saving.py counts the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


WHOLE_RUNS = {
    "bench",
    "callbacks",
    "collect",
    "docs",
    "examples",
    "explain",
    "export",
    "faults",
    "ladder",
    "learning",
    "offline",
}
WHOLE_RUNS |= {"parity", "report", "reproduce", "sb3", "tune"}
"""Folders whose tests train whole runs, many times over: there they are as fast as in training."""
WHOLE_RUN_FILES = {"test_beside", "test_cli", "test_families", "test_normalizing", "test_spec", "test_vector"}
"""The same for files of other folders; test_training.py has whole runs with shape checks."""
MANY_UPDATES = {"test_graph", "test_recording"}
"""Files whose tests compare hundreds of updates."""


@pytest.fixture
def unchecked():
    """For one test of many updates."""
    with shapes.unchecked():
        yield


@pytest.fixture(scope="module", autouse=True)
def _without_shape_checks(request):
    """Shapes are checked in all other folders; checking them again here would take most of the time."""
    folder, file = request.path.parent.name, request.path.stem
    with shapes.unchecked(folder in WHOLE_RUNS or file in WHOLE_RUN_FILES | MANY_UPDATES):
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Two seeds trained for 60 steps on the scripted environment; not to be written to."""
    # Imported here: this file is read before the shape checks are in place, and what it imports would escape them.
    from scripted import SMALL

    import td3

    out = tmp_path_factory.mktemp("runs") / "trained"
    return td3.train("Scripted-v0", steps=60, seeds=2, eval_every=25, out=out, **SMALL)
