"""Sweeps on one machine: a process for each run, without Ray; killed drivers and runs change no result."""

import os
import signal
import subprocess
import sys

import pytest
from scripted import SMALL

import td3
from td3 import sweep
from td3.cli import main
from td3.errors import ConfigError, RunError
from td3.run.checkpoints import Checkpoints
from td3.run.directory import read_facts
from td3.run.lock import locked
from td3.sweep import SweepRun, run_sweep
from td3.training import train_run

from .conftest import SMALL_SETTINGS, wait_for

STEPS = 1_500


def words(out):
    return [
        "sweep",
        "Rail-v0",
        "--seeds",
        "2",
        "--steps",
        str(STEPS),
        "--out",
        str(out),
        *SMALL_SETTINGS,
        "--set",
        "save-every=50",
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table of a sweep that nobody disturbed."""
    out = tmp_path_factory.mktemp("sweep") / "whole"
    assert main(words(out)) == 0
    return out


def env_steps(run):
    return read_facts(run / "status.json").get("env_steps", 0)


def is_training(run):
    """Whether a process holds the run."""
    try:
        with locked(run):
            return False
    except RunError:
        return True


def driver(out, run, reached):
    """A sweep as a user starts it, when this run has come so far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "td3", *words(out)], stdout=subprocess.DEVNULL, start_new_session=True
    )
    wait_for(lambda: env_steps(run) >= reached, "the first run")
    return process


def test_a_sweep_needs_no_ray_and_its_runs_are_those_of_td3_train(whole, tmp_path, monkeypatch):
    run = td3.Run(whole / "Rail-v0" / "seed_1")
    alone = train_run(td3.config.replace(run.config, out=tmp_path / "alone"))
    for file in ("evaluations.csv", "metrics.csv"):
        assert (alone.folder(1) / file).read_bytes() == (run.folder(1) / file).read_bytes()
    monkeypatch.setitem(sys.modules, "ray", None)
    (run.path / "status.json").unlink()
    assert main(words(whole)) == 0
    assert read_facts(run.path / "status.json")["status"] == "finished"


def test_a_killed_sweep_ends_with_its_runs_and_continues_to_the_same_table(whole, tmp_path):
    out, first = tmp_path / "sweep", tmp_path / "sweep" / "Rail-v0" / "seed_0"
    process = driver(out, first, 100)
    process.kill()
    process.wait()
    wait_for(lambda: not is_training(first), "the run to end with its sweep")
    assert env_steps(first) < STEPS
    assert main(words(out)) == 0
    assert (out / "results.csv").read_text() == (whole / "results.csv").read_text()
    for curve in sorted(whole.rglob("evaluations.csv")):
        assert (out / curve.relative_to(whole)).read_text() == curve.read_text()


@pytest.mark.long
def test_after_ctrl_c_runs_have_saved_themselves_and_continue_to_the_same_table(whole, tmp_path):
    out, first = tmp_path / "sweep", tmp_path / "sweep" / "Rail-v0" / "seed_0"
    process = driver(out, first, 100)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait() == 130
    status = read_facts(first / "status.json")
    assert status["status"] == "interrupted"
    assert Checkpoints(first).newest()[0].env_steps == status["env_steps"] < STEPS
    assert main(words(out)) == 0
    assert (out / "results.csv").read_text() == (whole / "results.csv").read_text()


def dying_work(config, place, sender, parent):
    """In place of a run, a process that dies; seed 1 survives its second attempt."""
    with (config.out.parent / f"attempts_{config.seed}").open("a") as file:
        file.write("x")
    if config.seed == 1 and (config.out.parent / "attempts_1").read_text() == "xx":
        sender.send("")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_whose_process_dies_is_tried_again_and_at_last_counts_as_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "_work", dying_work)
    monkeypatch.setattr(sweep, "LIVES", 2)
    configs = [td3.config.resolve("Rail-v0", steps=30, seed=seed, out=tmp_path / f"{seed}", **SMALL) for seed in (0, 1)]
    outcomes = run_sweep([SweepRun("Rail-v0", "", config) for config in configs], tmp_path).outcomes
    assert [outcome.reason for outcome in outcomes] == ["its process ended 2 times.", ""]
    assert [len((tmp_path / f"attempts_{seed}").read_text()) for seed in (0, 1)] == [2, 2]


def test_runs_share_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(sweep, "available_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert sweep._places(3, 0.0) == ["", ""]
    assert sweep._places(1, 0.25) == ["0", "1"] * 4
    assert sweep._places(2, 0.25) == ["0", "1"] * 2
    assert sweep._places(1, 1.0) == ["0", "1"]
    assert sweep._places(1, 2.0) == ["0,1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert sweep._places(1, 1.0) == ["5", "7"]
    with pytest.raises(ConfigError, match="a run is to have 9 CPU cores, and this machine has 8: give fewer --cpus"):
        sweep._places(9, 0.0)
    with pytest.raises(ConfigError, match="a run is to have 3 GPUs, and this machine has 2: give fewer --gpus"):
        sweep._places(1, 3.0)
