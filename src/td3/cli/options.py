"""Types of arguments that several commands share, and option names of other libraries."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from td3.config import TrainConfig
from td3.settings import TD3Config
from td3.spellings import SPELLINGS

Commands = dict[str, tuple[type, Callable[[Any], int]]]
"""Commands by name: the dataclass of the arguments, and the function that runs it and returns the exit code."""
RUN_FIELDS = {f.name for f in fields(TrainConfig)}
ENV_SPELLINGS = ("--env", "--env-id")


def aliases_of(option: str) -> list[str]:
    """Names that other libraries have for an option of `td3 train`; td3. may be left out besides."""
    field = option.removeprefix("--").removeprefix("td3.").replace("-", "_")
    found = []
    for name, own in SPELLINGS.items():
        if field in own:
            both = " (actor and critics)" if len(own) > 1 else ""
            found.append(f"{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}{both}")
    return found


def own_names(words: Sequence[str], command: str = "train") -> list[str]:
    """The same arguments with our option names; where the environment is positional, --env is left out.

    A setting of TD3 needs no td3. before its name; one word may stand for two settings, as --lr does.
    """
    renamed: list[str] = []
    env_is_option = command in ("ladder", "offline")
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        name, equals, value = word.partition("=")
        if name in ENV_SPELLINGS and env_is_option:
            renamed.append("--env" + equals + value)
            continue
        if name in ENV_SPELLINGS:
            renamed += [value] if equals else []
            continue
        first, *others = _own_options(name, command)
        if others and not equals and waiting and not waiting[-1].startswith("--"):
            equals, value = "=", waiting.pop()
        renamed += [option + equals + value for option in (first, *others)]
    return renamed


def _own_options(name: str, command: str) -> tuple[str, ...]:
    """Our options with the meaning of this one, or the word itself."""
    if not name.startswith("-"):
        return (name,)
    field = name.lstrip("-").removeprefix("td3.").replace("-", "_")
    own = SPELLINGS.get(field, (field,)) if field != "n" or name == "-n" else (field,)
    if command in ("train", "offline") and all(each in TD3Config.__dataclass_fields__ for each in own):
        return tuple(f"--td3.{each.replace('_', '-')}" for each in own)
    if own != (field,) and own[0] in RUN_FIELDS:
        return (f"--{own[0].replace('_', '-')}",)
    return (name,)


def read_kwargs(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words as a dictionary, values as JSON if they are and else as text; or one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            return dict(json.loads(words[0]))
        except ValueError:
            raise ValueError(f"{words[0]} is not JSON") from None
        except RecursionError:
            raise ValueError("the JSON object is nested too deeply") from None
    pairs = [word.partition("=") for word in words]
    if wrong := [word for word, (key, equals, _) in zip(words, pairs, strict=True) if not (key and equals)]:
        raise ValueError(f"{wrong[0]!r} is neither KEY=VALUE nor a JSON object")
    return {key: _as_json(value) for key, _, value in pairs}


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


EnvKwargs = Annotated[
    dict[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE",
        instance_from_str=read_kwargs,
        is_instance=lambda given: isinstance(given, dict),
        str_from_instance=lambda given: [f"{key}={json.dumps(value)}" for key, value in given.items()],
    ),
]
HIDDEN = (tyro.conf.Fixed, tyro.conf.Suppress)
"""Of a field that a command inherits and does not offer."""
EnvName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="The run directory.")]
BestSeed = Annotated[
    int | None, tyro.conf.arg(help="Which seed's agent; by default the one with the highest evaluation.")
]
Which = Annotated[
    Literal["best", "last"],
    tyro.conf.arg(help="The agent with the highest evaluation of its seed, or the one at the end of training."),
]
Json = Annotated[bool, tyro.conf.arg(help="Print the results as one JSON object instead of text.")]
Trust = Annotated[
    bool,
    tyro.conf.arg(
        help="Allow importing the module in the environment's name (module:Class) and the files of replaced steps."
    ),
]
