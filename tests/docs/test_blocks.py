"""Every shell and Python block of README and docs is run as it stands, but for the sizes in the tables below.

`td3 ...` is called in this process, as the installed command would call it; everything else goes through bash. The
blocks of a file run in order, in a folder of their own that holds a small run of HalfCheetah-v5.

What is documented must learn: the configuration of every training command, in the sizes of the page and in those of the
tables, has no warning, and every agent that a block trains has been updated.
"""

import ast
import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from td3.cli import main, parse
from td3.cli.search import sweep_runs
from td3.cli.train import train_config
from td3.config import resolve
from td3.errors import ConfigError

ROOT = Path(__file__).parents[2]
FILES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("**/*.md"))]
SHELL, OTHER = ("sh", "bash", "console", "shell"), ("", "json", "toml", "text", "bibtex")

NOT_RUN = {
    r"make (train|test|test-long|lint|docs|steps)": "sets up an environment and calls the tests, this one among them",
    r"(python3 -m venv \.venv && )?\. \.venv/bin/activate": "belongs to setting up",
    r"pip install .*": "installs packages",
    r"ray (start|stop|get-auth-token).*|export RAY_AUTH_MODE=token": "tests/collect starts one of its own",
    r"td3 .* --ray-address 10\.0\.0\.1:6379.*": "needs ten machines; tests/collect has two of its own",
    r"minari download .*|td3 offline D4RL/.*": "downloads; tests/offline reads a dataset that it makes",
    r"(seq 0 9 \| .*|for seed in .*)?td3 reproduce \w+.*": "trains for long; tests/lab/reproduce runs a small row",
    r"td3 export .* --push .*": "uploads; tests/export runs it against a stand-in for the hub",
}
"""What cannot run here (a whole command, as a pattern), and why. All else is run."""
if importlib.util.find_spec("envpool") is None:
    NOT_RUN[r"td3 train pool:half_cheetah .*"] = "needs the extra envpool"
SMALL_NETWORKS = {"--td3.hidden-sizes": "8 8", "--td3.batch-size": "8"}
SIZES = {
    "td3 train": {
        "--steps": "60",
        "--eval-episodes": "1",
        "--eval-every": "0",
        "--device": "cpu",
        "--threads": "1",
        **SMALL_NETWORKS,
    },
    "td3 offline": {
        "--steps": "60",
        "--eval-episodes": "1",
        "--eval-every": "0",
        "--device": "cpu",
        "--threads": "1",
        **SMALL_NETWORKS,
    },
    "td3 resume": {"--steps": "80"},
    "td3 evaluate": {"--episodes": "1"},
    "td3 watch": {"--max-steps": "8"},
    "td3 tune": {"--steps": "60", "--trials": "1", "--eval-episodes": "1", "--device": "cpu", "--threads": "1"},
    "td3 sweep": {"--steps": "60"},
    "td3 ladder": {"--steps": "400"},
    "td3 bench": {"--seconds": "0.05"},
    "td3 reproduce": {"--results": str(ROOT / "results")},
}
"""Options that every such command gets, instead of its own or in addition."""
WARM_UP = "6"
"""Random steps of the 60: the default's share. Only where the page, or a file for --config, has a number of its own."""
FEWER = {
    "td3 train": {"--seeds": "2", "--td3.learning-starts": WARM_UP},
    "td3 offline": {"--seeds": "2"},
    "td3 tune": {"--seeds": "2"},
    "td3 sweep": {"--seeds": "2"},
    "td3 ladder all": {"--seeds": "2"},
    "td3 bench envs": {"--envs": "2"},
    "td3 check": {"--steps": "20"},
}
"""Options that are made smaller where a command has them; `ladder all` has ten seeds by default."""
OWN_PROCESS = ("td3 watch", "td3 check robot:", "td3 train robot:")
"""MuJoCo must be told how to draw before it is imported; a robot's driver has one client at a time."""
PYTHON_SMALL = r'\1, hidden_sizes=(8, 8), batch_size=8, eval_episodes=1, device="cpu"'
PYTHON_SIZES = {
    r"\bsteps=[\d_]+": "steps=60",
    r"\blearning_starts=[\d_]+": f"learning_starts={WARM_UP}",
    r"\bseeds=[\d_]+": "seeds=2",
    r"(td3\.train\((?:\"[\w-]+\"|\w+))": PYTHON_SMALL,
    r"(td3\.train_offline\(\"[^\"]+\"(?:, \"[\w-]+\")?)": PYTHON_SMALL,
    r"\btotal_timesteps=[\d_]+": "total_timesteps=120",
    r"\blearn\([\d_]+": "learn(40",
    r"\bn_eval_episodes=[\d_]+": "n_eval_episodes=1",
}
"""The same for Python: pattern and what stands there instead."""
FROM_PYTHON = {"observation": np.zeros(17), "__name__": "__main__"}
"""Names that a block takes from its reader."""
SAVED = r"# (\w+\.py)\n"
"""First line of a Python block that its reader saves as a file, which the commands after it import."""
OBJECTS = ("progress", "callbacks", "replace_steps")
"""Arguments of td3.train that are no settings."""
QUOTED = "@step("
"""How a Python block begins that quotes the algorithm: not a program, but every line of it must be in the source."""
ANSWERS = {"td3 doctor": (0, 1), "td3 check robot:": (0, 1)}
"""Commands that may exit with another code than 0: something is found in so small a run, and in a robot that fails."""
TRAINING = ("td3 train", "td3 offline", "td3 resume", "td3 sweep")
"""Commands after which there must be an agent that was updated; a study may have its trials already."""
LONG = ("docs/cluster.md", "docs/goals.md", "docs/images.md", "docs/ladder.md", "docs/performance.md", "docs/tune.md")
"""Files whose commands take long; the README has one of each kind."""


