"""Importing td3 changes nothing of the process, and a run takes back what it sets."""

import os
import subprocess
import sys

import pytest
import torch
from scripted import SMALL
from threadpoolctl import ThreadpoolController

import td3
from td3 import training
from td3.cli import main
from td3.libraries import VARIABLES, library_variables
from td3.policy import Policy


def flags():
    return (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.deterministic,
        torch.get_num_threads(),
        {name: os.environ.get(name) for name in VARIABLES},
    )


def test_importing_it_sets_nothing():
    script = (
        "import os, td3.training, td3_sb3; from td3.libraries import VARIABLES; print({*VARIABLES} & {*os.environ})"
    )
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.strip() == "set()"


def test_a_run_has_what_it_needs_and_leaves_everything_as_it_was(tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    before, during = flags(), []
    monkeypatch.setattr(training.Trainer, "_round", lambda self: during.append(flags()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        td3.train("Scripted-v0", steps=60, out=tmp_path / "run", **SMALL)
    assert during[0][:3] == (False, False, True)
    assert during[0][4] == VARIABLES
    assert flags() == before


def openblas_threads():
    """Of NumPy's own; SciPy has another one."""
    libraries = ThreadpoolController().select(internal_api="openblas").lib_controllers
    return {library.num_threads for library in libraries if "numpy" in library.filepath}


def test_one_thread_of_openblas_while_acting_although_numpy_was_imported_before(tmp_path, monkeypatch):
    """As from a script: a variable comes too late. With 1,024 environments acting took 20 times as long."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    during, right = [], Policy.__call__

    def act(self, states):
        during.append(openblas_threads())
        return right(self, states)

    monkeypatch.setattr(Policy, "__call__", act)
    with ThreadpoolController().limit(limits=2):
        assert openblas_threads() == {2}
        run = td3.train("Scripted-v0", steps=60, out=tmp_path / "run", **SMALL)
        assert openblas_threads() == {2}
        td3.resume(run.path, steps=80)
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
        assert during.count({1}) == len(during) > 40
        during.clear()
        td3.train("Scripted-v0", steps=60, out=tmp_path / "own", **SMALL)
        assert during.count({2}) == len(during) > 30


def test_what_is_set_is_left_alone_and_a_command_takes_back_its_own(monkeypatch, capsys):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with library_variables():
        assert os.environ["MKL_CBWR"] == "COMPATIBLE"
        assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert main(["--version"]) == 0
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    assert os.environ["MKL_CBWR"] == "COMPATIBLE"
