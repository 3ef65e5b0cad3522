import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from faults.operations import FAILURES, Crash, watched
from safetensors.numpy import load_file, save
from scripted import HIGH, LOW

import td3
from td3.algorithm.agent import Agent, Task
from td3.environments import TaskSpaces
from td3.errors import AgentFileError
from td3.run import agent_file
from td3.run.agent_file import load_agent, save_agent
from td3.settings import TD3Config

SPACES = TaskSpaces(3, LOW, HIGH, (3,), (2,))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A saved agent."""
    save_agent(tmp_path / "agent", new_agent(), 1, SPACES, {"env": "Scripted-v0", "seed": 1})
    return tmp_path / "agent"


def new_agent() -> Agent:
    return Agent.create(
        Task(3, LOW, HIGH), TD3Config(hidden_sizes=(8, 6), actor_learning_rate=1e-3, critic_learning_rate=1e-3), [0, 1]
    )


def rewrite(folder: Path, facts=None, tensors=None) -> None:
    """Change an agent's files as someone would who also mends the checksum."""
    described = json.loads((folder / "agent.json").read_text())
    if tensors is not None:
        raw = save({**load_file(folder / "agent.safetensors"), **tensors})
        (folder / "agent.safetensors").write_bytes(raw)
        described["sha256"] = hashlib.sha256(raw).hexdigest()
    described.update(facts or {})
    (folder / "agent.json").write_text(json.dumps(described))


def test_a_saved_member_acts_as_it_did(folder):
    states = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    expected = new_agent().actor(states.expand(2, 9, 3))[1].detach().numpy()
    np.testing.assert_allclose(load_agent(folder).act(states.numpy()), expected, atol=1e-6)


def test_all_six_networks_are_saved_in_the_layout_of_linear_layers(folder):
    shapes = {name: array.shape for name, array in load_file(folder / "agent.safetensors").items()}
    expected = {}
    for network in ("actor", "actor_target", "critic_1", "critic_2", "critic_target_1", "critic_target_2"):
        inputs, outputs = (3, 2) if network.startswith("actor") else (5, 1)
        for depth, size in enumerate([(8, inputs), (6, 8), (outputs, 6)]):
            expected[f"{network}.{depth}.weight"] = size
            expected[f"{network}.{depth}.bias"] = size[:1]
    assert shapes == expected


def test_the_facts_say_what_is_needed_to_act(folder):
    facts = load_agent(folder).facts
    assert (facts["format"], facts["version"], facts["env"], facts["seed"]) == ("td3-agent", 1, "Scripted-v0", 1)
    assert facts["action_low"] == list(LOW)
    assert facts["action_high"] == list(HIGH)


def test_saving_again_replaces_the_agent_and_leaves_no_other_file(folder):
    agent = new_agent()
    with torch.no_grad():
        agent.actor.parameters.mul_(2)
    save_agent(folder, agent, 1, SPACES, {"env": "Scripted-v0"})
    assert sorted(path.name for path in folder.iterdir()) == ["agent.json", "agent.safetensors"]
    expected = agent.actor(torch.ones(2, 1, 3))[1, 0].detach().numpy()
    np.testing.assert_allclose(load_agent(folder).act([1, 1, 1]), expected, atol=1e-6)


def test_a_kill_at_any_file_operation_of_a_save_leaves_the_old_or_the_new_agent(folder, tmp_path):
    old, new = load_agent(folder).facts, new_agent()
    with torch.no_grad():
        new.actor.parameters.mul_(2)

    def save_anew(where: Path) -> None:
        save_agent(where, new, 1, SPACES, {"env": "Scripted-v0", "seed": 1, "env_steps": 7})

    shutil.copytree(folder, tmp_path / "counted")
    with watched() as operations:
        save_anew(tmp_path / "counted")
    found = {"old": 0, "new": 0}
    for failure in (*FAILURES, "crash"):
        for number in range(len(operations)):
            shutil.rmtree(tmp_path / "cut", ignore_errors=True)
            shutil.copytree(folder, tmp_path / "cut")
            with contextlib.suppress(OSError, Crash), watched(number, failure):
                save_anew(tmp_path / "cut")
            facts = load_agent(tmp_path / "cut").facts
            assert facts == old or facts["env_steps"] == 7, (failure, number, operations[number])
            assert "replaces" not in facts
            found["old" if facts == old else "new"] += 1
            save_anew(tmp_path / "cut")  # which finds whichever of the two is there
            assert load_agent(tmp_path / "cut").facts["env_steps"] == 7
    assert min(found.values()) > 20, found


def test_an_agent_that_is_replaced_while_it_is_read_is_read_anew(folder, monkeypatch):
    """Between its two files: the description of the old one, the tensors of the new one."""
    new, real, reads = new_agent(), agent_file.read_regular_file, []
    with torch.no_grad():
        new.actor.parameters.mul_(2)

    def late(path: Path, most: int) -> bytes:
        reads.append(path)
        if len(reads) == 1:
            save_agent(folder, new, 1, SPACES, {"env_steps": 7})
        return real(path, most)

    monkeypatch.setattr(agent_file, "read_regular_file", late)
    assert load_agent(folder).facts["env_steps"] == 7


