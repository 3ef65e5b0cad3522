"""kill -9 of a run on a vector environment: it resumes from its checkpoint with new episodes, and says so."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
from scripted import SMALL
from vectors import ScriptedVector, endless_vector

import td3
from faults.fingerprint import fingerprint
from faults.killing import CONTEXT, Plan, die_in_save, exit_code, preload
from td3.environments.vector import RESTARTS
from td3.errors import EnvironmentFault, RunError
from td3.run.checkpoints import Checkpoints

FIELDS = {**SMALL, "steps": 240, "envs": 2, "seeds": 2, "save_every": 40, "eval_every": 120}


class KilledAt(td3.Callback):
    """Dies at this env step, without a word."""

    def __init__(self, env_steps):
        self.env_steps = env_steps

    def on_env_step(self, trainer):
        if trainer.env_steps >= self.env_steps:
            os.kill(os.getpid(), signal.SIGKILL)


def train_or_resume(out, plan=None):
    """Begin or go on with the run, and die as planned in a save."""
    if plan is not None:
        die_in_save(Checkpoints, plan)
    if (out / "config.json").exists():
        td3.resume(out, env=endless_vector)
    else:
        td3.train(endless_vector, out=out, **FIELDS)


def train_until_killed(out, env_steps):
    td3.train(endless_vector, out=out, callbacks=[KilledAt(env_steps)], **FIELDS)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run that was killed at env step 150; not to be written to."""
    out = tmp_path_factory.mktemp("killed") / "run"
    preload()
    process = CONTEXT.Process(target=train_until_killed, args=(out, 150))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return out


def test_a_killed_run_resumes_with_new_episodes_and_says_so(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "run")
    left = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (left["status"], left["resume"]) == ("running", RESTARTS)
    with pytest.warns(UserWarning, match="whose state is not in checkpoints: 4 unfinished episodes were lost"):
        run = td3.resume(tmp_path / "run", env=endless_vector)
    status = json.loads((run.path / "status.json").read_text())
    assert (status["status"], status["env_steps"]) == ("finished", 240)
    for seed in (0, 1):
        steps, returns = run.evaluations(seed)
        assert steps.tolist() == [0, 120, 240]
        assert np.isfinite(returns).all()
        assert json.loads((run.folder(seed) / "last" / "agent.json").read_text())["updates"] == 220


@pytest.mark.parametrize("operations", [(2, 17, 30), pytest.param(tuple(range(0, 36, 2)), marks=pytest.mark.long)])
def test_a_run_killed_in_a_save_ends_as_one_resumed_from_the_checkpoint_before_or_after(tmp_path, operations):
    """Which of the two it resumes from is the one thing that the moment decides."""
    preload()
    expected = {}
    for env_steps, save in ((120, 5), (160, 6)):  # nothing of the next save is done
        out = tmp_path / f"from_{env_steps}"
        assert exit_code(train_or_resume, out, Plan(save=save, operation=0)) == -signal.SIGKILL
        assert Checkpoints(out).newest()[0].env_steps == env_steps
        assert exit_code(train_or_resume, out) == 0
        expected[env_steps] = fingerprint(out)
    assert expected[120] != expected[160]
    for operation in operations:
        out = tmp_path / f"killed_{operation}"
        assert exit_code(train_or_resume, out, Plan(save=5, operation=operation)) == -signal.SIGKILL
        left = Checkpoints(out).newest()[0].env_steps
        assert exit_code(train_or_resume, out) == 0
        assert fingerprint(out) == expected[left], operation


def test_a_killed_run_is_not_resumed_without_its_environment(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "run")
    with pytest.raises(RunError, match="executes the code of the module vectors"):
        td3.resume(tmp_path / "run")
    with pytest.raises(EnvironmentFault, match="has 3 environments, but 4 are needed"):
        td3.resume(tmp_path / "run", env=ScriptedVector(3))
    with pytest.warns(UserWarning, match="unfinished episodes were lost"):
        td3.resume(tmp_path / "run", trust=True)
