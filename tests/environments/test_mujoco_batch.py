"""The MuJoCo batch: bit for bit Gymnasium's transitions, for every task; everything else goes the ordinary way."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from td3.collect.collector import Collector
from td3.environments import (
    InProcessVectorEnv,
    WorkerBackend,
    in_batch,
    make_environment,
    mujoco_batch,
    mujoco_library,
    place,
)
from td3.environments.mujoco_batch import MujocoBatch, why_not
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.policy import Policy

NAMES = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum"),
    *("Reacher", "Swimmer", "Walker2d"),
)
TASKS = [*(f"{name}-{version}" for name in NAMES for version in ("v4", "v5")), "Pusher-v5"]
ARGUMENTS = [
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "healthy_z_range": (0.4, 0.9), "main_body": 2}),
    ("Ant-v5", {"exclude_current_positions_from_observation": False, "contact_force_range": (-0.3, 0.7)}),
    ("Ant-v4", {"use_contact_forces": True, "terminate_when_unhealthy": False, "healthy_z_range": (0.6, 0.7)}),
    ("HalfCheetah-v5", {"forward_reward_weight": 0.3, "ctrl_cost_weight": 0.7, "frame_skip": 3}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_state_range": (-1.0, 1.5), "healthy_reward": 2}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_range": (0.0, 1e-6)}),
    ("HumanoidStandup-v5", {"include_cvel_in_observation": False, "impact_cost_range": (0.0, 0.02)}),
    ("Reacher-v5", {"reward_dist_weight": 3, "reward_control_weight": 0.1, "max_episode_steps": 7}),
    ("Swimmer-v4", {"exclude_current_positions_from_observation": False}),
    ("Walker2d-v5", {"max_episode_steps": 13, "healthy_angle_range": (-0.1, 0.2)}),
]


def pair(env: str, count: int = 3, threads: int = 1, **kwargs):
    make = partial(make_environment, env, **kwargs)
    ordinary = InProcessVectorEnv([make() for _ in range(count)], make)
    return ordinary, MujocoBatch([make() for _ in range(count)], make, threads)


def assert_equal(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def episodes_played_side_by_side(ordinary, batch, rounds: int) -> int:
    """Play the same random actions in both; returns how many episodes ended."""
    seeds = np.arange(ordinary.num_envs) + 10
    assert_equal(batch.reset(seed=seeds.tolist())[:1], ordinary.reset(seed=seeds.tolist())[:1])
    ordinary.action_space.seed(1)
    ends = 0
    for _ in range(rounds):
        actions = np.asarray(ordinary.action_space.sample())
        found, expected = batch.step(actions), ordinary.step(actions)
        assert_equal(found[:4], expected[:4])
        assert found[4] == expected[4]
        assert batch.faults == ordinary.faults == {}
        ended = expected[2] | expected[3]
        if ended.any():
            ends += int(ended.sum())
            seeds += 100 * ended
            options = {"reset_mask": ended}
            again = [row.reset(seed=seeds.tolist(), options=options)[0] for row in (batch, ordinary)]
            assert_equal(again[:1], again[1:])
    ordinary.close()
    batch.close()
    return ends


@pytest.mark.parametrize("env", TASKS)
def test_every_task_is_gymnasiums_bit_for_bit(env):
    episodes_played_side_by_side(*pair(env), rounds=40)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("env", TASKS)
def test_whole_episodes_to_their_ends_and_time_limits_are_gymnasiums(env, threads):
    assert episodes_played_side_by_side(*pair(env, 4, threads), rounds=1_050) >= 4


@pytest.mark.parametrize(("env", "kwargs"), ARGUMENTS)
def test_arguments_of_a_task_are_respected(env, kwargs):
    assert why_not(partial(make_environment, env, env_kwargs=kwargs)) is None
    episodes_played_side_by_side(*pair(env, 2, env_kwargs=kwargs), rounds=40)


def test_more_threads_give_the_same_numbers():
    episodes_played_side_by_side(*pair("Hopper-v5", 7, threads=3), rounds=60)


def test_the_number_of_threads_is_measured_in_training_and_in_evaluation():
    _, batch = pair("InvertedPendulum-v5", 4, threads=2)
    batch.reset(seed=0)
    told = []
    batch._tuner.__class__ = type("Told", (batch._tuner.__class__,), {"__call__": lambda self, time: told.append(time)})
    actions = np.zeros((4, 1), np.float32)
    batch.step(actions)
    batch.step_some(actions, [0, 1, 2, 3])
    batch.step_some(actions, [1, 3])
    assert len(told) == 3
    batch.step_some(actions, [1])
    assert len(told) == 3  # nothing to share
    batch.close()


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17, 24, 100])
def test_squared_actions_are_added_up_in_numpys_order(size):
    actions = np.random.default_rng(size).uniform(-1, 1, (50, size)).astype(np.float32)
    sums = [mujoco_library.stepper().square_sum(action.ctypes.data, size) for action in actions]
    np.testing.assert_array_equal(np.float32(sums), np.square(actions).sum(1))


def test_only_the_masked_environments_are_reset():
    ordinary, batch = pair("HalfCheetah-v5")
    actions = np.full((3, 6), 0.5, np.float32)
    for row in (ordinary, batch):
        row.reset(seed=[1, 2, 3])
        row.step(actions)
    options = {"reset_mask": np.array([False, True, False])}
    assert_equal(batch.reset(seed=[4, 5, 6], options=options)[:1], ordinary.reset(seed=[4, 5, 6], options=options)[:1])
    assert_equal(batch.step(actions)[:4], ordinary.step(actions)[:4])
    ordinary.close()
    batch.close()


def test_environments_that_are_not_stepped_stand_still():
    ordinary, batch = pair("Walker2d-v5")
    actions = np.full((3, 6), 0.5, np.float32)
    for row in (ordinary, batch):
        row.reset(seed=[1, 2, 3])
    for indices in ([1], [0, 2], [2], [0, 1, 2]):
        assert_equal(batch.step_some(actions, indices)[:4], ordinary.step_some(actions, indices)[:4])
    assert_equal(batch.step(actions)[:4], ordinary.step(actions)[:4])
    ordinary.close()
    batch.close()


def test_what_was_returned_is_not_changed_by_the_next_step():
    _, batch = pair("Reacher-v5")
    kept = [batch.reset(seed=[1, 2, 3])[0], *batch.step(np.ones((3, 2), np.float32))[:4]]
    copies = [array.copy() for array in kept]
    batch.step(np.zeros((3, 2), np.float32))
    assert_equal(kept, copies)
    batch.close()


def collector_of(kind: str, env: str = "Hopper-v5", count: int = 4) -> Collector:
    environments = place(partial(make_environment, env), count, WorkerBackend(kind, 2 if kind == "batch" else 0), 60.0)
    space = environments.single_action_space
    return Collector(environments, [7, 8], space.low.tolist(), space.high.tolist(), 0.2)


def test_the_rows_of_training_are_the_same():
    collectors = [collector_of(kind) for kind in ("none", "batch")]
    for _ in range(150):
        (rows, episodes), (batch_rows, batch_episodes) = (each.step(each.act(None)) for each in collectors)
        assert rows.tobytes() == batch_rows.tobytes()
        assert episodes == batch_episodes
    for each in collectors:
        each.close()


@pytest.mark.parametrize(("before", "after"), [("batch", "none"), ("none", "batch"), ("batch", "batch")])
def test_an_interrupted_run_goes_on_exactly_whichever_way_its_environments_are_stepped(before, after):
    first, second = collector_of(before, "Ant-v5"), collector_of(after, "Ant-v5")
    for _ in range(40):
        first.step(first.act(None))
    assert second.restore(first.state()) == []
    for _ in range(20):
        assert first.step(first.act(None))[0].tobytes() == second.step(second.act(None))[0].tobytes()
    first.close()
    second.close()


def test_an_unstable_simulation_is_a_fault_of_its_environment_alone():
    ordinary, batch = pair("HalfCheetah-v5", threads=2)
    actions = np.zeros((3, 6), np.float32)
    for row in (ordinary, batch):
        row.reset(seed=[0, 1, 2])
        row.step(actions)
        row.environments[1].unwrapped.data.qpos[:] = 1e20
    found, expected = batch.step(actions), ordinary.step(actions)
    assert batch.faults == ordinary.faults == {1: "MuJoCo found its simulation unstable and reset it inside a step"}
    assert_equal(found[:4], expected[:4])
    for row in (ordinary, batch):
        row.replace(1)
        row.reset(seed=[0, 5, 0], options={"reset_mask": np.array([False, True, False])})
    assert_equal(batch.step(actions)[:4], ordinary.step(actions)[:4])
    assert batch.faults == {}
    assert not Path("MUJOCO_LOG.TXT").exists()
    ordinary.close()
    batch.close()


def test_the_collector_replaces_a_faulty_environment_as_in_a_row():
    collectors = [collector_of(kind, "HalfCheetah-v5") for kind in ("none", "batch")]
    for _ in range(3):
        (rows, _), (batch_rows, _) = (each.step(each.act(None)) for each in collectors)
        assert rows.tobytes() == batch_rows.tobytes()
        for each in collectors:
            each.environments.environments[2].unwrapped.data.qvel[:] = np.nan
            each._faults_in_a_row[:] = 0
    assert collectors[0].faults == collectors[1].faults
    assert [fault.environment for fault in collectors[0].faults] == [0, 0]
    for each in collectors:
        each.close()


def test_a_failed_reset_is_a_fault_of_its_environment_alone(monkeypatch):
    ordinary, batch = pair("HalfCheetah-v5")
    actions = np.full((3, 6), 0.5, np.float32)
    for row in (ordinary, batch):
        row.reset(seed=[0, 1, 2])
        row.step(actions)
        with monkeypatch.context() as changed:
            changed.setattr(row.environments[1].unwrapped, "reset_model", lambda: 1 / 0)
            row.reset_some([3, 4, 5], [0, 1])
        (reason,) = row.faults.values()
        assert reason.startswith(
            "an environment failed in reset(): ZeroDivisionError: division by zero (test_mujoco_batch.py"
        )
    assert_equal([batch.observations], [ordinary.observations])
    for row in (ordinary, batch):
        assert row.replace(1) == []
        row.reset_some([3, 4, 5], [1])
        assert row.faults == {}
    assert_equal(batch.step(actions)[:4], ordinary.step(actions)[:4])
    ordinary.close()
    batch.close()


def test_an_environment_that_cannot_be_constructed_again_is_a_fault(monkeypatch):
    _, batch = pair("HalfCheetah-v5")
    actions = np.zeros((3, 6), np.float32)
    batch.reset(seed=[0, 1, 2])
    with monkeypatch.context() as changed:
        changed.setattr(batch, "_make", lambda: 1 / 0)
        assert batch.replace(1) == []
    (reason,) = batch.faults.values()
    assert reason.startswith(
        "an environment failed in __init__(): ZeroDivisionError: division by zero (test_mujoco_batch.py"
    )
    batch.step_some(actions, [0, 2])
    assert batch.faults == {}
    batch.close()


def test_a_seed_that_is_given_up_leaves_the_others_as_they_were():
    collectors = [collector_of(kind) for kind in ("none", "batch")]
    for number in range(30):
        for each in collectors:
            if number == 10:
                each.deactivate(0)
        (rows, episodes), (batch_rows, batch_episodes) = (each.step(each.act(None)) for each in collectors)
        assert rows.tobytes() == batch_rows.tobytes()
        assert episodes == batch_episodes
    assert not batch_rows[0].any()
    assert collectors[0].states.tobytes() == collectors[1].states.tobytes()
    for each in collectors:
        each.close()


def test_an_error_of_mujoco_is_a_fault_and_ends_no_process():
    _, batch = pair("HalfCheetah-v5", threads=2)
    batch.reset(seed=[0, 1, 2])
    batch._model.opt.integrator = 99
    actions = np.zeros((3, 6), np.float32)
    _, rewards, terminated, truncated, _ = batch.step(actions)
    assert {*batch.faults} == {0, 1, 2}
    assert all("failed in step(): MuJoCo: " in reason and "integrator" in reason for reason in batch.faults.values())
    assert not any(array.any() for array in (rewards, terminated, truncated))
    with pytest.raises(mujoco.FatalError):  # Python's own handler is in its place again
        mujoco.mj_step(batch._model, batch.environments[0].unwrapped.data)
    batch.close()


def policy_for(env: str, members: int) -> Policy:
    with make_environment(env) as probe:
        size, low, high = probe.observation_space.shape[0], probe.action_space.low, probe.action_space.high
    weights = np.random.default_rng(0).normal(0, 0.2, (members, size, len(low))).astype(np.float32)
    return Policy(
        [(weights, np.zeros((members, len(low)), np.float32))], low.tolist(), high.tolist(), (size,), low.shape
    )


def test_evaluations_are_the_same():
    make, policy = partial(make_environment, "Hopper-v5"), policy_for("Hopper-v5", 2)
    found = []
    for worker_backend in (None, WorkerBackend("batch", 2)):
        evaluator = Evaluator(make, [3, 4], 3, worker_backend=worker_backend)
        found.append(evaluator(policy))
        evaluator.close()
    workers = EvaluationWorkers(make, [3, 4], 3, 1, worker_backend=WorkerBackend("batch", 1))
    workers.begin(0, policy)
    found.append(next(workers.finished(wait=True))[1])
    workers.close()
    assert_equal(found[1][:3], found[0][:3])
    assert_equal(found[2][:3], found[0][:3])


class Wrapped(gym.Wrapper):
    """Adds nothing, which nobody can know."""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (partial(make_environment, "Pendulum-v1"), "not a MuJoCo task that Gymnasium registers"),
        (partial(make_environment, env="Rail-v0"), "not a MuJoCo task that Gymnasium registers"),
        (lambda: make_environment("HalfCheetah-v5"), "not a MuJoCo task that Gymnasium registers"),
        (partial(make_environment, "gymnasium.envs.mujoco.ant_v5:AntEnv"), "not a MuJoCo task"),
        (partial(make_environment, "HalfCheetah-v5", render_mode="rgb_array"), "renders"),
        (partial(make_environment, "HalfCheetah-v5", action_repeat=2), "has wrappers"),
    ],
)
def test_other_environments_go_the_ordinary_way(make, reason):
    assert reason in why_not(make)
    assert in_batch(make, 2) is None


def test_a_wrapped_or_derived_environment_is_not_taken_for_gymnasiums():
    with make_environment("HalfCheetah-v5") as environment:
        assert mujoco_batch._task_of(environment) == ("half_cheetah_v5", 1_000)
        assert mujoco_batch._task_of(Wrapped(environment))[0] == ""
        derived = type("Derived", (type(environment.unwrapped),), {"__module__": __name__})()
        assert mujoco_batch._task_of(derived)[0] == ""
        derived.close()


def test_what_was_not_compared_or_cannot_be_compiled_goes_the_ordinary_way(monkeypatch):
    make = partial(make_environment, "HalfCheetah-v5")
    assert in_batch(make, 3) == WorkerBackend("batch", 3)
    with monkeypatch.context() as changed:
        changed.setattr(mujoco_batch, "CHECKED_VERSIONS", ())
        assert "not among the versions that were compared" in why_not(make)
    with monkeypatch.context() as changed:
        changed.setattr(mujoco_batch, "stepper", lambda: None)
        assert "no C compiler" in why_not(make)
    with monkeypatch.context() as changed:
        changed.setattr(mujoco_batch, "physics", lambda: None)
        assert "MuJoCo lacks a function" in why_not(make)


def test_a_difference_in_the_first_steps_is_found(monkeypatch):
    task = mujoco_batch.TASKS["half_cheetah"]
    original = task.outcome
    monkeypatch.setattr(task, "outcome", lambda *given: (np.nextafter(original(*given)[0], 1e9), original(*given)[1]))
    assert why_not(partial(make_environment, "HalfCheetah-v5")) == "its numbers differ from Gymnasium's"


def test_a_task_with_other_attributes_goes_the_ordinary_way(monkeypatch):
    monkeypatch.setattr(mujoco_batch.TASKS["hopper"], "_healthy", lambda self: self.env._renamed)
    assert why_not(partial(make_environment, "Hopper-v5")).startswith("AttributeError")


def test_compiled_code_can_be_turned_off():
    script = "from td3.environments import mujoco_library; print(mujoco_library.stepper())"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, env={"TD3_KERNELS": "torch", "PYTHONPATH": ":".join(sys.path)}, capture_output=True)
    assert found.stdout.strip() == b"None"
