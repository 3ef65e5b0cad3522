"""`--normalize-observations` from the command to the file that someone else loads."""

import json
import shutil
from copy import copy
from functools import partial
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
from faults.fingerprint import fingerprint
from faults.test_resume import Stop, Stopping
from gymnasium.wrappers import TransformObservation
from safetensors.numpy import load_file
from scripted import SMALL, SMALL_OPTIONS

import td3
from td3.cli import main
from td3.config import resolve
from td3.environments import make_environment
from td3.errors import AgentFileError, RunError
from td3.evaluate import Evaluator, held_out
from td3.export.exported_actor import actions_by_onnx
from td3.report import video_stage
from td3.report.video_stage import saved_critic
from td3.run.agent_file import SavedAgent, load_agent
from td3.run.checkpoints import Checkpoints
from td3.training import resume_run, train_run
from td3.training.state import restore

FACTORS, OFFSETS = np.array([1e-3, 5e3], np.float32), np.array([1.0, -2e4], np.float32)


def make_badly_scaled():
    """Rail, its position in thousands of meters and its velocity in a unit of its own, far from 0."""
    space = gym.spaces.Box(-np.inf, np.inf, (2,))
    rail = gym.make("Rail-v0", disable_env_checker=True)
    return TransformObservation(rail, lambda shown: (shown * FACTORS + OFFSETS).astype(np.float32), space)


LEARNING = {
    **SMALL,
    "steps": 1_000,
    "learning_starts": 300,
    "hidden_sizes": (32, 32),
    "batch_size": 64,
    "buffer_size": 5_000,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "eval_every": 0,
    "eval_episodes": 10,
    "save_every": 0,
}


def test_a_badly_scaled_task_is_learned_with_it_and_not_without(tmp_path):
    last = {}
    for normalize in (True, False):
        run = td3.train(make_badly_scaled, normalize_observations=normalize, out=tmp_path / str(normalize), **LEARNING)
        last[normalize] = run.evaluations(0)[1][-1].mean()
    # About -10 is as good as a lesson of this task gets (docs/ladder.md), and a newly initialized actor gets -80.
    assert last[True] > -30
    assert last[False] < -60


@pytest.fixture(scope="module")
def normalized(tmp_path_factory):
    """A small run, two seeds; not to be written to."""
    out = tmp_path_factory.mktemp("normalized") / "run"
    fields = {**SMALL, "steps": 90, "seeds": 2, "eval_every": 30, "normalize_observations": True}
    return td3.train("Pendulum-v1", env_kwargs={"max_episode_steps": 40}, out=out, **fields)


def test_the_agent_carries_the_mean_and_spread_of_what_it_saw(normalized):
    rows = np.concatenate([rows for _, rows in Checkpoints(normalized.path).newest()[0].rows()], 1)
    for member, seed in enumerate(normalized.seeds):
        states = rows[member, :, :3].astype(np.float64)
        mean, scale = normalized.agent(seed, "last").policy.normalizer
        np.testing.assert_allclose(mean, states.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scale, (states.var(0) + 1e-8) ** -0.5, rtol=1e-5)
    tensors = [load_file(normalized.folder(seed) / "last" / "agent.safetensors") for seed in (0, 1)]
    assert not np.array_equal(*(tensor["observation.mean"] for tensor in tensors))


def test_acting_normalizes_and_clips(normalized):
    agent = td3.load(normalized.path, which="last")
    mean, scale = agent.policy.normalizer
    plain = agent.policy.__class__(
        [(weight, bias[..., 0, :]) for weight, bias in agent.policy.layers], [-2.0], [2.0], (3,), (1,)
    )
    observation = np.array([[0.3, -0.5, 2.0], [1e6, 0.0, -1e6]], np.float32)
    expected = plain.act(np.clip((observation - mean) * scale, -10, 10))
    np.testing.assert_array_equal(agent.act(observation), expected)
    np.testing.assert_array_equal(agent.act(observation[0]), expected[0])