@pytest.mark.parametrize(
    "facts",
    [
        *({name: value} for name in ("env_steps", "updates", "seed") for value in (-1, "7", 1.5, None, 1 << 70, [7])),
        *({"versions": value} for value in (None, [], "torch", {"torch": 1})),
    ],
    ids=repr,
)
def test_facts_of_a_wrong_kind_are_refused(folder, facts):
    rewrite(folder, facts)
    with pytest.raises(AgentFileError, match="does not hold a usable agent"):
        load_agent(folder)


@pytest.mark.parametrize("name", ["agent.json", "agent.safetensors"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(AgentFileError, match=re.escape(name)):
        load_agent(folder)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("name", ["agent.json", "agent.safetensors"])
def test_a_truncated_file_is_refused(folder, name, share):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(AgentFileError):
        load_agent(folder)


def test_every_flipped_bit_of_the_weights_is_noticed(folder):
    path = folder / "agent.safetensors"
    content = path.read_bytes()
    for position in np.random.default_rng(0).integers(0, 8 * len(content), 200):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(AgentFileError, match="is damaged"):
            load_agent(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "was not written by td3"),
        ("null", "was not written by td3"),
        ('{"algo": "td3", "policy": "MlpPolicy"}', "was not written by td3"),
        ('{"format": "td3-agent", "version": 99}', "has version 99 of the format"),
        ('{"format": "td3-agent", "version": 1}', "is damaged"),
        ('"' + "a" * (2 << 20) + '"', "at most 1048576 make sense"),
    ],
    ids=["half", "empty", "deep", "list", "null", "another tool", "newer", "bare", "huge"],
)
def test_a_foreign_description_is_refused(folder, content, said):
    (folder / "agent.json").write_text(content)
    with pytest.raises(AgentFileError, match=said):
        load_agent(folder)


@pytest.mark.parametrize(
    "facts",
    [
        {"action_low": [-1.0]},
        {"action_low": None},
        {"action_low": ["a", "b"]},
        {"action_high": [float("nan"), 1.0]},
        {"action_high": [1e300, 1.0]},
        {"observation_shape": [4]},
        {"observation_shape": 3},
        {"observation_shape": [3, -1]},
        {"observation_shape": [10**15]},
        {"observation_shape": [3.0]},
        {"action_shape": [3]},
        {"action_shape": [[2]]},
    ],
)
def test_facts_that_do_not_fit_the_networks_are_refused(folder, facts):
    rewrite(folder, facts)
    with pytest.raises(AgentFileError, match="does not hold a usable agent"):
        load_agent(folder)


@pytest.mark.parametrize(
    "tensors",
    [
        {"actor.1.weight": np.full((6, 8), np.nan, np.float32)},
        {"actor.1.weight": np.zeros((6, 7), np.float32)},
        {"actor.1.bias": np.zeros((6, 6), np.float32)},
        {"actor.1.bias": np.zeros((), np.float32)},
        {"actor.0.weight": np.zeros((8, 4), np.float32)},
        {"actor.2.weight": np.zeros((2, 2, 6), np.float32)},
        {"actor.3.weight": np.zeros((2, 2), np.float32)},
        {"actor.2.bias": np.full(2, np.inf, np.float32)},
    ],
)
def test_networks_that_do_not_fit_are_refused(folder, tensors):
    rewrite(folder, tensors=tensors)
    with pytest.raises(AgentFileError, match="does not hold a usable agent"):
        load_agent(folder)


def test_a_file_of_another_library_under_our_name_is_refused(folder):
    torch.save({"weight": torch.zeros(3)}, folder / "agent.safetensors")
    raw = (folder / "agent.safetensors").read_bytes()
    rewrite(folder, {"sha256": hashlib.sha256(raw).hexdigest()})
    with pytest.raises(AgentFileError, match="does not hold a usable agent"):
        load_agent(folder)


def test_loading_and_acting_needs_no_torch(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "run")
    script = (
        "import sys, td3\n"
        f"agent = td3.load({str(tmp_path / 'run')!r}, which='last')\n"
        "assert agent.act([1.0, 2.0, 3.0]).shape == (2,)\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_loading_executes_nothing(trained, tmp_path):
    # numpy compiles the header of an array, but only to read it as a literal: nothing is executed.
    script = (
        "import sys, td3, td3.run.directory\n"
        f"td3.load({str(trained.path)!r}, which='last')\n"  # once, so that everything is imported
        "seen = []\n"
        "watched = ('exec', 'import', 'pickle.find_class', 'subprocess.Popen', 'os.system', 'socket.connect')\n"
        "sys.addaudithook(lambda event, arguments: seen.append((event, arguments)) if event in watched else None)\n"
        f"td3.load({str(trained.path)!r}, which='last')\n"
        "print(seen)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    "word", ["import pickle", "torch.load", "torch.save", "eval(", "exec(", "allow_pickle=True", "yaml"]
)
def test_the_source_has_no_loader_that_executes(word):
    for path in Path(td3.__file__).parent.rglob("*.py"):
        if path.parent.name == "sb3" and word in ("import pickle", "torch.load"):
            continue  # Stable-Baselines3's own format: tests/sb3 shows that nothing in a file is executed
        text = re.sub(r"[.\w]eval\(", "", path.read_text())
        assert word not in text, f"{word} in {path}"


def test_files_of_stable_baselines3_are_read_as_data_unless_they_are_trusted():
    source = "".join(path.read_text() for path in (Path(td3.__file__).parent / "sb3").glob("*.py"))
    assert re.findall(r"torch\.load\((?![^\n]*weights_only=True)", source) == []
    assert re.findall(r"(?<!un)pickle\.loads?\(", source) == []
