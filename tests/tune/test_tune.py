import json
import sqlite3
import tomllib
from pathlib import Path

import numpy as np
import optuna
import pytest
from scripted import SMALL

from td3 import config
from td3.cli import main
from td3.cli.search import TuneCommand
from td3.config_file import read_config
from td3.errors import ConfigError, Diverged, MissingExtra, RunError
from td3.evaluate import Evaluation
from td3.tune import SEARCH, TuneOptions, search, tune

OPTIONS = TuneOptions("Scripted-v0", 1000, "author", 0, 1, 200, 1, ("learning_rate", "gamma"))


def silence(line):
    """Nothing."""


class FakeTraining:
    """Runs that take no time: the return grows with the steps, to a height that the learning rate decides."""

    def __init__(self, interrupt_at=None, infinite_at=None):
        self.configs, self.stopped_at = [], {}
        self.interrupt_at, self.infinite_at = interrupt_at, infinite_at

    def __call__(self, given, callbacks):
        number = len(self.configs)
        self.configs.append(given)
        height = -abs(np.log10(given.td3.actor_learning_rate / 1e-3))
        for env_steps in range(0, given.steps + 1, given.eval_every):
            self.stopped_at[number] = env_steps
            if number == self.interrupt_at and env_steps == 400:
                raise KeyboardInterrupt
            value = np.inf if number == self.infinite_at else 100 * height * env_steps / given.steps
            returns, lengths = np.full((given.seeds, 2), value), np.ones((given.seeds, 2))
            callbacks[0].on_evaluation(self, Evaluation(returns, lengths, env_steps=env_steps))
            if callbacks[0].pruned:
                return

    def stop(self, reason):
        """What a trainer does with it is tested there."""


@pytest.fixture
def training(monkeypatch):
    """No training, and no picture, which takes a second: two other tests make one."""
    monkeypatch.setattr("td3.tune.plot.draw", lambda options, trials, best, path: path.touch())
    fake = FakeTraining()
    monkeypatch.setattr(search, "train_run", fake)
    return fake


class Asked:
    """A trial that tells what it was asked."""

    def suggest_float(self, name, low, high, log=False):
        return f"{low:g} to {high:g}"

    def suggest_categorical(self, name, choices):
        return ", ".join(str(choice).replace(" ", "-") for choice in choices)


def test_the_command_and_its_page_name_what_is_searched():
    assert TuneCommand.__dataclass_fields__["fields"].default == tuple(SEARCH)
    page = (Path(__file__).parents[2] / "docs" / "tune.md").read_text()
    for name, suggest in SEARCH.items():
        assert f"| `{name}` | {suggest(Asked())} |" in page


def test_the_first_trial_is_the_preset_itself(training, tmp_path):
    tune(OPTIONS._replace(fields=tuple(SEARCH)), tmp_path, 1, say=silence)
    (first,) = training.configs
    usual = config.TD3Config()
    assert first.td3 == config.replace(usual, learning_starts=100)  # as in any run: a tenth of the steps at most
    assert (first.steps, first.seeds, first.out) == (1000, 1, tmp_path / "trial_0000")


@pytest.mark.parametrize("preset", ["author", "paper", "course", "bullet"])
def test_the_numbers_of_every_preset_are_within_the_search(preset):
    options = OPTIONS._replace(preset=preset, fields=tuple(SEARCH))
    usual = search._usual(options)
    trial = optuna.trial.FixedTrial(usual)
    assert {name: suggest(trial) for name, suggest in SEARCH.items()} == usual


def test_hopeless_trials_are_stopped_and_the_best_is_found(training, tmp_path):
    said = []
    tuning = tune(OPTIONS, tmp_path, 12, say=said.append)
    assert (tuning.finished, len(training.configs), len(said)) == (12, 12, 12)
    assert tuning.pruned > 1
    stopped = [number for number, steps in training.stopped_at.items() if steps < 1000]
    assert len(stopped) == tuning.pruned
    assert min(stopped) >= search.UNPRUNED_TRIALS
    assert min(training.stopped_at[number] for number in stopped) >= 300
    rates = [given.td3.actor_learning_rate for given in training.configs]
    best = min((number for number in range(12) if number not in stopped), key=lambda n: abs(np.log10(rates[n] / 1e-3)))
    assert tuning.best_trial == best
    assert f"trial {best}: return {tuning.best_value:,.1f}" in said[best]
    assert "stopped at " in said[stopped[0]]
    assert tuning.best_value == pytest.approx(-80 * abs(np.log10(rates[best] / 1e-3)))  # of the last three evaluations


def test_the_result_is_a_config_file_that_train_reads(training, tmp_path):
    tuning = tune(OPTIONS._replace(fields=tuple(SEARCH)), tmp_path, 3, say=silence)
    found = read_config(tuning.best_config)
    best = training.configs[tuning.best_trial]
    assert found.td3 == best.td3
    assert (found.env, found.steps, found.preset) == (best.env, best.steps, best.preset)


def test_a_study_goes_on_with_other_settings_than_it_began_with(training, tmp_path):
    tune(OPTIONS, tmp_path, 2, say=silence)
    said = []
    tuning = tune(OPTIONS, tmp_path, 4, say=said.append)
    assert said[0] == f"Going on with {tmp_path / 'study.db'}: 2 of 4 trials are finished."
    assert (tuning.finished, len(training.configs)) == (4, 4)
    rates = [given.td3.actor_learning_rate for given in training.configs]
    assert len(set(rates)) == 4
    again = tune(OPTIONS, tmp_path, 4, say=silence)
    assert (again.finished, len(training.configs)) == (4, 4)


