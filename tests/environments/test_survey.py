"""`td3 check`: what random actions show of an environment before training."""

import json
import shlex

import gymnasium as gym
import numpy as np
import pytest

from td3.cli import main
from td3.environments.survey import survey
from td3.errors import EnvironmentFault


class Task(gym.Env):
    """Well-behaved; tests change one thing at a time."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    scale, reward, fails, seeded = 1.0, 1.0, 20, True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.random = 0, self.np_random if self.seeded else np.random.default_rng()
        return self.observe(), {}

    def step(self, action):
        self.age += 1
        return self.observe(), self.reward, self.age == self.fails, False, {}

    def observe(self):
        return (self.scale * self.random.normal(size=2)).astype(np.float32)


def findings_of(monkeypatch, **changes):
    limit = changes.pop("limit", 50)
    for name, value in changes.items():
        monkeypatch.setattr(Task, name, value)
    return survey(f"{__name__}:Task", {"max_episode_steps": limit}, 100)


def test_a_sound_environment_has_no_finding_and_its_figures_are_counted(monkeypatch):
    found = findings_of(monkeypatch)
    assert found.findings == ()
    assert (found.episodes, found.terminated, found.truncated) == (5, 5, 0)
    assert (found.mean_return, found.mean_length, found.reward_scale) == (20.0, 20.0, 1.0)
    assert found.repeatable


@pytest.mark.parametrize("fails", [20, -1])
def test_a_missing_time_limit_is_a_finding_whose_remedy_works(monkeypatch, fails):
    monkeypatch.setattr(Task, "fails", fails)
    (sentence,) = survey(f"{__name__}:Task", {}, 100).findings
    assert sentence.startswith(f"There is no time limit, and no episode {'was truncated' if fails > 0 else 'ended'} in")
    command = shlex.split(sentence.partition("step() has one:")[2])
    assert command[:3] == ["td3", "check", f"{__name__}:Task"]
    assert main([*command[1:], "--steps", "1500"]) == 0


def test_an_environment_that_truncates_by_itself_has_a_time_limit(monkeypatch):
    real = Task.step
    monkeypatch.setattr(Task, "step", lambda self, a: (*real(self, a)[:2], False, self.age == 20, {}))
    assert survey(f"{__name__}:Task", {}, 100).findings == ()


def test_a_flaky_environment_is_a_finding_and_the_others_figures_are_those_of_whole_episodes(monkeypatch, capsys):
    real, made = Task.step, []

    def step(self, action):
        if not hasattr(self, "number"):
            self.number = len(made)
            made.append(self)
        if self.number == 1 and self.age == 7:
            raise RuntimeError("the motor is hot")
        return real(self, action)

    monkeypatch.setattr(Task, "step", step)
    made.append(None)  # the first environment is number 1, and only that one fails
    found = survey(f"{__name__}:Task", {"max_episode_steps": 50}, 100)
    assert len(made) == 3
    assert (found.episodes, found.mean_length) == (5, 20.0)
    flaky = [sentence for sentence in found.findings if sentence.startswith("Sometimes")]
    assert len(flaky) == 1
    assert "failed in step(): RuntimeError: the motor is hot (test_survey.py, line " in flaky[0]
    made[1:] = []
    assert main(["check", f"{__name__}:Task", "--steps", "100", "--env-kwargs", "max_episode_steps=50"]) == 1
    assert "- Sometimes an environment failed in step()" in capsys.readouterr().out


def test_a_time_limit_truncates(monkeypatch):
    monkeypatch.setattr(Task, "fails", -1)
    found = survey(f"{__name__}:Task", {"max_episode_steps": 10}, 100)
    assert (found.terminated, found.truncated, found.findings) == (0, 10, ())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeded": False}, "The same seed and actions gave another episode"),
        ({"fails": -1, "limit": 200}, "No episode ended in 100 steps: check with more --steps"),
        ({"scale": 1e5}, "Observations reach a root mean square"),
        ({"scale": 1e-4}, "Observations hardly vary"),
        ({"scale": 0.0}, "Observations never change"),
        ({"reward": 1e4}, "Rewards have a root mean square of 1e+04: divide them"),
        ({"reward": 0.0}, "Rewards have a root mean square of 0 under random actions"),
    ],
)
def test_each_fault_has_its_sentence_and_no_other(monkeypatch, changes, said):
    (sentence,) = findings_of(monkeypatch, **changes).findings
    assert sentence.startswith(said)


def test_an_environment_that_fails_later_is_refused(monkeypatch):
    def step(self, action):
        self.age += 1
        if self.age == 7:
            raise RuntimeError("the motor is hot")
        return self.observe(), np.nan if self.age == 9 else 1.0, False, False, {}

    monkeypatch.setattr(Task, "step", step)
    with pytest.raises(EnvironmentFault, match="the motor is hot"):
        survey(f"{__name__}:Task", {}, 100)


def test_numbers_that_are_none_are_refused(monkeypatch):
    real = Task.step
    monkeypatch.setattr(
        Task, "step", lambda self, a: (real(self, a)[0], np.inf if self.age == 9 else 1.0, False, False, {})
    )
    with pytest.raises(EnvironmentFault, match="NaN or infinity within 100 random steps"):
        survey(f"{__name__}:Task", {}, 100)


def test_the_command_prints_figures_and_its_exit_code_says_whether_something_was_found(capsys):
    assert main(["check", "Pendulum-v1", "--steps", "400"]) == 0
    assert "2 ended: 0 terminated, 2 truncated" in capsys.readouterr().out
    assert main(["check", "Pendulum-v1", "--steps", "100", "--json"]) == 1
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["episodes"], found["mean_return"], found["mean_length"]) == (0, None, None)
    assert len(found["findings"]) == 1
    assert main(["check", "CartPole-v1"]) == 2
    assert main(["check", "Pendulum-v1", "--steps", "0"]) == 2
    capsys.readouterr()
    assert main(["check", "Pendulum-v1", "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "td3: --seed must be at least 0, but -1 was given.\n"


class Switched(Task):
    """Has Discrete actions unless it is asked for others."""

    def __init__(self, continuous=False):
        self.action_space = Task.action_space if continuous else gym.spaces.Discrete(2)


def test_the_option_for_continuous_actions_that_a_refusal_offers_works(capsys):
    words = ["check", f"{__name__}:Switched", "--steps", "100", "--env-kwargs", "max_episode_steps=50"]
    assert main(words) == 2
    error = capsys.readouterr().err
    option, value = error.partition("make it with  ")[2].split()
    assert (option, value) == ("--env-kwargs", "continuous=true")
    assert main([*words, value]) == 0


def test_an_environment_with_goals_is_checked_for_hindsight():
    sound, broken = (f"variants.goal_worlds:{name}" for name in ("Walk", "WithoutReward"))
    assert not any("indsight" in said for said in survey(sound, {"max_episode_steps": 6}, 20).findings)
    (said,) = (said for said in survey(broken, {"max_episode_steps": 6}, 20).findings if "indsight" in said)
    assert said.startswith(f"Variant hindsight cannot be used: {broken} has no method compute_reward(")
    assert any("has no time limit" in said for said in survey(sound, {}, 20).findings)
