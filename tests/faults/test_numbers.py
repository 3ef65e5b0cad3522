"""Numbers that break down are caught in the update they appear in, before anything is changed by them."""

import json

import pytest
import torch

from faults.test_resume import Stopping, config
from td3 import training
from td3.algorithm.agent import Agent
from td3.algorithm.optimizer import OPTIMIZERS, NonFinite
from td3.errors import Diverged
from td3.run.checkpoints import Checkpoints
from td3.training import resume_run, train_run


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_gradient_that_is_not_finite_changes_nothing(kind, bad):
    parameters = torch.randn(2, 1, 7)
    optimizer = OPTIMIZERS[kind](parameters, 0.1)
    optimizer.step_(torch.randn(2, 1, 7))
    before = [parameters.clone(), *(tensor.clone() for tensor in optimizer.state().values())]
    gradient = torch.randn(2, 1, 7)
    gradient[1, 0, 3] = bad
    with pytest.raises(NonFinite):
        optimizer.step_(gradient)
    after = [parameters, *optimizer.state().values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_run_whose_numbers_break_down_stops_with_a_diagnosis_and_its_last_checkpoint(tmp_path, monkeypatch):
    running: list[training.Trainer] = []
    real = training.Trainer.run
    monkeypatch.setattr(training.Trainer, "run", lambda self, *rest: (running.append(self), real(self, *rest))[1])

    class Saboteur(Stopping):
        def on_env_step(self, trainer):
            env_steps = trainer.env_steps
            if env_steps == 250:
                running[0].buffer.rows[..., -2] = 1e30  # a square of that is infinite

    with pytest.raises(Diverged) as caught:
        train_run(config(tmp_path / "run"), [Saboteur()])
    sentence = str(caught.value)
    said = "the critics' loss or a gradient is too large or not a number. That step was not taken"
    assert f"Learning broke down at env step 250: {said}" in sentence
    assert "The largest reward seen was 1e+30: lower the learning rates" in sentence
    assert "The checkpoint at env step 200 is whole: td3 resume" in sentence
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "failed"
    assert "broke down" in status["reason"]
    saved, _ = Checkpoints(tmp_path / "run").newest()
    assert saved.env_steps == 200
    for name, array in saved.tensors.items():
        assert not name.startswith("agent.") or bool(torch.isfinite(torch.from_numpy(array)).all()), name
    for name, tensor in running[0].agent.tensors().items():
        assert bool(torch.isfinite(tensor).all()), name
    monkeypatch.setattr(training.Trainer, "run", real)
    resume_run(tmp_path / "run")


def test_a_huge_policy_delay_does_not_delay_the_start(tmp_path):
    run = train_run(config(tmp_path / "run", policy_delay=1_000_000, steps=150), [Stopping()])
    assert run.agent(0, "last").facts["updates"] == 50


def test_critics_that_promise_more_than_rewards_allow_raise_an_alarm_once(tmp_path, monkeypatch):
    monkeypatch.setattr("td3.callbacks.notes.ALARM_AFTER", 100)
    real = Agent.create

    def exaggerating(*arguments, **keywords):
        agent = real(*arguments, **keywords)
        for network in (agent.critics, agent.critics_target):
            network.parameters.data[..., -1] = 1e6  # the bias of the last layer
        return agent

    observer = Stopping()
    train_run(config(tmp_path / "healthy"), [observer])
    assert observer.warnings == []
    monkeypatch.setattr(Agent, "create", exaggerating)
    train_run(config(tmp_path / "ill"), [observer])
    (alarm,) = observer.warnings
    assert alarm.startswith("seed 0: the critics say 1e+06 on average, where rewards of at most")
    assert "learning diverges. Lower the learning rates" in alarm
