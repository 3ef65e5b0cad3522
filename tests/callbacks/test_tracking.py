"""TensorBoard and W&B get every number under the names that people know, and a resumed run goes on where it was."""

import json
import math
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripted import SMALL
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from td3.callbacks import tracking
from td3.callbacks.callback import WarningsCallback
from td3.callbacks.tracking import TensorBoard, WeightsAndBiases, wandb_mode
from td3.config import resolve
from td3.errors import MissingExtra
from td3.evaluate import Evaluation
from td3.training import train_run

ROW = {
    "episode_return": 5.0,
    "episode_length": 9.0,
    "critic_loss": 1.0,
    "actor_loss": math.nan,
    "mean_q": 2.0,
    "updates": 10,
}


def trainer_of(path, first_step=0, seeds=1) -> Any:
    """As much of a trainer as a tracker looks at."""
    config = resolve("Scripted-v0", seeds=seeds)
    return SimpleNamespace(config=config, path=path, placement="cpu", env_steps=0, first_step=first_step)


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_run_writes_events_for_every_seed(tmp_path):
    fields = {**SMALL, "steps": 60, "seeds": 2, "eval_every": 25, "out": tmp_path / "run"}
    run = train_run(resolve("Scripted-v0", **fields))
    for seed in run.seeds:
        found = scalars(run.path / "tensorboard" / f"seed_{seed}")
        assert {
            *(
                "rollout/ep_rew_mean",
                "rollout/ep_len_mean",
                "train/critic_loss",
                "train/actor_loss",
                "train/n_updates",
                "time/fps",
            ),
            *("eval/mean_reward", "eval/mean_ep_length", "diagnostics/q_start", "diagnostics/saturation"),
        } <= {*found}
        steps, returns = run.evaluations(seed)
        assert [step for step, _ in found["eval/mean_reward"]] == steps.tolist() == [0, 25, 50, 60]
        np.testing.assert_allclose([value for _, value in found["eval/mean_reward"]], returns.mean(1), rtol=1e-6)
        assert found["train/n_updates"] == [(60, 40)]


def test_what_is_not_known_is_not_written(tmp_path):
    tracker, trainer = TensorBoard(), trainer_of(tmp_path)
    tracker.on_training_start(trainer)
    trainer.env_steps = 1_000
    tracker.on_log(trainer, [ROW])
    tracker.on_training_end(trainer)
    found = scalars(tmp_path / "tensorboard" / "seed_0")
    assert "train/actor_loss" not in found
    assert found["train/critic_loss"] == [(1_000, 1.0)]


def test_frames_per_second_are_env_steps_over_seconds(tmp_path):
    tracker, trainer = TensorBoard(), trainer_of(tmp_path)
    tracker.on_training_start(trainer)
    for trainer.env_steps in (0, 1_000, 1_500):
        tracker.on_timing(trainer, {"env": 1.0, "update": 4.0})
    tracker.on_training_end(trainer)
    assert scalars(tmp_path / "tensorboard" / "seed_0")["time/fps"] == [(1_000, 200), (1_500, 100)]


def test_a_resumed_run_drops_what_lies_beyond_where_it_goes_on(tmp_path):
    for first_step, steps in ((0, (1_000, 2_000, 3_000)), (2_000, (3_000, 4_000))):
        tracker, trainer = TensorBoard(), trainer_of(tmp_path, first_step=first_step)
        tracker.on_training_start(trainer)
        for trainer.env_steps in steps:
            tracker.on_log(trainer, [{**ROW, "mean_q": float(trainer.env_steps + first_step)}])
        tracker.on_training_end(trainer)
    found = scalars(tmp_path / "tensorboard" / "seed_0")["train/mean_q"]
    assert found == [(1_000, 1_000), (2_000, 2_000), (3_000, 5_000), (4_000, 6_000)]


def test_without_tensorboard_a_run_trains_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("td3.callbacks.standard.tensorboard_installed", lambda: False)
    run = train_run(resolve("Scripted-v0", **{**SMALL, "steps": 30, "out": tmp_path / "run"}))
    assert not (run.path / "tensorboard").exists()


