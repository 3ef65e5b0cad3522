import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripted import SMALL
from stable_baselines3.common.monitor import Monitor, get_monitor_files

import td3
from td3.callbacks.agents import is_milestone
from td3.callbacks.callback import WarningsCallback
from td3.config import preset_config, resolve
from td3.environments import make_environment
from td3.errors import ConfigError, EnvironmentFault
from td3.run.checkpoints import Checkpoints
from td3.signals import StopSignals, stop_signals_as_interrupt
from td3.training import train_run


def trained_with(tmp_path: Path, env: str = "Scripted-v0", **fields) -> td3.Run:
    return td3.train(env, **{**SMALL, "eval_every": 0, "out": tmp_path / "run", **fields})


def rows(run: td3.Run, seed: int, name: str) -> list[dict[str, str]]:
    with (run.folder(seed) / name).open() as file:
        return list(csv.DictReader(file))


def updates(run: td3.Run, seed: int = 0) -> int:
    return run.agent(seed, "last").facts["updates"]


def episode_lengths(run: td3.Run, seed: int) -> list[int]:
    lines = (run.folder(seed) / "monitor.csv").read_text().splitlines()[2:]
    return [int(line.split(",")[1]) for line in lines]


@pytest.mark.parametrize("envs", [1, 4])
@pytest.mark.parametrize(("utd_ratio", "expected"), [(1.0, 60), (0.5, 30), (2.0, 120)])
def test_after_the_random_steps_every_step_brings_its_updates(tmp_path, envs, utd_ratio, expected):
    run = trained_with(tmp_path, steps=80, envs=envs, utd_ratio=utd_ratio)
    assert updates(run) == expected


def test_without_random_steps_no_update_is_lost(tmp_path):
    assert updates(trained_with(tmp_path, steps=30, learning_starts=0)) == 30


def test_a_run_of_random_steps_alone_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="no update would happen: the run has 20 env steps and the first 20 are"):
        trained_with(tmp_path, steps=20, learning_starts=20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("steps", "envs"), [(2, 1), (9, 8), (31, 1)])
def test_a_run_that_is_not_refused_updates(tmp_path, steps, envs):
    usual = preset_config("author", "Scripted-v0", steps).learning_starts
    assert updates(trained_with(tmp_path, steps=steps, envs=envs, learning_starts=usual)) >= 1


def test_an_extended_run_keeps_its_warm_up(tmp_path):
    few = {name: value for name, value in SMALL.items() if name != "learning_starts"}
    path = td3.train("Scripted-v0", steps=40, out=tmp_path / "run", **few).path
    assert json.loads((path / "config.json").read_text())["td3"]["learning_starts"] == 4
    run = td3.resume(path, steps=80)
    assert run.config.td3.learning_starts == 4
    assert updates(run) == 76


def test_several_environments_may_overshoot_the_steps_by_less_than_a_round(tmp_path):
    run = trained_with(tmp_path, steps=30, envs=4)
    assert run.evaluations(0)[0].tolist() == [0, 32]
    assert updates(run) == 12


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("envs", [1, 2])
def test_the_episode_schedule_updates_as_often_as_the_finished_episodes_had_steps(tmp_path, seeds, envs):
    run = trained_with(tmp_path, steps=40, seeds=seeds, envs=envs, train_freq="episode")
    counts = [updates(run, seed) for seed in run.seeds]
    assert counts == [sum(episode_lengths(run, seed)) for seed in run.seeds]
    assert all(40 - 5 * envs <= count <= 40 for count in counts)
    assert len({tuple(episode_lengths(run, seed)) for seed in run.seeds}) == seeds


def test_evaluations_stand_at_the_start_at_every_interval_and_at_the_end(trained):
    for seed in trained.seeds:
        assert [int(row["env_steps"]) for row in rows(trained, seed, "evaluations.csv")] == [0, 25, 50, 60]


def test_the_end_is_evaluated_once_where_it_is_an_interval_too(tmp_path):
    run = trained_with(tmp_path, steps=40, eval_every=20)
    assert run.evaluations(0)[0].tolist() == [0, 20, 40]


