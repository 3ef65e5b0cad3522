import csv
import json

import numpy as np
import pytest
from scripted import SMALL

import td3
from td3.cli import main
from td3.errors import ConfigError
from td3.run.checkpoints import Checkpoints
from td3.run.directory import Run, read_facts, write_facts
from td3.statistics import interquartile_mean, iqm_interval
from td3.sweep import SweepRun, _require_same, run_sweep, train_or_resume

from .conftest import wait_for

SMALL_SETTINGS = [
    *("--set", "td3.hidden-sizes=8 8", "--set", "td3.batch-size=8", "--set", "td3.buffer-size=1000"),
    *("--set", "td3.learning-starts=20", "--set", "eval-episodes=2", "--set", "eval-every=0"),
]


def sweep(out, address, *words):
    tasks = ["cluster_worlds:Counting-v0", "Rail-v0", "CartPole-v1"]
    varied = ["--seeds", "2", "--set", "td3.tau=0.005,0.5", "--steps", "100"]
    where = ["--out", str(out), "--ray-address", address]
    return main(["sweep", *tasks, *varied, *SMALL_SETTINGS, *where, *words])


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_trains_what_can_be_trained_gathers_one_table_and_goes_on(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sweep("sweep", cluster.address) == 1
    printed = capsys.readouterr().out
    runs, results = table(tmp_path / "sweep" / "runs.csv"), table(tmp_path / "sweep" / "results.csv")
    assert "CartPole-v1 tau=0.5 seed 1: CartPole-v1 has Discrete actions" in printed
    assert [(r["task"], r["setting"], r["seed"], r["status"]) for r in runs] == [
        (task, f"tau={tau}", str(seed), status)
        for task, status in (
            *(("cluster_worlds:Counting-v0", "finished"), ("Rail-v0", "finished")),
            ("CartPole-v1", "not begun"),
        )
        for tau in (0.005, 0.5)
        for seed in (0, 1)
    ]
    assert [r["unfinished"] for r in results] == ["0", "0", "0", "0", "2", "2"]
    # Each is the run that `td3 train` would have made.
    folder = tmp_path / "sweep" / "Rail-v0" / "tau=0.5" / "seed_1"
    alone = td3.train("Rail-v0", steps=100, seed=1, tau=0.5, eval_every=0, out=tmp_path / "alone", **SMALL)
    for file in ("evaluations.csv", "metrics.csv"):
        assert (alone.folder(1) / file).read_bytes() == (folder / "seed_1" / file).read_bytes()
    # The table is the report's statistics of the runs' last evaluations.
    q_values = np.array([Run(folder.parent / f"seed_{seed}").evaluations(seed)[1][-1].mean() for seed in (0, 1)])
    row = results[3]
    low, high = iqm_interval(q_values)
    assert [float(row[name]) for name in ("iqm", "low", "high")] == [interquartile_mean(q_values), low, high]
    assert (row["seeds"], row["unfinished"]) == ("2", "0")
    assert f"{row['task']}  " in printed
    assert (tmp_path / "sweep" / "report.html").exists()

    # Again: a run that lost its end is resumed, what is finished stays as it is.
    status = folder / "status.json"
    status.write_text(json.dumps({**read_facts(status), "status": "running"}))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").glob("*/*/*/config.json")}
    assert sweep("sweep", cluster.address, "--json") == 1
    figures = json.loads(capsys.readouterr().out)
    assert [r["seeds"] for r in figures["results"]] == [2, 2, 2, 2, 0, 0]
    assert len(figures["failed"]) == 4
    changed = {path.parent for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert changed == {folder}


def test_a_run_whose_process_dies_is_resumed_where_it_was(cluster, tmp_path, capsys):
    cluster.wound.touch()
    words = ["sweep", "cluster_worlds:Wounded-v0", "--seeds", "1", *SMALL_SETTINGS, "--set", "save-every=1"]
    words += ["--steps", "60", "--out", str(tmp_path / "sweep"), "--ray-address", cluster.address]
    assert main(words) == 0
    assert not cluster.wound.exists(), "its process has died once"
    path = tmp_path / "sweep" / "cluster_worlds_Wounded-v0" / "seed_0"
    whole = td3.train(
        "cluster_worlds:Wounded-v0", steps=60, eval_every=0, save_every=1, out=tmp_path / "whole", **SMALL
    )
    ends = [Checkpoints(run).newest()[0].tensors for run in (path, whole.path)]
    for name, tensor in ends[0].items():
        assert tensor.tobytes() == ends[1][name].tobytes(), name


@pytest.mark.long
def test_after_ctrl_c_runs_under_way_have_saved_themselves(cluster, tmp_path):
    def make(seed, steps):
        config = td3.config.resolve("Rail-v0", steps=steps, seed=seed, eval_every=0, out=tmp_path / f"{seed}", **SMALL)
        return SweepRun("Rail-v0", "", config)

    def interrupt(line):
        if line.startswith("[1 of 2]"):
            wait_for(
                lambda: read_facts(tmp_path / "1" / "status.json").get("env_steps", 0) > 0, "the other to be under way"
            )
            raise KeyboardInterrupt

    sweep = run_sweep([make(0, 60), make(1, 10**7)], tmp_path, cluster.address, say=interrupt)
    assert sweep.interrupted
    assert [outcome.status for outcome in sweep.outcomes] == ["finished", "interrupted"]
    done = read_facts(tmp_path / "1" / "status.json")["env_steps"]
    assert Checkpoints(tmp_path / "1").newest()[0].env_steps == done > 0
    assert [row["unfinished"] for row in sweep.table] == [1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "td3.tao=1,2"], "--set cannot vary 'td3.tao': did you mean td3.tau?"),
        (["--set", "td3.tau"], "--set must be a setting and its values, as in td3.tau=0.005,0.01"),
        (["--set", "td3.tau=0.1,"], "--set must be a setting and its values"),
        (["--set", "td3.tau=0.1,0.1"], "has a value twice"),
        (["--set", "seed=1,2"], "--set cannot vary 'seed'"),
        (["--set", "td3.tau=2"], "tau must be within [0, 1], but 2.0 was given"),
        (["--set", "td3.tau=high"], "'high' is not a number"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--ray-address", "nowhere"], "--ray-address must be HOST:PORT"),
    ],
)
def test_a_sweep_that_cannot_be_gets_one_sentence(words, sentence, tmp_path, capsys):
    assert main(["sweep", "Rail-v0", "--out", str(tmp_path / "sweep"), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_a_folder_with_other_settings_is_not_mixed_in(tmp_path, capsys):
    td3.train("Rail-v0", steps=30, gamma=0.5, eval_every=0, out=tmp_path / "Rail-v0" / "seed_0", **SMALL)
    words = ["sweep", "Rail-v0", "--seeds", "1", "--out", str(tmp_path), *SMALL_SETTINGS]
    assert main([*words, "--steps", "30"]) == 2
    assert "holds a run with another td3.gamma than this sweep has" in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["author", "paper"])
def test_longer_runs_of_a_preset_are_the_same_sweep(tmp_path, preset):
    def config(steps, **changed):
        return td3.config.resolve("Rail-v0", preset, steps=steps, out=tmp_path, **changed)

    write_facts(tmp_path / "config.json", config(200).to_json())
    _require_same(SweepRun("Rail-v0", "", config(300)))
    extended = config(300, learning_starts=20)  # what it began with
    write_facts(tmp_path / "config.json", extended.to_json())
    _require_same(SweepRun("Rail-v0", "", config(300)))
    with pytest.raises(ConfigError, match=r"another td3\.learning_starts than"):
        _require_same(SweepRun("Rail-v0", "", config(300, learning_starts=25)))


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path):
    config = td3.config.resolve("Rail-v0", steps=30, out=tmp_path / "Rail-v0" / "seed_0", **SMALL)
    assert "does not see" in train_or_resume(config, tmp_path, "a token that is not there")
    assert not (tmp_path / "Rail-v0").exists()