class FakeRun:
    def __init__(self, **given):
        self.given, self.logged, self.finished = given, [], False

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the package, whose arguments can be seen; test_tracking_real.py uses the package itself."""
    module = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.init, module.Settings = FakeRun, dict
    monkeypatch.setitem(sys.modules, "wandb", module)


@pytest.mark.usefixtures("wandb")
def test_wandb_gets_a_run_for_each_seed_in_a_group(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = WeightsAndBiases("mine")
    trainer = trainer_of(tmp_path, seeds=2)
    tracker.on_training_start(trainer)
    trainer.env_steps = 1_000
    tracker.on_log(trainer, [ROW, ROW])
    returns, lengths = np.array([[1.0, 3.0], [4.0, 6.0]]), np.full((2, 2), 7)
    tracker.on_evaluation(trainer, Evaluation(returns, lengths, env_steps=1_000))
    tracker.on_training_end(trainer)
    runs = tracker._runs
    name = f"Scripted-v0-{tmp_path.name}"
    assert [run.given["name"] for run in runs] == [f"{name}-seed_0", f"{name}-seed_1"]
    assert {run.given["group"] for run in runs} == {name}
    assert {(run.given["project"], run.given["mode"], run.given["resume"]) for run in runs} == {
        ("mine", "offline", None)
    }
    assert runs[1].logged[-1] == {"env_steps": 1_000, "eval/mean_reward": 5.0, "eval/mean_ep_length": 7.0}
    assert "train/actor_loss" not in runs[0].logged[0]
    assert all(run.finished for run in runs)
    assert not {run.given.get("dir") for run in runs} - {None}  # its links would lead out of the run


@pytest.mark.usefixtures("wandb")
def test_wandb_ids_are_of_one_run_also_where_it_is_resumed_and_moved(tmp_path):
    def ids(path, first_step=0):
        tracker = WeightsAndBiases("mine")
        tracker.on_training_start(trainer_of(path, first_step, seeds=2))
        return [run.given["id"] for run in tracker._runs]

    first, second = tmp_path / "exp1" / "run", tmp_path / "exp2" / "run"
    for folder in (first, second):
        folder.mkdir(parents=True)
    before = ids(first)
    assert len({*before, *ids(second)}) == 4
    assert ids(first, first_step=1_000) == before
    first.parent.rename(tmp_path / "elsewhere")
    assert ids(tmp_path / "elsewhere" / "run", first_step=1_000) == before


@pytest.mark.usefixtures("wandb")
@pytest.mark.parametrize("damage", ["{", '{"id": 3}', '{"id": "../x"}'])
def test_a_damaged_file_of_wandbs_id_is_written_anew(tmp_path, damage):
    (tmp_path / "wandb.json").write_text(damage)
    tracker = WeightsAndBiases("mine")
    tracker.on_training_start(trainer_of(tmp_path, first_step=1_000))
    known = json.loads((tmp_path / "wandb.json").read_text())["id"]
    assert tracker._runs[0].given["id"] == f"Scripted-v0-{tmp_path.name}-seed_0-{known}"


@pytest.mark.usefixtures("wandb")
def test_a_tracker_that_fails_finishes_its_runs(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(FakeRun, "log", lambda self, values: 1 / 0)
    monkeypatch.setattr(FakeRun, "finish", lambda self: (finished.append(self), 1 / 0))
    finished, tracker = [], WeightsAndBiases("mine")
    fields = {**SMALL, "steps": 60, "seeds": 2, "eval_every": 25, "out": tmp_path / "run"}
    train_run(resolve("Scripted-v0", **fields), [WarningsCallback(), tracker])
    assert len(finished) == 2
    assert caplog.messages == ["WeightsAndBiases failed and is left out (ZeroDivisionError: division by zero)"]


def test_a_tensorboard_that_fails_restores_pythons_hook_and_ends_its_threads(tmp_path, monkeypatch, caplog):
    def failing(self, seed, env_steps, values):
        if env_steps == 25:
            raise OSError("the disk is full")

    def writing():
        return [thread for thread in threading.enumerate() if type(thread).__module__.startswith("tensorboard.")]

    monkeypatch.setattr(TensorBoard, "_scalars", failing)
    before, threads = threading.excepthook, len(writing())
    train_run(resolve("Scripted-v0", **{**SMALL, "steps": 60, "seeds": 2, "eval_every": 25, "out": tmp_path / "run"}))
    assert caplog.messages == ["TensorBoard failed and is left out (OSError: the disk is full)"]
    assert threading.excepthook is before
    assert len(writing()) == threads


def test_a_tensorboard_whose_files_cannot_be_opened_restores_pythons_hook(tmp_path, caplog):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").write_text("in the way")
    before = threading.excepthook
    train_run(resolve("Scripted-v0", **{**SMALL, "steps": 30, "out": tmp_path / "run"}))
    assert caplog.text.count("TensorBoard failed and is left out") == len(caplog.messages) == 1
    assert threading.excepthook is before


@pytest.mark.parametrize(
    ("environment", "mode"),
    [({"WANDB_MODE": "disabled"}, "disabled"), ({"WANDB_API_KEY": "x"}, "online"), ({}, "offline")],
)
def test_wandb_is_offline_where_no_key_is_known(monkeypatch, tmp_path, environment, mode):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wandb_mode() == mode


def test_a_key_in_netrc_is_known(monkeypatch, tmp_path):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password x\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert wandb_mode() == "online"


def test_tracking_without_the_package_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"--track needs the extra 'wandb'"):
        WeightsAndBiases("td3")
