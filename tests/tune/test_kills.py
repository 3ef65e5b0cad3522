"""A study that is killed or interrupted, and continued, equals the one that nobody disturbed."""

import os
import pkgutil
import random
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import optuna
import pytest
from faults.killing import CONTEXT

TRIALS, STEPS = 5, 200
PRELOADED = ["td3.training", "td3.environments.rail", "td3.tune.search", "torch._dynamo"]
PRELOADED += ["optuna.storages._rdb.storage", "optuna.samplers._tpe.sampler"]
"""What takes seconds to import is imported once, by the process from which all others are forked."""


def search(out: Path, function: str = "", calls: int = 0, when: str = "", sent: int = signal.SIGKILL) -> None:
    """Search; in this call of the function, before or after its work, the process gets the signal."""
    import torch

    from td3.callbacks.checkpoints import CheckpointCallback
    from td3.callbacks.standard import ReportCallback
    from td3.tune import search as module

    torch.set_num_threads(1)
    module.UNPRUNED_TRIALS = 1  # so that one of five trials is pruned
    module._draw = lambda study, options, out: None  # which takes a second
    ReportCallback._refresh = lambda self, trainer: None  # as well
    CheckpointCallback._is_due = lambda self, trainer: trainer.is_due(40)
    counted = []

    def watched(*arguments, **options):
        counted.append(1)
        if len(counted) == calls and when == "before":
            os.kill(os.getpid(), sent)
        result = original(*arguments, **options)
        if len(counted) == calls and when == "after":
            os.kill(os.getpid(), sent)
        return result

    if function:
        original = pkgutil.resolve_name(function)
        patch(function, watched).start()
    settings = {"steps": STEPS, "eval_every": 50, "eval_episodes": 1, "seed": 4, "hidden_sizes": (8, 8)}
    fields = ("gamma", "tau", "learning_rate")
    try:
        module.tune("Rail-v0", out, TRIALS, fields, device="cpu", threads=1, batch_size=8, **settings)
    except KeyboardInterrupt:
        sys.exit(130)


def in_a_process(*arguments) -> int:
    process = CONTEXT.Process(target=search, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def content(out: Path):
    """All that a study is: trials, parameters, evaluations, outcomes, the best settings, and every trial's curve."""
    study = optuna.load_study(study_name="td3", storage=f"sqlite:///{out / 'study.db'}")
    trials = [(t.number, t.state.name, t.params, t.value, t.intermediate_values, t.user_attrs) for t in study.trials]
    curves = [path.read_text() for path in sorted(out.glob("trial_*/seed_4/evaluations.csv"))]
    return trials, (out / "best.toml").read_text(), curves


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    CONTEXT.set_forkserver_preload(PRELOADED)
    out = tmp_path_factory.mktemp("whole")
    assert in_a_process(out) == 0
    return content(out)


def test_the_undisturbed_study_has_what_a_kill_could_lose(whole):
    trials, best, curves = whole
    assert [number for number, *_ in trials] == list(range(TRIALS))
    assert len(curves) == TRIALS
    assert trials[0][2] == {"gamma": 0.99, "tau": 0.005, "learning_rate": pytest.approx(3e-4)}  # the preset
    assert {state for _, state, *_ in trials} == {"COMPLETE", "PRUNED"}
    assert best.startswith("# Trial ")


MOMENTS = {
    "when the study is new": ("td3.tune.search._resumed_or_next", 1, "before"),
    "when the baseline is chosen": ("td3.tune.search.train_run", 1, "before"),
    "in the baseline": ("td3.training.trainer.Trainer._round", 130, "after"),
    "when an evaluation of the baseline is reported": ("optuna.trial.Trial.report", 2, "after"),
    "after the last evaluation of the baseline": ("optuna.trial.Trial.report", 4, "after"),
    "before the outcome of the baseline is recorded": ("optuna.study.Study.tell", 1, "before"),
    "between two trials": ("optuna.study.Study.tell", 2, "after"),
    "before the outcome of a trial is recorded": ("optuna.study.Study.tell", 4, "before"),
    "in a later trial": ("td3.training.trainer.Trainer._round", 330, "before"),
    "in the last trial": ("td3.tune.search._resumed_or_next", 5, "after"),
}


QUICK = ("in the baseline", "before the outcome of a trial is recorded")


@pytest.mark.parametrize(
    "moment", [moment if moment in QUICK else pytest.param(moment, marks=pytest.mark.long) for moment in MOMENTS]
)
def test_a_killed_study_continues_to_the_same_result(whole, tmp_path, moment):
    assert in_a_process(tmp_path, *MOMENTS[moment]) == -signal.SIGKILL
    assert in_a_process(tmp_path) == 0
    assert content(tmp_path) == whole


@pytest.mark.parametrize("rounds", [pytest.param(90, marks=pytest.mark.long), 370])
def test_a_study_after_ctrl_c_continues_to_the_same_result(whole, tmp_path, rounds):
    assert in_a_process(tmp_path, "td3.training.trainer.Trainer._round", rounds, "before", signal.SIGINT) == 130
    assert in_a_process(tmp_path) == 0
    assert content(tmp_path) == whole


@pytest.mark.long
def test_a_study_that_is_killed_again_and_again_continues_to_the_same_result(whole, tmp_path):
    generator, codes = random.Random(1), []
    while not codes or codes[-1]:
        rounds = generator.randrange(60, 240) if len(codes) < 7 else 10**6
        codes.append(in_a_process(tmp_path, "td3.training.trainer.Trainer._round", rounds, "before"))
    assert codes.count(-signal.SIGKILL) >= 3
    assert content(tmp_path) == whole
