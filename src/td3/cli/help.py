"""`td3 COMMAND --help`: what a command does, its options in groups with plain types, defaults and aliases, examples."""

import ast
import inspect
import re
import shutil
import textwrap
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import tyro

from td3.cli.options import aliases_of

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
GROUPS = {
    "Run": ("steps", "seed", "seeds", "preset", "config", "out", "init_from", "trust", "verbose", "json"),
    "Environment": (
        *("env", "env_kwargs", "envs", "normalize_observations", "pixels", "frames", "image_size", "action_repeat"),
        "env_timeout",
    ),
    "Evaluation and saving": (
        *("eval_every", "eval_episodes", "log_every", "save_every", "capture_video", "track", "wandb_project"),
    ),
    "Speed": ("device", "workers", "engine", "threads", "precision", "buffer_device"),
    "TD3": (),
    "Variants": (
        *("variant", "replace_steps", "critic_layer_norm", "n_step", "priority_exponent", "bc_alpha"),
        "hindsight_goals",
    ),
    "Cluster": ("ray_address", "max_staleness"),
}
"""Options of `td3 train` and `td3 offline` in their order; TD3 has the other fields of TD3Config."""
TITLES = {"TD3": "TD3 (td3. may be left out: --gamma is --td3.gamma)"}
FIRST = (
    *("steps", "seed", "seeds", "preset", "out", "env_kwargs", "envs", "normalize_observations", "eval_every"),
    *("capture_video", "device", "workers", "hidden_sizes", "actor_learning_rate", "critic_learning_rate"),
    *("batch_size", "learning_starts", "gamma", "utd_ratio", "variant"),
)
"""The options that people use first; `--help-all` has the others."""
EXAMPLES = {
    "train": (
        "td3 train HalfCheetah-v5 --seeds 3",
        "td3 train Pendulum-v1 --steps 20000 --gamma 0.95 --lr 1e-3 --capture-video",
        "td3 train my_module:MyEnv --envs 8 --td3.hidden-sizes 400 300 --out runs/mine",
    ),
}
"""Examples of commands whose own sentence has too few."""
TYPES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Option:
    """An option as help shows it."""

    field: str
    name: str
    """--td3.gamma, or ENV of an argument without a name."""
    value: str
    text: str

    @property
    def label(self) -> str:
        """--td3.gamma FLOAT."""
        return f"  {self.name} {self.value}".rstrip()


def help_text(command: str, kind: type, defaults: Any = None, everything: bool = True) -> str:
    """The help of a command; where there are many options, the first ones, or `everything`."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    options = list(_options(kind, defaults, command))
    objects = [option for option in options if not option.name.startswith("-")]
    named = [option for option in options if option.name.startswith("-")]
    sentence, _, more = inspect.cleandoc(kind.__doc__ or "").partition("\n")
    says = sentence.partition(": `")[0]
    usage = " ".join([f"td3 {command}", *(option.name for option in objects), *(["[OPTIONS]"] if named else [])])
    parts = [f"Usage: {usage}", textwrap.fill(says.rstrip(".") + ".", width)]
    parts += [textwrap.fill(" ".join(paragraph.split()), width) for paragraph in more.split("\n\n") if paragraph]
    if objects:
        parts.append(_block("", objects, width))
    grouped = {"Options": named}
    if {"steps", "td3"} <= {f.name for f in fields(kind)}:
        grouped = _in_groups(named, everything)
    parts += [_block(f"{TITLES.get(title, title)}:", group, width) for title, group in grouped.items() if group]
    shown = sum(map(len, grouped.values()))
    if shown < len(named):
        parts.append(f"These are {shown} of {len(named)} options: `td3 {command} {HELP_ALL}` lists them all.")
    if examples := EXAMPLES.get(command, re.findall("`(td3 [^`]+)`", sentence)):
        parts.append("\n  ".join(["Examples:" if len(examples) > 1 else "Example:", *examples]))
    return "\n\n".join(parts)


def _in_groups(options: list[Option], everything: bool) -> dict[str, list[Option]]:
    group_of = {name: title for title, names in GROUPS.items() for name in names}
    order = {name: place for place, name in enumerate(name for names in GROUPS.values() for name in names)}
    found: dict[str, list[Option]] = {title: [] for title in GROUPS}
    for option in sorted(options, key=lambda option: order.get(option.field, len(order))):
        if everything or option.field in FIRST:
            found[group_of.get(option.field, "TD3")].append(option)
    return found


def _options(kind: type, defaults: Any, command: str, prefix: str = "--") -> Iterator[Option]:
    """The fields of a command's dataclass as options, those of td3 too."""
    documented = field_docs(kind)
    for f in fields(kind):
        marks = getattr(f.type, "__metadata__", ())
        if tyro.conf.Fixed in marks:
            continue
        default = getattr(defaults, f.name) if defaults is not None else _default(f)
        inner = f.type.__origin__ if hasattr(f.type, "__metadata__") else f.type  # type: ignore[union-attr]
        if is_dataclass(inner):
            yield from _options(inner, default, command, f"{prefix}{f.name}.")  # type: ignore[arg-type]
            continue
        name, value = prefix + f.name.replace("_", "-"), _value(inner, f)
        if tyro.conf.Positional in marks:
            name, value = value if f.default in (MISSING, tyro.MISSING) else f"[{value}]", ""
        elif inner is bool and default is True:
            name = f"{prefix}no-{f.name.replace('_', '-')}"
        text = documented.get(f.name) or next((mark.help for mark in marks if getattr(mark, "help", None)), "")
        if name.startswith("--no-"):
            text = f"Turn off: {text}"
        elif shown := _shown(default):
            text += f" (default: {shown})"
        if command in ("train", "offline") and (aliases := aliases_of(name)):
            text += f" Also {', '.join(aliases)}."
        yield Option(f.name, name, value, text)


def _default(f: "Field[Any]") -> Any:
    if f.default_factory is not MISSING:
        return f.default_factory()
    return None if f.default in (MISSING, tyro.MISSING) else f.default


def _value(kind: Any, f: "Field[Any]") -> str:
    """What an option takes, in a word."""
    metavar = next((mark.metavar for mark in getattr(f.type, "__metadata__", ()) if getattr(mark, "metavar", None)), "")
    if metavar:
        return str(metavar) + " ..." * (metavar == "KEY=VALUE")
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (inner for inner in get_args(kind) if inner is not type(None))
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        return f"{_value(get_args(kind)[0], f)} ..."
    return TYPES.get(kind, "VALUE")


def _shown(default: Any) -> str:
    if default in (None, "", (), {}) or default is False or default is tyro.MISSING:
        return ""
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    return f"{default:,}" if isinstance(default, int) else str(default)


def _block(title: str, options: list[Option], width: int) -> str:
    """Options with their texts beside them; a long name has its text below."""
    column = 30 if width >= 80 else 6
    lines = [title] if title else []
    for option in options:
        text = textwrap.wrap(option.text, width - column, break_on_hyphens=False) or [""]
        if len(option.label) + 2 > column:
            lines += textwrap.wrap(option.label, width, subsequent_indent=" " * 6, break_on_hyphens=False)
        else:
            lines.append(option.label.ljust(column) + text.pop(0))
        lines += [" " * column + line for line in text]
    return "\n".join(line.rstrip() for line in lines)


@cache
def field_docs(kind: type) -> dict[str, str]:
    """The sentence below each field of a dataclass, inherited ones too."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        definition: Any = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        for node, after in zip(definition.body, definition.body[1:], strict=False):
            named = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[node.target.id] = " ".join(str(after.value.value).split())
    return found
