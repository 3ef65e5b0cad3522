"""Environments in threads and processes: at the same time, with the same rows, and the faster way found by trial."""

import multiprocessing
import subprocess
import sys
import threading
from functools import partial
from multiprocessing.context import SpawnProcess

import gymnasium as gym
import numpy as np
import pytest
from meeting import COUNT, Meeting, Waiting
from scripted import SMALL, Scripted

import td3
from td3.collect.collector import Collector
from td3.environments import (
    InProcessVectorEnv,
    WorkerBackend,
    fastest_workers,
    make_environment,
    place,
    requested_workers,
)
from td3.environments import workers as worker_backend
from td3.errors import ConfigError
from td3.evaluate import EvaluationWorkers


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_all_environments_step_at_the_same_time(tmp_path, kind):
    environments = place(partial(Meeting, tmp_path), COUNT, requested_workers(kind, COUNT), patience=60.0)
    environments.reset(seed=[*range(COUNT)])
    for _ in range(2):
        environments.step(np.tile(np.float32([0.5, 0.3]), (COUNT, 1)))
        assert environments.faults == {}
    environments.close()


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Pendulum-v1"])
def test_threads_and_processes_give_the_same_rows_as_one_after_another(env):
    collected = []
    make = partial(make_environment, env)
    for kind in ("none", "threads", "processes"):
        environments = place(make, 3, requested_workers(kind, 3), patience=60.0)
        space = environments.single_action_space
        collector = Collector(environments, [7], space.low.tolist(), space.high.tolist(), 0.2)
        collected.append(np.concatenate([collector.step(collector.act(None))[0] for _ in range(30)], 1))
        environments.close()
    np.testing.assert_array_equal(collected[0], collected[1])
    np.testing.assert_array_equal(collected[0], collected[2])


def test_environments_that_wait_do_so_together():
    assert fastest_workers(Waiting, 8).kind != "none"


def test_a_lone_environment_is_not_tried():
    made = []
    assert fastest_workers(lambda: made.append(Scripted()) or made[-1], 1) == WorkerBackend()
    assert made == []


class Fragile(Scripted):
    """Does not like the actions of a trial."""

    def step(self, action):
        raise AssertionError("not now")


def test_what_fails_in_a_trial_stays_here():
    assert fastest_workers(Fragile, 4) == WorkerBackend()


def test_a_quick_environment_stays_here():
    assert fastest_workers(Scripted, 4) == WorkerBackend()


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({"threads": 0.09, "processes": 0.02}, "processes"),
        ({"threads": 0.02, "processes": 0.019}, "threads"),
        ({"threads": 0.012, "processes": None}, "threads"),
        ({"threads": 0.09, "processes": 0.07}, "none"),
    ],
)
def test_a_way_that_is_less_simple_must_be_clearly_faster(monkeypatch, times, chosen):
    """A step takes 10 ms, a round of eight 80 here; None: not tried, for all of them at once cannot be beaten."""
    monkeypatch.setattr(worker_backend, "_probe_environment", lambda make: 0.01)
    monkeypatch.setattr(worker_backend, "_try", lambda make, count, candidate: times[candidate.kind])
    assert fastest_workers(Scripted, 8).kind == chosen


def test_the_trial_measures_a_round(monkeypatch):
    monkeypatch.setattr(worker_backend, "TRIAL_SECONDS", 0.1)
    assert worker_backend._probe_environment(Waiting) >= 0.01
    assert worker_backend._try(Waiting, 4, requested_workers("none", 4)) >= 0.04
    assert worker_backend._try(Waiting, 4, requested_workers("threads", 4)) >= 0.01


def test_in_words():
    assert str(WorkerBackend()) == "environments one after another"
    assert str(WorkerBackend("threads", 8)) == "environments in 8 threads"


