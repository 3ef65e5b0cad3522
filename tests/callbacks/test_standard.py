"""What every run writes beside its results can never end it."""

import csv
import json
import logging
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from report.made import make_run
from scripted import SMALL, Scripted

import td3
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.callbacks import Callback, CallbackList, notes, standard
from td3.callbacks.callback import WarningsCallback
from td3.callbacks.standard import ReportCallback, TimesCallback
from td3.config import resolve
from td3.diagnostics import largest_rewards
from td3.run.checkpoints import Checkpoints
from td3.run.directory import PARTS
from td3.training import train_run


def run_with(tmp_path, *callbacks, **fields):
    given = {**SMALL, "steps": 60, "seeds": 2, "eval_every": 25, "out": tmp_path / "run", **fields}
    return train_run(resolve("Scripted-v0", **given), [WarningsCallback(), *callbacks])


def test_every_run_has_its_times_and_its_report(tmp_path, caplog):
    run = run_with(tmp_path)
    assert caplog.records == []
    with (run.path / "times.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["env_steps"]) for row in table] == [0, 25, 50, 60]
    assert {*table[0]} == {"env_steps", *PARTS, "device"}
    assert all(float(row[part]) >= 0 for row in table for part in PARTS)
    assert sum(float(row["update"]) for row in table) > sum(float(row["act"]) for row in table) > 0
    assert sum(float(row["evaluate"]) for row in table) > 0
    assert table[0]["device"] == "cpu"
    text = (run.path / "report.html").read_text()
    assert "Scripted-v0" in text
    assert "finished" in text


def test_an_interrupted_run_has_a_report_too(tmp_path):
    class Impatient(WarningsCallback):
        def on_env_step(self, trainer):
            env_steps = trainer.env_steps
            if env_steps == 30:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_with(tmp_path, Impatient())
    assert "interrupted" in (tmp_path / "run" / "report.html").read_text()


def test_diagnostics_have_a_row_for_every_evaluation(tmp_path):
    run = run_with(tmp_path)
    for seed in run.seeds:
        with (run.folder(seed) / "diagnostics.csv").open() as file:
            table = list(csv.DictReader(file))
        assert [int(row["env_steps"]) for row in table] == [0, 25, 50, 60]
        assert table[0]["saturation"] == "nan"
        assert 0 <= float(table[-1]["saturation"]) <= 1
        assert sum(json.loads(table[-1]["policy_actions"])) == 2 * 256
        assert float(table[-1]["return_start"]) > 0


class Broken(Callback):
    """Fails at the first evaluation, and counts what it is told."""

    optional = True

    def __init__(self):
        self.told = 0

    def on_evaluation(self, trainer, evaluation):
        self.told += 1
        raise OSError("the disk is full")


def test_an_optional_callback_that_fails_is_left_out_and_the_run_continues(tmp_path, caplog):
    broken = Broken()
    run = run_with(tmp_path, broken)
    assert broken.told == 1
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "Broken failed and is left out (OSError: the disk is full)"


def test_a_report_that_fails_does_not_end_the_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("td3.report.render.page", lambda runs, margin: 1 / 0)
    run = run_with(tmp_path)
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
    assert not (run.path / "report.html").exists()
    assert "ReportCallback failed" in caplog.text


def test_a_run_that_fails_keeps_its_error(tmp_path):
    with pytest.raises(td3.errors.EnvironmentFault, match="NaN"):
        td3.train("NanReward-v0", steps=60, out=tmp_path / "run", **SMALL)


def test_the_report_is_written_once_a_minute_and_at_the_end(tmp_path, monkeypatch):
    folder, now, written = make_run(tmp_path / "run"), [0.0], []
    monkeypatch.setattr("td3.report.render.write_report", lambda runs, out: written.append(now[0]))
    report, trainer = ReportCallback(lambda: now[0]), SimpleNamespace(path=folder, callbacks=CallbackList([]))
    for second in range(0, 200, 10):
        now[0] = float(second)
        report.on_timing(trainer, {})
    report.on_training_end(trainer)
    assert written == [60, 120, 180, 190]


def test_each_hint_is_given_once(tmp_path):
    folder, hints = make_run(tmp_path / "run", actor_dead=0.9), []
    listener = SimpleNamespace(on_hint=lambda trainer, text: hints.append(text))
    report, trainer = ReportCallback(), SimpleNamespace(path=folder, callbacks=listener)
    report.on_training_end(trainer)
    report.on_training_end(trainer)
    (hint,) = hints
    assert hint.startswith("90 % of the actor's hidden units are dead")
    assert hint.endswith("Lower --td3.actor-learning-rate and bring the observations to a scale of about 1.")


def test_hints_reach_every_callback(tmp_path, monkeypatch):
    class Listener(WarningsCallback):
        def __init__(self):
            self.hints = []

        def on_hint(self, trainer, text):
            self.hints.append(text)

    listener = Listener()
    monkeypatch.setattr(standard, "REFRESH_SECONDS", 0.0)
    run_with(tmp_path, listener, exploration_noise=0.0)
    (hint,) = listener.hints
    assert hint.startswith("There is hardly any exploration: exploration_noise is 0")


def test_a_run_without_an_evaluation_gets_no_report(tmp_path):
    folder = make_run(tmp_path / "run")
    for path in folder.glob("seed_*/evaluations.npz"):
        path.unlink()
    ReportCallback().on_training_end(SimpleNamespace(path=folder, callbacks=CallbackList([])))
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("damage", ["9" * 5_000 + ",1,1,1,1,1,1,1,cpu\n", "\x00\n", "a" * 200_000 + "\n"])
def test_a_damaged_table_of_times_does_not_keep_a_run_from_being_resumed(tmp_path, damage):
    (tmp_path / "times.csv").write_text("env_steps,env,act,update,store,evaluate,save,other,device\n" + damage)
    trainer = SimpleNamespace(path=tmp_path, placement="cpu", first_step=1_000, env_steps=2_000)
    times = TimesCallback()
    times.on_training_start(trainer)
    times.on_timing(trainer, {"env": 1.0})
    times.on_training_end(trainer)
    assert (tmp_path / "times.csv").read_text().splitlines()[-1].startswith("2000,1.000000,")


class Rewards(Scripted):
    """A large reward, once and early: a small replay buffer has lost it soon."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, -50.0 if self.total_steps == 130 else 0.25, *rest


if "Rewards-v0" not in gym.registry:
    gym.register("Rewards-v0", entry_point=Rewards)


def test_every_reward_is_looked_at_once_for_the_largest_and_it_outlives_its_row_and_a_resume(tmp_path, monkeypatch):
    looked_at = []

    def counted(buffer, newest):
        looked_at.append(newest)
        return largest_rewards(buffer, newest)

    monkeypatch.setattr(notes, "largest_rewards", counted)
    fields = {**SMALL, "buffer_size": 40, "seeds": 2, "eval_every": 0, "log_every": 20}
    whole = td3.train("Rewards-v0", steps=300, out=tmp_path / "whole", **fields)
    assert looked_at == [20] * 15
    cut = td3.train("Rewards-v0", steps=230, out=tmp_path / "cut", **fields)
    looked_at.clear()
    td3.resume(cut.path, steps=300)
    assert looked_at == [10, 20, 20, 20]
    for run in (whole, cut):
        state = Checkpoints(run.path).newest()[0].facts["callbacks"]["DivergenceCallback"]
        assert state == {"largest": [50.0, 50.0], "seen": 300, "warned": []}


def test_only_the_newest_rewards_are_read():
    buffer = ReplayBuffer(2, 10, 1, 1)
    assert largest_rewards(buffer, 5) == [0.0, 0.0]
    rows = torch.zeros(2, 14, 5)
    rows[..., 3] = torch.tensor([[-1.0], [2.0]]) * torch.arange(14, 0, -1)
    buffer.add_(rows[:, :7])
    buffer.add_(rows[:, 7:])
    assert largest_rewards(buffer, 3) == [3.0, 6.0]
    assert largest_rewards(buffer, 100) == largest_rewards(buffer) == [10.0, 20.0]
