"""How often a run is logged and evaluated by default: by its length, whatever the number of environments."""

import csv
from dataclasses import replace

import pytest
from faults.fingerprint import fingerprint
from scripted import SMALL
from vectors import many_vector

import td3
from td3.config import TrainConfig, resolve
from td3.training.resuming import config_to_resume

ENVS = {1: 2_400, 64: 600, 4_096: 300}
"""Rounds by the number of environments."""


def rows(run: td3.Run, name: str) -> list[int]:
    with (run.folder(0) / name).open() as file:
        return [int(row["env_steps"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("envs", ENVS)
def test_a_run_has_20_to_30_evaluations_and_at_most_1000_log_rows(tmp_path, envs):
    fields = {**SMALL, "envs": envs, "steps": envs * ENVS[envs], "utd_ratio": 0.1 / envs, "learning_starts": envs}
    fields |= {"buffer_size": 8_192, "save_every": 0, "out": tmp_path / "run"}
    run = td3.train(many_vector, **fields)
    before, *evaluations = rows(run, "evaluations.csv")
    assert before == 0
    assert 20 <= len(evaluations) <= 30
    logged = rows(run, "metrics.csv")
    assert 2 <= len(logged) <= 1_000
    assert len(logged) <= ENVS[envs] / 3, "not every round"
    assert evaluations[-1] == logged[-1] == fields["steps"]


@pytest.mark.parametrize("envs", [1, 8, 64, 1_024, 4_096, 10_000])
@pytest.mark.parametrize("rounds", [1_000, 1_001, 9_999, 123_456, 1_000_000])
def test_every_length_has_so_many(envs, rounds):
    steps = envs * rounds
    config = TrainConfig("Rail-v0", steps, envs=envs)
    assert 20 <= steps // config.eval_every <= 30
    assert str(config.eval_every).rstrip("0") in {"1", "15", "2", "25", "3", "4", "5", "6", "8"}
    assert -(-steps // config.log_every) <= 1_000
    assert config.log_every >= min(10 * envs, steps // 100), "ten rounds, in a run that is long enough"


def test_usual_lengths_have_usual_numbers():
    found = {steps: TrainConfig("Rail-v0", steps) for steps in (1, 900, 5_000, 10_000, 300_000, 1_000_000, 10_000_000)}
    assert [config.eval_every for config in found.values()] == [50, 50, 250, 500, 15_000, 50_000, 500_000]
    assert [config.log_every for config in found.values()] == [*[1_000] * 6, 10_000]


def test_what_is_given_is_taken():
    config = TrainConfig("Rail-v0", eval_every=0, log_every=7)
    assert (config.eval_every, config.log_every) == (0, 7)


def test_a_run_that_is_extended_keeps_its_schedule(tmp_path):
    config = resolve("Rail-v0", steps=10_000)
    longer = config_to_resume(tmp_path, config, 1_000_000)
    assert (longer.eval_every, longer.log_every) == (500, 1_000)
    assert longer == replace(config, steps=1_000_000, out=tmp_path)


@pytest.mark.parametrize("envs", [1, 8])
def test_a_stopped_run_goes_on_with_the_schedule_of_the_whole(tmp_path, envs):
    class Stopping(td3.Callback):
        def on_env_step(self, trainer):
            if trainer.env_steps >= 1_200:
                trainer.stop("")

    fields = {**SMALL, "steps": 2_200, "envs": envs, "utd_ratio": 0.1, "progress": False}
    whole = td3.train("Rail-v0", out=tmp_path / "whole", **fields)
    cut = td3.train("Rail-v0", out=tmp_path / "cut", callbacks=[Stopping()], **fields)
    td3.resume(cut.path, progress=False)
    assert fingerprint(cut.path) == fingerprint(whole.path)
    assert len(rows(whole, "evaluations.csv")) == 1 + 22


def test_how_often_is_logged_changes_nothing_that_is_learned(tmp_path):
    fields = {**SMALL, "steps": 200, "eval_every": 0, "progress": False}
    often, seldom = (td3.train("Rail-v0", log_every=every, out=tmp_path / str(every), **fields) for every in (7, 1_000))
    assert (len(rows(often, "metrics.csv")), len(rows(seldom, "metrics.csv"))) == (29, 1)
    weights = [(run.folder(0) / "last" / "agent.safetensors").read_bytes() for run in (often, seldom)]
    assert weights[0] == weights[1]


def test_a_run_of_an_earlier_version_is_logged_as_it_was():
    values = resolve("Rail-v0", steps=10_000_000).to_json()
    del values["log_every"]
    assert TrainConfig.from_json(values).log_every == 1_000