def test_evaluations_can_be_read_as_stable_baselines3_writes_them(trained):
    for seed in trained.seeds:
        with np.load(trained.folder(seed) / "evaluations.npz") as arrays:
            assert {*arrays} == {"timesteps", "results", "ep_lengths"}
            assert arrays["timesteps"].shape == (4,)
            assert arrays["results"].shape == arrays["ep_lengths"].shape == (4, 2)
            written = rows(trained, seed, "evaluations.csv")
            np.testing.assert_allclose(arrays["results"].mean(1), [float(row["mean_return"]) for row in written])
            np.testing.assert_allclose(arrays["results"].std(1), [float(row["std_return"]) for row in written])
            np.testing.assert_allclose(arrays["ep_lengths"].mean(1), [float(row["mean_length"]) for row in written])


def monitored(folder: Path) -> tuple[dict, list[dict[str, str]]]:
    """What Stable-Baselines3's `load_results` reads: a line of JSON behind a #, then a table."""
    (path,) = get_monitor_files(str(folder))
    with Path(path).open() as file:
        assert file.read(1) == "#"
        return json.loads(file.readline()), list(csv.DictReader(file))


def test_the_monitor_file_is_as_stable_baselines3_writes_it(trained, tmp_path):
    with Monitor(make_environment("Scripted-v0"), str(tmp_path / "theirs")) as environment:
        environment.reset(seed=0)
        while not environment.episode_returns:
            environment.step(environment.action_space.sample())
    their_header, their_table = monitored(tmp_path)
    for seed in trained.seeds:
        header, table = monitored(trained.folder(seed))
        assert {*header} == {*their_header} == {"t_start", "env_id"}
        assert header["env_id"] == "Scripted-v0"
        assert [*table[0]] == [*their_table[0]] == ["r", "l", "t"]
        assert 50 < sum(int(row["l"]) for row in table) <= 60
        times = [float(row["t"]) for row in table]
        assert times == sorted(times)


def test_a_monitored_return_is_the_sum_of_its_rewards(tmp_path):
    run = trained_with(tmp_path, env="Steady-v0", steps=40)
    _, table = monitored(run.folder(0))
    assert len(table) == 4
    for row in table:
        assert 55 + 10 * 0.25 <= float(row["r"]) <= 55 + 10 * 0.5  # 1 + ... + 10, and the second action each step


@pytest.mark.usefixtures("unchecked")
def test_metrics_have_a_row_every_thousand_steps_and_at_the_end(tmp_path):
    run = trained_with(tmp_path, env="Steady-v0", steps=2_200, learning_starts=1_500, hidden_sizes=(4,))
    table = rows(run, 0, "metrics.csv")
    assert [int(row["env_steps"]) for row in table] == [1_000, 2_000, 2_200]
    assert [int(row["updates"]) for row in table] == [0, 500, 700]
    assert [int(row["episodes"]) for row in table] == [100, 100, 20]
    assert [row["critic_loss"] == "nan" for row in table] == [True, False, False]
    assert all(57 < float(row["episode_return"]) < 60 for row in table)
    assert [int(row["timeouts"]) for row in table] == [100, 100, 20]
    assert [float(row["episode_length"]) for row in table] == [10, 10, 10]
    assert {*table[0]} >= {"critic_loss", "actor_loss", "mean_q"}


def test_a_finished_run_says_so(trained):
    status = json.loads((trained.path / "status.json").read_text())
    assert {*status} == {"status", "env_steps", "engine", "seconds", "saving_seconds"}
    assert status["engine"] == "recorded updates on cpu"
    assert (status["status"], status["env_steps"]) == ("finished", 60)


