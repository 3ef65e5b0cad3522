"""Where a stopped run goes on, what it needs for that, and what it says when it cannot."""

import json
import os
import shutil
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from scripted import Scripted

import td3
from faults.fingerprint import fingerprint
from td3.callbacks.agents import AgentCallback, is_milestone
from td3.callbacks.callback import WarningsCallback
from td3.callbacks.checkpoints import StatusCallback
from td3.cli import main
from td3.config import resolve
from td3.environments import ProcessVectorEnv, WorkerBackend
from td3.errors import ConfigError, RunError
from td3.evaluate import EvaluationWorkers
from td3.run.checkpoints import Checkpoints
from td3.run.directory import Run, versions
from td3.run.tables import MemberWriter
from td3.training import resume_run, train_run
from td3.training.state import arrays_of, restore

SMALL = {
    "steps": 600,
    "learning_starts": 100,
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "buffer_size": 250,
    "eval_every": 200,
    "eval_episodes": 1,
    "log_every": 100,
    "save_every": 100,
    "threads": 1,
    "device": "cpu",
}


class Stop(BaseException):
    """The end of a process, as far as the run's files know."""


class Stopping(WarningsCallback):
    """Ends a run after so many env steps, without any farewell; keeps what it was told."""

    def __init__(self, at: int = 10**9) -> None:
        self.at, self.warnings = at, []

    def on_env_step(self, trainer) -> None:
        env_steps = trainer.env_steps
        if env_steps >= self.at:
            raise Stop

    def on_warning(self, trainer, text: str) -> None:
        self.warnings.append(text)


def config(out: Path, env: str = "Rail-v0", **fields):
    return resolve(env, **{**SMALL, "out": out, **fields})


def stopped(out: Path, at: int, env: str = "Rail-v0", **fields) -> Path:
    with pytest.raises(Stop):
        train_run(config(out, env, **fields), [Stopping(at)])
    return out


def differences(one: Path, other: Path) -> list[str]:
    first, second = fingerprint(one), fingerprint(other)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