def test_every_reader_of_a_run_normalizes(normalized, tmp_path, capsys):
    assert main(["evaluate", str(normalized.path), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["returns"]
    make = partial(make_environment, **normalized.config.env_arguments)
    for seed in normalized.seeds:
        held_out_episodes = Evaluator(make, [seed], 2, purpose=held_out(0))
        evaluation = held_out_episodes(normalized.agent(seed, "last").policy)
        np.testing.assert_allclose(found[str(seed)], evaluation.returns[0])
    folder = normalized.folder(0)
    for snapshot in (folder / "snapshots").iterdir():
        assert load_agent(snapshot).policy.normalizer is not None
    policy = normalized.agent(0, "last").policy
    score, plain = saved_critic(folder / "last"), copy(policy)
    plain.normalizer = None
    with mock.patch.object(video_stage, "load_agent", return_value=SavedAgent(plain, {})):
        raw = saved_critic(folder / "last")
    state, action = np.array([0.1, 0.2, 3.0], np.float32), np.zeros(1, np.float32)
    assert score(state, action) == raw(policy.seen(state[None])[0], action)
    assert score(state, action) != raw(state, action)
    page = tmp_path / "page.html"
    assert main(["explain", "--run", str(normalized.path), "--no-open", "--out", str(page)]) == 0


def test_exports_hold_it_and_answer_as_the_agent_does(normalized, tmp_path, capsys):
    assert main(["export", str(normalized.path), "--out", str(tmp_path / "export"), "--sb3"]) == 0
    facts = json.loads((tmp_path / "export/export.json").read_text())
    assert facts["normalizes_observations"]
    assert set(facts["difference"]) == {"actor.onnx", "actor.pt2", "sb3.zip"}
    assert max(facts["difference"].values()) < 1e-5
    assert "what normalizes observations is in its first layers, its clip at 10 is not" in capsys.readouterr().out
    far = np.full((2, 3), 1e6, np.float32)
    expected = td3.load(normalized.path).act(far)
    np.testing.assert_allclose(actions_by_onnx(tmp_path / "export/actor.onnx", far), expected, atol=1e-5)


def test_an_agent_that_normalizes_has_a_version_of_its_own(normalized, trained, tmp_path):
    folders = [run.folder(0) / "last" for run in (trained, normalized)]
    assert [json.loads((folder / "agent.json").read_text())["version"] for folder in folders] == [1, 2]
    for name in ("agent.json", "agent.safetensors"):
        (tmp_path / name).write_bytes((folders[0] / name).read_bytes())
    facts = json.loads((tmp_path / "agent.json").read_text())
    (tmp_path / "agent.json").write_text(json.dumps({**facts, "version": 2}))
    with pytest.raises(AgentFileError, match=r"does not hold a usable agent \('observation.mean'\)"):
        load_agent(tmp_path)
    (tmp_path / "agent.json").write_text(json.dumps({**facts, "version": 4}))
    with pytest.raises(AgentFileError, match="version 4 of the format, and this td3 reads 1 to 3"):
        load_agent(tmp_path)


RESUMED = {
    **SMALL,
    "steps": 160,
    "learning_starts": 30,
    "eval_every": 80,
    "save_every": 40,
    "seeds": 2,
    "envs": 2,
    "normalize_observations": True,
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")
    train_run(resolve("Rail-v0", out=folder / "whole", **RESUMED))
    with pytest.raises(Stop):
        train_run(resolve("Rail-v0", out=folder / "cut", **RESUMED), [Stopping(110)])
    return folder / "cut", fingerprint(folder / "whole")


@pytest.mark.parametrize("forgotten", [None, "count", "exact_mean", "squares", "mean", "scale"])
def test_a_stopped_run_goes_on_exactly_and_needs_everything_it_saved(interrupted, forgotten, tmp_path, monkeypatch):
    cut, expected = interrupted
    shutil.copytree(cut, tmp_path / "cut")

    def forgetful(trainer, checkpoint):
        name = f"agent.observations.{forgotten}"
        tensors = {key: value for key, value in checkpoint.tensors.items() if key != name}
        assert (len(tensors) < len(checkpoint.tensors)) == (forgotten is not None)
        restore(trainer, checkpoint._replace(tensors=tensors))

    monkeypatch.setattr("td3.training.trainer.restore", forgetful)
    if forgotten is not None:
        with pytest.raises(RunError, match=f"does not fit its run .*observations.{forgotten}"):
            resume_run(tmp_path / "cut", callbacks=[Stopping()])
        return
    resume_run(tmp_path / "cut", callbacks=[Stopping()])
    assert fingerprint(tmp_path / "cut") == expected


def test_a_seed_does_not_depend_on_its_company(tmp_path):
    both = train_run(resolve("Rail-v0", out=tmp_path / "both", **{**RESUMED, "steps": 100}))
    alone = train_run(resolve("Rail-v0", out=tmp_path / "alone", **{**RESUMED, "steps": 100, "seeds": 1, "seed": 1}))
    files = [run.folder(1) / "last" / "agent.safetensors" for run in (both, alone)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_command_takes_it_and_says_so(tmp_path, capsys):
    options = ["--steps", "30", "--out", str(tmp_path / "run"), *SMALL_OPTIONS]
    assert main(["train", "--normalize-observations", "Scripted-v0", *options]) == 0
    assert "Observations are normalized by their running mean and standard" in capsys.readouterr().out
    assert td3.Run(tmp_path / "run").config.normalize_observations
