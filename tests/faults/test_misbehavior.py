"""Environments that change what they are given, exit, print nothing, show anything: the same for every worker kind."""

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import HIGH, LOW, Scripted

from faults.collecting import SEED, WHERE, collected, placed
from faults.killing import CONTEXT
from faults.test_resume import config
from faults.worlds import (
    SENTENCES,
    Ending,
    Greedy,
    Image,
    NotInWorkers,
    Raising,
    Slow,
    Steady,
    Talking,
    Terminating,
    Unlucky,
)
from td3.cli import main
from td3.collect.collector import Collector
from td3.engine import Engine
from td3.environments import InProcessVectorEnv, ProcessVectorEnv, WorkerBackend, check_environment
from td3.errors import EnvironmentFault
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.pixels.wrappers import RepeatAction
from td3.training import train_run, workers
from td3.user_code import short

TESTS = str(Path(__file__).parents[1])


@pytest.mark.parametrize("where", WHERE)
def test_what_an_environment_does_to_its_action_and_its_observation_is_not_stored(where):
    def make():
        return Scripted(lengths=(9, 11, 10))

    expected, *_ = collected(placed(make, "in process"))
    environments = placed(Greedy, where)
    rows, *_ = collected(environments)
    environments.close()
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_nor_in_a_vector_environment_of_gymnasium(mode):
    rows = []
    for make in (lambda: Scripted(lengths=(9, 11, 10)), Greedy):
        environments = SyncVectorEnv([make] * 3, autoreset_mode=mode, copy=make is not Greedy)
        collector = Collector(environments, [SEED], LOW, HIGH, 0.2)
        rows.append(
            [collector.step(collector.act(None))[0] for _ in range(8)]
        )  # before an end, which Greedy overwrites
    np.testing.assert_array_equal(*rows)


def test_an_action_that_is_repeated_is_the_same_every_time():
    class Noting(Greedy):
        given: tuple[float, ...] = ()

        def step(self, action):
            self.given += (float(action[0]),)
            return super().step(action)

    environment = Noting()
    environment.reset(seed=0)
    action = np.float32([0.5, 0.3])
    RepeatAction(environment, 3).step(action)
    assert environment.given == (0.5,) * 3
    assert action.tolist() == np.float32([0.5, 0.3]).tolist()


@pytest.mark.parametrize("kind", SENTENCES)
@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize("where", ["in process", "threads"])
def test_whatever_is_raised_is_a_fault_in_one_short_sentence(where, method, kind):
    environments = placed(partial(Raising, method, kind), where, count=1)
    _, _, collector = collected(environments, rounds=2)
    environments.close()
    (fault,) = collector.faults
    assert fault.reason.startswith(f"an environment failed in {method}(): {SENTENCES[kind]}")
    assert "\n" not in fault.reason
    assert len(fault.reason) < 400


def test_in_worker_processes_too():
    """All kinds in one worker, one environment each."""
    kinds = iter(list(SENTENCES) * 2)
    environments = ProcessVectorEnv(_Next([*SENTENCES]), len(SENTENCES), workers=1, patience=20.0)
    environments.reset(seed=0)
    for _ in range(2):
        environments.step(np.tile(np.float32([0.5, 0.3]), (len(SENTENCES), 1)))
    assert len(environments.faults) == len(SENTENCES)
    for index, kind in zip(range(len(SENTENCES)), kinds, strict=False):
        assert environments.faults[index].startswith(f"an environment failed in step(): {SENTENCES[kind]}"[:300])
    environments.close()


class _Next:
    """Makes an environment of another kind each time."""

    def __init__(self, kinds):
        self.kinds, self.made = kinds, 0

    def __call__(self):
        self.made += 1
        if multiprocessing.parent_process() is None:
            return Scripted()
        return Raising("step", self.kinds[self.made - 2])  # one was made before the worker was started


