"""A run that learns from images goes on bit for bit, whatever it was stopped in the middle of."""

import shutil
import signal
from functools import partial

import pytest
import torch

from faults.fingerprint import fingerprint
from faults.killing import CONTEXT, Plan, preload, train_until_killed
from faults.test_resume import Stop, Stopping, differences
from td3.config import resolve
from td3.environments import make_environment
from td3.errors import ConfigError, RunError
from td3.run.checkpoints import Checkpoints
from td3.training import resume_run, train_run
from td3.training.setup import probe_environment, require_room
from td3.training.state import arrays_of, restore

FIELDS = {
    "env": "Rail-v0",
    "pixels": True,
    "image_size": 20,
    "action_repeat": 4,
    "steps": 150,
    "learning_starts": 30,
    "utd_ratio": 0.25,
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "buffer_size": 45,
    "eval_every": 0,
    "eval_episodes": 1,
    "save_every": 30,
    "threads": 1,
    "workers": "none",
    "device": "cpu",
}


def stopped(out, at, **fields):
    with pytest.raises(Stop):
        train_run(resolve(**{**FIELDS, **fields, "out": out}), [Stopping(at)])
    return out


KINDS = {
    "one seed, short episodes": {"action_repeat": 40},
    "two seeds with two environments each": {"seeds": 2, "envs": 2, "frames": 2, "workers": "threads"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_ends_as_the_one_that_was_not(tmp_path, kind):
    train_run(resolve(**{**FIELDS, **KINDS[kind], "out": tmp_path / "whole"}))
    stopped(tmp_path / "cut", 85, **KINDS[kind])
    observer = Stopping()
    resume_run(tmp_path / "cut", callbacks=[observer])
    assert observer.warnings == []
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("buffer_device", ["gpu", "host"])
def test_on_a_gpu_a_stopped_run_ends_as_the_one_that_was_not(tmp_path, buffer_device):
    fields = {"device": "cuda", "seeds": 2, "buffer_device": buffer_device}
    train_run(resolve(**{**FIELDS, **fields, "out": tmp_path / "whole"}))
    stopped(tmp_path / "cut", 85, **fields)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")
    train_run(resolve(**{**FIELDS, "action_repeat": 40, "out": folder / "whole"}))
    return stopped(folder / "cut", 85, action_repeat=40), fingerprint(folder / "whole")


OF_PICTURES = [
    *("agent.encoder", "agent.encoder_target", "buffer.frames_added", "buffer.oldest"),
    *(f"agent.encoder_optimizer.{name}" for name in ("first_moment", "second_moment", "steps")),
]


def test_the_list_of_saved_fields_is_complete(interrupted):
    checkpoint, _ = Checkpoints(interrupted[0]).newest()
    assert {name for name in checkpoint.tensors if "encoder" in name or "buffer" in name} == {*OF_PICTURES}
    assert checkpoint.tensors["buffer.oldest"][0] > checkpoint.facts["added"] - FIELDS["buffer_size"]


QUICK = ("agent.encoder", "buffer.frames_added")


@pytest.mark.parametrize(
    "field", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in OF_PICTURES]
)
def test_no_saved_field_can_be_left_out(interrupted, tmp_path, monkeypatch, field):
    cut, expected = interrupted
    shutil.copytree(cut, tmp_path / "cut")

    def forgetful(trainer, checkpoint):
        restore(trainer, checkpoint._replace(tensors=checkpoint.tensors | {field: arrays_of(trainer)[field].copy()}))

    monkeypatch.setattr("td3.training.trainer.restore", forgetful)
    try:
        resume_run(tmp_path / "cut", callbacks=[Stopping()])
    except RunError:
        return
    assert fingerprint(tmp_path / "cut") != expected


def test_frames_are_written_once(interrupted):
    """The shards of a buffer are a little larger than its frames, not several times as large."""
    folder = interrupted[0] / "checkpoints" / "replay_buffer"
    checkpoint, _ = Checkpoints(interrupted[0]).newest()
    rows = checkpoint.shards[-1].end - checkpoint.shards[0].first
    sizes = sum((folder / shard.name).stat().st_size for shard in checkpoint.shards)
    assert sizes < 2 * rows * (400 + 48 + 12) + 2_000 * len(checkpoint.shards)


def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(tmp_path):
    preload()
    train_run(resolve(**{**FIELDS, "out": tmp_path / "whole"}))
    for plan in (Plan(save=3, operation=1), Plan(save=2, operation=7), None):
        process = CONTEXT.Process(target=train_until_killed, args=({**FIELDS, "out": tmp_path / "killed"}, plan))
        process.start()
        process.join()
        assert process.exitcode == (0 if plan is None else -signal.SIGKILL)
    assert differences(tmp_path / "whole", tmp_path / "killed") == []


def test_room_is_asked_for_by_the_bytes_of_frames(tmp_path, monkeypatch):
    """A million transitions of 84 x 84 take 7.4 GB, not the 85 GB of whole states."""
    asked = []
    require_memory = "td3.training.setup.require_memory"
    monkeypatch.setattr(require_memory, lambda needed, *rest, **options: asked.append(needed) or False)
    config = resolve(
        **{**FIELDS, "image_size": 84, "buffer_size": 1_000_000, "steps": 1_000_000, "out": tmp_path / "r"}
    )
    require_room(config, probe_environment(config, partial(make_environment, **config.env_arguments)))
    assert 7.3e9 < asked[0] < 7.5e9
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"the replay buffer needs .* lower --td3.buffer-size to at most"):
        train_run(resolve(**{**FIELDS, "image_size": 84, "buffer_size": 10**9, "steps": 10**9, "out": tmp_path / "r"}))
