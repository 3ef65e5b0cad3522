"""A dataset by its name: files are read without unpickling, and what cannot be read gets one sentence."""

import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
from scripted import SMALL

import td3
from td3.environments import TaskSpaces
from td3.errors import MissingExtra, UserError
from td3.offline import files, find_dataset
from td3.offline.transitions import DatasetError

SPACES = TaskSpaces(2, (-1.0,), (1.0,), (2,), (1,))


def columns(count=5):
    states = np.arange(2.0 * count).reshape(count, 2)
    return {
        "observations": states,
        "actions": np.linspace(-1, 1, count)[:, None].astype(np.float32),
        "rewards": np.arange(count, dtype=np.float32),
        "next_observations": states + 1,
        "terminals": np.arange(count) == 2,
    }


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "data.npz", **columns(), infos=np.array(["unread"]))
    return tmp_path / "data.npz"


def test_an_npz_file_has_its_columns_and_no_environment(npz):
    dataset = find_dataset(npz)
    assert dataset.env is None
    assert dataset.name == str(npz.absolute())
    assert {*dataset.read()} == {*columns()}
    assert dataset.rows(SPACES).shape == (5, 7)


def test_a_compressed_file_and_one_in_column_order_are_the_same(npz, tmp_path):
    rows = find_dataset(npz).rows(SPACES)
    np.savez_compressed(tmp_path / "small.npz", **{k: np.asfortranarray(v) for k, v in columns().items()})
    assert (find_dataset(tmp_path / "small.npz").rows(SPACES) == rows).all()


def test_pickled_objects_are_never_loaded(tmp_path):
    np.savez(tmp_path / "data.npz", **{**columns(), "rewards": np.array([{}] * 5, object)}, allow_pickle=True)
    with pytest.raises(DatasetError, match="holds pickled objects, which are never loaded"):
        find_dataset(tmp_path / "data.npz").rows(SPACES)


def test_an_array_that_claims_more_than_it_has_is_refused(tmp_path):
    content = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("rewards.npy", content + header.ljust(117) + b"\n" + bytes(80))
    with pytest.raises(DatasetError, match="another size than its header says"):
        find_dataset(tmp_path / "data.npz").rows(SPACES)


