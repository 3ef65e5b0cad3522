"""Hindsight: goals achieved later in the same episode, stored beside every transition."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import flatten
from scripted import SMALL

import td3
from td3.collect.collector import Collector
from td3.collect.hindsight_collector import HindsightCollector
from td3.engine import Engine
from td3.environments import InProcessVectorEnv, make_environment
from td3.environments.goals import GoalTask, parts_of
from td3.errors import EnvironmentFault, UserError
from td3.run.checkpoints import Checkpoints
from variants.goal_worlds import (
    LONGEST,
    Branching,
    Breaking,
    NamedGoals,
    OneByOne,
    OtherRewards,
    Walk,
    WalkToTheEnd,
    WithoutReward,
)

GOALS, STATE = 4, 7


def limited(kind, **arguments):
    return make_environment(kind, {"max_episode_steps": LONGEST, **arguments})


def collector(kind=Walk, seeds=(0,), envs=1, goals=GOALS, timeouts="bootstrap"):
    make = partial(limited, kind)
    environments = InProcessVectorEnv([make() for _ in range(len(seeds) * envs)], make)
    return HindsightCollector(environments, seeds, [-1.0], [1.0], 0.1, timeouts, GoalTask(make(), "Walk"), goals)


def rounds(collecting, count):
    return [collecting.step(collecting.act(None))[0] for _ in range(count)]


def taken_apart(rows):
    """Columns of rows `[..., row]`; a state is observation 3, achieved 2, desired 2, in the order of `Walk`'s space."""
    order = list(parts_of(limited(Walk)))
    assert {*order} == {"observation", "achieved_goal", "desired_goal"}
    parts = parts_of(limited(Walk))
    state, next_state = rows[..., :STATE], rows[..., STATE + 1 : 2 * STATE + 1]
    return {
        **{name: state[..., part] for name, part in parts.items()},
        **{f"next_{name}": next_state[..., part] for name, part in parts.items()},
        "reward": rows[..., -2],
        "terminated": rows[..., -1],
    }


def test_parts_lie_where_gymnasium_flattens_them():
    environment = limited(Walk)
    environment.reset(seed=5)
    shown = environment.unwrapped.shown()
    flat = flatten(environment.unwrapped.observation_space, shown)
    for name, part in parts_of(environment).items():
        assert flat[part].tolist() == np.asarray(shown[name]).tolist()
    assert parts_of(make_environment("Rail-v0")) == {}


def test_rows_come_out_when_their_episode_is_over_for_certain_and_then_as_many_in_every_round():
    counts = [rows.shape[1] for rows in rounds(collector(envs=3, seeds=(0, 1)), 20)]
    assert counts == [0] * (LONGEST - 1) + [3 * (1 + GOALS)] * (20 - LONGEST + 1)


def test_every_transition_is_stored_once_as_it_was():
    stored = np.concatenate([rows[0, :1] for rows in rounds(collector(), 60) if rows.shape[1]])
    make = partial(limited, Walk)
    plain = Collector(InProcessVectorEnv([make()], make), (0,), [-1.0], [1.0], 0.1)
    seen = np.concatenate([rows[0] for rows in rounds(plain, 60)])
    assert (stored == seen[: 60 - LONGEST + 1]).all()


def relabelled(kind=Walk, **arguments):
    """Real rows `[count, 1]` and their copies `[count, goals]`, of all environments, taken apart."""
    rows = np.concatenate([r for r in rounds(collector(kind, **arguments), 200) if r.shape[1]], axis=1)
    apart = taken_apart(rows.reshape(-1, 1 + GOALS, rows.shape[2]))
    return {n: c[:, :1] for n, c in apart.items()}, {n: c[:, 1:] for n, c in apart.items()}


def test_goals_are_achieved_in_the_same_episode_and_not_before():
    real, copies = relabelled(seeds=(0, 1), envs=2)
    goals = copies["desired_goal"]
    assert (goals[..., 0] == real["next_achieved_goal"][..., 0]).all()  # of the same episode
    assert (goals[..., 1] >= real["next_achieved_goal"][..., 1]).all()  # now or later
    lengths = np.array(Walk().lengths)[real["observation"][..., 1].astype(int) % len(Walk().lengths)]
    assert (goals[..., 1] <= lengths).all()
    later = goals[..., 1] - real["next_achieved_goal"][..., 1]
    assert {0.0, 1.0, 2.0, 3.0, 4.0, 5.0} == {*np.unique(later)}  # every later one is chosen sometimes
    left = np.broadcast_to(lengths - real["next_achieved_goal"][..., 1], later.shape)
    for most in range(1, LONGEST):
        counts = np.unique(later[left == most], return_counts=True)[1]
        assert counts.max() < 1.5 * counts.min()  # uniformly


