"""Environments and evaluations in processes of their own: the same run, only faster."""

import inspect
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from td3 import training
from td3.callbacks import Callback
from td3.config import resolve
from td3.environments import ProcessVectorEnv, WorkerBackend, make_environment
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.policy import Policy
from td3.training import train_run

MAKE = partial(make_environment, "Pendulum-v1")
FILES = ("metrics.csv", "evaluations.csv", "diagnostics.csv", "last/agent.safetensors", "best/agent.safetensors")


def some_policy(members, seed=0):
    generator = np.random.default_rng(seed)
    shapes = ((3, 8), (8, 1))
    layers = [
        (generator.normal(size=(members, *shape)).astype(np.float32), np.zeros((members, shape[1]), np.float32))
        for shape in shapes
    ]
    return Policy(layers, [-2.0], [2.0], (3,), (1,))


def test_workers_evaluate_to_the_same_numbers_in_the_order_asked():
    workers = EvaluationWorkers(MAKE, [4, 5], 2, workers=2)
    policies = [some_policy(2, seed) for seed in range(3)]
    for number, policy in enumerate(policies):
        workers.begin(1_000 * number, policy)
    found = list(workers.finished(wait=True))
    workers.close()
    here = Evaluator(MAKE, [4, 5], 2)
    assert [env_steps for env_steps, _ in found] == [0, 1_000, 2_000]
    for (_, evaluation), policy in zip(found, policies, strict=True):
        np.testing.assert_array_equal(evaluation.returns, here(policy).returns)
        np.testing.assert_array_equal(evaluation.lengths, here(policy).lengths)
    here.close()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="other systems have no such rank")
def test_who_evaluates_stands_back_until_others_leave_no_core(monkeypatch):
    workers = EvaluationWorkers(MAKE, [4], 1, workers=1)
    policy = some_policy(1)
    assert workers._processes.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE
    monkeypatch.setattr(EvaluationWorkers, "PATIENCE_SECONDS", 0.0)  # as if nothing had been played for a minute
    workers.begin(1_000, policy)
    ((env_steps, evaluation),) = workers.finished(wait=True)
    assert workers._processes.submit(os.sched_getscheduler, 0).result() == os.SCHED_OTHER
    workers.close()
    here = Evaluator(MAKE, [4], 1)
    assert env_steps == 1_000
    np.testing.assert_array_equal(evaluation.returns, here(policy).returns)
    here.close()


def test_a_run_with_everything_in_processes_equals_the_run_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = partial(
        resolve,
        "Pendulum-v1",
        steps=1_500,
        seeds=2,
        envs=2,
        learning_starts=300,
        batch_size=16,
        hidden_sizes=(16, 16),
        eval_every=500,
        eval_episodes=2,
    )
    plain = train_run(config(out=tmp_path / "plain"))

    def beside(make, config, threads, device):
        workers = EvaluationWorkers(make, config.member_seeds, config.eval_episodes, 2)
        return ProcessVectorEnv(make, config.seeds * config.envs, 2), workers, WorkerBackend("processes", 2)

    monkeypatch.setattr("td3.training.parts.make_vector_envs", beside)
    spread = train_run(config(out=tmp_path / "spread"))
    for seed in (0, 1):
        for name in FILES:
            assert (plain.folder(seed) / name).read_bytes() == (spread.folder(seed) / name).read_bytes(), name


