"""The numbers of an episode's last info reach callbacks, tables and trackers; `is_success` becomes a success rate."""

import csv
import json

import numpy as np
import pytest
from scripted import SMALL, Scripted
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import td3
from td3.callbacks.progress import describe
from td3.cli import main
from td3.evaluate import Evaluation
from td3.run.directory import Run

FIELDS = {**SMALL, "steps": 120, "eval_every": 30, "save_every": 30, "seeds": 2, "eval_episodes": 3}


class Keeping(td3.Callback):
    """Keeps what it is told."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.interrupt_at, self.episodes, self.rows, self.evaluations = interrupt_at, [], [], []

    def on_episode_end(self, trainer, episode):
        self.episodes.append(episode)

    def on_log(self, trainer, rows):
        self.rows.append(rows)

    def on_evaluation(self, trainer, evaluation):
        self.evaluations.append(evaluation)

    def on_env_step(self, trainer):
        if trainer.env_steps == self.interrupt_at:
            raise KeyboardInterrupt


def table(run: Run, seed: int, name: str) -> list[dict[str, str]]:
    with (run.folder(seed) / name).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    kept = Keeping()
    return td3.train("Told-v0", out=tmp_path_factory.mktemp("told") / "run", callbacks=[kept], **FIELDS), kept


class Odd(Scripted):
    """Names in its info as file names and C strings have them."""

    def step(self, action):
        return *super().step(action)[:4], {"caf\udce9": 1.0, "a\0b\n": 2.0, "=1+1": 3.0}


@pytest.mark.parametrize("workers", ["none", "processes"])
def test_odd_names_are_written_so_that_every_table_can_be_read(tmp_path, workers):
    with pytest.raises(KeyboardInterrupt):
        td3.train(Odd, out=tmp_path / "run", workers=workers, callbacks=[Keeping(90)], **FIELDS)
    run = td3.resume(tmp_path / "run", env=Odd, callbacks=[Keeping()])
    names = {row["name"]: float(row["mean"]) for row in table(run, 1, "infos.csv")}
    assert names == {r"caf\udce9": 1.0, r"a\x00b\n": 2.0, "'=1+1": 3.0}


def test_callbacks_get_the_numbers_of_the_last_info(trained):
    _, kept = trained
    assert all(episode.info["steps"] == episode.length for episode in kept.episodes)
    (rows,) = kept.rows
    for member, row in enumerate(rows):
        own = [episode.info for episode in kept.episodes if episode.member == member]
        told = [info["is_success"] for info in own if "is_success" in info]
        assert row["info"]["steps"] == np.mean([info["steps"] for info in own])
        assert row["info"]["is_success"] == np.mean(told)
        assert 0 < len(told) < len(own)


def test_infos_have_a_table_of_their_own(trained):
    run, kept = trained
    for seed in run.seeds:
        written = {row["name"]: row for row in table(run, seed, "infos.csv")}
        assert [*written] == ["is_success", "one", "share", "steps"]
        assert float(written["is_success"]["mean"]) == kept.rows[0][seed]["info"]["is_success"]
        assert int(written["steps"]["episodes"]) == len([e for e in kept.episodes if e.member == seed])


def test_evaluations_have_a_success_rate(trained):
    run, kept = trained
    for seed in run.seeds:
        rates = [float(row["success_rate"]) for row in table(run, seed, "evaluations.csv")]
        assert rates == [evaluation.success_rate[seed] for evaluation in kept.evaluations]
        with np.load(run.folder(seed) / "evaluations.npz") as stored:
            assert stored["successes"].shape == stored["results"].shape
            known = stored["successes"][~np.isnan(stored["successes"])]
            assert {*known.tolist()} <= {0.0, 1.0}


def test_a_task_without_successes_has_none(tmp_path):
    run = td3.train("Scripted-v0", out=tmp_path / "run", **{**FIELDS, "seeds": 1})
    assert {row["success_rate"] for row in table(run, 0, "evaluations.csv")} == {"nan"}
    assert table(run, 0, "infos.csv") == []
    with np.load(run.folder(0) / "evaluations.npz") as stored:
        assert "successes" not in stored


def test_a_resumed_run_has_the_same_infos(tmp_path, trained):
    whole, _ = trained
    with pytest.raises(KeyboardInterrupt):
        td3.train("Told-v0", out=tmp_path / "run", callbacks=[Keeping(interrupt_at=77)], **FIELDS)
    resumed = td3.resume(tmp_path / "run")
    for seed in whole.seeds:
        for name in ("infos.csv", "metrics.csv", "evaluations.csv", "evaluations.npz"):
            assert (resumed.folder(seed) / name).read_bytes() == (whole.folder(seed) / name).read_bytes()


def test_trackers_get_success_rates_under_the_names_of_stable_baselines3(trained):
    run, kept = trained
    events = EventAccumulator(str(run.path / "tensorboard" / "seed_1")).Reload()
    assert {"rollout/success_rate", "rollout/info/steps", "eval/success_rate"} <= {*events.Tags()["scalars"]}
    (point,) = events.Scalars("rollout/success_rate")
    assert point.value == pytest.approx(kept.rows[0][1]["info"]["is_success"])


def test_progress_and_the_command_say_the_success_rate(trained, capsys):
    run, _ = trained
    returns = np.array([[1.0, 2.0], [3.0, 4.0]])
    known = Evaluation(returns, returns, successes=np.array([[1.0, 0.0], [1.0, np.nan]]))
    assert describe(known) == "2.5 +- 1.4 over 2 seeds, success rate 75%"
    assert main(["evaluate", str(run.path), "--episodes", "6"]) == 0
    assert "success rate" in capsys.readouterr().out
    assert main(["evaluate", str(run.path), "--episodes", "6", "--json"]) == 0
    assert {*json.loads(capsys.readouterr().out)["success_rate"]} == {"0", "1"}


def test_the_report_shows_the_success_rate_where_there_is_one(trained, tmp_path, capsys):
    run, kept = trained
    rate = kept.evaluations[-1].success_rate.mean()
    assert "success rate</th>" in (run.path / "report.html").read_text()
    assert main(["report", str(run.path), "--json", "--out", str(tmp_path / "report.html")]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["success_rate"] == pytest.approx(rate)
    silent = td3.train("Scripted-v0", out=tmp_path / "silent", **{**FIELDS, "seeds": 1, "steps": 60})
    assert "success rate" not in (silent.path / "report.html").read_text()
