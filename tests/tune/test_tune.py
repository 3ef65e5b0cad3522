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
from td3.errors import ConfigError, Diverged, EnvironmentFault, MissingExtra, RunError
from td3.evaluate import Evaluation
from td3.run.lock import locked
from td3.tune import SEARCH, search

FIELDS = ("learning_rate", "gamma")


def tune(out, trials, fields=FIELDS, say=lambda line: None, **changed):
    """A search whose runs have five evaluations."""
    settings = {"steps": 1000, "eval_every": 200, "eval_episodes": 1, **changed}
    return search.tune("Scripted-v0", out, trials, fields, say=say, **settings)


def pruned(study):
    return [trial for trial in search.ended(study) if trial.state.name == "PRUNED"]


class FakeTraining:
    """Runs that take no time: the return grows with the steps, to a height that the learning rate decides."""

    def __init__(self, interrupt_at=None, infinite_at=None):
        self.configs, self.stopped_at = [], {}
        self.interrupt_at, self.infinite_at, self.reason = interrupt_at, infinite_at, ""

    def __call__(self, given, callbacks):
        number, self.reason = len(self.configs), ""
        self.configs.append(given)
        height = -abs(np.log10(given.td3.actor_learning_rate / 1e-3))
        for env_steps in range(0, given.steps + 1, given.eval_every):
            self.stopped_at[number] = env_steps
            if number == self.interrupt_at and env_steps == 400:
                raise KeyboardInterrupt
            value = np.inf if number == self.infinite_at else 100 * height * env_steps / given.steps
            returns, lengths = np.full((given.seeds, 2), value), np.ones((given.seeds, 2))
            callbacks[0].on_evaluation(self, Evaluation(returns, lengths, env_steps=env_steps))
            if self.reason:
                return

    def stop(self, reason):
        """What a trainer does with it is tested there."""
        self.reason = reason


@pytest.fixture
def training(monkeypatch):
    """No training, and no picture, which takes a second: two other tests make one."""
    monkeypatch.setattr("td3.tune.plot.draw", lambda title, space, trials, best, path: path.touch())
    fake = FakeTraining()
    monkeypatch.setattr(search, "train_run", fake)
    return fake


def described(space):
    """A search space as the page has it."""
    if isinstance(space, dict):
        return f"{space['low']:g} to {space['high']:g}"
    return ", ".join(str(choice).replace(" ", "-") for choice in space)


def test_the_command_and_its_page_name_what_is_searched():
    assert TuneCommand.__dataclass_fields__["fields"].default == tuple(SEARCH)
    page = (Path(__file__).parents[2] / "docs" / "tune.md").read_text()
    for name, space in SEARCH.items():
        assert f"| `{name}` | {described(space)} |" in page


def test_the_first_trial_is_the_preset_itself(training, tmp_path):
    tune(tmp_path, 1, tuple(SEARCH))
    (first,) = training.configs
    usual = config.TD3Config()
    assert first.td3 == config.replace(usual, learning_starts=100)  # as in any run: a tenth of the steps at most
    assert (first.steps, first.seeds, first.out) == (1000, 1, tmp_path / "trial_0000")


@pytest.mark.parametrize("preset", ["author", "paper", "course", "bullet"])
def test_the_numbers_of_every_preset_are_within_the_search(preset):
    for name, value in search.baseline("Scripted-v0", preset, 1000, tuple(SEARCH)).items():
        space = SEARCH[name]
        assert value in space if isinstance(space, list) else space["low"] <= value <= space["high"]


def test_parameters_follow_from_seed_number_and_results_before(training, tmp_path):
    """Not from how often the study was continued, nor from how many trials are asked for."""
    whole = tune(tmp_path / "whole", 13)
    for trials in (1, 2, 11, 13):
        parts = tune(tmp_path / "parts", trials)
    parameters = [[trial.params for trial in study.trials] for study in (whole, parts)]
    assert parameters[0] == parameters[1]
    assert len({json.dumps(each) for each in parameters[0]}) == 13
    assert tune(tmp_path / "other", 2, seed=1).trials[1].params != parameters[0][1]


