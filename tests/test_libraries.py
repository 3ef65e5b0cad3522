"""Importing td3 changes nothing of the process, and a run takes back what it sets."""

import os
import subprocess
import sys

import pytest
import torch
from scripted import SMALL

import td3
from td3 import training
from td3.cli import main
from td3.libraries import VARIABLES, library_variables


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


def test_what_is_set_is_left_alone_and_a_command_takes_back_its_own(monkeypatch, capsys):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with library_variables():
        assert os.environ["MKL_CBWR"] == "COMPATIBLE"
        assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert main(["--version"]) == 0
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    assert os.environ["MKL_CBWR"] == "COMPATIBLE"
