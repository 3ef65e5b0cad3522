import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from scripted import SMALL

import td3
from td3.config import resolve
from td3.errors import AgentFileError, ConfigError, RunError, UserError
from td3.run import directory
from td3.run.directory import absolute_out, new_directory


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    """A run that a test may damage."""
    return Path(shutil.copytree(trained.path, tmp_path / "copy"))


def test_a_run_knows_its_configuration_and_seeds(trained):
    run = td3.Run(trained.path)
    assert (run.config.env, run.config.steps, run.seeds) == ("Scripted-v0", 60, (0, 1))
    assert repr(run) == f"Run({str(trained.path)!r}, env='Scripted-v0', seeds=[0, 1])"


def test_the_learning_curve_has_a_row_per_seed(trained):
    steps, returns = trained.learning_curve()
    assert steps.tolist() == [0, 25, 50, 60]
    assert returns.shape == (2, 4)
    np.testing.assert_allclose(returns[1], trained.evaluations(1)[1].mean(1))


@pytest.mark.parametrize(
    ("curves", "seed", "env_steps"),
    [
        (((1, 9, 2, 3), (4, 5, 6, 8)), 0, 25),
        (((1, 2, 3, 4), (9, 9, 0, 0)), 1, 0),
        (((5, 5, 7, 7), (7, 0, 0, 9)), 1, 60),
    ],
)
def test_the_best_agent_has_the_highest_evaluation_of_all(copied, curves, seed, env_steps):
    steps = np.array([0, 25, 50, 60])
    for own, curve in enumerate(curves):
        folder = copied / f"seed_{own}"
        np.savez(folder / "evaluations.npz", timesteps=steps, results=np.array(curve, float)[:, None])
    assert td3.Run(copied).best_seed() == seed
    assert td3.load(copied).facts["seed"] == td3.load(copied, which="last").facts["seed"] == seed
    assert steps[np.argmax(curves[seed])] == env_steps


def test_the_best_agent_is_that_of_its_seeds_highest_evaluation(trained):
    for seed in trained.seeds:
        steps, returns = trained.evaluations(seed)
        assert trained.agent(seed).facts["env_steps"] == steps[returns.mean(1).argmax()]


@pytest.mark.parametrize(("updates", "warned"), [(0, 1), (7, 0)])
def test_a_best_agent_that_never_learned_is_said(copied, caplog, updates, warned):
    path = copied / "seed_1" / "best" / "agent.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"updates": updates, "env_steps": 0}))
    agent = td3.load(copied, seed=1)
    assert repr(agent) == "SavedAgent(Scripted-v0: seed 1 at step 0)"
    said = "the best agent of seed 1 is untrained: no evaluation was higher than that at env step 0"
    assert [said in message for message in caplog.messages] == [True] * warned
    td3.load(copied, seed=1, which="last")
    assert len(caplog.messages) == warned


@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_agent_is_loaded_by_seed_and_moment(trained, seed, which):
    facts = td3.load(trained.path, seed, which).facts
    steps, returns = trained.evaluations(seed)
    assert facts["seed"] == seed
    assert facts["env_steps"] == (60 if which == "last" else steps[returns.mean(1).argmax()])


def test_an_agents_own_folder_can_be_loaded(trained):
    from_run, from_folder = td3.load(trained.path, 0, "last"), td3.load(trained.folder(0) / "last")
    np.testing.assert_array_equal(from_run.act([1, 2, 3]), from_folder.act([1, 2, 3]))


def test_a_path_may_be_given_as_text(trained):
    assert td3.load(str(trained.path)).act([1, 2, 3]).shape == (2,)


def test_a_seed_that_was_not_trained_is_refused(trained):
    with pytest.raises(RunError, match="has no seed 7: it trained seeds 0 to 1"):
        td3.load(trained.path, seed=7)


def test_best_and_last_are_all_there_is(trained):
    with pytest.raises(UserError, match="'worst'"):
        td3.load(trained.path, which="worst")


@pytest.mark.parametrize("path", ["nowhere", "/proc/version", "/etc/passwd/run"])
def test_what_is_no_run_is_refused(path):
    with pytest.raises(RunError, match=re.escape(f"{path} is not a run: it has no config.json")):
        td3.load(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1]", "is not an object"),
        (b"{}", "lacks device, env"),
    ],
)
def test_a_damaged_configuration_is_refused(copied, content, said):
    (copied / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=said):
        td3.load(copied)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_a_damaged_evaluations_file_is_refused(copied, share):
    path = copied / "seed_0" / "evaluations.npz"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(RunError, match=r"has no readable evaluations.npz"):
        td3.load(copied)


def test_an_evaluations_file_without_evaluations_is_refused(copied):
    np.savez(copied / "seed_0" / "evaluations.npz", timesteps=np.zeros(0), results=np.zeros((0, 10)))
    with pytest.raises(RunError, match="without evaluations in it"):
        td3.load(copied)


