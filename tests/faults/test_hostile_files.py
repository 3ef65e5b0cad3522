"""Files from untrusted sources: loading them executes nothing, and what is wrong with them is said in one sentence."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faults.test_resume import config, stopped

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited and measured on Linux")


@pytest.fixture(scope="module")
def small_run(tmp_path_factory) -> Path:
    """A run with everything that a run can hold, in few bytes."""
    folder = tmp_path_factory.mktemp("stranger") / "run"
    stopped(folder, 115, steps=600, learning_starts=20, hidden_sizes=(2,), eval_every=50, save_every=50)
    return folder


def loaded(run: Path, folder: Path, mutations: int, seed: int = 0) -> dict:
    shutil.copytree(run, folder / "run")
    script = Path(__file__).with_name("hostile.py")
    command = [sys.executable, "-W", "error", str(script), str(folder), str(mutations), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(found: dict) -> None:
    assert found["untyped"] == []
    assert found["heard"] == []
    assert found["extra_mb"] < 100
    assert found["files"] >= 200
    refused = sum(count for outcome, count in found["hostile"].items() if outcome not in ("loaded", "untyped"))
    assert refused >= 200


def test_hostile_and_mutated_files_get_only_typed_refusals_and_execute_nothing(small_run, tmp_path):
    check(loaded(small_run, tmp_path, 500))


@pytest.mark.long
def test_a_hundred_thousand_mutations(small_run, tmp_path):
    found = loaded(small_run, tmp_path, 100_000, seed=1)
    check(found)
    print(found)


def test_the_alarm_would_ring(small_run, tmp_path):
    """The watch hears what it is there to hear: a loader that executed something would be found."""
    shutil.copytree(small_run, tmp_path / "run")
    script = Path(__file__).with_name("hostile.py").read_text()
    careless = script.replace("    found = td3.Run(run)\n", '    found = td3.Run(run)\n    eval("1 + 1")\n')
    assert careless != script
    (tmp_path / "careless.py").write_text(careless)
    command = [sys.executable, str(tmp_path / "careless.py"), str(tmp_path), "10", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert any(event.startswith("exec") for event in json.loads(done.stdout)["heard"])


def test_a_config_cannot_name_code_to_be_imported_by_loading(tmp_path):
    """An environment `module:Name` is only imported when it is to be played; reading the run does not."""
    run = stopped(tmp_path / "run", 115, save_every=50)
    values = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**values, "env": "evil_module_for_a_test:X-v0"}))
    import td3

    assert td3.Run(run).config.env == "evil_module_for_a_test:X-v0"
    assert td3.load(run, 0).act([0.0, 0.0]).shape == (1,)
    assert config(tmp_path / "other").env == "Rail-v0"
