"""A checkpoint is whole or not there, whatever the disk does; what is damaged is never taken for whole."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from faults.operations import FAILURES, Crash, watched
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.errors import RunError
from td3.run import checkpoints
from td3.run.checkpoints import Checkpoints, fill_buffer

CAPACITY = 40


def memory_after(added: int) -> ReplayBuffer:
    buffer = ReplayBuffer(2, CAPACITY, 3, 1)
    for number in range(added):
        buffer.add_(torch.full((2, 1, 9), float(number)))
    return buffer


def state_at(env_steps: int) -> tuple[dict, dict]:
    return {"added": env_steps, "note": f"at {env_steps}"}, {"weights": np.full((3, 5), env_steps, np.float32)}


def save(saved: Checkpoints, env_steps: int) -> None:
    saved.save(env_steps, *state_at(env_steps), memory_after(env_steps))


def content(run: Path) -> int | None:
    """The env steps of the newest whole checkpoint, after everything in it was found to be right."""
    found = Checkpoints(run)
    checkpoint, _ = found.newest()
    while checkpoint is not None:
        try:
            buffer = ReplayBuffer(2, CAPACITY, 3, 1)
            fill_buffer(buffer, checkpoint, checkpoint.facts["added"])
        except ValueError:
            checkpoint, _ = found.before(checkpoint)
            continue
        facts, tensors = state_at(checkpoint.env_steps)
        assert checkpoint.facts == facts
        np.testing.assert_array_equal(checkpoint.tensors["weights"], tensors["weights"])
        expected = memory_after(checkpoint.env_steps)
        assert buffer.added == expected.added
        assert torch.equal(buffer.rows[:, : len(buffer)], expected.rows[:, : len(expected)])
        assert buffer.filled == len(buffer)
        return checkpoint.env_steps
    return None


@pytest.fixture(scope="module")
def twice_saved(tmp_path_factory) -> Path:
    """A run with checkpoints at 25 and 50, in the middle of its second time round the ring."""
    run = tmp_path_factory.mktemp("saved")
    saved = Checkpoints(run)
    for env_steps in (10, 25, 50):
        save(saved, env_steps)
    assert content(run) == 50
    return run


@pytest.fixture(params=["shards alone", "merged shards"])
def shards(request, monkeypatch):
    """Whether a save merges the shards of those before it."""
    if request.param == "merged shards":
        monkeypatch.setattr(checkpoints, "MOST_SHARDS", 1)
    return request.param


def operations_of_a_save(run: Path) -> list[str]:
    saved = Checkpoints(run)
    saved.continue_from(saved.newest()[0])
    with watched() as done:
        save(saved, 60)
    return done


def test_an_error_at_any_operation_of_a_save_leaves_the_old_or_the_new_checkpoint(twice_saved, tmp_path, shards):
    shutil.copytree(twice_saved, tmp_path / "counted")
    operations = operations_of_a_save(tmp_path / "counted")
    assert content(tmp_path / "counted") == 60
    assert {"open", "write", "fsync", "replace", "mkdir", "unlink", "listdir"} <= {*operations}
    outcomes = {"old": 0, "new": 0}
    for failure in (*FAILURES, "crash"):
        for number, name in enumerate(operations):
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(twice_saved, run)
            saved = Checkpoints(run)
            saved.continue_from(saved.newest()[0])
            published = True
            try:
                with watched(number, failure):
                    save(saved, 60)
            except (OSError, Crash):
                published = False
            # A failure to tidy up afterwards comes when the new one is published already.
            found = content(run)
            assert found == 60 if published else found in (50, 60), (failure, number, name)
            outcomes["new" if found == 60 else "old"] += 1
            again = saved if failure != "crash" else Checkpoints(run)
            if failure == "crash":
                again.continue_from(again.newest()[0])
            save(again, 70)
            assert content(run) == 70, (failure, number, name)
    assert min(outcomes.values()) > 30, outcomes


def files_of_the_newest(run: Path) -> list[Path]:
    checkpoint, _ = Checkpoints(run).newest()
    shards = [run / "checkpoints" / "replay_buffer" / shard.name for shard in checkpoint.shards]
    return [*sorted((run / "checkpoints" / f"{checkpoint.env_steps:012}").iterdir()), *shards]


def test_a_thousand_flipped_bits_are_all_noticed(twice_saved, tmp_path):
    shutil.copytree(twice_saved, tmp_path / "run")
    generator = random.Random(0)
    newest = files_of_the_newest(tmp_path / "run")
    fallen_back = 0
    for _ in range(1_000):
        file = generator.choice(newest)
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        file.write_bytes(damaged)
        found = content(tmp_path / "run")
        assert found in (25, None), file
        fallen_back += found == 25
        file.write_bytes(whole)
    assert content(tmp_path / "run") == 50
    assert fallen_back > 300


def test_two_hundred_truncations_are_all_noticed(twice_saved, tmp_path):
    shutil.copytree(twice_saved, tmp_path / "run")
    generator = random.Random(0)
    newest = files_of_the_newest(tmp_path / "run")
    for _ in range(200):
        file = generator.choice(newest)
        whole = file.read_bytes()
        file.write_bytes(whole[: generator.randrange(len(whole))])
        assert content(tmp_path / "run") in (25, None), file
        file.write_bytes(whole)
    for file in newest:
        file.rename(file.with_suffix(".away"))
        assert content(tmp_path / "run") in (25, None), file
        file.with_suffix(".away").rename(file)


def test_a_save_writes_only_rows_that_are_new_and_drops_those_the_ring_has_left(tmp_path):
    saved = Checkpoints(tmp_path)
    written = []
    real = checkpoints.write_atomically
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            checkpoints, "write_atomically", lambda path, content: written.append(path) or real(path, content)
        )
        for env_steps in range(10, 210, 10):
            written.clear()
            save(saved, env_steps)
            rows = [path for path in written if path.parent.name == "replay_buffer"]
            assert [path.name for path in rows] == [f"{env_steps - 10:012}.safetensors"]
    kept = sorted(int(file.stem) for file in (tmp_path / "checkpoints" / "replay_buffer").iterdir())
    assert kept == [150, 160, 170, 180, 190]  # the checkpoints at 190 and 200 need the last 40 rows each
    assert content(tmp_path) == 200


def test_many_small_shards_are_merged_and_every_kept_checkpoint_can_be_read(tmp_path, monkeypatch):
    """The ring goes round twice; a checkpoint of every row, the newest two with their files at any time."""
    monkeypatch.setattr(checkpoints, "MOST_SHARDS", 5)
    saved, most = Checkpoints(tmp_path), 0
    for env_steps in range(1, 2 * CAPACITY + 10):
        save(saved, env_steps)
        most = max(most, len(saved._shards))
        assert content(tmp_path) == env_steps
        if env_steps > 1:
            newest = tmp_path / "checkpoints" / f"{env_steps:012}"
            newest.rename(tmp_path / "away")
            assert content(tmp_path) == env_steps - 1
            (tmp_path / "away").rename(newest)
        if env_steps % 7 == 0:
            saved = Checkpoints(tmp_path)
            saved.continue_from(saved.newest()[0])
    assert most == 5
    assert len([*(tmp_path / "checkpoints" / "replay_buffer").iterdir()]) <= 10


def test_a_merged_shard_holds_eight_megabytes_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_SHARDS", 3)
    monkeypatch.setattr(checkpoints, "SHARD_BYTES", 10 * 2 * memory_after(1).row_bytes)
    saved = Checkpoints(tmp_path)
    for env_steps in range(1, 36):
        save(saved, env_steps)
    assert [shard.end - shard.first for shard in saved._shards] == [10, 10, 10, 5]
    assert content(tmp_path) == 35


def test_a_full_disk_leaves_small_shards_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_SHARDS", 2)
    saved, real = Checkpoints(tmp_path), checkpoints.write_atomically

    def full(path: Path, content: bytes):
        if "-" in path.name:
            raise OSError(28, "No space left on device")
        return real(path, content)

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    for env_steps in range(1, 6):
        save(saved, env_steps)
    assert len(saved._shards) == 5
    assert content(tmp_path) == 5


def test_a_checkpoint_that_no_resume_would_read_is_not_written(tmp_path, monkeypatch):
    saved = Checkpoints(tmp_path)
    save(saved, 10)
    with pytest.raises(OSError, match=r"manifest\.json would have 16,7[0-9,]+ bytes, and 16,777,216 are read"):
        saved.save(20, {"added": 20, "note": "n" * (16 << 20)}, {}, memory_after(20))
    monkeypatch.setattr(checkpoints, "LARGEST_STATE", 50)
    with pytest.raises(OSError, match="more than a run like this has"):
        save(saved, 0)
    monkeypatch.undo()
    assert content(tmp_path) == 10
    save(saved, 30)
    assert content(tmp_path) == 30


def test_a_checkpoint_of_a_later_format_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SCHEMA", 2)
    save(Checkpoints(tmp_path), 60)
    monkeypatch.setattr(checkpoints, "SCHEMA", 1)
    with pytest.raises(RunError, match="version 2 of the checkpoint format, and this td3 reads 1"):
        Checkpoints(tmp_path).newest()


PEAK = """
import sys, torch
from pathlib import Path
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.run.checkpoints import Checkpoints

def resident(which):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(which))

buffer = ReplayBuffer(1, 400_000, 17, 6)
buffer.rows.fill_(1.0)
buffer.reserve(400_000)
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
Checkpoints(Path(sys.argv[1])).save(400_000, {}, {}, buffer)
print(resident("VmHWM") / before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak since a moment")
def test_saving_needs_at_most_a_tenth_more_memory(tmp_path):
    done = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.1
