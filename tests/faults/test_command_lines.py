"""Command lines that cannot work end with exit code 2 and one sentence, whatever was typed; none trains here."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from td3.cli import main
from td3.errors import ConfigError

BASES = [
    "train Rail-v0 --steps 60 --seeds 2 --td3.learning-starts 6 --td3.hidden-sizes 8 8 --device cpu --out OUT",
    "train Scripted-v0 --preset paper --envs 2 --eval-every 20 --eval-episodes 1 --threads 1 --save-every 0",
    "train Rail-v0 --config FILE --td3.tau 0.5 --env-kwargs reward_noise=0.5 --workers none --seed 3",
    "train Rail-v0 --pixels --frames 2 --image-size 48 --action-repeat 2 --td3.gamma 0.9 --td3.batch-size 16",
    "resume RUN --steps 80",
    "evaluate RUN --episodes 1 --which last",
    "watch RUN --max-steps 3 --seed 0",
    "report RUN --margin 0.1 --out page.html",
    "doctor RUN --json",
    "export RUN --seed 1 --which best",
    "export RUN --push anna/td3 --private",
    "tune Rail-v0 --steps 1000 --trials 2 --fields gamma tau --out OUT",
    "sweep Rail-v0 Scripted-v0 --seeds 2 --set td3.tau=0.005,0.5 --steps 100 --out OUT",
    "ladder 3 --steps 10 --seed 1 --reward-noise 0.5",
    "explain --out page.html --no-open --seed 0",
    "bench update --threads 1 --width 8 --seconds 0.1",
    "bench scaling --sweeps batch width --threads 1 --seconds 0.1",
    "bench loop Rail-v0 --members 1 --envs 1 --seconds 0.1",
]
VALUES = [
    *("0", "-1", "1.5", "nan", "inf", "-inf", "1e26", "9" * 20, "9" * 5000, "1" + "0" * 308, "1e308", "0x10", "١٢", ""),
    *("none", "True", "[]", "{}", '{"a": 1}', "[" * 5000, '{"a":' * 3000, "a=b=c", "=", "==", "--", "-", "---x"),
    *("/", ".", "..", "/dev/null", "/proc/run", "a" * 6000, "x/" * 3000, "\udcff\udcfe", "pfad-äöü", "$(id)", "a b"),
    *("nowhere:Nothing", "nowhere:Env-v0", ":", "a:", ":b", "os:path", "json:JSONDecoder", "CartPole-v1", "-h2"),
]
"""What is put in the place of a word: numbers out of every range, paths of every kind, and things of another type."""


def mangled(base: str, generator: random.Random) -> list[str]:
    """The words with one to three of them dropped, doubled, swapped, spelled wrong, or replaced."""
    words = base.split()
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(1, len(words)) if len(words) > 1 else 0
        kind = generator.choice(("drop", "double", "swap", "misspell", "replace", "replace", "replace"))
        if kind == "drop" and len(words) > 1:
            del words[at]
        elif kind == "double":
            words.insert(at, words[at])
        elif kind == "swap":
            other = generator.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        elif kind == "misspell" and words[at]:
            place = generator.randrange(len(words[at]))
            words[at] = words[at][:place] + generator.choice("x-=.é9") + words[at][place + 1 :]
        else:
            words[at] = generator.choice(VALUES)
    return words


GENERATOR = random.Random(21)
CORPUS = [mangled(base, GENERATOR) for _ in range(9) for base in BASES]
"""162 command lines, the same at every call."""


@pytest.fixture
def here(tmp_path, monkeypatch, trained):
    """An empty current folder with a run and a file; what would train, measure or draw is refused instead."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.path, "RUN")
    Path("FILE").write_text(json.dumps({"env": "Rail-v0", "steps": 100}))
    would = "it would have begun"

    def begin(*arguments, **options):
        raise ConfigError(would)

    monkeypatch.setattr("td3.training.api._trainer", begin)
    for module, name in {
        "td3.tune.search": "_opened",
        "td3.sweep": "run_sweep",
        "td3_lessons.ladder.report": "climb_one",
        "td3_lab.bench": "run",
        "td3_lessons.explain": "explain",
        "td3.export": "export_run",
        "td3.report.video": "record_run",
    }.items():
        monkeypatch.setattr(f"{module}.{name}", begin)
    monkeypatch.setattr("td3_lessons.ladder.report.climb_all", begin)
    return would


@pytest.mark.parametrize("words", CORPUS, ids=lambda words: " ".join(words)[:60].encode("ascii", "replace").decode())
def test_a_mangled_command_line_gives_one_sentence_and_no_traceback(here, capsys, words):
    code = main(words)
    said = capsys.readouterr().err
    assert code in (0, 1, 2)
    if code == 2:
        assert said.startswith("td3: ")
        assert said.count("\n") == 1, said