def test_nothing_but_the_runs_own_files_is_left(trained):
    files = {str(path.relative_to(trained.path)) for path in trained.path.rglob("*") if path.is_file()}
    own = {"metrics.csv", "infos.csv", "evaluations.csv", "evaluations.npz", "diagnostics.csv", "monitor.csv"}
    kept = ["best", "last", *(f"snapshots/{env_steps:09}" for env_steps in (0, 25, 50, 60))]
    agents = {f"{which}/agent.{kind}" for which in kept for kind in ("json", "safetensors")}
    seeds = {f"seed_{seed}/{name}" for seed in (0, 1) for name in own | agents}
    checkpoint = {f"{at:012}/{name}" for at in (0, 60) for name in ("manifest.json", "state.safetensors")}
    checkpoint |= {"replay_buffer/000000000000.safetensors"}
    events = {name for name in files if re.match(r"tensorboard/seed_[01]/events\.out\.tfevents\.", name)}
    assert len(events) == 2
    own = {"config.json", "versions.json", "status.json", "sources.json", "times.csv", "report.html", ".lock"}
    assert files == own | seeds | events | {f"checkpoints/{name}" for name in checkpoint}


def test_the_best_agent_is_the_one_of_the_highest_evaluation(trained):
    for seed in trained.seeds:
        steps, returns = trained.evaluations(seed)
        facts = trained.agent(seed, "best").facts
        assert facts["env_steps"] == steps[returns.mean(1).argmax()]
        assert trained.agent(seed, "last").facts["env_steps"] == 60


def comparable(run: td3.Run, seed: int) -> list[str]:
    return [(run.folder(seed) / name).read_text() for name in ("metrics.csv", "evaluations.csv", "diagnostics.csv")] + [
        (run.folder(seed) / which / "agent.safetensors").read_bytes().hex() for which in ("best", "last")
    ]


def test_the_same_command_twice_gives_identical_files(tmp_path):
    first, second = (trained_with(tmp_path / name, steps=80, eval_every=25) for name in "ab")
    assert comparable(first, 0) == comparable(second, 0)


def test_how_often_a_run_is_evaluated_does_not_change_what_it_learns(tmp_path):
    often, seldom = (trained_with(tmp_path / str(every), steps=80, eval_every=every) for every in (10, 0))
    assert comparable(often, 0)[-1] == comparable(seldom, 0)[-1]


class Witness(WarningsCallback):
    """Writes down what it is told, and may interrupt."""

    def __init__(self, interrupt_at: int | None = None):
        self.told, self.interrupt_at = [], interrupt_at

    def on_training_start(self, trainer):
        self.told.append(("start", trainer.config.env, trainer.path, trainer.placement))

    def on_env_step(self, trainer):
        env_steps = trainer.env_steps
        self.told.append(("env step", env_steps))
        if env_steps == self.interrupt_at:
            raise KeyboardInterrupt

    def on_log(self, trainer, rows):
        self.told.append(("log", trainer.env_steps, len(rows)))

    def on_evaluation(self, trainer, evaluation):
        self.told.append(("evaluation", evaluation.env_steps, evaluation.returns.shape))


def test_a_callback_gets_every_event_in_order(tmp_path):
    witness = Witness()
    train_run(
        resolve(
            "Scripted-v0", steps=4, seeds=2, **{**SMALL, "learning_starts": 0, "eval_every": 2}, out=tmp_path / "r"
        ),
        [witness],
    )
    assert witness.told == [
        ("start", "Scripted-v0", tmp_path / "r", "cpu"),
        ("evaluation", 0, (2, 2)),
        ("env step", 1),
        ("evaluation", 2, (2, 2)),
        ("env step", 2),
        ("env step", 3),
        ("log", 4, 2),
        ("evaluation", 4, (2, 2)),
        ("env step", 4),
    ]


def test_an_interrupted_run_keeps_what_was_learned(tmp_path):
    config = resolve("Scripted-v0", steps=1_000, seeds=2, **SMALL, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train_run(config, [Witness(interrupt_at=50)])
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["status"], status["env_steps"]) == ("interrupted", 50)
    run = td3.Run(tmp_path / "run")
    for seed in (0, 1):
        assert run.agent(seed, "last").facts["env_steps"] == 50
        assert updates(run, seed) == 30
        assert run.agent(seed, "best").facts["env_steps"] == 0
        assert len(episode_lengths(run, seed)) > 5


