"""The files of the user's own that a run imports, kept by content: what it was trained with, before and after an edit.

Nothing is imported or executed to find them: files are read, and modules are looked up among those already imported.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import json
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from td3.algorithm.replacing import outer_variables
from td3.errors import RunError
from td3.files import read_regular_file

SOURCES = "sources.json"
"""File of a run that holds them."""
LARGEST_SOURCES = 1 << 25
LARGEST_FILE = 1 << 24
"""Larger files are not read; their size stands for their content."""
LARGEST_TEXTS = 1 << 22
"""Characters of text that a run keeps; of files beyond that, the hash alone."""
INSTALLED = ("site-packages", "dist-packages")


def is_own(file: str) -> bool:
    """Whether code of this file is the user's: not Python's, not td3's, and not that of an installed package."""
    if file.startswith("<"):  # a cell of a notebook, or typed in
        return not file.startswith("<frozen")
    path = Path(file).resolve()
    return not any(name in path.parts for name in INSTALLED) and not any(map(path.is_relative_to, _libraries()))


@functools.cache
def _libraries() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (Path(__file__).resolve().parents[1], *(Path(sysconfig.get_path(name)).resolve() for name in names))


def plain_function(value: Any) -> Any:
    """The function inside partial objects and methods; anything else as it is."""
    while isinstance(value, functools.partial | MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    return value


def own_files(roots: Iterable[Any]) -> dict[str, Path]:
    """The user's files that functions, classes, objects and modules (by name) come from or import, by module."""
    waiting, found, looked_at = _modules_of(roots), dict[str, Path](), set[str]()
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if module is None or name in looked_at or not isinstance(file, str) or not is_own(file):
            continue
        looked_at.add(name)
        if (path := Path(file)).is_file():
            # The same file has other names as the script that is run, and as a file of steps.
            plain = path.stem if name == "__main__" or name.startswith("td3_steps_") else name
            found[plain if found.get(plain, path) == path else file] = path
            waiting += _imports(module, path)
    return found


def _modules_of(roots: Iterable[Any]) -> list[str]:
    """The names of the modules in which these were defined, and what functions among them have captured."""
    names, seen, waiting = list[str](), set[int](), list(roots)
    while waiting:
        root = plain_function(waiting.pop())
        if id(root) in seen:
            continue
        seen.add(id(root))
        if isinstance(root, str):
            names.append(root)
        elif isinstance(root, FunctionType):
            names.append(root.__module__)
            free = {name: value for name, value in outer_variables(root).items() if name in root.__code__.co_freevars}
            waiting += [*free.values(), getattr(root, "__wrapped__", root)]
        else:
            names.append((root if isinstance(root, type) else type(root)).__module__)
    return names


def _imports(module: ModuleType, path: Path) -> list[str]:
    """Names of modules that a file imports, anywhere in it, or that its functions and classes come from."""
    values = list(vars(module).values())
    names = [value.__name__ for value in values if type(value) is ModuleType]
    names += [str(value.__module__) for value in values if issubclass(type(value), FunctionType | type)]
    try:
        nodes = list(ast.walk(ast.parse(_content(path))))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # a compiled module, or edited since
        return names
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [part for alias in node.names for part in _with_parents(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            try:
                base = importlib.util.resolve_name(base, module.__package__ or "")
            except ImportError:
                continue
            names += [*_with_parents(base), *(f"{base}.{alias.name}" for alias in node.names)]
    return names


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _content(path: Path) -> bytes:
    return read_regular_file(path, LARGEST_FILE)


def record_sources(roots: Iterable[Any], env_step: int = 0) -> dict[str, Any]:
    """What a run keeps of these files from an env step on; empty where there are none."""
    files, texts, room = dict[str, dict[str, str]](), dict[str, str](), LARGEST_TEXTS
    for name, path in sorted(own_files(roots).items()):
        try:
            content = _content(path)
        except (OSError, ValueError):
            files[name] = {"path": str(path), "sha256": f"not read, {path.stat().st_size} bytes"}
            continue
        sha256 = hashlib.sha256(content).hexdigest()
        files[name] = {"path": str(path), "sha256": sha256}
        text = content.decode("utf-8", "replace") if path.suffix == ".py" else None
        if text is not None and sha256 not in texts and len(text) <= room:
            texts[sha256], room = text, room - len(text)
    return {"versions": [{"from_env_step": env_step, "files": files}], "texts": texts} if files else {}


def sources_after(run: Path, roots: Iterable[Any], env_step: int, said: str = "") -> tuple[dict[str, Any], list[str]]:
    """The record of a run that is resumed at an env step, and a sentence where files have changed.

    A file of steps is not named again where `said` names its steps. What was recorded at this env step or later belongs
    to training that is lost.
    """
    now, before = record_sources(roots, env_step), read_sources(run)
    versions = [one for one in before.get("versions", ()) if one["from_env_step"] < env_step]
    if not versions:
        return now, []
    latest, files = versions[-1], now["versions"][0]["files"] if now else {}
    if {name: one["sha256"] for name, one in latest["files"].items()} == {n: one["sha256"] for n, one in files.items()}:
        return {**before, "versions": versions}, []
    texts = dict(before["texts"])
    room = LARGEST_TEXTS - sum(map(len, texts.values()))
    for sha256, text in now.get("texts", {}).items():
        if sha256 not in texts and len(text) <= room:
            texts[sha256], room = text, room - len(text)
    record = {"versions": [*versions, {"from_env_step": env_step, "files": files}], "texts": texts}
    steps = {str(path) for path in own_files_of_steps(roots)} if said else set()
    changed = [
        one["path"]
        for name, one in files.items()
        if name in latest["files"] and latest["files"][name]["sha256"] != one["sha256"] and one["path"] not in steps
    ]
    if not changed:
        return record, []
    since = f"env step {latest['from_env_step']:,}" if latest["from_env_step"] else "the run began"
    have = "have" if len(changed) > 1 else "has"
    return record, [
        f"{', '.join(changed)} {have} changed since {since}: the run continues, but not as it would have. "
        f"Every version is in {run / SOURCES}."
    ]


def own_files_of_steps(roots: Iterable[Any]) -> list[Path]:
    """The files in which replaced steps are written."""
    steps = [root for root in roots if isinstance(root, FunctionType) and hasattr(root, "__td3_replacement__")]
    return [Path(inspect.unwrap(step).__code__.co_filename) for step in steps]


def read_sources(run: Path) -> dict[str, Any]:
    """What a run recorded of files; empty without any."""
    if not (run / SOURCES).exists():
        return {}
    try:
        found = json.loads(read_regular_file(run / SOURCES, LARGEST_SOURCES))
        versions = [
            {
                "from_env_step": int(one["from_env_step"]),
                "files": {
                    str(name): {"path": str(file["path"]), "sha256": str(file["sha256"])}
                    for name, file in _mapping(one["files"]).items()
                },
            }
            for one in found["versions"]
        ]
        return {"versions": versions, "texts": {str(key): str(text) for key, text in _mapping(found["texts"]).items()}}
    except (OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{run / SOURCES} is damaged ({error!r}).") from None


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} instead of an object")
    return value