def test_hopeless_trials_are_stopped_and_the_best_is_found(training, tmp_path):
    said = []
    study = tune(tmp_path, 12, say=said.append, seed=5)
    assert (len(study.trials), len(training.configs), len(said)) == (12, 12, 12)
    assert len(pruned(study)) > 1
    stopped = [number for number, steps in training.stopped_at.items() if steps < 1000]
    assert stopped == [trial.number for trial in pruned(study)]
    assert min(stopped) >= search.UNPRUNED_TRIALS
    assert min(training.stopped_at[number] for number in stopped) >= 300
    rates = [given.td3.actor_learning_rate for given in training.configs]
    best = min((number for number in range(12) if number not in stopped), key=lambda n: abs(np.log10(rates[n] / 1e-3)))
    assert search.best_of(study).number == best
    assert f"trial {best}: return {study.best_value:,.1f}" in said[best]
    assert "env steps, pruned: below the median, return " in said[stopped[0]]
    assert study.best_value == pytest.approx(-80 * abs(np.log10(rates[best] / 1e-3)))  # of the last three evaluations


def test_the_result_is_a_config_file_that_train_reads(training, tmp_path):
    study = tune(tmp_path, 3, tuple(SEARCH), env_kwargs={"lengths": [3, 5], "fault": "none"})
    found = read_config(tmp_path / "best.toml")
    best = training.configs[search.best_of(study).number]
    assert found.td3 == best.td3
    assert (found.env, found.steps, found.preset) == (best.env, best.steps, best.preset)
    assert found.env_kwargs == {"lengths": [3, 5], "fault": "none"}


def test_a_study_continues_with_other_settings_than_it_began_with(training, tmp_path):
    tune(tmp_path, 2)
    said = []
    study = tune(tmp_path, 4, say=said.append)
    assert said[0] == f"Going on with {tmp_path / 'study.db'}: 2 of 4 trials are finished."
    assert (len(study.trials), len(training.configs)) == (4, 4)
    rates = [given.td3.actor_learning_rate for given in training.configs]
    assert len(set(rates)) == 4
    assert len(tune(tmp_path, 4).trials) == len(training.configs) == 4


def test_ctrl_c_leaves_a_study_that_resumes_its_trial(monkeypatch, tmp_path):
    monkeypatch.setattr(search, "train_run", FakeTraining(interrupt_at=2))
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path, 3)
    assert (tmp_path / "best.toml").exists()
    assert (tmp_path / "tuning.png").exists()
    fake, said = FakeTraining(), []
    monkeypatch.setattr(search, "train_run", fake)
    study = tune(tmp_path, 3, say=said.append)
    assert said[0].endswith("2 of 3 trials are finished; trial 2 is resumed.")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3
    assert fake.configs[0].td3.actor_learning_rate == study.trials[2].params["learning_rate"]


@pytest.mark.parametrize(
    ("error", "state", "outcome"),
    [
        (Diverged("Learning broke down at env step 0."), "PRUNED", "diverged: Learning broke down at env step 0."),
        (EnvironmentFault("It fell apart."), "FAIL", "failed: It fell apart."),
        (ConfigError("the GPU has no memory left."), "FAIL", "failed: the GPU has no memory left."),
    ],
)
def test_a_trial_that_fails_is_recorded_and_the_study_continues(monkeypatch, tmp_path, error, state, outcome):
    usual, calls = FakeTraining(), []

    def failing(config, observer):
        calls.append(config)
        if len(calls) == 1:
            raise error
        return usual(config, observer)

    monkeypatch.setattr(search, "train_run", failing)
    said = []
    study = tune(tmp_path, 3, say=said.append)
    assert [trial.state.name for trial in study.trials] == [state, "COMPLETE", "COMPLETE"]
    assert study.trials[0].user_attrs["outcome"] == outcome
    assert said[0].startswith(f"trial 0: ended at 0 env steps, {outcome}")
    assert (tmp_path / "tuning.png").exists()


def test_what_is_no_fault_of_a_trial_ends_the_search_which_can_be_continued(monkeypatch, tmp_path):
    def full(config, observer):
        raise RunError("the disk is full")

    monkeypatch.setattr(search, "train_run", full)
    with pytest.raises(RunError, match="the disk is full"):
        tune(tmp_path, 2)
    monkeypatch.setattr(search, "train_run", FakeTraining())
    assert [trial.state.name for trial in tune(tmp_path, 2).trials] == ["COMPLETE"] * 2


def test_a_study_of_diverged_trials_alone_has_no_best(monkeypatch, tmp_path):
    def diverging(config, observer):
        raise Diverged("Learning broke down at env step 0.")

    monkeypatch.setattr(search, "train_run", diverging)
    study = tune(tmp_path, 2)
    assert (len(pruned(study)), search.best_of(study), (tmp_path / "best.toml").exists()) == (2, None, False)


