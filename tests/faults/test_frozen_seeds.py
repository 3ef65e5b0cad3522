"""A seed that breaks down, or whose environments fail for good, is frozen; the other seeds are trained to the end."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch

import td3
from faults.test_resume import Stop, Stopping, config, differences
from td3 import training
from td3.algorithm.streams import derive_seed
from td3.cli import main
from td3.collect.collector import Collector
from td3.environments.rail import Rail
from td3.errors import Diverged, EnvironmentFault
from td3.report.doctor import examine_run
from td3.report.records import read_run
from td3.report.render import page
from td3.report.summary import describe_runs, figures
from td3.run.checkpoints import Checkpoints
from td3.run.directory import Run
from td3.training import resume_run, train_run

DIVERGING = {derive_seed(1, "environment 0", episode) % 2**31 for episode in range(8, 100)}
"""Seeds of episodes of seed 1 alone."""


class Exploding(Rail):
    """Rewards whose squares float32 does not hold, in some episodes of one seed."""

    def reset(self, *, seed=None, options=None):
        self.explodes = seed in DIVERGING
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 1e30 if self.explodes else reward, *rest


if "Exploding-v0" not in gym.registry:
    gym.register("Exploding-v0", entry_point=Exploding, max_episode_steps=20)
FIELDS = {"seeds": 3, "env": "Exploding-v0"}
FILES = ("metrics.csv", "evaluations.csv", "diagnostics.csv", "last/agent.safetensors", "best/agent.safetensors")


@pytest.fixture(scope="module")
def frozen_run(tmp_path_factory):
    observer = Stopping()
    path = tmp_path_factory.mktemp("frozen") / "run"
    train_run(config(path, **FIELDS), [observer])
    return path, observer.warnings


def frozen_at(path):
    return json.loads((path / "status.json").read_text())["frozen"]["1"]["env_steps"]


def test_a_seed_that_diverges_is_frozen_and_told_once_and_the_run_is_finished(frozen_run):
    path, warnings = frozen_run
    status = json.loads((path / "status.json").read_text())
    assert status["status"] == "finished"
    assert status["env_steps"] == 600
    (sentence,) = warnings
    assert sentence.startswith("seed 1 is frozen, and the other seeds go on: Learning broke down at env step")
    assert status["frozen"] == {"1": {"env_steps": frozen_at(path), "reason": sentence.partition(": ")[2]}}
    assert "The largest reward seen was 1e+30: lower" in sentence
    assert 100 < frozen_at(path) < 600


@pytest.mark.parametrize(
    "changed", [{"buffer_size": 90}, {"buffer_size": 90, "envs": 2, "engine": "eager"}, {"buffer_size": 600}]
)
def test_a_frozen_seed_keeps_its_transitions_and_what_its_normalizer_knows(tmp_path, changed):
    """The buffer of 90 rows has wrapped by then; the other has room left, where zeros follow."""

    class Keeping(Stopping):
        def kept(self, trainer):
            stored = trainer.buffer.rows[1, : self.count].clone()
            return [stored, *(tensor[1].clone() for tensor in trainer.agent.normalizer.tensors().values())]

        def on_seed_frozen(self, trainer, member, reason):
            assert member == 1
            self.count = len(trainer.buffer)
            self.before = self.kept(trainer)

        def on_training_end(self, trainer):
            self.after, self.rows = self.kept(trainer), trainer.buffer.rows[:, : len(trainer.buffer)].clone()

    observer = Keeping()
    train_run(config(tmp_path / "run", **{**FIELDS, "normalize_observations": True, **changed}), [observer])
    for before, after in zip(observer.before, observer.after, strict=True):
        assert torch.equal(before, after)
    assert observer.before[0].any(-1).all()
    assert not observer.rows[1, observer.count + 1 :].any()  # the round in which it was frozen is whole
    checkpoint, _ = Checkpoints(tmp_path / "run").newest()
    saved = np.concatenate([chunk for _, chunk in checkpoint.rows()], axis=1)
    count = observer.rows.shape[1]
    oldest = checkpoint.shards[-1].end % count
    np.testing.assert_array_equal(saved[:, -count:], np.roll(observer.rows.numpy(), -oldest, axis=1))


@pytest.mark.parametrize("seed", [0, 2])
def test_the_other_seeds_are_bit_for_bit_those_of_a_run_without_it(frozen_run, seed, tmp_path):
    path, _ = frozen_run
    train_run(config(tmp_path / "alone", **{**FIELDS, "seeds": 1}, seed=seed))
    for name in FILES:
        assert (path / f"seed_{seed}" / name).read_bytes() == (tmp_path / "alone" / f"seed_{seed}" / name).read_bytes()


def test_nothing_more_is_written_for_a_frozen_seed_and_its_last_agent_is_sound(frozen_run):
    path, _ = frozen_run
    run, at = Run(path), frozen_at(path)
    for name in ("metrics.csv", "evaluations.csv", "diagnostics.csv"):
        steps = [int(row.partition(",")[0]) for row in (path / "seed_1" / name).read_text().splitlines()[1:]]
        assert all(step <= at for step in steps), name
    assert run.evaluations(1)[0].max() <= at < run.evaluations(0)[0].max() == 600
    for which in ("best", "last"):
        agent = run.agent(1, which)
        assert np.isfinite(agent.act(np.zeros(agent.policy.observation_shape, np.float32))).all()
    assert run.agent(1, "last").facts["env_steps"] == at
    assert run.agent(0, "last").facts["env_steps"] == 600


@pytest.mark.parametrize(
    ("threads", "normalized"),
    [(1, False), (3, True), *(pytest.param(*both, marks=pytest.mark.long) for both in ((3, False), (1, True)))],
)
def test_a_stopped_run_with_a_frozen_seed_ends_as_the_one_that_was_not(tmp_path, threads, normalized):
    fields = {**FIELDS, "normalize_observations": normalized, "threads": threads}
    train_run(config(tmp_path / "whole", **fields), [Stopping()])
    with pytest.raises(Stop):
        train_run(config(tmp_path / "cut", **fields), [Stopping(550)])
    checkpoint, _ = Checkpoints(tmp_path / "cut").newest()
    assert [*checkpoint.facts["frozen"]] == ["1"]

    class Listening(Stopping):
        def __init__(self):
            super().__init__()
            self.notes = []

        def on_info(self, trainer, text):
            self.notes.append(text)

    observer = Listening()
    resume_run(tmp_path / "cut", callbacks=[observer])
    assert observer.warnings == []
    assert any(note.startswith("Seed 1 stays frozen: Learning broke down at env step") for note in observer.notes)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []
    assert "frozen" in json.loads((tmp_path / "cut" / "status.json").read_text())


def test_when_all_seeds_are_frozen_the_run_ends_as_a_run_of_one(tmp_path, monkeypatch):
    running = []
    real = training.Trainer.run
    monkeypatch.setattr(training.Trainer, "run", lambda self, *rest: (running.append(self), real(self, *rest))[1])

    class Saboteur(Stopping):
        def on_env_step(self, trainer):
            env_steps = trainer.env_steps
            if env_steps == 250:
                running[0].buffer.rows[..., -2] = 1e30

    with pytest.raises(Diverged, match=r"Learning broke down at env step 250.*The checkpoint at env step 200 is whole"):
        train_run(config(tmp_path / "run", seeds=2), [Saboteur()])
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["status"], [*status["frozen"]]) == ("failed", ["0", "1"])
    assert {facts["env_steps"] for facts in status["frozen"].values()} == {250}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_stopped_run_with_a_frozen_seed_ends_as_the_one_that_was_not(tmp_path):
    fields = {**FIELDS, "device": "cuda", "save_every": 60}
    train_run(config(tmp_path / "whole", **fields), [Stopping()])
    assert [*Run(tmp_path / "whole").frozen] == [1]
    for at in (190, 550):  # between the failure and its notice, and after both
        path = tmp_path / f"cut_{at}"
        with pytest.raises(Stop):
            train_run(config(path, **fields), [Stopping(at)])
        resume_run(path, callbacks=[Stopping()])
        assert differences(tmp_path / "whole", path) == []


class FailsForGood(Collector):
    """The environments of these members fail for good in this round."""

    members, at = (1,), 150

    def finish(self):
        if self.round == self.at:
            for member in self.members:
                self.failed[member] = "an environment failed in step(): it is broken: fix the environment."
                self.deactivate(member)
        return super().finish()


def test_a_seed_whose_environments_fail_for_good_is_frozen_too(tmp_path, monkeypatch):
    monkeypatch.setattr("td3.training.parts.Collector", FailsForGood)
    observer = Stopping()
    train_run(config(tmp_path / "run", seeds=2), [observer])
    assert observer.warnings == [
        "seed 1 is frozen, and the other seeds go on: an environment failed in step(): it is broken: "
        "fix the environment."
    ]
    assert Run(tmp_path / "run").frozen[1]["env_steps"] == 149
    monkeypatch.setattr(FailsForGood, "members", (0, 1))
    with pytest.raises(
        EnvironmentFault, match=r"it is broken: fix the environment\. The checkpoint at env step 100 is whole"
    ):
        train_run(config(tmp_path / "all", seeds=2), [observer])


PLACES = {
    "processes": {"workers": "processes", "envs": 2},
    "threads": {"workers": "threads", "envs": 2},
    "images": {"pixels": True, "image_size": 20, "action_repeat": 4, "utd_ratio": 0.1, "envs": 2},
}


@pytest.mark.parametrize("where", PLACES)
def test_the_environments_of_a_frozen_seed_are_stepped_no_more_wherever_they_are(tmp_path, monkeypatch, where):
    monkeypatch.setattr("td3.training.parts.Collector", FailsForGood)
    monkeypatch.setattr(FailsForGood, "at", 60)
    fields = {"eval_every": 0, "save_every": 100, "steps": 160, **PLACES[where]}
    train_run(config(tmp_path / "whole", seeds=2, **fields), [Stopping()])
    at = Run(tmp_path / "whole").frozen[1]["env_steps"]
    assert at == 59 * 2
    monkeypatch.setattr(FailsForGood, "members", ())
    train_run(config(tmp_path / "alone", **fields), [Stopping()])
    for name in FILES:
        assert (tmp_path / "whole/seed_0" / name).read_bytes() == (tmp_path / "alone/seed_0" / name).read_bytes()
    checkpoint, _ = Checkpoints(tmp_path / "whole").newest()
    assert all(not rows[1].any() for first, rows in checkpoint.rows() if first > at)


def test_readers_name_the_frozen_seed_and_leave_it_out_of_what_they_average(frozen_run, capsys):
    path, _ = frozen_run
    run = Run(path)
    assert run.seeds == (0, 1, 2)
    assert [*run.frozen] == [1]
    steps, returns = run.learning_curve()
    assert steps[-1] == 600
    np.testing.assert_array_equal(returns[:, -1], [run.evaluations(seed)[1][-1].mean() for seed in (0, 2)])
    assert run.best_seed() != 1
    records = read_run(path)
    assert [seed.seed for seed in records.whole_seeds] == [0, 2]
    assert "frozen_seed" in [finding.name for finding in examine_run(records)]
    named = f"Seed 1 has been frozen since env step {frozen_at(path):,} and is not counted: Learning broke down"
    assert named in page([records])
    (row,) = figures([records])["runs"]
    assert [*row["frozen"]] == ["1"]
    assert {*row["final"]} == {*row["last_tenth"]} == {"0", "2"}
    said = "\n".join(describe_runs(figures([records])))
    assert "over 2 seeds" in said
    assert named in said
    assert main(["doctor", str(path)]) in (0, 1)
    assert "frozen" in capsys.readouterr().out
    assert main(["evaluate", str(path), "--episodes", "1"]) == 0
    assert "2 of 3 seeds: mean return" in capsys.readouterr().out


def test_the_command_line_says_which_seeds_its_closing_lines_cover(tmp_path, capsys):
    options = ["--seeds", "3", "--steps", "400", "--out", str(tmp_path / "run"), "--threads", "1", "--device", "cpu"]
    options += ["--td3.hidden-sizes", "8", "8", "--td3.batch-size", "8", "--td3.learning-starts", "100"]
    options += ["--eval-every", "200", "--eval-episodes", "1", "--json"]
    assert main(["train", "Exploding-v0", *options]) == 0
    said = capsys.readouterr()
    words = " ".join(said.err.split())
    assert "over 2 of 3 seeds" in words
    assert "Seed 1 was frozen at env step" in words
    told = json.loads(said.out)
    assert told["after"][1] is None
    assert None not in (told["after"][0], told["after"][2], *told["before"])
    assert [*told["frozen"]] == ["1"]
    assert td3.Run(tmp_path / "run").best_seed() in (0, 2)