def test_an_evaluations_file_with_objects_in_it_is_refused(copied):
    path = copied / "seed_0" / "evaluations.npz"
    np.savez(path, timesteps=np.array([{}], dtype=object), results=np.array([{}], dtype=object))
    with pytest.raises(RunError, match=r"has no readable evaluations.npz"):
        td3.load(copied)


def test_a_missing_agent_is_refused(copied):
    shutil.rmtree(copied / "seed_0" / "best")
    with pytest.raises(AgentFileError, match="is not an agent"):
        td3.load(copied, seed=0)


def test_a_run_without_its_last_agent_says_what_to_do(copied):
    shutil.rmtree(copied / "seed_0" / "last")
    with pytest.raises(RunError, match=r"was killed: use the best one \(--which best\), or let it finish"):
        td3.load(copied, seed=0, which="last")


def test_starts_in_one_instant_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)

    def start(_):
        together.wait()
        return new_directory(absolute_out(resolve("Rail-v0")), dated=True)

    with ThreadPoolExecutor(8) as starting:
        for _ in range(10):
            assert len({*starting.map(start, range(8))}) == 8


def test_a_directory_that_holds_a_run_is_refused_before_anything_happens(copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=f"{copied} already holds a run: give another --out"):
        td3.train("Scripted-v0", steps=30, out=copied, **SMALL)
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("parent", ["/proc", "/etc/passwd"])
def test_a_directory_that_cannot_be_written_is_refused(parent):
    with pytest.raises(RunError, match=re.escape(f"{parent}/run cannot be written (") + r".*\): give another --out"):
        td3.train("Scripted-v0", steps=30, out=f"{parent}/run", **SMALL)


def test_by_default_a_run_goes_under_its_environments_name_with_a_link_to_the_latest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (new_directory(absolute_out(resolve("dm_control/walker-walk-v0")), dated=True) for _ in range(2))
    assert first != second
    assert first.parent == second.parent == tmp_path / "runs/dm_control_walker-walk-v0"
    (second / "config.json").write_text("{}")
    assert (first.parent / "latest" / "config.json").exists()
    assert not (first.parent / "latest").readlink().is_absolute()


def test_a_file_called_latest_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "Ant-v5").mkdir(parents=True)
    (tmp_path / "runs" / "Ant-v5" / "latest").write_text("mine")
    new_directory(absolute_out(resolve("Ant-v5")), dated=True)
    assert (tmp_path / "runs" / "Ant-v5" / "latest").read_text() == "mine"


def test_the_configuration_in_the_directory_is_the_whole_one(trained):
    values = json.loads((trained.path / "config.json").read_text())
    assert values["out"] == str(trained.path)
    assert values["td3"]["hidden_sizes"] == [8, 8]
    assert td3.TrainConfig.from_json(values) == trained.config


def test_versions_name_what_results_depend_on(trained):
    values = json.loads((trained.path / "versions.json").read_text())
    assert {"python", "machine", "td3", "torch", "numpy", "gymnasium", "mujoco"} <= set(values)


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU, the engine is one")
@pytest.mark.parametrize("out", ["mine", None])
def test_a_run_that_is_refused_leaves_no_folder_and_the_latest_as_it_was(tmp_path, monkeypatch, out):
    """An engine that needs a GPU is refused when it is made, as late as anything is."""
    monkeypatch.chdir(tmp_path)
    before = td3.train("Scripted-v0", steps=30, **SMALL)
    with pytest.raises(ConfigError, match="engine graph"):
        td3.train("Scripted-v0", steps=30, out=out, **{**SMALL, "engine": "graph", "device": "auto"})
    assert Path("runs/Scripted-v0/latest").resolve() == before.path.resolve()
    assert {path.name for path in Path("runs/Scripted-v0").iterdir()} == {"latest", before.path.name}
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    td3.train("Scripted-v0", steps=30, out=out, **SMALL)


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU, the engine is one")
def test_an_extension_that_is_refused_leaves_the_run_as_it_was(tmp_path):
    run = td3.train("Scripted-v0", steps=30, out=tmp_path / "run", **SMALL)
    values = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(text := json.dumps({**values, "engine": "graph", "device": "auto"}))
    for folder in run.path.glob("checkpoints/0*"):
        shutil.rmtree(folder)
    for path in (run.path / "status.json", *run.path.glob("seed_0/best/agent.json")):
        path.unlink()
    with pytest.raises(ConfigError, match="engine graph"):
        td3.resume(run.path, steps=60)
    assert (run.path / "config.json").read_text() == text


def test_a_directory_that_holds_a_run_is_refused_before_an_environment_is_made(copied):
    def make():
        raise AssertionError("made")

    with pytest.raises(RunError, match="already holds a run"):
        td3.train(make, steps=30, out=copied, **SMALL)


def test_the_seeds_that_were_not_frozen_are_found_in_one_look(trained, monkeypatch):
    read = []
    monkeypatch.setattr(directory, "read_facts", lambda path: read.append(path.name) or {})
    assert td3.Run(trained.path).active_seeds == (0, 1)
    assert read == ["status.json"]