def test_a_copy_differs_in_its_goal_and_what_follows_from_it_alone():
    real, copies = relabelled()
    for name in ("observation", "achieved_goal", "next_observation", "next_achieved_goal", "terminated"):
        assert (copies[name] == real[name]).all(), name
    assert (copies["desired_goal"] == copies["next_desired_goal"]).all()
    achieved = (copies["next_achieved_goal"] == copies["desired_goal"]).all(-1)
    assert (copies["reward"] == np.where(achieved, 0, -1)).all()
    assert (real["reward"] == -1).all()
    assert 0.3 < achieved.mean() < 0.8


def test_terminations_are_the_environments_where_it_says_so():
    real, copies = relabelled(WalkToTheEnd)
    assert (real["terminated"] == 0).all()
    assert (copies["terminated"] == (copies["reward"] == 0)).all()


def test_time_outs_that_count_as_terminations_do_so_in_copies_too():
    rows = np.concatenate(rounds(collector(WalkToTheEnd, timeouts="terminate"), 60), 1)[0]
    real, *copies = (rows[place :: 1 + GOALS] for place in range(1 + GOALS))
    assert 0.1 < real[:, -1].mean() < 0.9
    for copy in copies:
        assert (copy[:, -1] == np.maximum(real[:, -1], copy[:, -2] == 0)).all()


def test_goals_stay_in_their_episode_where_an_environment_fails_in_the_middle_of_one():
    real, copies = relabelled(Breaking, seeds=(0, 1), envs=2)
    assert (copies["desired_goal"][..., 0] == real["next_achieved_goal"][..., 0]).all()
    assert (copies["desired_goal"][..., 1] >= real["next_achieved_goal"][..., 1]).all()


def test_a_seed_gets_the_same_alone_and_among_others():
    alone = rounds(collector(seeds=(4,), envs=2), 40)
    among = rounds(collector(seeds=(3, 4, 9), envs=2), 40)
    for one, all_three in zip(alone, among, strict=True):
        assert (one[0] == all_three[1]).all()


def test_a_restored_collector_goes_on_bit_for_bit():
    whole = collector(seeds=(0, 1), envs=2)
    rounds(whole, 23)
    state = {name: array.copy() for name, array in whole.state().items()}
    expected = rounds(whole, 30)
    again = collector(seeds=(0, 1), envs=2)
    assert again.restore(state) == []
    for one, other in zip(rounds(again, 30), expected, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(make_environment, "Rail-v0"), "has no goals, and variant hindsight needs Dict observations"),
        (partial(make_environment, Walk), "has no time limit"),
        (partial(limited, OneByOne), r"gave an array of shape \(\) for 2 goals"),
        (partial(limited, OtherRewards), "gave the reward -2.0, and compute_reward.. gives -1.0"),
        (partial(limited, WithoutReward), r"has no method compute_reward\(achieved_goal, desired_goal, info\): add it"),
        (partial(limited, Branching), r"failed with ValueError: The truth .*: make it accept arrays of goals"),
        (partial(limited, OtherRewards), "make the two agree; in hindsight info is an empty dict, and rewards of wrap"),
        (partial(limited, NamedGoals), r"needs two arrays \(Box\) of one shape"),
        (partial(make_environment, Walk, {"max_episode_steps": 6}, action_repeat=2), "cannot be used with --action-re"),
    ],
)
def test_an_environment_without_usable_goals_gets_one_sentence(make, said):
    environment = make()
    with pytest.raises(EnvironmentFault, match=said) as refused:
        GoalTask(environment, "It")
    assert "\n" not in str(refused.value)


def test_the_goal_rail_can_be_solved_and_says_so():
    environment = make_environment("RailGoal-v0")
    task = GoalTask(environment, "RailGoal-v0")
    assert task.max_episode_steps == 50
    observation, _ = environment.reset(seed=1)
    for _ in range(50):
        parts = {name: observation[part] for name, part in parts_of(environment).items()}
        position, velocity = parts["observation"]
        force = np.clip(4 * (parts["desired_goal"] - position) - 1.5 * velocity, -1, 1)
        observation, reward, terminated, truncated, info = environment.step(force.astype(np.float32))
        assert not terminated
    assert truncated
    assert reward == 0
    assert info["is_success"]
    assert isinstance(environment.unwrapped.observation_space, gym.spaces.Dict)


