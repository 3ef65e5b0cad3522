"""From arguments to a command's dataclass by tyro; an argument that cannot be used becomes one sentence."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NoReturn, get_args

import tyro

from td3.errors import ConfigError
from td3.spellings import nearest

NUMBERS = tyro.constructors.ConstructorRegistry()
"""How tyro reads numbers: as it does by itself, with errors in plain words."""


def _number(numeric: type, metavar: str, description: str) -> None:
    def read(words: list[str]) -> Any:
        try:
            return _read(numeric, words[0])
        except (ValueError, OverflowError):
            raise ValueError(f"{words[0]!r} is not {description}") from None

    @NUMBERS.primitive_rule
    def rule(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
        if info.type is not numeric:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=read,
            is_instance=lambda value: isinstance(value, int | numeric),
            str_from_instance=lambda value: [str(value)],
        )


def _read(kind: type, word: str) -> Any:
    """The number that a word says; 1e4 is a whole number too."""
    if kind is int and "e" in word.lower() and (number := float(word)) == int(number):
        return int(number)
    return kind(word)


@NUMBERS.primitive_rule
def _sizes(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    """Several whole numbers, as 64 64 or 64,64."""
    if get_args(info.type) != (int, Ellipsis):
        return None

    def read(words: list[str]) -> Any:
        numbers = [number for word in words for number in word.split(",")]
        for number in numbers:
            if not number.strip().isdecimal():
                raise ValueError(f"{number!r} is not a whole number")
        return tuple(map(int, numbers))

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="INT ...",
        instance_from_str=read,
        is_instance=lambda given: isinstance(given, tuple) and all(isinstance(number, int) for number in given),
        str_from_instance=lambda given: [str(number) for number in given],
    )


_number(int, "INT", "a whole number")
_number(float, "FLOAT", "a number")


def parse_arguments(
    arguments_class: Any, prog: str, words: Sequence[str], command: str, options: list[str], **tyro_options: Any
) -> Any:
    """`tyro.cli`, in which a refused argument is a `ConfigError` that names `command` and the nearest of `options`."""
    with _on_parse_error(partial(_refuse, command, options, words)):
        return tyro.cli(arguments_class, prog=prog, args=words, registry=NUMBERS, **tyro_options)


def option_names(arguments_class: Any, prefix: str = "--") -> list[str]:
    """The options of a command, from the fields of its dataclass."""
    options = []
    for f in fields(arguments_class):
        option = f.name.replace("_", "-")
        if {tyro.conf.Fixed, tyro.conf.Positional} & {*getattr(f.type, "__metadata__", ())}:
            continue  # inherited and not offered, or an argument without a name
        if is_dataclass(f.type):
            options += option_names(f.type, f"{prefix}{option}.")
        else:
            options += [prefix + option, *([f"{prefix}no-{option}"] if _is_flag(f.type) else [])]
    return options


def option_of(arguments_class: Any, field: str) -> str:
    """The option of a setting, such as --td3.batch-size of batch_size; the name itself if the command has none."""
    ends = (f"--{field.replace('_', '-')}", f".{field.replace('_', '-')}")
    return next((option for option in option_names(arguments_class) if option.endswith(ends)), field)


def _is_flag(annotation: Any) -> bool:
    return annotation is bool or getattr(annotation, "__origin__", None) is bool


def _on_parse_error(hook: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    try:
        # tyro's structured errors. They are not part of its public interface: a version without them, or an event that
        # `_refuse` does not know, prints tyro's own box and exits with code 2.
        from tyro._errors import on_parse_error
    except ImportError:
        return contextlib.nullcontext()
    return on_parse_error(hook)


def _refuse(command: str, options: list[str], words: Sequence[str], event: Any) -> None:
    more = f"(`td3 {command} --help` says more)"
    match type(event).__name__:
        case "MissingArgs" | "BadValue" if unknown := [word for word in words if _is_unknown(word, options)]:
            _refuse_unknown(command, options, unknown)
        case "UnrecognizedArgs":
            _refuse_unknown(command, options, event.tokens)
        case "MissingArgs":
            names = ", ".join(_name(missing.arg) for missing in event.missing_arguments)
            raise ConfigError(f"`td3 {command}` needs {names} {more}")
        case "InvalidChoice":
            choices = ", ".join(event.choices)
            raise ConfigError(f"{_name(event.argument)} must be one of {choices}, but {event.value!r} was given {more}")
        case "BadValue" if event.reason == "too_few_values":
            raise ConfigError(f"{_name(event.argument)} needs a value {more}")
        case "InstantiationFailure":
            where = f"{_name(event.argument)}: " if event.argument else ""
            raise ConfigError(f"{where}{event.message.splitlines()[0]} {more}")


def _is_unknown(word: str, options: list[str]) -> bool:
    return word.startswith("--") and len(word) > 2 and word.partition("=")[0].replace("_", "-") not in options


def _refuse_unknown(command: str, options: list[str], tokens: Sequence[str]) -> NoReturn:
    token = next((token for token in tokens if token.startswith("--")), tokens[0]).partition("=")[0]
    if not token.startswith("-"):
        raise ConfigError(f"`td3 {command}` takes no argument {token!r} here (`td3 {command} --help` says more)")
    near = nearest(token, options)
    hint = f"did you mean {near}?" if near else f"`td3 {command} --help-all` lists them all."
    raise ConfigError(f"`td3 {command}` has no option {token}: {hint}")


def _name(argument: Any) -> str:
    """ENV of a positional argument, --steps of an option."""
    return str(argument.lowered.metavar if argument.is_positional() else argument.lowered.name_or_flags[0])
