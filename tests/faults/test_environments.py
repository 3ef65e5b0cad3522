"""Environments that crash, hang, die or lie: only they begin again, and nothing half-seen is stored."""

import multiprocessing
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scripted import HIGH, LOW, Scripted

from faults.test_resume import Stopping, config
from faults.worlds import Unlucky
from td3 import training
from td3.collect.collector import Collector
from td3.environments import InProcessVectorEnv, ProcessVectorEnv, WorkerBackend, make_environment
from td3.environments.guarded import MOST_FAULTS
from td3.errors import EnvironmentFault
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.policy import Policy
from td3.run.checkpoints import Checkpoints
from td3.training import resume_run, train_run

CENTRE = np.array([1.0, 0.375], np.float32)


IN_PROCESS = ("exception", "NaN observation", "infinite reward", "shape")
IN_WORKERS = (*IN_PROCESS, "hang", "death", "kill")


def collected(environments, rounds: int = 60) -> tuple[np.ndarray, list, Collector]:
    """Rows `[round, environment, row]`, the finished episodes, and the collector."""
    collector = Collector(environments, [3], LOW, HIGH, 0.2)
    rounds_of_rows, episodes = [], []
    for _ in range(rounds):
        rows, ended = collector.step(collector.act(None))
        rounds_of_rows.append(rows[0])
        episodes += ended
    return np.stack(rounds_of_rows), episodes, collector


def environments_with(kind: str, marker: Path, where: str, count: int = 3):
    make = partial(Unlucky, str(marker), kind)
    if where == "here":
        return InProcessVectorEnv([make() for _ in range(count)], make)
    return ProcessVectorEnv(make, count, 1, patience=3.0)


@pytest.mark.parametrize(
    ("where", "kind"), [("here", kind) for kind in IN_PROCESS] + [("in a worker", kind) for kind in IN_WORKERS]
)
def test_only_the_faulty_environment_begins_again_and_nothing_half_seen_is_stored(tmp_path, where, kind):
    (tmp_path / "never").touch()
    unharmed = environments_with(kind, tmp_path / "never", "here")
    expected, *_ = collected(unharmed)
    environments = environments_with(kind, tmp_path / "once", where)
    rows, episodes, collector = collected(environments)
    environments.close()
    assert len(collector.faults) == 1
    fault = collector.faults[0]
    assert fault.environment == 0  # the first to come to its seventh step
    assert np.isfinite(rows).all()
    # The neighbors, those in the same dead process too, went on as if nothing had happened.
    np.testing.assert_array_equal(rows[:, 1:], expected[:, 1:])
    np.testing.assert_array_equal(rows[:6, 0], expected[:6, 0])
    # The faulty one began a new episode, in the same round, with the same action: a whole transition.
    again = rows[6, 0]
    assert again[2] == 0
    np.testing.assert_allclose(again[7], 1 + 0.01 * again[3], rtol=1e-5)
    np.testing.assert_array_equal(again[3:5], expected[6, 0, 3:5])
    assert again[0] != expected[6, 0, 0], "its new episode has a seed of its own"
    lost = sum(episode.length for episode in episodes)
    assert lost <= 3 * 60 - 6


def test_the_reason_is_told_in_words(tmp_path):
    for kind, said in (
        ("exception", "RuntimeError: the simulator lost its mind"),
        ("NaN observation", "NaN or infinity"),
        ("shape", "an observation of shape (2,), but its observation_space says (3,)"),
    ):
        _, _, collector = collected(environments_with(kind, tmp_path / kind, "here"))
        assert said in collector.faults[0].reason


class Hopeless(Scripted):
    """Fails at its second step, every time."""

    def step(self, action):
        if self.step_number == 1:
            raise RuntimeError("again")
        return super().step(action)


def test_faults_without_an_end_end_the_run_with_the_reason_and_a_whole_checkpoint(tmp_path, monkeypatch):
    def place(make, config, threads, device):
        ready = InProcessVectorEnv([Scripted()], Scripted)
        ready.seeds_episodes = True
        return ready, Evaluator(Scripted, config.member_seeds, 1), WorkerBackend()

    monkeypatch.setattr("td3.training.parts.make_vector_envs", place)

    class Saboteur(Stopping):
        def on_env_step(self, trainer):
            env_steps = trainer.env_steps
            if env_steps == 250:
                row = running[0].collector.environments
                row._make = Hopeless
                row.environments[0] = Hopeless()
                row.environments[0].reset(seed=0)

    running = []
    real = training.Trainer.run
    monkeypatch.setattr(training.Trainer, "run", lambda self, *rest: (running.append(self), real(self, *rest))[1])
    observer = Saboteur()
    with pytest.raises(EnvironmentFault) as caught:
        train_run(config(tmp_path / "run", env="Scripted-v0"), [observer])
    sentence = str(caught.value)
    assert f"this was fault {MOST_FAULTS} of environment 0 of seed 0" in sentence
    assert "RuntimeError: again" in sentence
    assert "The checkpoint at env step 200 is whole: td3 resume" in sentence
    assert "\n" not in sentence
    assert Checkpoints(tmp_path / "run").newest()[0].env_steps == 200
    assert '"failed"' in (tmp_path / "run" / "status.json").read_text()
    # Once the environment is mended, the run goes on and is the one that it would have been.
    monkeypatch.setattr(training.Trainer, "run", real)
    resume_run(tmp_path / "run")
    train_run(config(tmp_path / "whole", env="Scripted-v0"))
    assert (tmp_path / "run/seed_0/metrics.csv").read_bytes() == (tmp_path / "whole/seed_0/metrics.csv").read_bytes()