KINDS = {
    "one seed": {},
    "one environment among many": {"seeds": 2, "envs": 3},
    "updates at the end of episodes": {"train_freq": "episode", "seeds": 2},
    "plain gradient descent": {"optimizer": "sgd", "critic_learning_rate": 1e-5, "actor_learning_rate": 1e-5},
    "more updates than steps": {"utd_ratio": 1.5},
    "learning rates that fall": {"learning_rate_schedule": "linear"},
    "other networks": {"activation": "elu", "actor_hidden_sizes": (9,), "critic_hidden_sizes": (8, 7)},
    "a physics engine": {"env": "Hopper-v5"},
    "a batch of physics engines": {"env": "Hopper-v5", "seeds": 2, "envs": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_ends_as_the_one_that_was_not(tmp_path, kind):
    fields = {"steps": 450, **KINDS[kind]}
    train_run(config(tmp_path / "whole", **fields))
    stopped(tmp_path / "cut", 370, **fields)
    with pytest.raises(Stop):
        resume_run(tmp_path / "cut", callbacks=[Stopping(430)])
    observer = Stopping()
    resume_run(tmp_path / "cut", callbacks=[observer])
    assert observer.warnings == []
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_a_replay_buffer_that_has_wrapped_keeps_its_size_when_the_run_is_made_longer(tmp_path):
    """Preset paper keeps as many rows as there are env steps, and hindsight stores five for each."""
    fields = {"preset": "paper", "variant": ("hindsight",), "steps": 300, "save_every": 10_000, "buffer_size": 300}
    run = train_run(config(tmp_path / "run", "RailGoal-v0", **fields)).path
    resume_run(run, steps=350)
    checkpoint, _ = Checkpoints(run).newest()
    assert (checkpoint.env_steps, checkpoint.facts["added"]) == (350, 301 * 5)
    assert len(next(checkpoint.rows())[1][0]) <= 300
    with pytest.raises(Stop):
        resume_run(run, steps=420, callbacks=[Stopping(400)])
    resume_run(run)
    assert Run(run).config.td3.buffer_size == 300


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("buffer_device", ["gpu", "host"])
def test_on_a_gpu_a_stopped_run_ends_as_the_one_that_was_not(tmp_path, buffer_device):
    fields = {"device": "cuda", "seeds": 3, "buffer_device": buffer_device}
    train_run(config(tmp_path / "whole", **fields))
    stopped(tmp_path / "cut", 370, **fields)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_evaluations_that_were_under_way_in_processes_are_not_lost(tmp_path, monkeypatch):
    train_run(config(tmp_path / "whole", seeds=2))

    class Slow(EvaluationWorkers):
        """Finishes an evaluation only when it must."""

        def finished(self, wait=False):
            return super().finished(wait) if wait or len(self._begun) > self.MOST_WAITING else iter(())

    def beside(make, config, threads, device):
        workers = Slow(make, config.member_seeds, config.eval_episodes, 1)
        return ProcessVectorEnv(make, config.seeds * config.envs, 1), workers, WorkerBackend("processes", 1)

    monkeypatch.setattr("td3.training.parts.make_vector_envs", beside)
    stopped(tmp_path / "cut", 350, seeds=2)
    checkpoint, _ = Checkpoints(tmp_path / "cut").newest()
    assert checkpoint.env_steps == 300
    assert {*checkpoint.facts["pending_evaluations"]} == {"0", "200"}
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_a_run_without_a_checkpoint_begins_again(tmp_path):
    train_run(config(tmp_path / "whole"))
    stopped(tmp_path / "cut", 90)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.parametrize("preset", ["author", "paper"])
def test_a_finished_run_can_be_made_longer(tmp_path, preset):
    """The row at the old end is then one of the schedule, as it is in the long run."""
    fields = {**SMALL, "preset": preset, "eval_every": 1_000, "save_every": None, "buffer_size": 5_000}
    if preset == "paper":  # which keeps the whole history
        del fields["buffer_size"]
    train_run(resolve("Rail-v0", **{**fields, "steps": 2_000, "out": tmp_path / "whole"}))
    train_run(resolve("Rail-v0", **{**fields, "steps": 1_000, "out": tmp_path / "longer"}))
    run = td3.resume(tmp_path / "longer", steps=2_000)
    assert run.config.steps == 2_000
    assert differences(tmp_path / "whole", tmp_path / "longer") == []


def test_a_short_run_of_preset_paper_can_be_made_longer(tmp_path):
    """Its buffer has the whole history, and at least a batch."""
    fields = {"preset": "paper", "hidden_sizes": (8, 8), "eval_every": 0, "eval_episodes": 1, "device": "cpu"}
    run = td3.train("Rail-v0", steps=50, out=tmp_path / "run", **fields)
    assert [td3.resume(run.path, steps=steps).config.td3.buffer_size for steps in (80, 150)] == [100, 150]


def test_a_killed_extension_goes_on_to_its_new_end(tmp_path):
    train_run(config(tmp_path / "run", steps=300))
    with pytest.raises(Stop):
        resume_run(tmp_path / "run", 1_000, [Stopping(330)])
    assert Checkpoints(tmp_path / "run").newest()[0].env_steps == 300, "it was killed before its first checkpoint"
    assert td3.Run(tmp_path / "run").config.steps == 1_000
    run = resume_run(tmp_path / "run")
    assert run.config.steps == 1_000
    assert run.evaluations(0)[0][-1] == 1_000


def test_a_killed_extension_is_not_made_shorter(tmp_path):
    train_run(config(tmp_path / "run", steps=300))
    with pytest.raises(Stop):
        resume_run(tmp_path / "run", 1_000, [Stopping(330)])
    with pytest.raises(RunError, match=r"is a run of 1,000 env steps: --steps 500 is fewer\."):
        resume_run(tmp_path / "run", 500)


@pytest.mark.parametrize("steps", [400, 900])
def test_an_extended_run_keeps_the_snapshots_of_both_lengths(tmp_path, steps):
    """As docs/reliability.md says: up to the old end those of the short run, from there on those of the long one."""
    short, long = (config(tmp_path / "run", steps=each, eval_every=20) for each in (200, steps))
    train_run(short)
    resume_run(tmp_path / "run", steps)
    kept = [int(folder.name) for folder in (tmp_path / "run" / "seed_0" / "snapshots").iterdir()]
    before, after = range(0, 201, 20), range(220, steps + 1, 20)
    expected = [step for step in before if is_milestone(step, short)]
    assert sorted(kept) == expected + [step for step in after if is_milestone(step, long)]


def test_config_json_alone_says_what_a_run_is(tmp_path):
    cut = stopped(tmp_path / "cut", 350)
    values = json.loads((cut / "config.json").read_text())
    (cut / "config.json").write_text(json.dumps({**values, "env": "Scripted-v0"}))
    with pytest.raises(RunError, match=r"checkpoint 300 cannot be used \(it was written with another env than config"):
        resume_run(cut)
    (cut / "config.json").write_text(json.dumps({**values, "td3": {**values["td3"], "tau": 0.5}}))
    with pytest.raises(RunError, match="it was written with another td3 than"):
        resume_run(cut)
    (cut / "config.json").write_text(json.dumps(values))
    resume_run(cut)


def test_the_seconds_of_saving_are_those_of_the_whole_run(tmp_path, monkeypatch):
    real = Checkpoints.save

    def slow(self, *arguments):
        time.sleep(0.02)
        real(self, *arguments)

    monkeypatch.setattr(Checkpoints, "save", slow)
    cut = stopped(tmp_path / "cut", 350, steps=400)
    monkeypatch.setattr(Checkpoints, "save", real)
    resume_run(cut)
    status = json.loads((cut / "status.json").read_text())
    assert status["saving_seconds"] >= 0.06, "three slow saves before the last one of the first part"
    assert status["seconds"] >= status["saving_seconds"]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A run stopped in the middle of everything, and what it should become."""
    folder = tmp_path_factory.mktemp("interrupted")
    fields = {"seeds": 2, "save_every": 130, "steps": 400}
    train_run(config(folder / "whole", **fields))
    return stopped(folder / "cut", 270, **fields), fingerprint(folder / "whole")


AGENT = ["actor", "actor_target", "critics", "critics_target"]
for who in ("actor_optimizer", "critics_optimizer"):
    AGENT += [f"{who}.{what}" for what in ("first_moment", "second_moment", "steps")]
SAVED = [
    *(f"agent.{name}" for name in AGENT),
    *(f"collector.{name}" for name in ("round", "states", "returns", "lengths", "episodes", "actions")),
    *("updates", "loss_sums", "logged_updates", "best_returns", "unlogged_episodes"),
    *(f"history.{member}.{name}" for member in (0, 1) for name in ("env_steps", "returns", "lengths", "successes")),
]
IDLE_WITHOUT_FAULTS = {"collector.faults_in_a_row", "collector.inactive", "active"}
"""Saved, but of no consequence without faults: test_environments.py, test_failed_members.py, test_frozen_seeds.py."""


def test_the_list_of_saved_fields_is_complete(interrupted):
    checkpoint, _ = Checkpoints(interrupted[0]).newest()
    assert {*checkpoint.tensors} == {*SAVED} | IDLE_WITHOUT_FAULTS
    times = {"seconds", "saving_seconds"}
    assert {*checkpoint.facts} == {
        "config",
        "versions",
        "added",
        "pending_evaluations",
        "positions",
        "frozen",
        "callbacks",
    } | times


@pytest.mark.parametrize("field", [*SAVED, "added", "positions"])
def test_no_saved_field_can_be_left_out(interrupted, tmp_path, monkeypatch, field):
    """Taken from birth instead, each one makes the end another, or is missed at once."""
    cut, expected = interrupted
    shutil.copytree(cut, tmp_path / "cut")

    def forgetful(trainer, checkpoint):
        birth = {**arrays_of(trainer), "added": 0, "positions": {"0": dict.fromkeys(MemberWriter.FILES, 0)}}
        birth["positions"]["1"] = birth["positions"]["0"]
        part = "facts" if field in checkpoint.facts else "tensors"
        kept = {name: value for name, value in getattr(checkpoint, part).items() if name != field}
        kept |= {field: birth[field]} if field in birth else {}
        restore(trainer, checkpoint._replace(**{part: kept}))

    monkeypatch.setattr("td3.training.trainer.restore", forgetful)
    try:
        resume_run(tmp_path / "cut", callbacks=[Stopping()])
    except RunError:
        return
    assert fingerprint(tmp_path / "cut") != expected


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_it(tmp_path):
    train_run(config(tmp_path / "whole"))
    cut = stopped(tmp_path / "cut", 350)
    state = cut / "checkpoints" / "000000000300" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    observer = Stopping()
    resume_run(cut, callbacks=[observer])
    assert observer.warnings == [
        "checkpoint 300 is damaged (state.safetensors is not as it was written); continuing from env step 200."
    ]
    assert differences(tmp_path / "whole", cut) == []


def test_a_table_that_lost_rows_is_noticed_and_nothing_is_overwritten(tmp_path):
    cut = stopped(tmp_path / "cut", 350)
    for name in ("evaluations.csv", "monitor.csv"):
        (cut / "seed_0" / name).write_text("")
    with pytest.raises(RunError) as caught:
        resume_run(cut)
    assert "checkpoint 300 cannot be used (seed_0/evaluations.csv is shorter" in str(caught.value)
    assert "would overwrite what it learned in 350 env steps" in str(caught.value)
    assert td3.load(cut, which="last").facts["env_steps"] == 350


class Unrepeatable(Scripted):
    """Gives numbers that no seed explains."""

    moments = 0

    def observation(self, moved):
        Unrepeatable.moments += 1
        return super().observation(moved) + Unrepeatable.moments


gym.register("Unrepeatable-v0", entry_point=Unrepeatable, kwargs={"lengths": (50,)})


def test_an_environment_that_does_not_repeat_itself_is_found_and_said(tmp_path):
    cut = stopped(tmp_path / "cut", 270, env="Unrepeatable-v0", save_every=130)
    observer = Stopping()
    run = resume_run(cut, callbacks=[observer])
    assert observer.warnings == [
        "Unrepeatable-v0 does not repeat itself when an episode is played again: 1 unfinished episodes were lost, and "
        "the run goes on with new ones, not exactly as it would have."
    ]
    checkpoint, _ = Checkpoints(run.path).newest()
    rows = np.concatenate([rows for _, rows in checkpoint.rows()], axis=1)[0]
    first, last = checkpoint.shards[0].first, checkpoint.shards[-1].end
    assert last - first == len(rows) == 600 - first


def test_other_versions_are_said(tmp_path, monkeypatch):
    cut = stopped(tmp_path / "cut", 250)
    real = versions()
    monkeypatch.setattr("td3.training.resuming.versions", lambda: {**real, "torch": "99.0"})
    observer = Stopping()
    resume_run(cut, callbacks=[observer])
    assert observer.warnings == [f"torch {real['torch']} is now 99.0: the run goes on, but not as it would have."]


def test_what_cannot_be_resumed_is_refused_in_one_sentence(tmp_path, capsys, trained):
    assert main(["resume", str(trained.path)]) == 2
    assert f"{trained.path} has done its 60 env steps: to go on, give a larger number" in capsys.readouterr().err
    assert main(["resume", str(trained.path), "--steps", "20"]) == 2
    assert "is a run of 60 env steps: --steps 20 is fewer." in capsys.readouterr().err
    assert main(["resume", str(tmp_path / "nowhere")]) == 2
    assert "is not a run: it has no config.json" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="save_every must be"):
        config(tmp_path / "run", save_every=-1)


def test_two_processes_cannot_train_one_run(tmp_path):
    class Intruder(Stopping):
        def on_env_step(self, trainer):
            with pytest.raises(RunError, match=f"is being trained by process {os.getpid()} on "):
                resume_run(tmp_path / "run")

    train_run(config(tmp_path / "run", steps=120), [Intruder()])


def test_a_run_without_checkpoints_is_not_begun_again_over_what_it_learned(tmp_path, capsys):
    cut = stopped(tmp_path / "cut", 350, save_every=0)
    assert not (cut / "checkpoints").exists()
    assert main(["resume", str(cut)]) == 2
    assert "cannot be resumed: it has no checkpoint, and to begin again would" in capsys.readouterr().err
    assert td3.load(cut, which="last").facts["env_steps"] == 350


def test_a_run_killed_before_anything_was_saved_begins_again(tmp_path):
    run = train_run(config(tmp_path / "run", steps=300))
    for name in ("checkpoints", "seed_0"):
        shutil.rmtree(run.path / name)
    (run.path / "status.json").unlink()
    train_run(config(tmp_path / "whole", steps=300))
    resume_run(run.path)
    assert differences(tmp_path / "whole", run.path) == []


def test_a_run_directory_that_cannot_be_written_is_refused(tmp_path, capsys, monkeypatch, trained):
    shutil.copytree(trained.path, tmp_path / "run")
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "run" / ".lock").mkdir()
    assert main(["resume", str(tmp_path / "run"), "--steps", "90"]) == 2
    assert "cannot be written (Is a directory)" in capsys.readouterr().err


def test_a_run_killed_after_its_last_checkpoint_is_brought_to_its_end(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(AgentCallback, "_save", lambda *arguments, **options: None)
        patch.setattr(StatusCallback, "_write", lambda *arguments, **options: None)
        train_run(config(tmp_path / "cut"))
    assert not (tmp_path / "cut" / "seed_0" / "last").exists()
    resume_run(tmp_path / "cut")
    assert json.loads((tmp_path / "cut" / "status.json").read_text())["status"] == "finished"
    assert (tmp_path / "cut/seed_0/last/agent.json").exists()
    with pytest.raises(RunError, match="has done its 600 env steps"):
        resume_run(tmp_path / "cut")


def test_the_command_goes_on_and_reports_the_whole_run(tmp_path, capsys):
    cut = stopped(tmp_path / "cut", 350)
    assert main(["resume", str(cut), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    run = td3.Run(cut)
    assert figures["env_steps"] == 600
    assert figures["before"] == run.evaluations(0)[1][0].tolist()
    assert figures["after"] == run.evaluations(0)[1][-1].tolist()


@td3.replace_step(9, state={"u": 1})
def one_number(reward, terminated, next_q, gamma, original, step_state):
    return original(reward, terminated, next_q, gamma)


@td3.replace_step(9, state={"u": 2})
def two_numbers(reward, terminated, next_q, gamma, original, step_state):
    return original(reward, terminated, next_q, gamma)


@td3.replace_step(9, state={"u": 1, "v": 1})
def another_name(reward, terminated, next_q, gamma, original, step_state):
    return original(reward, terminated, next_q, gamma)


@pytest.mark.filterwarnings("ignore:.*one_number")
@pytest.mark.parametrize(
    ("changed", "said"),
    [(two_numbers, "state u of replaced step 9 .* has the shape"), (another_name, "state v of replaced step 9 .* mi")],
)
def test_a_replaced_step_with_another_state_cannot_be_resumed_and_says_which(tmp_path, caplog, changed, said):
    fields = {**SMALL, "steps": 40, "learning_starts": 10, "eval_every": 0, "save_every": None}
    run = td3.train("Scripted-v0", out=tmp_path / "run", replace_steps=[one_number], **fields)
    changed.__qualname__ = changed.__name__ = "one_number"
    with pytest.raises(RunError, match=f"{said}.*: give the function as it was, or train anew"):
        td3.resume(run.path, steps=80, replace_steps=[changed])
    assert "TensorBoard failed" not in caplog.text