@pytest.mark.parametrize(
    ("seeds", "threads", "device", "stepping", "evaluating"),
    [
        (10, 16, "cpu", None, None),
        (10, 3, "cuda", None, None),
        (1, 16, "cuda", None, 2),
        (10, 16, "cuda", 10, 15),
        (32, 16, "cuda", 11, 15),
        (10, 4, "cuda", 3, 3),
    ],
)
def test_training_and_evaluation_share_the_cores(monkeypatch, seeds, threads, device, stepping, evaluating):
    """Each kind has a core for every process, beside this one; None: in this one."""
    made = {}
    monkeypatch.setattr(training.workers, "fastest_workers", lambda make, count: WorkerBackend())
    monkeypatch.setattr(
        training.workers,
        "place",
        lambda make, count, worker_backend, patience: made.setdefault("stepping", worker_backend.workers or None),
    )
    monkeypatch.setattr(training.workers, "Evaluator", lambda *arguments: made.setdefault("evaluating", None))
    monkeypatch.setattr(
        training.workers,
        "EvaluationWorkers",
        lambda make, seeds, episodes, workers, gamma, patience, worker_backend: made.setdefault("evaluating", workers),
    )
    place = inspect.unwrap(training.workers.make_vector_envs)  # its types are those of the real thing
    place(lambda: None, resolve("Pendulum-v1", seeds=seeds), threads, torch.device(device))
    assert made == {"stepping": stepping, "evaluating": evaluating}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("seeds", "workers", "stepping", "evaluating"),
    [
        (10, "auto", "batch", "batch"),
        (1, "auto", "none", "batch"),
        (10, "none", "none", "none"),
        (10, "threads", "threads", "none"),
        (10, "processes", "processes", "processes"),
    ],
)
def test_mujoco_tasks_are_stepped_in_a_batch_unless_something_else_is_asked_for(
    monkeypatch, seeds, workers, stepping, evaluating, device
):
    made = {}
    monkeypatch.setattr(
        training.workers,
        "place",
        lambda make, count, worker_backend, patience: made.update(stepping=worker_backend.kind),
    )
    for kind in ("Evaluator", "EvaluationWorkers"):
        monkeypatch.setattr(
            training.workers,
            kind,
            lambda *given: made.update(evaluating=[each for each in given if isinstance(each, WorkerBackend)]),
        )
    place = inspect.unwrap(training.workers.make_vector_envs)
    config = resolve("HalfCheetah-v5", seeds=seeds, workers=workers)
    place(partial(make_environment, **config.env_arguments), config, 16, torch.device(device))
    expected = {
        "batch": [WorkerBackend("batch", 1 if device == "cuda" else 16)],  # beside a GPU, a process for every core
        "processes": [WorkerBackend("processes", 10)] if device == "cpu" else [],
        "none": [],
    }
    assert made == {"stepping": stepping, "evaluating": expected[evaluating]}


def test_a_batch_changes_no_number_of_a_run_and_the_run_says_that_it_is_used(tmp_path):
    class Started(Callback):
        where = ""

        def on_training_start(self, trainer):
            self.where = trainer.placement

    config = partial(
        resolve,
        "Hopper-v5",
        steps=400,
        seeds=2,
        envs=2,
        learning_starts=100,
        batch_size=16,
        hidden_sizes=(16, 16),
        eval_every=200,
        eval_episodes=2,
    )
    plain, batch = Started(), Started()
    runs = [
        train_run(config(out=tmp_path / workers, workers=workers), [callback])
        for workers, callback in (("none", plain), ("auto", batch))
    ]
    assert "batch" not in plain.where
    assert "environments in one native MuJoCo batch (up to " in batch.where
    for seed in (0, 1):
        for name in FILES:
            assert (runs[0].folder(seed) / name).read_bytes() == (runs[1].folder(seed) / name).read_bytes(), name


@pytest.mark.parametrize("workers", ["none", "threads", "processes"])
def test_where_environments_are_stepped_is_as_asked_for_and_changes_no_number(tmp_path, workers):
    config = partial(
        resolve,
        "Pendulum-v1",
        steps=600,
        envs=3,
        learning_starts=100,
        batch_size=16,
        hidden_sizes=(16, 16),
        eval_every=300,
        eval_episodes=1,
    )
    plain = train_run(config(out=tmp_path / "plain", workers="none"))
    placed = train_run(config(out=tmp_path / "placed", workers=workers))
    for name in FILES:
        assert (plain.folder(0) / name).read_bytes() == (placed.folder(0) / name).read_bytes(), name