def test_faults_in_a_row_are_counted_across_a_resume(tmp_path):
    marker = tmp_path / "once"
    environments = environments_with("exception", marker, "here", count=1)
    _, _, collector = collected(environments, rounds=8)
    state = {name: array.copy() for name, array in collector.state().items()}
    assert state["faults_in_a_row"].tolist() == [1]
    fresh = Collector(environments_with("exception", marker, "here", count=1), [3], LOW, HIGH, 0.2)
    assert fresh.restore(state) == []
    assert fresh.state()["faults_in_a_row"].tolist() == [1]


def test_a_mujoco_simulation_that_explodes_is_a_fault_and_its_step_is_not_stored():
    make = partial(make_environment, "InvertedPendulum-v5")
    row = InProcessVectorEnv([make()], make)
    collector = Collector(row, [0], [-3.0], [3.0], 0.1)
    for _ in range(2):
        collector.step(np.zeros((1, 1, 1), np.float32))
    row.environments[0].unwrapped.data.qvel[:] = 1e12
    rows, _ = collector.step(np.zeros((1, 1, 1), np.float32))
    assert [fault.reason for fault in collector.faults] == [
        "MuJoCo found its simulation unstable and reset it inside a step"
    ]
    assert np.abs(rows).max() < 10
    assert not Path("MUJOCO_LOG.TXT").exists()
    row.close()


def linear_policy_of(members: int) -> Policy:
    layers = [(np.zeros((members, 3, 2), np.float32), np.zeros((members, 2), np.float32))]
    return Policy(layers, LOW, HIGH, (3,), (2,))


@pytest.mark.parametrize("kind", ["exception", "kill"])
def test_an_evaluation_that_met_a_fault_is_played_again(tmp_path, kind):
    (tmp_path / "never").touch()
    expected = Evaluator(partial(Unlucky, str(tmp_path / "never"), kind), [1, 2], 2)(linear_policy_of(2))
    make = partial(Unlucky, str(tmp_path / "once"), kind)
    if kind == "exception":
        found = Evaluator(make, [1, 2], 2)(linear_policy_of(2))
    else:
        workers = EvaluationWorkers(make, [1, 2], 2, workers=1)
        workers.begin(0, linear_policy_of(2))
        ((_, found),) = workers.finished(wait=True)
        workers.close()
    assert (tmp_path / "once").exists()
    np.testing.assert_array_equal(found.returns, expected.returns)


ORPHANS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from scripted import Scripted
from td3.environments import ProcessVectorEnv
from td3.evaluate import EvaluationWorkers
if __name__ == "__main__":
    pool = ProcessVectorEnv(Scripted, 2, 2)
    workers = EvaluationWorkers(Scripted, [0], 1, 1)
    list(workers.finished())
    workers._processes.submit(int).result()
    print(*[process.pid for process in pool._processes], *workers._processes._processes, flush=True)
    time.sleep(600)
"""


def test_no_process_outlives_a_killed_run(tmp_path):
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    tests = str(Path(__file__).parents[1])
    process = subprocess.Popen([sys.executable, str(script), tests], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children = [int(word) for word in process.stdout.readline().split()]
    assert len(children) == 3
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(300):
        if not any(_lives(child) for child in children):
            break
        time.sleep(0.1)
    assert not any(_lives(child) for child in children)


def _lives(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_leaves_no_process_behind(tmp_path, monkeypatch):
    def beside(make, config, threads, device):
        workers = EvaluationWorkers(make, config.member_seeds, config.eval_episodes, 1)
        return ProcessVectorEnv(make, 1, 1), workers, WorkerBackend("processes", 1)

    monkeypatch.setattr("td3.training.parts.make_vector_envs", beside)
    train_run(config(tmp_path / "run", steps=120))
    assert multiprocessing.active_children() == []
