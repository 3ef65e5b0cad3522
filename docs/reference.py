"""Write docs/configuration.md and docs/api.md from the code: `python docs/reference.py`. A test compares both."""

import ast
import importlib
import inspect
import re
import textwrap
import types
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_origin

from td3 import config as settings

DOCS = Path(__file__).parent
BEGIN, END = "<!-- from the code: begin -->", "<!-- from the code: end -->"
API = {
    "Train and load": {
        "td3.train": (),
        "td3.train_offline": (),
        "td3.resume": (),
        "td3.load": (),
        "td3.Run": ("learning_curve", "evaluations", "frame", "evaluate", "plot", "report", "watch"),
        "td3.run.agent_file.SavedAgent": ("act",),
    },
    "Compare": {
        "td3.compare": (),
        "td3.report.comparison.RunComparison": ("figures", "scores", "plot", "report", "csv", "latex"),
    },
    "Callbacks": {"td3.Callback": None, "td3.ProgressDisplay": ()},
    "Replaced steps": {"td3.replace_step": ()},
    "Export and tune": {
        "td3.export.folder.export_run": (),
        "td3.export.hub.push": (),
        "td3.tune.search.tune": (),
    },
    "Stable-Baselines3's interface": {
        "td3_sb3.TD3": ("learn", "predict", "save", "load", "load_replay_buffer", "export"),
    },
}
"""Sections of the page, the objects in each, and which members of a class (None: all that are public)."""


def settings_tables() -> str:
    """Every field of the configuration: its option, default, and its sentence in config.py."""
    parts = []
    for kind, prefix in ((settings.TrainConfig, "--"), (settings.TD3Config, "--td3.")):
        documented = field_docs(kind)
        parts += [f"## {kind.__name__}", "", (kind.__doc__ or "").strip(), ""]
        parts += ["| field and option | default | meaning |", "|---|---|---|"]
        for f in fields(kind):
            if f.name == "td3":
                continue
            option = "ENV" if f.name == "env" else prefix + f.name.replace("_", "-")
            allowed = get_args(f.type) if get_origin(f.type) is not None else ()
            choices = [repr(value) for value in allowed if isinstance(value, str)]
            text = documented[f.name] + (f" One of {', '.join(choices)}." if choices else "")
            default = "" if f.default is MISSING else f"`{_shown(f.default)}`"
            parts.append(f"| `{f.name}`<br>`{option}` | {default} | {text.replace('|', chr(92) + '|')} |")
        parts.append("")
    return "\n".join(parts).strip()


def field_docs(kind: type) -> dict[str, str]:
    """The sentence below each field of a dataclass."""
    found = _definition(kind)
    documented = {}
    for node, after in zip(found.body, found.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(after, ast.Expr), f"{kind.__name__}.{node.target.id} has no sentence"
            documented[node.target.id] = " ".join(ast.literal_eval(after.value).split())
    return documented


def api() -> str:
    """Signatures and docstrings of what programs import, and of the fifteen steps."""
    from td3.algorithm.registry import STEPS
    from td3.algorithm.update import update

    parts = []
    for title, objects in API.items():
        parts.append(f"## {title}")
        for path, members in objects.items():
            module, _, name = path.rpartition(".")
            parts.append(_described(path, getattr(importlib.import_module(module), name), members))
    parts += ["## The fifteen steps", _described("td3.algorithm.update.update", update, ())]
    steps = [STEPS[number] for number in sorted(STEPS)]
    parts += [_described(f"{step.number}. {step.function.__name__}", step.function, ()) for step in steps]
    return "\n\n".join(parts)


def _described(title: str, thing: Any, members: tuple[str, ...] | None) -> str:
    text = f"### `{title}`\n\n{_signature(thing)}\n\n{_docstring(thing)}"
    if inspect.isclass(thing):
        names = [name for name in vars(thing) if not name.startswith("_")] if members is None else members
        for name in names:
            member = inspect.getattr_static(thing, name)
            member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if callable(member):
                text += f"\n\n#### `{name}`\n\n{_signature(member)}\n\n{_docstring(member)}"
    return text


def _definition(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))).body[0]


def _signature(thing: Any) -> str:
    """The signature as in the source, one argument per line where it is long."""
    node, name = _definition(thing), thing.__name__
    if isinstance(node, ast.ClassDef):
        own = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        base = next((each for each in thing.__mro__[1:] if "__init__" in vars(each)), object)
        if not own and base is not object:
            return _signature(base)
        if not own:
            return f"```text\nclass {name}\n```"
        node = own[0]
    arguments = ast.unparse(node.args)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    line = f"{name}({arguments}){returned}"
    if len(line) > 100:
        line = f"{name}(\n    " + ",\n    ".join(_split(arguments)) + f",\n){returned}"
    return f"```text\n{line}\n```"


def _split(arguments: str) -> list[str]:
    """At the commas outside of brackets and strings."""
    parts, depth, quoted = [""], 0, ""
    for character in arguments:
        if quoted or character in "'\"":
            quoted = "" if character == quoted else quoted or character
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _docstring(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, types.NoneType):
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


PAGES = {"configuration.md": settings_tables, "api.md": api}


def with_block(page: str) -> str:
    """The page with its generated part made anew."""
    text = (DOCS / page).read_text(encoding="utf-8")
    block = f"{BEGIN}\n\n{PAGES[page]()}\n\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: block, text, count=1, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(with_block(page), encoding="utf-8")