def test_ctrl_c_leaves_a_study_that_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(search, "train_run", FakeTraining(interrupt_at=2))
    tuning = tune(OPTIONS, tmp_path, 3, say=silence)
    assert (tuning.interrupted, tuning.finished) == (True, 2)
    assert tuning.best_config.exists()
    assert tuning.plot.exists()
    monkeypatch.setattr(search, "train_run", FakeTraining())
    tuning = tune(OPTIONS, tmp_path, 3, say=silence)
    assert (tuning.interrupted, tuning.finished) == (False, 3)


def test_a_diverged_trial_is_stopped_and_the_study_goes_on(monkeypatch, tmp_path):
    usual, calls = FakeTraining(), []

    def diverging(config, observer):
        calls.append(config)
        if len(calls) == 1:
            raise Diverged("Learning broke down at env step 0.")
        return usual(config, observer)

    monkeypatch.setattr(search, "train_run", diverging)
    said = []
    tuning = tune(OPTIONS, tmp_path, 3, say=said.append)
    assert (tuning.finished, tuning.pruned, tuning.interrupted) == (3, 1, False)
    assert tuning.best_trial in (1, 2)
    assert said[0].startswith("trial 0: stopped at 0 env steps, ")
    assert tuning.plot.exists()


def test_a_study_of_diverged_trials_alone_has_no_best(monkeypatch, tmp_path):
    def diverging(config, observer):
        raise Diverged("Learning broke down at env step 0.")

    monkeypatch.setattr(search, "train_run", diverging)
    tuning = tune(OPTIONS, tmp_path, 2, say=silence)
    assert (tuning.finished, tuning.pruned, tuning.best_config) == (2, 2, None)


def test_a_return_that_is_no_number_ends_the_trial_and_not_the_study(monkeypatch, tmp_path):
    monkeypatch.setattr(search, "train_run", FakeTraining(infinite_at=1))
    tuning = tune(OPTIONS, tmp_path, 3, say=silence)
    assert (tuning.finished, tuning.pruned) == (3, 1)
    assert tuning.best_trial != 1
    assert tuning.plot.exists()


def test_several_seeds_count_with_their_mean():
    trial = optuna.create_study(direction="maximize").ask()
    callback = search.PruningCallback(trial)
    for steps, returns in ((0, [[9.0], [9.0]]), (10, [[1.0], [2.0]]), (20, [[3.0], [4.0]])):
        callback.on_evaluation(None, Evaluation(np.array(returns), np.ones((2, 1)), env_steps=steps))
    assert callback.value == 2.5  # the evaluation before training does not count


def test_the_same_study_is_not_used_for_another_question(training, tmp_path):
    tune(OPTIONS, tmp_path, 1, say=silence)
    with pytest.raises(ConfigError, match="was begun with steps = 1000, and 2000 was given now: say the same again"):
        tune(OPTIONS._replace(steps=2000), tmp_path, 2)
    with pytest.raises(ConfigError, match="was begun with fields"):
        tune(OPTIONS._replace(fields=("tau",)), tmp_path, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fields": ("color",)}, "'color' is none of them"),
        ({"fields": ()}, "nothing was given"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"preset": "mine"}, "there is no preset 'mine'"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_a_study_is_made(tmp_path, change, said):
    with pytest.raises(ConfigError, match=said):
        tune(OPTIONS._replace(**change), tmp_path / "study", 2)
    with pytest.raises(ConfigError, match="trials must be"):
        tune(OPTIONS, tmp_path / "study", 0)
    assert not (tmp_path / "study").exists()


def test_a_file_that_is_no_study_is_refused(training, tmp_path):
    (tmp_path / "study.db").write_text("something else, and long enough to be seen as no database at all")
    with pytest.raises(RunError, match=r"study\.db cannot be used \(.*\): give another --out"):
        tune(OPTIONS, tmp_path, 2)


def test_the_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'td3\[tune\]'"):
        tune(OPTIONS, tmp_path, 2)


def test_the_command_searches_and_train_reads_what_it_found(tmp_path, capsys):
    out = str(tmp_path / "study")
    words = ["tune", "Scripted-v0", "--steps", "40", "--fields", "hidden_sizes", "learning_starts_share", "--out", out]
    words += ["--eval-episodes", "1", "--threads", str(SMALL["threads"]), "--device", "cpu"]
    assert main([*words, "--trials", "1"]) == 0
    said = capsys.readouterr().out
    assert "1 trials in" in said or "1 trial in" in said
    assert f"Next: td3 train --config {out}/best.toml --seed 100" in said
    assert main([*words, "--trials", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["finished"], figures["interrupted"]) == (2, False)
    with sqlite3.connect(Path(out) / "study.db") as database:
        assert database.execute("select count(*) from trials").fetchone() == (2,)
    assert (Path(out) / "trial_0001" / "seed_0" / "evaluations.npz").exists()
    assert Path(figures["plot"]).read_bytes().startswith(b"\x89PNG")
    run = ["--config", figures["best_config"], "--seed", "100", "--out", str(tmp_path / "run")]
    assert main(["train", *run, "--eval-episodes", "1", "--device", "cpu", "--json"]) == 0
    trained = json.loads((tmp_path / "run" / "config.json").read_text())
    found = tomllib.loads(Path(figures["best_config"]).read_text())
    assert (trained["env"], trained["steps"], trained["seed"]) == ("Scripted-v0", 40, 100)
    assert {name: trained["td3"][name] for name in found["td3"]} == found["td3"]
