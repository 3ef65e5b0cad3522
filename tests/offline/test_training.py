"""Offline training as a whole: a run like any other, that collects nothing."""

import csv
import json
import re
import weakref
import zipfile

import numpy as np
import pytest
from scripted import SMALL

import td3
from td3.cli import main
from td3.environments import make_environment
from td3.errors import ConfigError, EnvironmentFault, RunError, UserError
from td3.offline.files import read_npz
from td3.offline.transitions import rows_of_arrays
from td3.run.checkpoints import Checkpoints
from td3.training import Trainer

FIELDS = {"hidden_sizes": (8, 8), "batch_size": 8, "eval_every": 40, "eval_episodes": 1, "device": "cpu"}
OPTIONS = [
    "--td3.hidden-sizes",
    "8",
    "8",
    "--td3.batch-size",
    "8",
    "--eval-every",
    "0",
    "--eval-episodes",
    "1",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    """200 transitions of Rail-v0 with random forces."""
    environment, columns = make_environment("Rail-v0"), [[] for _ in range(6)]
    generator = np.random.default_rng(0)
    observation, _ = environment.reset(seed=0)
    for _ in range(200):
        action = generator.uniform(-1, 1, 1).astype(np.float32)
        following, reward, terminated, truncated, _ = environment.step(action)
        for column, value in zip(columns, (observation, action, reward, following, terminated, truncated), strict=True):
            column.append(value)
        observation = environment.reset()[0] if terminated or truncated else following
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    path = tmp_path_factory.mktemp("data") / "rail.npz"
    np.savez(path, **{name: np.array(column) for name, column in zip(names, columns, strict=True)})
    return path


def tensors_of(run):
    return Checkpoints(run.path).newest()[0].tensors


def require_equal(one, other):
    for name, tensor in tensors_of(one).items():
        assert tensors_of(other)[name].tobytes() == tensor.tobytes(), name


@pytest.fixture(scope="module")
def run(npz, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "offline"
    return td3.train_offline(npz, "Rail-v0", steps=120, seeds=2, out=out, **FIELDS)


def test_every_step_is_one_update_on_the_same_transitions(run, npz):
    checkpoint, _ = Checkpoints(run.path).newest()
    assert checkpoint.tensors["updates"].tolist() == [120, 120]
    assert checkpoint.facts["added"] == 200
    rows = np.concatenate([rows for _, rows in checkpoint.rows()], axis=1)
    with np.load(npz) as data:
        for member in range(2):
            assert (rows[member, :, :2] == data["observations"]).all()
            assert (rows[member, :, 5] == data["rewards"].astype(np.float32)).all()


def test_seeds_learn_differently_and_each_the_same_alone(run, npz, tmp_path):
    alone = td3.train_offline(npz, "Rail-v0", steps=120, seed=1, out=tmp_path / "alone", **FIELDS)
    both, one = tensors_of(run)["agent.actor"], tensors_of(alone)["agent.actor"]
    assert (both[1] == one[0]).all()
    assert (both[0] != both[1]).any()


def test_observations_are_normalized_by_the_dataset_and_by_nothing_else(run, npz):
    with np.load(npz) as data:
        states = data["observations"].astype(np.float64)
    mean, scale = tensors_of(run)["agent.observations.mean"], tensors_of(run)["agent.observations.scale"]
    assert mean[0] == pytest.approx(states.mean(0), rel=1e-5, abs=1e-6)
    assert scale[1] == pytest.approx(1 / states.std(0), rel=1e-4)
    assert tensors_of(run)["agent.observations.count"].tolist() == [[200], [200]]


def test_the_run_has_tables_evaluations_report_and_agents(run):
    assert run.config.variant == ("behavior-cloning",)
    assert [len(run.evaluations(seed)[0]) for seed in run.seeds] == [4, 4]
    with (run.folder(0) / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["updates"] == "120"
    assert row["episodes"] == "0"
    assert np.isfinite(float(row["actor_loss"]))
    report = (run.path / "report.html").read_text()
    assert "120 of 120 updates on recorded transitions (offline)" in report
    assert "variant behavior-cloning" in report
    assert "updates a second" in report
    assert "env step" not in re.sub(r"<script.*?</script>", "", report, flags=re.DOTALL).lower()
    assert run.agent(0, "last").act(np.zeros(2)).shape == (1,)
    assert run.agent().facts["updates"] > -1


def test_commands_for_runs_take_it(run, capsys, tmp_path):
    assert main(["evaluate", str(run.path), "--episodes", "1"]) == 0
    assert main(["report", str(run.path)]) == 0
    assert main(["doctor", str(run.path)]) == 0
    assert main(["steps", str(run.path)]) == 0
    assert "improve_actor_near_data_" in capsys.readouterr().out


def test_a_resumed_run_ends_as_the_whole_one_without_its_dataset(npz, tmp_path):
    copy = tmp_path / "data.npz"
    copy.write_bytes(npz.read_bytes())
    whole = td3.train_offline(npz, "Rail-v0", steps=120, out=tmp_path / "whole", **FIELDS)
    cut = td3.train_offline(copy, "Rail-v0", steps=80, out=tmp_path / "cut", **FIELDS)
    copy.unlink()
    require_equal(whole, td3.resume(cut.path, steps=120))


def test_a_run_without_a_checkpoint_reads_its_dataset_again_and_says_when_it_has_changed(npz, tmp_path):
    copy = tmp_path / "data.npz"
    copy.write_bytes(npz.read_bytes())

    class Interrupt(td3.Callback):
        def on_training_start(self, trainer):
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        td3.train_offline(copy, "Rail-v0", steps=40, out=out, callbacks=[Interrupt()], **FIELDS)
    for path in out.glob("seed_*/*/agent.json"):
        path.unlink()
    with np.load(npz) as data:
        np.savez(copy, **{name: data[name][:100] for name in data})
    with pytest.raises(UserError, match="has 100 transitions, and 200 when the run began"):
        td3.resume(out)
    copy.write_bytes(npz.read_bytes())
    require_equal(td3.resume(out), td3.train_offline(npz, "Rail-v0", steps=40, out=tmp_path / "other", **FIELDS))


def test_a_run_is_trained_on_again_in_its_own_environment(tmp_path):
    first = td3.train("Rail-v0", out=tmp_path / "first", **{**SMALL, "steps": 40, "device": "cpu"})
    second = td3.train_offline(first.path, steps=20, out=tmp_path / "second", **FIELDS)
    assert second.config.env == "Rail-v0"
    assert second.config.td3.buffer_size == 40


def test_plain_td3_without_normalization_can_be_asked_for(npz, tmp_path):
    run = td3.train_offline(
        npz, "Rail-v0", steps=20, out=tmp_path / "run", variant=(), normalize_observations=False, **FIELDS
    )
    assert "agent.observations.mean" not in tensors_of(run)
    assert not (run.path / "steps.json").exists()


def test_the_command_line_trains_the_same(npz, tmp_path, capsys):
    command = ["offline", str(npz), "--env", "Rail-v0", "--steps", "30", "--out", str(tmp_path / "cli"), *OPTIONS]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["env_steps"] == 30
    python = td3.train_offline(npz, "Rail-v0", steps=30, out=tmp_path / "python", **{**FIELDS, "eval_every": 0})
    require_equal(python, td3.Run(tmp_path / "cli"))


@pytest.mark.parametrize("how", ["python", "command line"])
def test_a_dataset_is_read_once_and_not_kept_beside_the_replay_buffer(npz, tmp_path, monkeypatch, how):
    read, kept = [], []

    def reading(path):
        read.append(path)
        return read_npz(path)

    def watched(arrays, spaces, name):
        rows = rows_of_arrays(arrays, spaces, name)
        kept.extend(weakref.ref(array) for array in (rows, *arrays.values()))
        return rows

    monkeypatch.setattr("td3.offline.source.read_npz", reading)
    monkeypatch.setattr("td3.offline.source.rows_of_arrays", watched)
    alive, real = [], Trainer.run
    monkeypatch.setattr(
        Trainer, "run", lambda *given: (alive.append(sum(one() is not None for one in kept)), real(*given))
    )
    if how == "python":
        td3.train_offline(npz, "Rail-v0", steps=20, out=tmp_path / "run", **FIELDS)
    else:
        words = ["offline", str(npz), "--env", "Rail-v0", "--steps", "20", "--out", str(tmp_path / "run"), *OPTIONS]
        assert main(words) == 0
    assert read == [npz]
    assert len(kept) == 7
    assert alive == [0]


def refused(capsys, *words):
    assert main(["offline", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_bad_commands_get_one_sentence_and_write_nothing(npz, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "does not say which environment" in refused(capsys, str(npz))
    assert "does not exist" in refused(capsys, "nowhere.npz", "--env", "Rail-v0")
    assert "has observations of shape (200, 2), and the environment has 3 numbers there" in refused(
        capsys, str(npz), "--env", "Pendulum-v1"
    )
    assert "fewer than a batch of 512" in refused(capsys, str(npz), "--env", "Rail-v0", "--td3.batch-size", "512")
    assert "has no option --envs" in refused(capsys, str(npz), "--env", "Rail-v0", "--envs", "2")
    assert "needs DATASET" in refused(capsys)
    assert main(["train", "Rail-v0", "--dataset", "x"]) == 2
    assert "has no option --dataset: " in (said := capsys.readouterr().err)
    assert "--dataset?" not in said
    assert "--variant must be names among" in refused(capsys, str(npz), "--env", "Rail-v0", "--variant", "nonsense")
    assert list(tmp_path.iterdir()) == []


def test_settings_of_collecting_and_variants_of_collecting_are_refused(npz, tmp_path):
    for name, value in (("envs", 2), ("learning_starts", 5), ("buffer_size", 10)):
        with pytest.raises(ConfigError, match=f"^{name} has no effect offline"):
            td3.train_offline(npz, "Rail-v0", **{name: value})
    with pytest.raises((ConfigError, EnvironmentFault), match="hindsight"):
        td3.train_offline(npz, "Rail-v0", variant="hindsight", out=tmp_path / "run")


def test_a_dataset_of_a_run_whose_module_is_not_trusted_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("from td3.environments.rail import Rail\n\n\nclass Mine(Rail):\n    pass\n")
    run = td3.train(
        "mine:Mine",
        out=tmp_path / "run",
        env_kwargs={"max_episode_steps": 10},
        **{**SMALL, "steps": 30, "device": "cpu"},
    )
    assert "--trust" in refused(capsys, str(run.path))
    with pytest.raises(RunError, match="trust"):
        td3.train_offline(run.path, steps=10, **FIELDS)
    again = td3.train_offline(run.path, "mine:Mine", steps=10, out=tmp_path / "again", **FIELDS)
    assert again.config.env_kwargs == {"max_episode_steps": 10}


def test_a_dataset_of_repeated_actions_is_evaluated_with_them(tmp_path):
    run = td3.train("Rail-v0", out=tmp_path / "run", steps=80, action_repeat=4, **SMALL)
    offline = td3.train_offline(run.path, out=tmp_path / "offline", steps=20, **FIELDS)
    assert offline.config.action_repeat == 4


def test_settings_of_collecting_are_refused_in_configurations_too(tmp_path, npz, capsys):
    with pytest.raises(ConfigError, match="hindsight changes what is collected, and offline nothing is"):
        td3.train_offline(npz, "RailGoal-v0", variant="hindsight", out=tmp_path / "goal", steps=20, **FIELDS)
    run = td3.train_offline(npz, "Rail-v0", out=tmp_path / "run", steps=20, **FIELDS)
    given = ["train", "--config", str(run.path / "config.json"), "--out", str(tmp_path / "again")]
    for option in (("--td3.train-freq", "episode"), ("--td3.utd-ratio", "0.5"), ("--envs", "2")):
        assert main([*given, *option]) != 0
        assert "an offline run makes one update per step: leave out envs" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["header", "lzma", "empty"])
def test_a_damaged_or_empty_file_gets_one_sentence(tmp_path, npz, damage):
    path = tmp_path / "damaged.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA if damage == "lzma" else zipfile.ZIP_STORED) as archive:
        if damage == "header":
            header = b"{'descr': ('<f4', \n"
            archive.writestr("rewards.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        elif damage == "lzma":
            archive.writestr("rewards.npy", bytes(2000))
    if damage == "lzma":
        whole = bytearray(path.read_bytes())
        whole[55:75] = bytes(20)
        path.write_bytes(whole)
    if damage == "empty":
        with np.load(npz) as arrays:
            np.savez(path, **{name: arrays[name][:0] for name in arrays})
    with pytest.raises(UserError, match=r"cannot be read as .npz|has no transitions"):
        td3.train_offline(path, "Rail-v0", out=tmp_path / "run", steps=20, **FIELDS)