def test_the_constructor_may_raise_anything_but_ctrl_c():
    made = placed(Scripted, "in process", count=1)
    for error in (SystemExit(1), KeyboardInterrupt()):

        def make(error=error):
            raise error

        made._make = make
        if isinstance(error, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                made.replace(0)
        else:
            made.replace(0)
            (reason,) = made.faults.values()
            assert reason.startswith("an environment failed in __init__(): SystemExit: 1 (test_misbehavior.py, line ")


@pytest.mark.parametrize("what", ["text", "objects", "nothing", "ragged"])
@pytest.mark.parametrize("where", ["in process", "threads"])
def test_observations_that_are_no_numbers_are_a_fault(where, what):
    environments = placed(partial(Talking, what), where, count=1)
    _, _, collector = collected(environments, rounds=3)
    environments.close()
    assert len(collector.faults) == 1
    assert {"text": "of type <U1: return numbers", "objects": "of type object: return numbers"}.get(
        what, ""
    ) in collector.faults[0].reason


IMAGES = {
    "from 0 to 1": "an image of float64 numbers, but its observation_space has dtype uint8",
    "floats": "an image of float32 numbers, but its observation_space has dtype uint8",
    "too large": "an image with numbers from 307 to 307, but its observation_space has dtype uint8",
    "negative": "an image with numbers from -13 to -13, but its observation_space has dtype uint8",
}


@pytest.mark.parametrize("shown", IMAGES)
def test_an_image_that_is_not_bytes_is_refused_at_the_start(shown):
    with pytest.raises(EnvironmentFault) as caught:
        check_environment(Image(shown), "Image-v0")
    assert str(caught.value).startswith(f"Image-v0.reset() gave {IMAGES[shown]}")


@pytest.mark.parametrize("shown", ["floats", "negative"])
def test_an_image_that_is_not_bytes_is_a_fault_while_running(shown):
    environments = InProcessVectorEnv([Image(later=shown)], partial(Image, later=shown))
    collector = Collector(environments, [SEED], LOW, HIGH, 0.2)
    for _ in range(3):
        rows, _ = collector.step(collector.act(None))
    assert len(collector.faults) == 1
    assert IMAGES[shown].partition("numbers")[0] in collector.faults[0].reason
    assert rows[0, 0, 0] == 7, "the first image of a new episode"


def test_an_image_of_whole_numbers_that_are_bytes_is_fine():
    assert check_environment(Image("whole numbers"), "Image-v0").frames == 1


def test_the_time_limit_is_for_one_environment_and_not_for_all_of_a_worker():
    environments = ProcessVectorEnv(Slow, 8, workers=1, patience=2.0)  # a round takes 2.4 s
    environments.reset(seed=0)
    environments.step(np.tile(np.float32([0.5, 0.3]), (8, 1)))
    assert environments.faults == {}
    environments.close()


def step_three_times(marker: str, where: str) -> None:
    """In a process group of its own, whose end says whether a fault was found."""
    os.setsid()
    environments = placed(partial(Steady, marker), where, count=2, workers=2, patience=3.0)
    environments.reset(seed=0)
    found = {}
    for _ in range(3):
        environments.step(np.tile(np.float32([0.5, 0.3]), (2, 1)))
        found |= environments.faults
    environments.close()
    sys.exit(len(found))


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_environments_that_were_stopped_with_their_trainer_are_not_taken_for_hung(tmp_path, where):
    """As by Ctrl-Z, or in a container that is frozen, for longer than the time limit."""
    CONTEXT.set_forkserver_preload(["faults.worlds", "faults.collecting"])
    process = CONTEXT.Process(target=step_three_times, args=(str(tmp_path / "second"), where))
    process.start()
    while not (tmp_path / "second").exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(4)
    os.killpg(process.pid, signal.SIGCONT)
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize(
    ("kind", "said"), [("hang", "took longer than 1 s"), ("die", "died"), ("raise", "RuntimeError: not here")]
)
def test_where_workers_cannot_construct_their_environments_none_is_left(kind, said):
    with pytest.raises(EnvironmentFault, match=said):
        ProcessVectorEnv(partial(NotInWorkers, kind), 4, workers=2, patience=1.0)
    assert multiprocessing.active_children() == []


def test_environments_made_before_one_that_cannot_be_made_are_closed():
    closed = []

    class Counted(Scripted):
        def close(self):
            closed.append(1)

    made = iter([Counted(), Counted()])

    def make():
        return next(made)

    with pytest.raises(EnvironmentFault, match="StopIteration"):
        placed(make, "in process")
    assert len(closed) == 2


def test_environments_that_could_be_made_are_open():
    class Counted(Scripted):
        closed = False

        def close(self):
            self.closed = True

    environments = placed(Counted, "in process")
    gc.collect()
    assert [environment.closed for environment in environments.environments] == [False] * 3


def test_a_training_that_cannot_be_begun_leaves_no_process_and_no_thread(tmp_path, monkeypatch):
    closed = []

    def collector(*arguments):
        raise EnvironmentFault("not today")

    real = Engine.close
    monkeypatch.setattr(Engine, "close", lambda self: (closed.append(1), real(self)))
    monkeypatch.setattr("td3.training.parts.Collector", collector)
    with pytest.raises(EnvironmentFault, match="not today"):
        train_run(config(tmp_path / "run", steps=120, workers="processes"))
    assert multiprocessing.active_children() == []
    assert closed


def test_workers_leave_signals_to_their_parent_and_obey_when_told_to_close():
    environments = ProcessVectorEnv(Scripted, 2, workers=2)
    environments.reset(seed=0)
    for process in environments._processes:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
    for _ in range(3):
        environments.step(np.tile(np.float32([0.5, 0.3]), (2, 1)))
        assert environments.faults == {}
    environments.close()
    assert [process.exitcode for process in environments._processes] == [0, 0]


def test_evaluation_workers_leave_signals_to_their_parent():
    from faults.test_environments import linear_policy_of

    workers = EvaluationWorkers(Scripted, [1], 1, workers=1)
    (pid,) = [workers._processes.submit(os.getpid).result()]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    workers.begin(0, linear_policy_of(1))
    ((_, found),) = workers.finished(wait=True)
    assert workers._processes.submit(os.getpid).result() == pid
    workers.close()
    np.testing.assert_array_equal(found.returns, Evaluator(Scripted, [1], 1)(linear_policy_of(1)).returns)


def test_sigterm_while_a_run_starts_ends_it_as_ctrl_c_does(tmp_path):
    gym.register("Terminating-v0", entry_point=Terminating)
    try:
        assert main(["train", "Terminating-v0", "--out", str(tmp_path / "run")]) == 130
        with pytest.raises(KeyboardInterrupt):
            train_run(config(tmp_path / "run", env="Terminating-v0"))
    finally:
        del gym.registry["Terminating-v0"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("kind", "workers"), [("exception", 1), ("death", 1), ("hang", 2), ("kill", 2)])
def test_an_evaluation_in_processes_survives_what_its_environments_do(tmp_path, kind, workers):
    from faults.test_environments import linear_policy_of

    (tmp_path / "never").touch()
    expected = Evaluator(partial(Unlucky, str(tmp_path / "never"), kind), [1, 2], 2)(linear_policy_of(2))
    make = partial(Unlucky, str(tmp_path / "once"), kind)
    worker_backend = WorkerBackend("processes", workers)
    with contextlib.closing(Evaluator(make, [1, 2], 2, worker_backend=worker_backend, patience=3.0)) as evaluator:
        found = evaluator(linear_policy_of(2))
    assert (tmp_path / "once").exists()
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert multiprocessing.active_children() == []


def test_an_evaluation_worker_that_hangs_is_replaced(tmp_path):
    from faults.test_environments import linear_policy_of

    (tmp_path / "never").touch()
    expected = Evaluator(partial(Unlucky, str(tmp_path / "never"), "hang"), [1], 2)(linear_policy_of(1))
    workers = EvaluationWorkers(partial(Unlucky, str(tmp_path / "once"), "hang"), [1], 2, workers=1, patience=1.0)
    workers.begin(0, linear_policy_of(1))
    ((_, found),) = workers.finished(wait=True)
    workers.close()
    assert (tmp_path / "once").exists()
    np.testing.assert_array_equal(found.returns, expected.returns)


def test_an_evaluation_worker_that_cannot_construct_its_environment_says_so_in_a_sentence(capfd):
    from faults.test_environments import linear_policy_of

    workers = EvaluationWorkers(partial(NotInWorkers, "raise"), [1], 1, workers=1)
    workers.begin(0, linear_policy_of(1))
    with pytest.raises(EnvironmentFault, match=r"an environment failed in __init__\(\): RuntimeError: not here"):
        list(workers.finished(wait=True))
    workers.close()
    assert capfd.readouterr().err == ""


def test_with_workers_in_processes_evaluation_is_in_processes_too(tmp_path):
    """Also on a CPU."""
    fields = config(tmp_path / "run", env="Pendulum-v1", workers="processes", seeds=2, eval_episodes=2)
    make = partial(gym.make, "Pendulum-v1")
    environments, evaluator, _ = workers.make_vector_envs(make, fields, 2, torch.device("cpu"))
    with contextlib.closing(environments), contextlib.closing(evaluator):
        assert isinstance(evaluator, Evaluator)
        assert isinstance(evaluator.environments, ProcessVectorEnv)
        assert evaluator.environments.num_envs == 4
        assert evaluator.environments.workers == 2


@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
@pytest.mark.parametrize("error", [SystemExit(0), ValueError("no"), Ending("over")])
def test_a_command_on_an_environment_that_fails_at_once_ends_with_one_sentence(
    tmp_path, capsys, monkeypatch, method, error
):
    class Failing(Scripted):
        pass

    def fail(self, *arguments, **options):
        raise error

    monkeypatch.setattr(Failing, method, fail)
    monkeypatch.setitem(gym.registry, "Failing-v0", gym.envs.registration.EnvSpec("Failing-v0", entry_point=Failing))
    assert main(["train", "Failing-v0", "--out", str(tmp_path / "run")]) == 2
    line, *frames, last = capsys.readouterr().err.splitlines()
    assert line.startswith("td3: Failing-v0")
    assert f"{short(error)} (test_misbehavior.py, line " in line
    assert frames[-1] == "    raise error"
    assert last == short(error)


def test_a_run_on_an_environment_that_fails_to_close_is_finished_with_a_warning(tmp_path, monkeypatch):
    class Clinging(Scripted):
        def close(self):
            raise RuntimeError("not yet")

    monkeypatch.setitem(gym.registry, "Clinging-v0", gym.envs.registration.EnvSpec("Clinging-v0", entry_point=Clinging))
    with pytest.warns(UserWarning, match=r"an environment failed in close\(\): RuntimeError: not yet"):
        run = train_run(config(tmp_path / "run", env="Clinging-v0", steps=120))
    assert '"finished"' in (run.path / "status.json").read_text()


HUNG = """
import sys, time
import numpy as np
sys.path.insert(0, sys.argv[1])
from faults.worlds import Frozen, Stuck
from td3.environments import ProcessVectorEnv, InProcessVectorEnv
if __name__ == "__main__":
    if sys.argv[2] == "processes":
        environments = ProcessVectorEnv(Frozen, 2, 2)
        print(*[process.pid for process in environments._processes], flush=True)
    else:
        environments = InProcessVectorEnv([Stuck(), Stuck()], Stuck, 2)
    environments.reset(seed=0)
    environments.begin_step(np.tile(np.float32([0.5, 0.3]), (2, 1)))
    time.sleep(0.5)
    print("stepping", flush=True)
    if sys.argv[2] == "processes":
        time.sleep(600)
    environments.close()
"""


def test_a_hung_worker_does_not_outlive_a_killed_run(tmp_path):
    from faults.test_environments import _lives

    (tmp_path / "hung.py").write_text(HUNG)
    command = [sys.executable, str(tmp_path / "hung.py"), TESTS, "processes"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children = [int(word) for word in process.stdout.readline().split()]
    assert process.stdout.readline() == "stepping\n"
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(100):
        if not any(_lives(child) for child in children):
            break
        time.sleep(0.05)
    assert not any(_lives(child) for child in children)


def test_a_thread_that_hangs_does_not_keep_the_process_from_its_end(tmp_path):
    (tmp_path / "hung.py").write_text(HUNG)
    subprocess.run([sys.executable, str(tmp_path / "hung.py"), TESTS, "threads"], check=True, timeout=60)


def test_a_pool_that_nobody_closed_does_not_keep_the_process_from_its_end(tmp_path):
    (tmp_path / "open.py").write_text(HUNG.replace("time.sleep(600)", "sys.exit()"))
    subprocess.run([sys.executable, str(tmp_path / "open.py"), TESTS, "processes"], check=True, timeout=60)
