"""The wheel, built from the distributed sources and installed in an empty environment."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import torch

from td3.backends.compiler import LEVELS, find_compiler, processor

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux" or not find_compiler(),
    reason="kernels are compiled ahead on Linux on x86-64, by a C compiler",
)

ROOT = Path(__file__).parents[1]
HIDDEN = shutil.ignore_patterns("__pycache__", "*.egg-info")


LIBRARIES = {f"{name}-{level}.so" for name in ("backends/cpu", "environments/mujoco_batch") for level in LEVELS}
HERE = [level for level, needed in LEVELS.items() if set(processor().split()).issuperset(needed.split())]
"""The levels of this processor."""
COMPUTE = """
import sys
import torch
from td3.backends import compiler, cpu
compiler.LEVELS = {level: compiler.LEVELS[level] for level in sys.argv[2:]}
draw = lambda *shape: torch.randn(shape, generator=torch.Generator().manual_seed(0))
sizes = [(2, 40, 23, 70), (1, 33, 256, 6), (2, 40, 100, 1), (2, 23, 64, 40)]
made = [cpu.product(draw(s, r, i), draw(s, i, c), torch.empty(s, r, c)) for s, r, i, c in sizes]
adam = [draw(2, 1000), draw(2, 1000) * 3, draw(2, 1000), draw(2, 1000).square(), torch.ones(2)]
cpu.adam_(*adam, torch.tensor(1e-3, dtype=torch.float64), None)
torch.save(made + adam, sys.argv[1])
"""


def output_of(*command, cwd, code=0, **variables):
    """What a command prints where neither this checkout nor its environment is on the path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("src", "lab"):
        shutil.copytree(ROOT / name, folder / name, ignore=HIDDEN)
    output_of(sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('.')", cwd=folder)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    build += [str(next(folder.glob("*.tar.gz")))]
    release = {"TD3_COMPILE": "1", "GITHUB_REPOSITORY": "Owner/td3", "GITHUB_REF_NAME": "v9"}
    output_of(*build, cwd=folder, **release)
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
    assert held == {name.removeprefix("src/") for name in here.splitlines()} | {f"td3/{name}" for name in LIBRARIES}


def test_the_wheel_says_on_a_package_index_where_everything_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        said = message_from_bytes(archive.read(name))
    links = dict(link.split(", ") for link in said.get_all("Project-URL"))
    assert links["Homepage"] == "https://github.com/Owner/td3"
    assert links["Documentation"] == "https://owner.github.io/td3/"
    assert said["License-Expression"] == "MIT"
    assert "Typing :: Typed" in said.get_all("Classifier")
    readme = said.get_payload()
    assert 'src="https://github.com/Owner/td3/raw/v9/docs/images/results.svg"' in readme
    assert "](https://github.com/Owner/td3/blob/v9/docs/modify.md)" in readme
    assert not re.findall(r"(?:\]\(|src=\")(?!https:|#)[^)\"]*", readme)


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


def without_compiler(folder):
    """Variables of a machine that has none, and an empty cache."""
    return {"PATH": "", "CC": "", "XDG_CACHE_HOME": str(folder), "TMPDIR": str(folder)}


@pytest.mark.long
@pytest.mark.skipif(not HERE, reason="this processor is older than x86-64-v3")
def test_an_installed_wheel_needs_no_compiler(installed, tmp_path):
    where = "from td3.backends import cpu; from td3.environments.mujoco_library import stepper; "
    where += "print(cpu.why_not(), cpu._library()._name, stepper()._name)"
    none, *libraries = output_of(installed / "python", "-c", where, cwd=tmp_path, **without_compiler(tmp_path)).split()
    assert none == "None"
    assert [Path(library).name for library in libraries] == [f"{name}-{HERE[0]}.so" for name in ("cpu", "mujoco_batch")]
    assert all(Path(library).is_relative_to(installed.parent) for library in libraries)
    train = [installed / "td3", "train", "Rail-v0", "--steps", "300", "--td3.learning-starts", "200", "--out", "run"]
    assert "C compiler" not in output_of(*train, cwd=tmp_path, **without_compiler(tmp_path))
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.long
@pytest.mark.skipif(not HERE, reason="this processor is older than x86-64-v3")
def test_kernels_compiled_ahead_and_here_compute_the_same_bits(installed, tmp_path):
    results = []
    for levels in ([], *([level] for level in HERE)):  # none: compiled here
        output_of(installed / "python", "-c", COMPUTE, "computed.pt", *levels, cwd=tmp_path)
        results.append(torch.load(tmp_path / "computed.pt"))
    for other in results[1:]:
        assert all(torch.equal(one, same) for one, same in zip(results[0], other, strict=True))
