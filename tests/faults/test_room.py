"""Out of room: refused before training where it can be known, survived where it cannot."""

import errno
import os
import resource
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from faults.fingerprint import fingerprint
from faults.test_resume import Stop, Stopping, config
from td3 import resources, training
from td3.errors import ConfigError, RunError
from td3.run import checkpoints, directory
from td3.run.checkpoints import Checkpoints
from td3.run.tables import MemberWriter
from td3.training import resume_run, train_run

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")


def test_a_disk_too_small_for_the_checkpoints_is_refused_before_training(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**4, 10**4))
    with pytest.raises(ConfigError) as caught:
        train_run(config(tmp_path / "run", buffer_size=10_000, steps=10_000))
    assert str(caught.value).startswith("the checkpoints of this run need 0.3 MB, and ")
    assert str(caught.value).endswith("or train without checkpoints by --save-every 0.")
    assert not (tmp_path / "run").exists()
    train_run(config(tmp_path / "run", steps=120, save_every=0))


def test_a_resumed_run_needs_room_for_new_rows_alone(tmp_path, monkeypatch):
    fields = {"steps": 5_000, "buffer_size": 5_000, "save_every": 1_000, "eval_every": 0}
    with pytest.raises(Stop):
        train_run(config(tmp_path / "run", **fields), [Stopping(4_100)])
    usage = namedtuple("usage", "total used free")
    room = 28 * 2_500  # for half of the rows; four fifths are on disk
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - room, room))
    with pytest.raises(ConfigError, match="train without checkpoints"):
        train_run(config(tmp_path / "another", **fields))
    with pytest.raises(Stop):
        resume_run(tmp_path / "run", callbacks=[Stopping(4_100)])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 0))
    with pytest.raises(ConfigError) as caught:
        resume_run(tmp_path / "run")
    assert str(caught.value).startswith("further checkpoints of this run need 0.0 MB, and ")
    assert str(caught.value).endswith("make room, or move the run to another disk and resume it there.")


def test_a_resumed_run_is_told_what_it_can_do_about_memory(tmp_path, monkeypatch):
    with pytest.raises(Stop):
        train_run(config(tmp_path / "run"), [Stopping(200)])
    monkeypatch.setattr(resources, "available_memory", lambda: 1_000)
    with pytest.raises(ConfigError, match=r"free: free some, or resume it on a machine that has more\.$"):
        resume_run(tmp_path / "run")


@pytest.fixture
def open_files():
    """Sets how many more files this process may open, as `ulimit -Sn` does."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    already = len([*Path("/dev/fd").iterdir()])
    yield lambda more: resource.setrlimit(resource.RLIMIT_NOFILE, (already + more, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_of_open_files_is_raised_for_many_seeds_and_restored(tmp_path, open_files):
    open_files(20)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    fields = {"seeds": 8, "steps": 120, "eval_every": 0, "hidden_sizes": (4,), "buffer_size": 120}
    with pytest.raises(Stop):
        train_run(config(tmp_path / "run", **fields), [Stopping(110)])
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit
    resume_run(tmp_path / "run")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limit


def test_more_seeds_than_files_may_be_open_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    already = len([*Path("/dev/fd").iterdir()])
    monkeypatch.setattr(resource, "getrlimit", lambda which: (already, already + 100))
    with pytest.raises(ConfigError) as refused:
        train_run(config(tmp_path / "run", seeds=50, steps=120))
    assert str(refused.value).startswith("50 seeds keep 300 files open, and this process may have ")
    assert str(refused.value).endswith("train at most 11 seeds, or raise the limit (ulimit -Hn).")
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_said_at_the_start_and_the_folder_can_be_used_again(tmp_path, monkeypatch):
    real = directory.write_json

    def full(path, values):
        raise FULL

    monkeypatch.setattr(directory, "write_json", full)
    with pytest.raises(
        RunError, match=r"versions\.json cannot be written \(No space left on device\): make room or give another"
    ):
        train_run(config(tmp_path / "run", save_every=0))
    monkeypatch.setattr(directory, "write_json", real)
    train_run(config(tmp_path / "run", steps=120, save_every=0))


def test_a_disk_that_fills_up_in_a_save_costs_that_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    train_run(config(tmp_path / "whole"))
    real = checkpoints.write_atomically

    def full_at_300(path: Path, content: bytes):
        if "state" in path.name and running and running[0].env_steps == 300:
            raise FULL
        return real(path, content)

    running: list[training.Trainer] = []
    run = training.Trainer.run
    monkeypatch.setattr(training.Trainer, "run", lambda self, *rest: (running.append(self), run(self, *rest))[1])
    monkeypatch.setattr(checkpoints, "write_atomically", full_at_300)
    observer = Stopping()
    train_run(config(tmp_path / "full"), [observer])
    assert observer.warnings == [
        "the checkpoint at env step 300 could not be written (No space left on device); the one before it stays, and "
        "training goes on."
    ]
    assert fingerprint(tmp_path / "full") == fingerprint(tmp_path / "whole")


def test_tables_that_cannot_be_written_end_the_run_with_its_last_checkpoint(tmp_path, monkeypatch):
    real = MemberWriter.episode
    episodes = []

    def full(self, episode):
        episodes.append(episode)
        if sum(each.length for each in episodes) > 300:
            raise FULL
        real(self, episode)

    monkeypatch.setattr(MemberWriter, "episode", full)
    with pytest.raises(RunError) as caught:
        train_run(config(tmp_path / "run"))
    assert "somewhere cannot be written (No space left on device)." in str(caught.value)
    assert "is whole: td3 resume" in str(caught.value)
    assert Checkpoints(tmp_path / "run").newest()[0].env_steps >= 200
    monkeypatch.setattr(MemberWriter, "episode", real)
    resume_run(tmp_path / "run")
    train_run(config(tmp_path / "whole"))
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


def test_a_gpu_without_room_is_said_in_a_sentence(tmp_path, monkeypatch):
    def no_room(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("td3.training.setup.make_replay_buffer", no_room)
    with pytest.raises(ConfigError, match="the GPU has no memory left: train fewer seeds"):
        train_run(config(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["folder", "link", "missing"])
def test_the_room_is_that_of_the_folder_itself_which_may_be_another_disk(tmp_path, monkeypatch, kind):
    out, measured = tmp_path / "parent" / "run", []
    out.parent.mkdir()
    if kind == "folder":
        out.mkdir()
    elif kind == "link":
        (tmp_path / "disk").mkdir()
        out.symlink_to(tmp_path / "disk")
    usage, real = namedtuple("usage", "total used free"), shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: measured.append(path) or usage(*real(path)))
    monkeypatch.chdir(out.parent)
    train_run(config(Path("run"), steps=120, save_every=0))
    assert measured == [out.parent if kind == "missing" else out]