WORDS = {
    "a root folder": (["--out", "/"], "/ is no folder for a run: give a folder of its own as --out."),
    "a long path": (["--out", "a" * 6000], "(File name too long): give another --out."),
    "deep arguments": (["--env-kwargs", '{"a":' * 100 + "1" + "}" * 100], "--env-kwargs must be plain, finite values"),
    "deeper arguments": (["--env-kwargs", '{"a":' * 9000], "nested too deeply"),
    "wide networks": (
        ["--td3.hidden-sizes", "100000", "100000"],
        "the networks need about 601.3 GB for 1 seed with hidden sizes 100000 100000 and batches of 256, and this",
    ),
    "many seeds": (["--seeds", "10000", "--eval-episodes", "1"], "10,000 seeds"),
    "many episodes": (
        ["--eval-episodes", "1000000"],
        "need 1,000,000 environments, and at most 10,000 are made: lower",
    ),
    "many environments": (
        ["--envs", "1000000"],
        "need 1,000,000 environments, and at most 10,000 are made: lower --envs",
    ),
    "large batches": (["--td3.batch-size", "1000000"], "the networks need about "),
    "many threads": (["--threads", "9" * 20], "threads must be at most 9,223,372,036,854,775,807, but"),
    "a large rate": (
        ["--td3.actor-learning-rate", "1e308"],
        "--td3.actor-learning-rate must be above 0 and at most 100",
    ),
    "a large number of updates": (["--td3.utd-ratio", "1e308"], "--td3.utd-ratio must be above 0 and at most 1,000"),
    "a long delay": (
        ["--td3.policy-delay", "9" * 30],
        "--td3.policy-delay must be at most 9,223,372,036,854,775,807, but",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_what_cannot_be_trained_is_refused_before_anything_is_allocated(here, capsys, monkeypatch, case):
    words, sentence = WORDS[case]
    monkeypatch.setattr("td3.resources.available_memory", lambda: 8_000_000_000)
    assert main(["train", "Rail-v0", "--device", "cpu", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["env", "preset"])
def test_a_list_in_a_file_is_refused(here, capsys, name):
    Path("FILE").write_text(json.dumps({"env": "Rail-v0", name: ["Rail-v0"]}))
    assert main(["train", "--config", "FILE"]) == 2
    assert f"{name} must be a name, but ['Rail-v0'] was given." in capsys.readouterr().err


@pytest.mark.parametrize("command", [["bench", "scaling"], ["bench", "update"]], ids=" ".join)
def test_more_threads_than_there_can_be_are_refused(here, capsys, command):
    assert main([*command, "--threads", "9" * 20]) == 2
    assert "threads must be a whole number from 0 to 10,000, but 99999999999999999999" in capsys.readouterr().err


def test_more_episodes_than_environments_can_be_made_are_refused(here, capsys):
    assert main(["evaluate", "RUN", "--episodes", "1000000"]) == 2
    assert "at most 10,000 are made: give fewer --episodes." in capsys.readouterr().err


SMALL = "--steps 30 --eval-episodes 1 --eval-every 0 --device cpu --threads 1 --td3.hidden-sizes 4 --td3.batch-size 4"


def typed(folder: Path, *words: str | bytes, stdout=subprocess.PIPE, **environment: str):
    command = [sys.executable, "-m", "td3", *words]
    return subprocess.run(
        command, cwd=folder, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | environment, check=False
    )


def test_every_path_can_be_trained_in_and_printed(tmp_path):
    name = "pfad-äöü/".encode() + b"caf\xe9"  # not ASCII, and in it one that is not UTF-8
    done = typed(tmp_path, "train", "Rail-v0", *SMALL.split(), b"--out", name, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"The run is in    " in done.stdout
    folder = tmp_path / os.fsdecode(name)
    assert {"config.json", "report.html", "seed_0"} <= {path.name for path in folder.iterdir()}
    done = typed(tmp_path, "doctor", name, PYTHONIOENCODING="ascii")
    assert (done.returncode in (0, 1), done.stderr) == (True, b"")


def test_output_on_a_full_disk_is_named_and_the_run_is_trained(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = typed(tmp_path, "train", "Rail-v0", *SMALL.split(), "--out", "run", stdout=full)
        assert done.stderr == b"td3: the output cannot be written (No space left on device); training goes on.\n"
        assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "finished"
        done = typed(tmp_path, "envs", stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith(b"td3: ")
    assert done.stderr.endswith(b"written (No space left on device).\n")
    assert done.stderr.count(b"\n") == 1


def test_a_second_ctrl_c_at_the_very_end_prints_nothing():
    code = "import os, sys; from td3.cli import main; sys.argv = ['td3', '--version']; main(); os.kill(os.getpid(), 2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_calling_main_from_python_leaves_ctrl_c_alone(capsys):
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