@pytest.mark.parametrize(
    ("env", "changed", "said"),
    [
        ("Rail-v0", {}, "has no goals"),
        ("RailGoal-v0", {"steps": 300, "envs": 6}, "stores transitions after 50 rounds .* and the run has 50"),
        ("RailGoal-v0", {"variant": ("n-step", "hindsight")}, "n-step and hindsight cannot be used together"),
        ("RailGoal-v0", {"hindsight_goals": 0}, "hindsight_goals must be a whole number from 1 to 100"),
    ],
)
def test_a_run_that_cannot_use_hindsight_is_refused_before_anything_is_written(tmp_path, env, changed, said):
    fields = {**SMALL, "variant": "hindsight", "steps": 300, **changed}
    with pytest.raises(UserError, match=said):
        td3.train(env, out=tmp_path / "run", **fields)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("engine", ["recorded", "eager"])
def test_a_run_counts_env_steps_and_updates_as_any_other(tmp_path, engine):
    fields = {**SMALL, "variant": "hindsight", "steps": 60, "seeds": 2, "envs": 2, "learning_starts": 20}
    kwargs = {"max_episode_steps": 10}
    run = td3.train("RailGoal-v0", out=tmp_path / "run", env_kwargs=kwargs, engine=engine, **fields)
    checkpoint, _ = Checkpoints(run.path).newest()
    assert checkpoint.env_steps == 60
    assert checkpoint.tensors["updates"].tolist() == [40, 40]  # the first rows come after 20 env steps too
    assert checkpoint.facts["added"] == (30 - 9) * 2 * 5
    header, *rows = (run.folder(0) / "evaluations.csv").read_text().splitlines()
    assert header.endswith("success_rate")
    assert rows[-1].rpartition(",")[2] in ("0.0", "1.0")


@pytest.mark.usefixtures("unchecked")
def test_updates_are_counted_from_the_first_stored_rows_on(tmp_path, monkeypatch):
    """Eight environments fill the window of episodes for 400 env steps, far beyond the warm-up of 20."""
    calls, update = [], Engine.update

    def counted(engine, counts):
        calls.append(max(counts))
        update(engine, counts)

    monkeypatch.setattr(Engine, "update", counted)
    fields = {**SMALL, "variant": "hindsight", "steps": 560, "envs": 8, "eval_every": 0, "workers": "none"}
    run = td3.train("RailGoal-v0", out=tmp_path / "run", **fields)
    assert max(calls) == 8
    assert Checkpoints(run.path).newest()[0].tensors["updates"].tolist() == [560 - 50 * 8]


@pytest.mark.usefixtures("unchecked")
def test_workers_do_not_change_what_is_learned(tmp_path):
    fields = {**SMALL, "variant": "hindsight", "steps": 60, "envs": 2, "device": "cpu"}
    runs = [
        td3.train("RailGoal-v0", out=tmp_path / way, env_kwargs={"max_episode_steps": 7}, workers=way, **fields)
        for way in ("none", "processes")
    ]
    first, *others = (Checkpoints(run.path).newest()[0].tensors for run in runs)
    for other in others:
        assert all(np.array_equal(first[name], other[name]) for name in first)


def test_relabelled_rows_enter_with_the_largest_priority_too(tmp_path):
    fields = {**SMALL, "variant": ("hindsight", "prioritized"), "steps": 80, "envs": 2, "learning_starts": 20}
    run = td3.train("RailGoal-v0", out=tmp_path / "run", env_kwargs={"max_episode_steps": 5}, **fields)
    state = Checkpoints(run.path).newest()[0].named("agent.step_4.0.")
    rows = 2 * 5
    newest = state["excess"][0, (40 - 5) * rows : (40 - 4) * rows]  # stored after the last batch was sampled
    before = state["excess"][0, (40 - 6) * rows : (40 - 5) * rows]
    assert (newest == 0).all()
    assert state["largest"][0] > 0
    assert (before == state["largest"][0]).sum() > 5  # all but those that the last batch drew
