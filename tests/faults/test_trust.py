"""Whose code is executed: of an untrusted run or folder none, until a person names it or says --trust."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import td3
from faults.test_resume import stopped
from td3.cli import main
from td3.errors import RunError

MARK = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\n"
"""A module that leaves a file beside it when it is imported."""
TASK = f"""{MARK}
from td3.environments.rail import Rail

class Task(Rail):
    def step(self, action):
        return *super().step(action)[:2], True, False, {{}}
"""
REGISTERED = TASK + "import gymnasium\ngymnasium.register('Task-v0', entry_point=Task, max_episode_steps=50)\n"
COMMANDS = {
    "resume": ["resume", "RUN", "--steps", "650"],
    "evaluate": ["evaluate", "RUN", "--episodes", "1"],
    "watch": ["watch", "RUN", "--max-steps", "2"],
    "explain": ["explain", "--run", "RUN", "--no-open", "--out", "page.html"],
    "export": ["export", "RUN", "--sb3"],
    "train again": ["train", "--config", "RUN/config.json", "--steps", "30", "--td3.learning-starts", "3"],
}
SMALLER = {"steps": 600, "save_every": 300, "eval_every": 0}


def rename_environment(run: Path, name: str) -> None:
    values = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**values, "env": name}))


@pytest.fixture(scope="module")
def rail_run(tmp_path_factory):
    return stopped(tmp_path_factory.mktemp("trust") / "run", 310, **SMALLER)


@pytest.fixture
def run(rail_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    return Path(shutil.copytree(rail_run, "run"))


@pytest.mark.parametrize("name", ["evil_task:Task", "evil_task:Task-v0", "given:Task-v0"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_that_a_run_names_is_not_imported(run, capsys, command, name):
    module = name.partition(":")[0]
    Path(f"{module}.py").write_text(REGISTERED)
    rename_environment(run, name)
    words = [word.replace("RUN", "run") for word in COMMANDS[command]]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    named = Path("run").resolve() if words[0] == "resume" else "run"  # a resumed run is known by its whole path
    typed = f"td3 {words[0]} {'--run ' * (words[0] == 'explain')}{'--config ' * (words[0] == 'train')}{named}"
    if module == "given":  # the name of what a run was given from Python
        assert "Task-v0 was given from Python, with more than its name, and no command can make it again" in said
    else:
        assert f"executes the code of the module {module}: if you trust it, say so with  {typed}" in said
        assert "--trust" in said
    assert module not in sys.modules
    assert not Path("executed").exists()


def test_a_class_of_a_script_gets_a_sentence_that_says_where_to_put_it(run, capsys):
    rename_environment(run, "__main__:Task")
    assert main(["evaluate", "run"]) == 2
    assert "move the class to a file of its own, such as task.py, and train task:Task" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["own_task:Task", "own_task:Task-v0"])
def test_a_trusted_module_is_imported_from_the_current_folder(tmp_path, monkeypatch, name):
    """Of the first name in processes of its own, of the second, which differs in its lookup alone, in this one."""
    (tmp_path / "own_task.py").write_text(REGISTERED)
    small = "--steps 60 --eval-episodes 1 --device cpu --threads 1 --td3.hidden-sizes 8 --td3.batch-size 8 --out run"

    def entered(*words: str) -> int:
        if name == "own_task:Task":
            return typed(tmp_path, *words)[0]
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "path", [folder for folder in sys.path if folder])
            try:
                return main(words)
            finally:
                sys.modules.pop("own_task", None)
                gym.registry.pop("Task-v0", None)

    # The command line names it: that is enough.
    assert entered("train", name, *small.split()) == 0
    (tmp_path / "executed").unlink()
    assert entered("evaluate", "run", "--episodes", "1") == 2
    assert not (tmp_path / "executed").exists()
    assert entered("evaluate", "run", "--episodes", "1", "--trust") == 0
    assert (tmp_path / "executed").exists()


def typed(folder: Path, *words: str, module: bool = True) -> tuple[int, str]:
    start = [sys.executable, "-m", "td3"] if module else [str(Path(sys.executable).with_name("td3"))]
    done = subprocess.run([*start, *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


SHADOWED = ("typing", "json", "tyro", "numpy", "msvcrt", "org", "torch", "gymnasium", "sitecustomize2")
"""Modules that commands import, or try to: found in the current folder, they would be executed."""


@pytest.mark.parametrize("module", [True, False], ids=["python -m td3", "td3"])
@pytest.mark.parametrize("words", [["doctor", "."], ["report", "."], ["--help"]], ids=" ".join)
def test_files_of_the_current_folder_are_not_executed(rail_run, tmp_path, module, words):
    folder = shutil.copytree(rail_run, tmp_path / "run")
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(MARK)
    code, said = typed(folder, *words, module=module)
    assert code in (0, 1), said
    assert not (folder / "executed").exists()


def test_an_environment_with_a_plain_name_brings_nothing_in_from_the_current_folder(run):
    for name in ("msvcrt", "org"):
        Path(f"{name}.py").write_text(MARK)
    before = list(sys.path)
    assert main(["evaluate", "run", "--episodes", "1", "--which", "best"]) == 0
    assert sys.path == before
    assert not Path("executed").exists()


def test_resume_in_python_takes_the_class_or_trust(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("python_task.py").write_text(TASK)
    monkeypatch.syspath_prepend(str(tmp_path))
    import python_task

    few = {"hidden_sizes": (8,), "batch_size": 8, "eval_episodes": 1, "eval_every": 0, "threads": 1, "device": "cpu"}
    path = td3.train(python_task.Task, steps=60, out=tmp_path / "run", **few).path
    with pytest.raises(RunError, match=r"--trust  \(in Python: env=\.\.\. or trust=True\)\.$"):
        td3.resume(path, steps=80)
    with pytest.raises(RunError, match=r"is a run of python_task:Task, and Rail-v0 was given"):
        td3.resume(path, steps=80, env="Rail-v0")
    assert td3.resume(path, steps=80, env=python_task.Task).config.steps == 80
    assert td3.resume(path, steps=90, trust=True).config.steps == 90
    assert td3.resume(path, steps=100, env="python_task:Task").config.steps == 100


def test_the_steps_that_a_file_of_settings_names_are_executed_with_trust_or_where_they_are_typed(run, capsys):
    Path("mine.py").write_text(
        f"{MARK}import td3\n\n@td3.replace_step(9)\ndef mine(bellman_target):\n    return bellman_target\n"
    )
    values = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**values, "replace_steps": ["mine.py:mine"]}))
    words = [*COMMANDS["train again"], "--out", "again"]
    words[2] = "run/config.json"
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "run/config.json replaces steps by mine.py:mine, and this command executes that code: read it and" in said
    assert "say so with  td3 train --config run/config.json --trust" in said
    assert main([*words, "--replace-steps", "mine.py:other"]) == 2  # typed: it is executed
    assert "mine.py has no" in capsys.readouterr().err
    Path("executed").unlink()
    main([*words, "--trust"])
    assert Path("executed").exists()


def test_a_checkpoint_cannot_name_another_environment_than_the_run(run, capsys):
    """The manifest is sealed by a checksum that anybody can compute."""
    from td3.run.checkpoints import Checkpoints, _sealed, _unsealed

    checkpoint, _ = Checkpoints(run).newest()
    manifest = run / "checkpoints" / f"{checkpoint.env_steps:012}" / "manifest.json"
    body = _unsealed(manifest)
    body["facts"]["config"]["env"] = "evil_task:Task"
    manifest.write_bytes(_sealed(body))
    Path("evil_task.py").write_text(REGISTERED)
    for older in (run / "checkpoints").glob("0*"):
        if older.name != manifest.parent.name:
            shutil.rmtree(older)
    assert main(["resume", "run"]) == 2
    assert "it was written with another env than config.json has" in capsys.readouterr().err
    assert "evil_task" not in sys.modules


def test_python_m_leaves_other_folders_alone(tmp_path):
    code = "import sys, runpy; sys.argv = ['-m']; import td3; print(sys.path[0] == '')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n", "only the folder that `python -m` itself puts there is taken away"
    assert os.environ.get("PYTHONSAFEPATH") is None
