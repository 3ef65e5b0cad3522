"""A fault in the user's own code shows the user's file, line and source, and the exception is the error's cause."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from scripted import SMALL, SMALL_OPTIONS

import td3
from faults import user_module
from td3.cli import main
from td3.errors import CallbackError, ConfigError, EnvironmentFault

FILE = str(Path(user_module.__file__))
FIELDS = {**SMALL, "steps": 60, "engine": "eager", "env_kwargs": {"max_episode_steps": 50}}
SOURCE = 'return self.sensors["angle"] if self.age >= self.failing_at else 1.0'
NAME = "faults.user_module"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}


def lines_below(error: BaseException) -> list[str]:
    """What stands below the sentence."""
    return "\n".join(error.__notes__).splitlines()


def line_of(source: str) -> int:
    (number,) = (n for n, line in enumerate(Path(FILE).read_text().splitlines(), 1) if line.strip() == source)
    return number


def assert_shows(shown: str, method: str, source: str, exception: str) -> None:
    """One frame of the user's with its source line, and the exception in the last line."""
    assert f'  File "{FILE}", line {line_of(source)}, in {method}\n    {source}\n' in shown
    assert shown.splitlines()[-1] == exception


@pytest.mark.parametrize("workers", ["none", "threads", "processes"])
def test_an_environments_fault_shows_the_users_frames_and_has_the_exception_as_its_cause(tmp_path, workers):
    with pytest.raises(EnvironmentFault) as caught:
        td3.train(user_module.Arm, out=tmp_path / "run", workers=workers, **{**FIELDS, "envs": 2})
    place = f"KeyError: 'angle' (user_module.py, line {line_of(SOURCE)})"
    assert str(caught.value).startswith(f"an environment failed in step(): {place}, in an evaluation.")
    assert_shows("\n".join(lines_below(caught.value)), "read", SOURCE, "KeyError: 'angle'")
    assert "in step" in lines_below(caught.value)[0]
    assert "td3/environments" not in "".join(lines_below(caught.value))
    if workers == "processes":
        assert f'File "{FILE}", line {line_of(SOURCE)}, in read' in str(caught.value.__cause__)
    else:
        assert isinstance(caught.value.__cause__, KeyError)
        assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].filename == FILE


@pytest.mark.parametrize("command", ["check", "train"])
def test_a_command_prints_them_below_its_sentence_and_with_traceback_all_frames_above_it(tmp_path, capsys, command):
    words = [
        command,
        f"{NAME}:AtOnce",
        *(["--out", str(tmp_path / "run"), *SMALL_OPTIONS] if command == "train" else []),
    ]
    assert main(words) == 2
    error = capsys.readouterr().err.rstrip()
    assert error.startswith(f"td3: {NAME}:AtOnce.step() failed with KeyError: 'angle' (user_module.py, line ")
    assert_shows(error, "read", SOURCE, "KeyError: 'angle'")
    assert main([*words, "--traceback"]) == 2
    whole = capsys.readouterr().err.rstrip()
    assert whole.startswith("Traceback (most recent call last):")
    assert "td3/cli/main.py" in whole
    assert whole.endswith(error)


def test_a_file_that_cannot_be_imported_shows_its_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "misspelled.py").write_text("import gymnasium\n\nlimit = undefined_name + 1\n")
    (tmp_path / "unfinished.py").write_text("class Arm(\n    x = = 1\n")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "misspelled:Arm"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "td3: misspelled:Arm cannot be made: NameError: name 'undefined_name' is not defined (missp"
    )
    assert f'File "{tmp_path}/misspelled.py", line 3, in <module>\n    limit = undefined_name + 1\n' in error
    assert main(["check", "unfinished:Arm"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "td3: unfinished:Arm cannot be made: SyntaxError: '(' was never closed (unfinished.py, line 1)\n"
    )
    assert f'File "{tmp_path}/unfinished.py", line 1, in <module>\n    class Arm(\n' in error


def test_a_callbacks_fault_shows_them(tmp_path):
    with pytest.raises(CallbackError, match=r"failed in on_env_step: ValueError: no paper \(user_module.py") as caught:
        td3.train(user_module.Sound, out=tmp_path / "run", callbacks=[user_module.Failing()], **FIELDS)
    assert_shows("\n".join(lines_below(caught.value)), "note", 'raise ValueError("no paper")', "ValueError: no paper")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_replaced_step_that_fails_during_training_gets_a_sentence_with_them(tmp_path):
    with pytest.raises(ConfigError) as caught:
        td3.train(user_module.Sound, out=tmp_path / "run", replace_steps=[user_module.late], **FIELDS)
    sentence = str(caught.value)
    assert sentence.startswith(
        "step 9, replaced by late, failed with ValueError: all rewards are 1 (user_module.py, line"
    )
    assert "The checkpoint at env step" in sentence
    source = 'raise ValueError("all rewards are 1")'
    assert_shows("\n".join(lines_below(caught.value)), "late", source, "ValueError: all rewards are 1")
    assert sentence.startswith(json.loads((tmp_path / "run" / "status.json").read_text())["reason"])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("SetsDevice", "an environment set PyTorch's default device for the whole run"),
        ("EntersInferenceMode", "an environment switched PyTorch to inference mode for the whole run"),
    ],
)
def test_what_an_environment_does_to_pytorch_is_named_and_the_remedy_works(tmp_path, kind, sentence):
    """In a process of its own: what it does to PyTorch would stay."""
    script = (
        "import sys, td3, torch\nfrom scripted import SMALL\nfrom faults import user_module\n"
        "if __name__ == '__main__':\n"
        "    before = torch.get_default_device(), torch.is_inference_mode_enabled()\n"
        "    try:\n"
        "        quiet = {'steps': 60, 'progress': False, **SMALL}\n"
        f"        td3.train(user_module.{kind}, out=sys.argv[1], workers=sys.argv[2], **quiet)\n"
        "    except td3.errors.EnvironmentFault as fault:\n"
        "        print(fault)\n"
        "    print(torch.get_default_device() == before[0])\n"
    )
    said = {}
    for workers in ("none", "processes"):
        command = [sys.executable, "-c", script, str(tmp_path / workers), workers]
        said[workers] = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=120, env=ENVIRONMENT
        ).stdout
    assert said["none"].startswith(
        f"{sentence}: undo that before its method returns, or step it with  --workers processes"
    )
    assert said["none"].endswith("\nTrue\n")
    assert said["processes"] == "True\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", *SMALL_OPTIONS, "--out", "run"], "an environment closed sys.stdout, which is the run's too: "),
        (["check"], "sys.stdout was closed while the command ran, as by an environment: "),
    ],
)
def test_an_environment_that_closes_stdout_gets_one_sentence(tmp_path, words, sentence):
    command = [sys.executable, "-m", "td3", words[0], f"{NAME}:ClosesStdout", *words[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == f"td3: {sentence}remove that call.\n"


def test_an_environment_whose_close_raises_keyboard_interrupt_is_trained_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match=r"failed in close\(\): KeyboardInterrupt \(user_module.py, line"):
        run = td3.train(user_module.ClosesLikeCtrlC, out=tmp_path / "run", **FIELDS)
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