class Unstable(gym.Wrapper):
    """HalfCheetah whose numbers explode at its third step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            self.env.unwrapped.data.qpos[:] = 1e20
        return super().step(action)


def test_threads_know_whose_simulation_exploded():
    made = []

    def make():
        made.append(make_environment("HalfCheetah-v5"))
        return Unstable(made[-1]) if len(made) == 2 else made[-1]

    environments = place(make, 3, requested_workers("threads", 3), patience=60.0)
    environments.reset(seed=[0, 1, 2])
    faults = []
    for _ in range(4):
        environments.step(np.zeros((3, 6), np.float32))
        faults.append({*environments.faults})
    environments.close()
    assert faults[:3] == [set(), set(), {1}]


def test_a_fault_in_a_thread_is_that_environments_alone():
    made = []

    def make():
        made.append(Fragile() if len(made) == 1 else Scripted())
        return made[-1]

    environments = place(make, 3, requested_workers("threads", 3), patience=60.0)
    environments.reset(seed=[0, 1, 2])
    _, rewards, *_ = environments.step(np.tile(np.float32([0.5, 0.3]), (3, 1)))
    environments.close()
    assert [*environments.faults] == [1]
    assert environments.faults[1].startswith(
        "an environment failed in step(): AssertionError: not now (test_workers.py, "
    )
    assert rewards[1] == 0
    assert min(rewards[0], rewards[2]) > 0


class Locked(Scripted):
    """Holds what no other process can have."""

    def __init__(self, lock):
        super().__init__()
        self.lock = lock


def test_an_environment_that_cannot_be_sent_to_processes_is_refused_in_one_sentence(tmp_path):
    lock = threading.Lock()
    said = (
        r"^the environment cannot be sent to worker processes \(TypeError: cannot pickle .*lock.*\): use --workers thr"
    )
    with pytest.raises(ConfigError, match=said) as refused:
        td3.train(lambda: Locked(lock), envs=2, workers="processes", out=tmp_path / "run", **{**SMALL, "steps": 30})
    assert isinstance(refused.value.__cause__, TypeError)
    with pytest.raises(ConfigError, match=r"cannot be sent to evaluation processes \(.*: train with --device cpu\.$"):
        EvaluationWorkers(lambda: Locked(lock), [0], 2, workers=2)
    assert not (tmp_path / "run").exists()
    td3.train(lambda: Locked(lock), envs=2, workers="threads", out=tmp_path / "run", **{**SMALL, "steps": 30})


def test_an_interruption_while_workers_start_leaves_none(monkeypatch):
    start = SpawnProcess.start

    def interrupted(process):
        start(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    before = {*multiprocessing.active_children()}
    with pytest.raises(KeyboardInterrupt):
        place(Scripted, 2, requested_workers("processes", 2), patience=60.0)
    assert {*multiprocessing.active_children()} <= before


def test_a_script_that_trains_when_it_is_imported_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import td3\ntd3.train('Pendulum-v1', steps=30, envs=2, workers='processes', learning_starts=10)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ended.returncode != 0
    assert 'trains again: put the training under `if __name__ == "__main__":`.' in ended.stderr


def test_a_thread_that_was_abandoned_ends_when_its_call_returns():
    back = threading.Event()

    class Hanging(Scripted):
        def step(self, action):
            back.wait(60)
            return super().step(action)

    environments = InProcessVectorEnv([Hanging()], Scripted, threads=1, patience=0.2)
    environments.reset(seed=[0])
    before = {thread for thread in threading.enumerate() if thread.name == "td3 environment"}
    environments.step(np.float32([[0.5, 0.3]]))
    assert environments.faults == {0: "an environment took longer than 0.2 s and its thread was abandoned"}
    environments.replace(0)
    (added,) = {thread for thread in threading.enumerate() if thread.name == "td3 environment"} - before
    back.set()
    for thread in before:
        thread.join(10)
    assert not any(thread.is_alive() for thread in before)
    assert added.is_alive()
    environments.close()