class Block(NamedTuple):
    language: str
    line: int
    text: str


def blocks_of(text):
    found = re.finditer(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [Block(each[2], text[: each.start()].count("\n") + 1, each[3]) for each in found]


def commands_of(script):
    """The commands of a shell block: a line each, with what belongs to it (continuations, here-documents)."""
    lines, commands = iter(script.splitlines()), []
    for line in lines:
        command = line.removeprefix("$ ")
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
        if end := re.search(r"<<'?(\w+)'?", command):
            inner = []
            while not inner or inner[-1] != end[1]:
                inner.append(next(lines))
            command = "\n".join([command, *inner])
        else:
            command = without_comment(command)
        if command.strip():
            commands.append(command.strip())
    return commands


def without_comment(line):
    return re.sub(r"(^|\s)#.*", "", line)


def reason_not_to_run(command):
    return next((reason for pattern, reason in NOT_RUN.items() if re.fullmatch(pattern, command)), None)


def smaller(command):
    """The same command with the sizes of the tables."""
    words = shlex.split(command)
    for beginning, options in SIZES.items():
        if command.startswith(beginning):
            for option, value in options.items():
                words = replaced(words, option, value, add=not (beginning == "td3 ladder" and len(words) == 2))
    for beginning, options in FEWER.items():
        if command.startswith(beginning):
            for option, value in options.items():
                from_file = option == "--td3.learning-starts" and "--config" in words
                words = replaced(words, option, value, add=beginning == "td3 ladder all" or from_file)
    return words


def replaced(words, option, value, add):
    if option not in words:
        return [*words, option, *value.split()] if add else words
    at = words.index(option)
    after = at + 1
    while after < len(words) and not words[after].startswith("-"):
        after += 1
    return [*words[: at + 1], *value.split(), *words[after:]]


def require_no_warning(config):
    config.require_updates()
    assert config.warnings() == []


def check_configurations(words):
    """That the runs of a command, in the sizes that it has here, would learn and give no warning."""
    if words[:2] == ["td3", "train"]:
        require_no_warning(train_config(parse(words[1:])))
    elif words[:2] == ["td3", "sweep"]:
        for run in sweep_runs(parse(words[1:])):
            require_no_warning(run.config)


def agents_in(folder):
    """Every agent at the end of its training, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("**/seed_*/last/agent.json")}


@contextlib.contextmanager
def updating(folder, required):
    """Every agent that is trained meanwhile must have been updated; with `required`, there must be one."""
    before = agents_in(folder)
    yield
    trained = [path for path, moment in agents_in(folder).items() if before.get(path) != moment]
    assert trained or not required, "no agent was trained"
    for path in trained:
        assert json.loads(path.read_text())["updates"] >= 1, f"{path} was never updated"


def run_command(command, folder):
    words = smaller(command) if command.startswith("td3 ") else None
    if words:
        check_configurations(shlex.split(command))
        check_configurations(words)
    allowed = next((codes for beginning, codes in ANSWERS.items() if command.startswith(beginning)), (0,))
    with updating(folder, required=command.startswith(TRAINING)):
        if words and not command.startswith(OWN_PROCESS):
            assert main(words[1:]) in allowed, f"{shlex.join(words)} failed"
            return
        if words:
            command = shlex.join([sys.executable, "-m", *words])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in allowed, f"{command} failed:\n{done.stdout}{done.stderr}"


def run_python(text, name):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "td3.train":
            fields = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg not in OBJECTS}
            require_no_warning(resolve("any", **fields))
    if file := re.match(SAVED, text):
        Path(file[1]).write_text(text)
    for pattern, instead in PYTHON_SIZES.items():
        text = re.sub(pattern, instead, text)
    with updating(Path.cwd(), required="td3.train(" in text):
        exec(compile(text, name, "exec"), dict(FROM_PYTHON))


def check_quoted(text):
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "td3" / "algorithm").glob("*.py"))
    for line in text.splitlines():
        assert line in source, f"{line!r} is not in src/td3/algorithm any more"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a small run of HalfCheetah-v5, made as the README says, and the files that a page has copied."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples" / "socket_robot", folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(smaller("td3 train HalfCheetah-v5")[1:]) == 0
    return folder


@pytest.mark.parametrize("file", [pytest.param(file, marks=[pytest.mark.long] * (file in LONG)) for file in FILES])
def test_every_block_runs(file, prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    folder = shutil.copytree(prepared, tmp_path / "reader", symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)  # as for a script in this folder
    for block in blocks_of((ROOT / file).read_text()):
        if block.text.startswith(QUOTED):
            check_quoted(block.text)
        elif block.language == "python":
            run_python(block.text, f"{file}:{block.line}")
        elif block.language in SHELL:
            for command in commands_of(block.text):
                if reason_not_to_run(command) is None:
                    run_command(command, folder)


@pytest.mark.parametrize("file", FILES)
def test_a_block_says_what_it_is(file):
    for block in blocks_of((ROOT / file).read_text()):
        assert block.language in (*SHELL, "python", *OTHER), f"{file}:{block.line}"
        if block.language in OTHER:
            hidden = re.search(r"^\s*\$? ?(td3|make|pip|python3?) ", block.text, re.MULTILINE)
            assert not hidden, f"{file}:{block.line} has commands, and is not marked as a shell block"


def test_every_reason_not_to_run_is_still_needed():
    commands = [
        command
        for file in FILES
        for block in blocks_of((ROOT / file).read_text())
        if block.language in SHELL
        for command in commands_of(block.text)
    ]
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command) for command in commands), pattern


def test_a_command_that_fails_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="failed"):
        run_command("td3 evaluate nowhere", tmp_path)
    with pytest.raises(AssertionError, match="failed"):
        run_command("cat nowhere | cat; false", tmp_path)
    with pytest.raises(NameError):
        run_python("nobody", "here")
    with pytest.raises(AssertionError, match="is not in src/td3/algorithm any more"):
        check_quoted('@step(1, "Something else")\n')


def test_a_command_that_cannot_learn_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no update would happen"):
        run_command("td3 train Rail-v0 --steps 20000 --td3.learning-starts 25000", tmp_path)
    with pytest.raises(ConfigError, match="no update would happen"):
        run_python("import td3\ntd3.train('Rail-v0', steps=20_000, learning_starts=25_000)", "here")
    with pytest.raises(AssertionError, match="exploration_noise is 0"):
        run_command("td3 train Rail-v0 --td3.exploration-noise 0", tmp_path)
    agent = tmp_path / "run" / "seed_0" / "last" / "agent.json"
    agent.parent.mkdir(parents=True)
    with pytest.raises(AssertionError, match="was never updated"), updating(tmp_path, required=True):
        agent.write_text('{"updates": 0}')
    with pytest.raises(AssertionError, match="no agent was trained"), updating(tmp_path, required=True):
        pass


def test_only_a_warm_up_of_its_own_is_made_shorter():
    assert "--td3.learning-starts" not in smaller("td3 train X-v0 --steps 1000")
    for command in ("td3 train X-v0 --td3.learning-starts 1000", "td3 train --config mine.toml"):
        words = smaller(command)
        assert words[words.index("--td3.learning-starts") + 1] == WARM_UP


def test_commands_are_taken_apart_as_a_shell_would():
    script = "td3 a  # not this\n\n$ td3 b \\\n  --c\ncat > x <<'END'\n# kept\nEND\n"
    assert commands_of(script) == ["td3 a", "td3 b --c", "cat > x <<'END'\n# kept\nEND"]
    assert smaller("td3 train X-v0 --steps 1000 --seeds 10")[:7] == [
        "td3",
        "train",
        "X-v0",
        "--steps",
        "60",
        "--seeds",
        "2",
    ]
    assert "--seeds" not in smaller("td3 train X-v0")


def test_the_readme_is_short():
    text = re.sub(r"```.*?```|<[^>]+>", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len([word for line in text.splitlines() if not line.startswith("|") for word in line.split()]) <= 750