def test_a_file_larger_than_memory_is_refused_before_it_is_read(npz, monkeypatch):
    monkeypatch.setattr(files, "available_memory", lambda: 100)
    with pytest.raises(DatasetError, match=r"holds 0.0 MB, and this machine has 0.0 MB free"):
        find_dataset(npz).rows(SPACES)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("data.npz", b"not a zip", "cannot be read as .npz"),
        ("data.csv", b"1,2", "is no dataset: give a file that ends in .npz, .hdf5 or .h5"),
        ("data.npz", None, "does not exist"),
        ("nowhere", None, "does not exist"),
        ("bad\0name.npz", None, "cannot be read|does not exist"),
    ],
)
def test_what_is_no_dataset_gets_one_sentence(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        find_dataset(tmp_path / name).rows(SPACES)


def test_a_directory_that_is_no_run_gets_the_sentence_of_runs(tmp_path):
    with pytest.raises(UserError, match=r"is not a run: it has no config\.json"):
        find_dataset(tmp_path).rows(SPACES)


def test_a_runs_replay_buffer_has_the_transitions_of_all_its_seeds(tmp_path):
    run = td3.train("Rail-v0", out=tmp_path / "run", **{**SMALL, "steps": 40, "seeds": 2, "device": "cpu"})
    dataset = find_dataset(run.path)
    assert dataset.env == "Rail-v0"
    rows = dataset.rows(TaskSpaces(2, (-1.0,), (1.0,), (2,), (1,)))
    assert rows.shape == (80, 7)
    assert len(np.unique(rows, axis=0)) > 70  # two seeds saw different things


def test_rows_of_parallel_environments_are_put_one_environment_after_another(tmp_path):
    fields = {**SMALL, "steps": 120, "envs": 3, "buffer_size": 90, "device": "cpu"}
    run = td3.train("Rail-v0", out=tmp_path / "run", **fields)
    rows = find_dataset(run.path).rows(SPACES)
    assert len(rows) == 90
    followed = (rows[:-1, 3:5] == rows[1:, :2]).all(1)  # but where an episode or an environment ends
    assert followed.mean() > 0.8


def test_a_run_without_checkpoints_has_no_replay_buffer(tmp_path):
    run = td3.train("Rail-v0", out=tmp_path / "run", **{**SMALL, "steps": 40, "device": "cpu", "save_every": 0})
    with pytest.raises(DatasetError, match="no checkpoint with transitions"):
        find_dataset(run.path).rows(SPACES)


def test_an_hdf5_file_has_the_same_columns(npz, tmp_path):
    h5py = pytest.importorskip("h5py", reason="comes with an extra")
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for name, array in columns().items():
            file[name] = array
        file["infos/qpos"] = np.zeros(3)
    assert (find_dataset(tmp_path / "data.hdf5").rows(SPACES) == find_dataset(npz).rows(SPACES)).all()


def test_an_hdf5_file_never_reads_another_file(tmp_path):
    h5py = pytest.importorskip("h5py", reason="comes with an extra")
    with h5py.File(tmp_path / "secret.hdf5", "w") as file:
        file["rewards"] = np.zeros(5)
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for name, array in columns().items():
            if name != "rewards":
                file[name] = array
        file["rewards"] = h5py.ExternalLink("secret.hdf5", "rewards")
    with pytest.raises(DatasetError, match="has no rewards"):
        find_dataset(tmp_path / "data.hdf5").rows(SPACES)
    (tmp_path / "broken.h5").write_bytes(b"nothing")
    with pytest.raises(DatasetError, match="cannot be read as HDF5"):
        find_dataset(tmp_path / "broken.h5").rows(SPACES)


@pytest.mark.parametrize(("name", "module", "extra"), [("data.hdf5", "h5py", "hdf5"), ("x/y-v0", "minari", "minari")])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, name, module, extra):
    monkeypatch.chdir(tmp_path)
    if "." in name:
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtra, match=rf"needs the extra '{extra}'"):
        find_dataset(name).rows(SPACES)


@pytest.fixture
def minari(tmp_path, monkeypatch):
    pytest.importorskip("h5py", reason="comes with an extra")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return pytest.importorskip("minari", reason="comes with an extra")


@pytest.mark.filterwarnings("ignore")  # Minari's, about metadata that it would like
def test_a_minari_dataset_is_found_by_its_id_and_by_its_directory(minari, tmp_path):
    environment, buffers = gym.make("Rail-v0"), []
    for number in range(2):
        columns, (observation, _) = [[] for _ in range(5)], environment.reset(seed=number)
        columns[0].append(observation)
        while not any(columns[3] + columns[4]):
            action = np.sin([0.3 * len(columns[1]) + number], dtype=np.float32)
            observation, *others, _ = environment.step(action)
            for column, value in zip(columns, (observation, action, *others), strict=True):
                column.append(value)
        buffers.append(minari.data_collector.EpisodeBuffer(number, number, None, *columns))
    minari.create_dataset_from_buffers("rail/random-v0", buffer=buffers, env=environment)
    dataset = find_dataset("rail/random-v0")
    assert dataset.env == "Rail-v0"
    rows = dataset.rows(SPACES)
    assert rows.shape[1] == 7
    assert (rows[:-1, 3:5] == rows[1:, :2]).all(1).sum() == len(rows) - 2  # each is followed by the next, but for ends
    (folder,) = (tmp_path / "datasets").glob("rail/random-v0")
    assert (find_dataset(folder).rows(SPACES) == rows).all()
    with pytest.raises(DatasetError, match="`minari download rail/expert-v0` fetches one"):
        find_dataset("rail/expert-v0").rows(SPACES)


def test_a_minari_dataset_that_is_damaged_gets_one_sentence(minari, tmp_path):
    (tmp_path / "made" / "data").mkdir(parents=True)
    (tmp_path / "made" / "data" / "metadata.json").write_text(json.dumps({"data_format": "hdf5"}))
    with pytest.raises(DatasetError, match="cannot be read as a Minari dataset"):
        find_dataset(tmp_path / "made").rows(SPACES)