@pytest.mark.parametrize(
    ("env", "said"), [("NanReward-v0", "NaN"), ("NanObservation-v0", "NaN"), ("ChangedShape-v0", "shape")]
)
def test_an_environment_that_breaks_ends_the_run_as_failed(tmp_path, env, said):
    with pytest.raises(EnvironmentFault, match=said):
        trained_with(tmp_path, env=env, steps=50)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_a_polite_kill_save_and_end_without_a_traceback(tmp_path, number):
    command = [
        *(sys.executable, "-m", "td3", "train", "Pendulum-v1", "--steps", "10000000", "--eval-every", "300"),
        *("--eval-episodes", "1", "--td3.learning-starts", "200", "--td3.batch-size", "8", "--td3.hidden-sizes", "8"),
        *("--threads", "1", "--device", "cpu", "--out", str(tmp_path / "run")),
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if re.match(r"\s+[1-9]\d* env steps: return", line):
                break
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors == ""
    assert "the agents are saved" in rest
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "interrupted"
    assert td3.load(tmp_path / "run", which="last").facts["env_steps"] == status["env_steps"] >= 300
    assert Checkpoints(tmp_path / "run").newest()[0].env_steps == status["env_steps"]


def test_a_run_whose_terminal_is_closed_is_saved(tmp_path):
    """The kernel sends SIGHUP, and whatever the run prints afterwards fails."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [
            *("-m", "td3", "train", "Pendulum-v1", "--steps", "10000000", "--eval-every", "300"),
            *("--eval-episodes", "1", "--td3.learning-starts", "200", "--td3.hidden-sizes", "8", "--threads", "1"),
            *("--save-every", "100000000", "--td3.batch-size", "8", "--device", "cpu", "--out", str(tmp_path / "run")),
        ]
        os.execv(sys.executable, [sys.executable, *command])
    shown = b""
    while not re.search(rb" [1-9]\d* env steps: return", shown):
        shown += os.read(terminal, 1_000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (130, 2)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "interrupted"
    assert Checkpoints(tmp_path / "run").newest()[0].env_steps == status["env_steps"]


@pytest.mark.parametrize(
    ("steps", "every", "kept"),
    [
        (1_000_000, 5_000, [*range(0, 1_000_001, 100_000)]),
        (30_000, 5_000, [*range(0, 30_001, 5_000)]),
        (100, 7, [0, 14, 21, 35, 42, 56, 63, 70, 84, 91, 100]),
        (60, 0, [0, 60]),
    ],
)
def test_about_ten_actors_are_kept_from_start_to_end(steps, every, kept):
    config = resolve("Scripted-v0", steps=steps, eval_every=every)
    moments = sorted({*range(0, steps, every or steps), steps})
    assert [env_steps for env_steps in moments if is_milestone(env_steps, config)] == kept


def test_a_snapshot_holds_the_actor_alone_as_it_was_then(trained):
    folder = trained.folder(1) / "snapshots" / "000000025"
    agent, last = td3.load(folder), td3.load(trained.folder(1) / "last")
    assert agent.facts["env_steps"] == 25
    assert (
        2 * (folder / "agent.safetensors").stat().st_size
        < (trained.folder(1) / "last" / "agent.safetensors").stat().st_size
    )
    final = td3.load(trained.folder(1) / "snapshots" / "000000060")
    np.testing.assert_array_equal(final.act([1, 2, 3]), last.act([1, 2, 3]))


def test_the_second_signal_comes_through_unless_a_save_is_being_finished():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with StopSignals() as stopped:
        signal.raise_signal(signal.SIGHUP)
        assert stopped.noted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        stopped.deaf = True
        signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_run_under_nohup_does_not_hear_that_its_terminal_was_closed():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals_as_interrupt(), StopSignals() as stopped:
            signal.raise_signal(signal.SIGHUP)
            assert not stopped.noted
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