def test_a_return_that_is_no_number_ends_the_trial_and_not_the_study(monkeypatch, tmp_path):
    monkeypatch.setattr(search, "train_run", FakeTraining(infinite_at=1))
    study = tune(tmp_path, 3)
    (ended,) = pruned(study)
    assert (ended.number, ended.user_attrs["outcome"]) == (1, "diverged: a return is not a number")
    assert search.best_of(study).number != 1


def test_several_seeds_count_with_their_mean():
    trial = optuna.create_study(direction="maximize").ask()
    callback = search.TrialCallback(trial)
    for steps, returns in ((0, [[9.0], [9.0]]), (10, [[1.0], [2.0]]), (20, [[3.0], [4.0]])):
        callback.on_evaluation(None, Evaluation(np.array(returns), np.ones((2, 1)), env_steps=steps))
    assert callback.values == {10: 1.5, 20: 3.5}  # the evaluation before training does not count


def test_an_evaluation_that_the_study_could_not_take_is_reported_when_the_run_is_resumed(monkeypatch):
    study = optuna.create_study(direction="maximize")
    first = study.ask()
    callback = search.TrialCallback(first)
    callback.on_evaluation(None, Evaluation(np.array([[1.0]]), np.ones((1, 1)), env_steps=10))
    monkeypatch.setattr(first, "report", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        callback.on_evaluation(None, Evaluation(np.array([[2.0]]), np.ones((1, 1)), env_steps=20))
    again = search.TrialCallback(optuna.trial.Trial(study, first._trial_id))
    again.load_state(json.loads(json.dumps(callback.state())))
    assert study.trials[0].intermediate_values == {10: 1.0, 20: 2.0}


def test_the_same_study_is_not_used_for_another_question(training, tmp_path):
    tune(tmp_path, 1)
    with pytest.raises(ConfigError, match="was begun with steps = 1000, and 2000 was given now: say the same again"):
        tune(tmp_path, 2, steps=2000)
    with pytest.raises(ConfigError, match="was begun with fields"):
        tune(tmp_path, 2, ("tau",))


def test_a_study_that_another_process_searches_is_left_alone(training, tmp_path):
    with locked(tmp_path), pytest.raises(RunError, match="is being trained by process"):
        tune(tmp_path, 2)


def test_trials_without_their_study_are_left_alone(training, tmp_path):
    (tmp_path / "trial_0000").mkdir()
    with pytest.raises(RunError, match=r"trial_0000 is a trial of a study that .* no longer has: give another --out"):
        tune(tmp_path, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fields": ("color",)}, "'color' is none of them"),
        ({"fields": ()}, "nothing was given"),
        ({"steps": 0}, "steps must be a whole number from 1 to"),
        ({"preset": "mine"}, "there is no preset 'mine'"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_a_study_is_made(tmp_path, change, said):
    with pytest.raises(ConfigError, match=said):
        tune(tmp_path / "study", 2, **change)
    with pytest.raises(ConfigError, match="trials must be"):
        tune(tmp_path / "study", 0)
    assert not (tmp_path / "study").exists()


def test_a_file_that_is_no_study_is_refused(training, tmp_path):
    (tmp_path / "study.db").write_text("something else, and long enough to be seen as no database at all")
    with pytest.raises(RunError, match=r"study\.db cannot be used \(.*\): give another --out"):
        tune(tmp_path, 2)


def test_the_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'td3\[tune\]'"):
        tune(tmp_path, 2)


def test_the_command_searches_and_train_reads_what_it_found(tmp_path, capsys):
    out = str(tmp_path / "study")
    words = ["tune", "Scripted-v0", "--steps", "40", "--fields", "hidden_sizes", "learning_starts_share", "--out", out]
    words += ["--eval-episodes", "1", "--threads", str(SMALL["threads"]), "--device", "cpu"]
    assert main([*words, "--trials", "1"]) == 0
    said = capsys.readouterr().out
    assert f"1 trials in {out}: 0 pruned, 0 failed" in said
    assert f"Next: td3 train --config {out}/best.toml --seed 100" in said
    assert main([*words, "--trials", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["finished"], figures["pruned"], figures["failed"]) == (2, 0, 0)
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
