"""The wheel, built and installed in an empty environment."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HIDDEN = shutil.ignore_patterns("__pycache__", "*.egg-info")


def output_of(*command, cwd, code=0):
    """What a command prints where neither this checkout nor its environment is on the path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("src", "lab"):
        shutil.copytree(ROOT / name, folder / name, ignore=HIDDEN)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "."]
    output_of(*build, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of a virtual environment with the wheel; dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    output_of(sys.executable, "-m", "venv", "--without-pip", ".", cwd=folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", "--no-index"]
    output_of(*pip, str(wheel), cwd=folder)
    site = Path(output_of(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def test_every_file_of_the_packages_is_in_the_wheel_and_none_of_the_lab(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    here = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert held == {name.removeprefix("src/") for name in here.splitlines()}


def test_an_installed_wheel_has_the_commands_and_packages(installed, tmp_path):
    shown = output_of(installed / "td3", "--help", cwd=tmp_path)
    assert "td3 explain" in shown
    assert "td3 bench" not in shown
    assert "--reward-noise" in output_of(installed / "td3", "ladder", "--help", cwd=tmp_path)
    output_of(installed / "td3", "explain", "--out", "page.html", "--no-open", cwd=tmp_path)
    assert (tmp_path / "page.html").stat().st_size > 500_000
    assert "needs a checkout of td3" in output_of(installed / "td3", "bench", "update", cwd=tmp_path, code=2)
    where = "import td3, td3_sb3; print(td3.__file__); print(td3_sb3.TD3.__module__)"
    home, module = output_of(installed / "python", "-c", where, cwd=tmp_path).split()
    assert Path(home).is_relative_to(installed.parent)
    assert module == "td3_sb3.model"
