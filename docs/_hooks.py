"""Hooks of the docs site: the order of its pages, the table of settings, and links that leave the docs."""

import ast
import re
import types
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_origin

from td3 import config as settings

ORDER = {
    "Start": ["index.md", "concepts.md", "fifteen_steps.md", "ladder.md"],
    "How to": [
        *("train.md", "environments.md", "images.md", "evaluate.md", "watch.md", "report.md", "doctor.md"),
        *("callbacks.md", "tune.md", "cluster.md", "export.md", "push.md", "sb3.md"),
    ],
    "Reference": ["configuration.md", "api.md", "results.md", "performance.md", "reliability.md", "deviations.md"],
}
"""The pages in reading order. One that is not written yet is left out; one that is not listed goes to the end."""
FIELDS = "<!-- the table of settings -->"
ROOT = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    """The navigation, of the pages that are there."""
    folder = Path(config["docs_dir"])
    listed = [page for pages in ORDER.values() for page in pages]
    sections: list[Any] = [
        {title: [page for page in pages if (folder / page).exists()]} for title, pages in ORDER.items()
    ]
    others = sorted(path.name for path in folder.glob("*.md") if path.name not in listed)
    config["nav"] = sections + ([{"More": others}] if others else [])
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the settings; a link to a file of the repository becomes the name of that file.

    A page other than the first is built into a folder of its own: images in raw HTML, which MkDocs leaves alone, are
    looked for one level up.
    """
    if page is not None and page.file.src_uri != "index.md":
        markdown = re.sub(r'(src|srcset)="(?!https?:|data:|/|\.\./)', r'\1="../', markdown)
    return re.sub(r"\[([^\]]*)\]\(\.\./([^)#]+)(?:#L\d+)?\)", _named, markdown.replace(FIELDS, settings_tables()))


def _named(link: re.Match[str]) -> str:
    text, target = link.groups()
    if not (ROOT / target).exists():
        return link.group()  # a strict build refuses it
    return f"`{target}`" if text.strip("`/") in target else f"{text} (`{target}`)"


def settings_tables() -> str:
    """Every field of the configuration: its option, default, and what is said of it in config.py."""
    parts = []
    for kind, prefix in ((settings.TrainConfig, "--"), (settings.TD3Config, "--td3.")):
        said = field_docs(kind)
        parts += [f"## {kind.__name__}", "", (kind.__doc__ or "").strip(), ""]
        parts += ["| field and option | default | what it is |", "|---|---|---|"]
        for f in fields(kind):
            if f.name == "td3":
                continue
            option = "ENV" if f.name == "env" else prefix + f.name.replace("_", "-")
            allowed = get_args(f.type) if get_origin(f.type) is not None else ()
            choices = [repr(value) for value in allowed if isinstance(value, str)]
            text = said[f.name] + (f" One of {', '.join(choices)}." if choices else "")
            default = "" if f.default is MISSING else f"`{_shown(f.default)}`"
            parts.append(f"| `{f.name}`<br>`{option}` | {default} | {text.replace('|', chr(92) + '|')} |")
        parts.append("")
    return "\n".join(parts)


def field_docs(kind: type) -> dict[str, str]:
    """The sentence below each field of a dataclass in config.py."""
    tree = ast.parse(Path(settings.__file__).read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    said = {}
    for node, after in zip(found.body, found.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(after, ast.Expr), f"{kind.__name__}.{node.target.id} has no sentence"
            said[node.target.id] = " ".join(ast.literal_eval(after.value).split())
    return said


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, types.NoneType):
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
