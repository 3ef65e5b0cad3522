"""Logs of Stable-Baselines3 and CleanRL, written by their own code, beside runs of td3."""

import shutil
import sys

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor
from torch.utils.tensorboard import SummaryWriter

import td3
from report.made import make_run
from td3.cli import main
from td3.errors import ConfigError, RunError, UserError
from td3.report.groups import read_groups
from td3.report.logs import read_log


@pytest.fixture(scope="module")
def sb3_logs(tmp_path_factory):
    """A run with evaluations, and one with the monitor alone."""
    folder = tmp_path_factory.mktemp("sb3")
    evaluations = EvalCallback(Monitor(gym.make("Rail-v0")), log_path=str(folder / "both"), eval_freq=100, verbose=0)
    (folder / "both").mkdir()
    env = Monitor(gym.make("Rail-v0"), str(folder / "both" / "monitor.csv"))
    TD3("MlpPolicy", env, learning_starts=10_000, device="cpu", seed=0).learn(400, callback=evaluations)
    env.close()
    (folder / "monitor").mkdir()
    (folder / "monitor" / "0.monitor.csv").write_text((folder / "both" / "monitor.csv").read_text())
    return folder


def cleanrl_log(folder, seed, offset=0.0, env="Rail-v0", tag="charts/episodic_return"):
    """As CleanRL's td3_continuous_action.py writes it."""
    path = folder / f"{env}__td3_continuous_action__{seed}__170000000{seed}"
    writer = SummaryWriter(str(path))
    writer.add_text("hyperparameters", "|param|value|")
    for step in range(50, 2_001, 50):
        writer.add_scalar(tag, step / 2 + offset + seed, step)
    writer.close()
    return path


def test_evaluations_of_stable_baselines3_are_a_curve_of_their_task(sb3_logs):
    log = read_log(sb3_logs / "both")
    with np.load(sb3_logs / "both" / "evaluations.npz") as written:
        np.testing.assert_array_equal(log.steps, written["timesteps"])
        np.testing.assert_array_equal(log.returns, written["results"])
    assert (log.env, log.training) == ("Rail-v0", False)


def test_a_monitor_is_averaged_over_windows_of_env_steps(sb3_logs):
    log = read_log(sb3_logs / "monitor")
    lines = (sb3_logs / "monitor" / "0.monitor.csv").read_text().splitlines()[2:]
    returns, lengths, _ = np.array([line.split(",") for line in lines], float).T
    # Windows of 10 env steps, because less than 400 have no twenty of the next size.
    assert log.steps.tolist() == (np.ceil(lengths.cumsum() / 10) * 10).tolist()
    assert log.returns[:, 0].tolist() == returns.tolist()
    assert log.training


def test_events_of_cleanrl_name_task_and_seed(tmp_path):
    log = read_log(cleanrl_log(tmp_path, 3))
    assert (log.env, log.experiment, log.seed, log.source) == ("Rail-v0", "td3_continuous_action", 3, "CleanRL")
    assert log.steps.tolist() == [*range(100, 2_001, 100)]
    assert log.returns[0, 0] == pytest.approx((25 + 50) / 2 + 3)
    evaluated = read_log(cleanrl_log(tmp_path, 4, tag="eval/mean_reward"))
    assert (evaluated.training, evaluated.steps[0], evaluated.returns[0, 0]) == (False, 50, 29)


def test_logs_are_compared_and_drawn_with_runs(tmp_path, capsys, sb3_logs, monkeypatch):
    for seed in range(5):
        cleanrl_log(tmp_path / "cleanrl", seed)
    make_run(tmp_path / "mine", seeds=5, every=100, env="Rail-v0", final=1_200.0, spread=1.0)
    monkeypatch.chdir(tmp_path)
    words = ["cleanrl=cleanrl/*", "mine=mine", f"sb3={sb3_logs}/both"]
    assert main(["report", *words]) == 0
    printed = capsys.readouterr().out
    assert "mine against cleanrl: better than the reference" in printed
    assert "are those of training episodes, with exploration noise, averaged over 100 env steps" in printed
    assert printed.startswith("Settings and versions do not differ.")
    html = (tmp_path / "report.html").read_text()
    assert "A log of CleanRL: its settings are not known." in html
    assert "The doctor finds" in html
    assert html.count("The doctor finds") == 1  # nothing is said of the health of a log
    found = td3.compare(cleanrl="cleanrl/*", mine="mine")
    scores = found.scores()["cleanrl"][:, 0]  # of the windows to 1,900 and 2,000
    assert scores.tolist() == pytest.approx([(925 + 950 + 975 + 1_000) / 4 + seed for seed in range(5)], abs=30)
    assert len(found.plot().lines) == 2


def test_logs_without_a_name_are_grouped_by_experiment(tmp_path, sb3_logs):
    paths = [str(cleanrl_log(tmp_path, seed)) for seed in (1, 2)]
    (together,) = read_groups(paths)
    assert [seed.seed for seed in together.seeds] == [1, 2]
    both = read_groups([str(sb3_logs / "both"), str(sb3_logs / "monitor")])
    assert len(both) == 2  # their settings are not known
    shutil.copytree(sb3_logs / "both", tmp_path / "sb3" / "1")
    shutil.copytree(sb3_logs / "both", tmp_path / "sb3" / "2")
    (named,) = read_groups([f"sb3={tmp_path}/sb3/*"])
    assert [seed.seed for seed in named.seeds] == [0, 1]


def test_a_log_that_does_not_say_its_task_has_that_of_the_others(tmp_path):
    np.savez(tmp_path / "evaluations.npz", timesteps=np.arange(5) * 1_000, results=np.ones((5, 2)))
    hopper = make_run(tmp_path / "hopper", env="Hopper-v5", every=1_000)
    assert {run.config.env for run in read_groups([f"sb3={tmp_path}", f"mine={hopper}"])} == {"Hopper-v5"}
    ant = make_run(tmp_path / "ant", env="Ant-v5", every=1_000)
    with pytest.raises(ConfigError, match=r"does not say its task, and the other runs have 2 \(Hopper-v5, Ant-v5\)"):
        read_groups([str(tmp_path), str(hopper), str(ant)])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("monitor.csv", "r,l,t\n1,1,1\n", "is not a monitor.csv of Stable-Baselines3"),
        ("monitor.csv", "#{}\nr,l,t\n", "without episodes"),
        ("monitor.csv", "#{}\nr,l,t\n1,x,1\n1,1,1\n", "row 3 has no numbers in r, l and t"),
        ("monitor.csv", "#{}\nr,l,t\nnan,1,1\n", "returns that are not numbers"),
        ("evaluations.npz", "x", r"no readable evaluations\.npz"),
        ("other.csv", "", "is not a run: it has no config.json"),
    ],
)
def test_damaged_logs_are_refused_in_one_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=message):
        read_groups([str(tmp_path)])


def test_events_without_returns_or_without_tensorboard_are_refused(tmp_path, monkeypatch):
    path = cleanrl_log(tmp_path, 1, tag="losses/qf1_loss")
    with pytest.raises(RunError, match="has TensorBoard events without returns: none of eval/mean_reward"):
        read_log(path)
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_accumulator", None)
    with pytest.raises(UserError, match="needs the extra 'tensorboard'"):
        read_log(path)
