"""Lessons and diffs are read from the files; tasks are refused with the rungs that can; intervals are intervals."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch

from td3.environments.rail import FALL
from td3.errors import ConfigError, EnvironmentFault
from td3_lessons.ladder.climb import (
    NUMBERS,
    STATES,
    code_lines,
    diff_of_idea,
    diff_to_below,
    interval,
    lesson,
    make_task,
    play_rail,
    run_rung,
    rung_module,
    value_map,
)
from td3_lessons.ladder.ideas import PARTS, ddpg_with, idea_module


@pytest.mark.parametrize("number", NUMBERS)
def test_every_rung_says_what_broke_the_idea_and_the_formulas_on_one_screen(number):
    told = lesson(number)
    assert all(told)
    assert told.idea.count(".") == 1, "the idea is one sentence"
    assert "gamma" in told.formulas
    assert len(inspect.getsource(rung_module(number)).splitlines()) <= 120


@pytest.mark.parametrize("number", NUMBERS)
def test_code_lines_are_code_only(number):
    lines = code_lines(number)
    assert not any('"""' in line or line.lstrip().startswith("#") or not line.strip() for line in lines)
    assert "def train(task: Task, seed: int, settings: Settings, watch: Watch) -> Learner:" in lines


@pytest.mark.parametrize("number", NUMBERS[1:])
def test_a_diff_turns_the_code_below_into_the_code_here(number):
    below, here = code_lines(number - 1, imports=False), code_lines(number, imports=False)
    diff = diff_to_below(number)
    assert not any(line.lstrip("+- ").startswith(("import ", "from ")) for line in diff.lines), "imports are no lesson"
    assert len(here) - len(below) == diff.added - diff.removed
    assert max(diff.added, diff.removed) <= diff.changed <= diff.added + diff.removed
    shown = [line for line in diff.lines if line.startswith("+")]
    assert all(line[1:] in here for line in shown)
    assert diff.changed <= 40


@pytest.mark.parametrize(
    ("number", "env", "sentence"),
    [
        (
            5,
            "CartPole-v1",
            r"CartPole-v1 has actions of the kind Discrete\(2\), so rung 5 .* cannot learn it: rung 2 can\.",
        ),
        (1, "CartPole-v1", "CartPole-v1 has 4 state dimensions, too many for a table, so rung 1 .*: rung 2 can"),
        (6, "FrozenLake-v1", r"so rung 6 \(TD3, .*\) cannot learn it: rungs 1, 2 can\."),
        (1, "Pendulum-v1", None),
        (1, "MountainCarContinuous-v0", None),
        (2, "Pendulum-v1", None),
        (3, "Pendulum-v1", None),
        (2, "FrozenLake-v1", None),
        (1, "Reacher-v5", "Reacher-v5 has 10 state dimensions, .*: rungs 3, 4, 5, 6 can"),
        (2, "Reacher-v5", "Reacher-v5 has 2 action dimensions, too many to list, .*: rungs 3, 4, 5, 6 can"),
    ],
)
def test_a_task_is_served_or_refused_with_the_rungs_that_can(number, env, sentence):
    if sentence is None:
        task = make_task(number, env)
        assert task.reset(seed=0).shape == (task.state_size,)
    else:
        with pytest.raises(EnvironmentFault, match=sentence):
            make_task(number, env)


def test_an_unknown_task_keeps_its_own_sentence():
    with pytest.raises(EnvironmentFault, match="there is no environment 'Rial-v0': did you mean Rail-v0"):
        make_task(1, "Rial-v0")


def test_noise_is_for_the_rail_alone():
    with pytest.raises(ConfigError, match="reward_noise is made for Rail-v0, but Pendulum-v1 was given"):
        make_task(5, "Pendulum-v1", 1.0)


def test_target_networks_are_an_idea_of_a_few_lines():
    diff = diff_of_idea("target_network")
    assert diff.changed <= 8
    assert any("self.target" in line for line in diff.lines if line.startswith("+"))
    assert len(inspect.getsource(idea_module("target_network")).splitlines()) <= 120


