"""What pyproject.toml cannot say: kernels compiled ahead, and the addresses of the repository that makes a release.

`TD3_COMPILE=1 python -m build --wheel` makes a wheel for Linux on x86-64 that needs no compiler. GITHUB_REPOSITORY and
GITHUB_REF_NAME, which GitHub Actions set, become the links of the package index.
"""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PACKAGE = ROOT / "src" / "td3"
COMPILE = os.environ.get("TD3_COMPILE") == "1"
SOURCES = {"backends/cpu.c": "backends/cpu.py", "environments/mujoco_batch.c": "environments/mujoco_library.py"}
"""Each C file, and the module that has the FLAGS to compile it with."""


def levels() -> list[str]:
    """The processors that are compiled for, as td3 looks for them."""
    spec = importlib.util.spec_from_file_location("compiler", PACKAGE / "backends" / "compiler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.LEVELS)


def flags_in(module: Path) -> list[str]:
    """FLAGS of a module, which cannot be imported here: PyTorch need not be installed to build."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLAGS":
            return list(eval(ast.unparse(node.value)))
    raise ValueError(f"{module} has no FLAGS")


class BuildWithKernels(build_py):
    """Python files, and beside each C file its libraries."""

    def run(self) -> None:
        """Copy, and compile if asked to."""
        super().run()
        if not COMPILE:
            return
        for source, module in SOURCES.items():
            for level in levels():
                made = Path(self.build_lib, "td3", source).with_name(f"{Path(source).stem}-{level}.so")
                compiler = [*shlex.split(os.environ.get("CC", "cc")), *flags_in(PACKAGE / module), f"-march={level}"]
                rest = ["-fPIC", "-shared", "-pthread", str(PACKAGE / source), "-lm", "-o", str(made)]
                subprocess.run([*compiler, *rest], check=True)


class AnyPython(bdist_wheel):
    """A wheel whose libraries know nothing of Python, and so serve every version."""

    def get_tag(self) -> tuple[str, str, str]:
        """The platform alone."""
        return ("py3", "none", super().get_tag()[2])


class WithLibraries(Distribution):
    """A distribution that is not the same on every platform if kernels are compiled."""

    def has_ext_modules(self) -> bool:
        """Whether libraries are part of it."""
        return COMPILE


def addresses() -> dict[str, Any]:
    """The links of a package index, and the README with links that work there; nothing outside of GitHub Actions."""
    text, repository = (ROOT / "README.md").read_text(encoding="utf-8"), os.environ.get("GITHUB_REPOSITORY")
    described = {"long_description": text, "long_description_content_type": "text/markdown"}
    if not repository:
        return described
    home = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
    tree, raw = (f"{home}/{kind}/{os.environ.get('GITHUB_REF_NAME', 'main')}/" for kind in ("blob", "raw"))
    text = re.sub(r'(!\[[^\]]*\]\(|\b(?:src|srcset)=")(?![a-z]+:|#)', rf"\g<1>{raw}", text)
    text = re.sub(r"(?<=\]\()(?![a-z]+:|#)", tree, text)
    owner, _, name = repository.partition("/")
    urls = {
        "Homepage": home,
        "Documentation": f"https://{owner.lower()}.github.io/{name}/",
        "Issues": f"{home}/issues",
        "Changelog": f"{tree}CHANGELOG.md",
    }
    return {**described, "long_description": text, "project_urls": urls}


setup(distclass=WithLibraries, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": AnyPython}, **addresses())
