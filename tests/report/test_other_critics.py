"""Runs whose replaced steps have critics of their own: nothing is said of the package's, which are not trained."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from scripted import SMALL

import td3
from td3.errors import RunError
from td3.export import export_run
from td3.report.doctor import RULES, examine_run
from td3.report.records import read_run
from td3.report.render import page
from td3.run.agent_file import load_agent
from td3.run.tables import DIAGNOSTICS

CRITICS = ("q_start", "return_start", "critic_dead", "actor_gradient")
SAID = "The replaced steps do not train the critics of the package: figures of critics are left out"
STATE = {"weights": 3}


@td3.replace_step(12, state=STATE)
def train_critics_of_my_own(critics, optimizer, loss, step_state):
    step_state["weights"] += 0.01 * loss.detach().unsqueeze(-1).tanh()


@td3.replace_step(12)
def train_as_usual(critics, optimizer, loss, original):
    return original(critics, optimizer, loss)


def trained(folder, step, **changed):
    fields = {**SMALL, "steps": 200, "eval_every": 50, "utd_ratio": 5.0, "seeds": 2, **changed}
    return td3.train("Scripted-v0", out=folder, replace_steps=[step], **fields)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("own") / "run", train_critics_of_my_own)


def test_figures_of_critics_are_left_out_and_the_report_says_so(run):
    records = read_run(run.path)
    assert not records.critics_trained
    for seed in records.seeds:
        for column in CRITICS:
            assert np.isnan(seed.diagnostics[column]).all(), column
        for column in {*DIAGNOSTICS} - {*CRITICS, "policy_actions", "played_actions"}:
            assert np.isfinite(seed.diagnostics[column][1:]).all(), column
    assert any(note.startswith(SAID) for note in records.notes)
    text = page([records])
    assert SAID in text
    assert "dead in the critics" not in text
    assert "critic 1" not in text
    assert "Sum of both critics" not in text


def test_the_doctor_judges_no_critics_and_says_so(run, capsys):
    from td3.cli import main

    (many_updates,) = (rule for rule in RULES if rule.name == "many_updates")
    assert many_updates.judge(read_run(run.path)) is None
    assert not {finding.name for finding in examine_run(read_run(run.path))} & {"q_too_high", "dead_critic_units"}
    main(["doctor", str(run.path)])
    assert SAID in " ".join(capsys.readouterr().out.split())


def test_saved_agents_have_no_critics_act_and_can_be_started_from(run, tmp_path):
    for which in ("last", "best"):
        folder = run.folder(0) / which
        names = {name.partition(".")[0] for name in load_file(folder / "agent.safetensors")}
        assert names == {"actor", "actor_target"}
        facts = json.loads((folder / "agent.json").read_text())
        assert facts["critics_trained"] is False
        assert load_agent(folder).act(np.zeros(3)).shape == (2,)
    again = trained(tmp_path / "again", train_as_usual, init_from=str(run.path), steps=60)
    assert {name.partition(".")[0] for name in load_file(again.folder(0) / "last" / "agent.safetensors")} > {"critic_1"}


def test_stable_baselines3_needs_critics(run, tmp_path):
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("onnx")
    with pytest.raises(RunError, match="do not train the critics of the package"):
        export_run(run, out=tmp_path / "export", sb3=True, trust=True)


def test_a_resumed_run_says_it_too(run, tmp_path):
    cut = trained(tmp_path / "cut", train_critics_of_my_own, steps=60)
    td3.resume(cut.path, steps=120, replace_steps=[train_critics_of_my_own])
    assert not read_run(cut.path).critics_trained


def test_replaced_steps_that_train_the_critics_change_nothing(tmp_path):
    usual = trained(tmp_path / "usual", train_as_usual)
    records = read_run(usual.path)
    assert records.critics_trained
    assert np.isfinite(records.seeds[0].diagnostics["q_start"]).all()
    assert "critics_trained" not in json.loads((usual.path / "status.json").read_text())