def test_a_target_network_changes_what_deep_q_learning_does_and_starts_equal():
    task = make_task(2)
    module = idea_module("target_network")
    learner = module.Learner(task, 0, module.Settings())
    ours, theirs = list(learner.q.parameters()), list(learner.target.parameters())
    assert all(bool((a == b).all()) for a, b in zip(ours, theirs, strict=True))
    module.train(task, 0, replace(module.Settings(), steps=3), lambda step, learner: None)
    result = run_rung(2, steps=3, idea="target_network")
    assert result.idea == "target_network"
    assert result.number == 2


@pytest.mark.parametrize("name", PARTS)
def test_each_of_td3s_changes_alone_is_ddpg_with_one_difference(name):
    from td3.algorithm.streams import MemberStreams

    made = {}
    for change in ("", name):
        module = idea_module(name)
        learner = module.Learner(make_task(6), 0, module.Settings())
        rows = np.random.default_rng(0).uniform(-1, 1, (1, 300, 7)).astype(np.float32)
        learner.buffer.add_(torch.from_numpy(rows))
        for _ in range(3):
            ddpg_with(change, learner.agent, learner.buffer, MemberStreams([0]), module.Settings())
        made[change] = (
            learner.agent.critics.parameters.detach().clone(),
            learner.agent.actor.parameters.detach().clone(),
        )
    assert not torch.equal(made[""][0], made[name][0]) or not torch.equal(made[""][1], made[name][1])
    if name == "delay":
        assert not torch.equal(made[""][1], made[name][1]), "the actor moved once instead of three times"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, ("G_t =", "V_pi(s) =", "Q_pi(s, a) =", "expectation equation", "optimality equation", "off-policy")),
        (3, ("log-derivative", "on-policy")),
        (5, ("chain rule", "off-policy")),
        (6, ("min(Q1", "target policy smoothing", "delay")),
    ],
)
def test_the_equations_stand_at_the_head_of_the_file(number, words):
    assert all(word in lesson(number).formulas for word in words)


def test_rung_6_says_why_double_dqn_does_not_suffice():
    assert "Double DQN" in inspect.getdoc(rung_module(6))


def test_there_is_no_seventh_rung():
    with pytest.raises(ConfigError, match="there is no rung 7: they go from 1 to 6"):
        rung_module(7)


def test_actions_reach_the_environment_inside_their_range():
    listed, ranged = make_task(1), make_task(3)
    assert [float(listed.outward(index)[0]) for index in range(5)] == [-1, -0.5, 0, 0.5, 1]
    assert ranged.outward(np.array([7.0])).tolist() == [1.0]


def test_playing_discounts_and_stops_at_the_end_of_the_rail():
    states = np.array([[1.0, 0.0], [1.95, 2.0]])
    first, second = play_rail(lambda s: np.zeros(len(s)), states, 3)
    assert first == pytest.approx(-(1 + 0.99 + 0.99**2))
    assert second == pytest.approx(-(1.95**2 + 0.4) - FALL)


def test_a_rung_runs_in_one_thread_and_gives_the_others_back(monkeypatch):
    module, used = rung_module(6), []
    train = module.train
    monkeypatch.setattr(module, "train", lambda *given: used.append(torch.get_num_threads()) or train(*given))
    torch.set_num_threads(2)
    try:
        run_rung(6, steps=2, evaluations=1)
        assert used == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_run_of_one_step_has_a_point_before_and_one_after():
    result = run_rung(4, steps=1)
    assert result.steps.tolist() == [0, 1]
    assert result.returns.shape == result.overestimate.shape == result.self_deception.shape == (2,)
    assert result.values.shape == (61, 61)
    assert np.all(result.self_deception >= result.overestimate - 0.1)  # no policy earns more than the optimum
    assert len(STATES) == 200


def test_noise_in_the_reward_does_not_touch_the_evaluation():
    plain, noisy = run_rung(2, steps=1), run_rung(2, steps=1, reward_noise=5.0)
    assert plain.returns[0] == noisy.returns[0]


def test_the_interval_is_that_of_the_mean():
    values = np.random.default_rng(3).normal(2.0, 1.0, 400)
    low, high = interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert interval(np.full((5, 3), 7.0))[0].tolist() == [7, 7, 7]


def test_a_number_of_the_table_that_was_never_learned_is_no_value():
    task = make_task(1)
    learner = rung_module(1).Learner(task, 0, rung_module(1).Settings())
    learner.q[:60] = -3.0
    values = value_map(task, learner)
    assert np.isnan(values).any()
    assert set(values[~np.isnan(values)]) == {-3.0}
