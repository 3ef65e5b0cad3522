"""`td3 COMMAND ...`: subcommands, exit codes and errors. Imports nothing heavy, so that `td3 --help` is fast."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, TextIO, Union

import tyro

from td3.cli import environments, export, offline, play, reports, search, steps, train
from td3.cli.help import HELP, HELP_ALL, help_text
from td3.cli.options import Commands, own_names
from td3.cli.packages import ABSENT, commands_of_packages
from td3.cli.parsing import option_names, option_of, parse_arguments
from td3.errors import ConfigError, UserError
from td3.libraries import library_variables
from td3.signals import stop_signals_as_interrupt
from td3.spellings import SPELLINGS, nearest

OWN: Commands = {
    **train.COMMANDS,
    **offline.COMMANDS,
    **play.COMMANDS,
    **environments.COMMANDS,
    **search.COMMANDS,
    **export.COMMANDS,
    **reports.COMMANDS,
    **steps.COMMANDS,
}
COMMANDS: Commands = {**OWN, **commands_of_packages(), **OWN}  # no package replaces a command of td3
COMPLETION = ("--tyro-write-completion", "--tyro-print-completion")
"""Options of tyro that write a shell's completion script: `td3 --tyro-write-completion bash FILE`."""
TRACEBACK = "--traceback"
"""Option of every command: print the Python traceback of an error above its sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake becomes one sentence and exit code 2."""
    with library_variables():  # before NumPy and PyTorch are imported
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    typed = list(sys.argv[1:] if arguments is None else arguments)
    words = [word for word in typed if word != TRACEBACK]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a path may have characters that the output's encoding lacks
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # suppressed above
    try:
        with stop_signals_as_interrupt():
            code = _run(words)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            _close_stdout()
            return _refused(f"the output cannot be written ({error.strerror}).")
        return code
    except UserError as error:
        if len(words) < len(typed):
            traceback.print_exception(error)
        return _refused("\n".join([str(error), *getattr(error, "__notes__", ())]))
    except ValueError:
        if not getattr(sys.stdout, "closed", False):
            raise
        return _refused("sys.stdout was closed while the command ran, as by an environment: remove that call.")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _close_stdout()
        return 0
    except OSError as error:  # a full disk, or a folder that was removed
        what = error.filename or "something"  # the system does not name a file that was open already
        return _refused(f"{what} could not be read or written ({error.strerror or error}).")
    finally:
        if arguments is None:  # the process ends now; a second Ctrl-C would only interrupt what packages do at exit
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        return _overview(sys.stdout if words else sys.stderr)
    if words[0] == "--version":
        return _version()
    if words[0] in COMPLETION and len(words) > 1:
        tyro.cli(_subcommands(), prog="td3", args=words)  # exits
    if words[0] == "help":
        return _run([*words[1:], "--help"])
    if words[0] == "bench" and words[1:2] in (["-h"], ["--help"]) and "bench update" in COMMANDS:
        return _overview(sys.stdout)
    name = _command_name(words)
    arguments_class, run = COMMANDS[name]
    if {*HELP, HELP_ALL} & {*words}:
        print(help_text(name, arguments_class, _defaults(name, _without_help(words)), everything=HELP_ALL in words))
        return 0
    try:
        return run(parse(words))
    except ConfigError as error:  # the user knows a setting by its option
        named = ConfigError(error.with_name(option_of(arguments_class, error.field)))
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from error.__cause__


def parse(words: Sequence[str]) -> Any:
    """The dataclass of the command that these arguments select."""
    name = _command_name(words)
    path, defaults = name.split(), _defaults(name, words)
    others = [f"--{other.replace('_', '-')}" for other in SPELLINGS] if name in ("train", "offline") else []
    options = ["--help", TRACEBACK, *option_names(COMMANDS[name][0]), *others]
    words = own_names(words[len(path) :], name)
    subcommands = _subcommands({name: defaults} if defaults is not None else {})
    return parse_arguments(subcommands, "td3", [*path, *words], name, options)


def _defaults(name: str, words: Sequence[str]) -> Any:
    """The defaults that what was typed leaves, such as those of its preset; None where they are always the same."""
    known: dict[str, Any] = {"train": train.train_defaults, "offline": offline.offline_defaults}
    return known[name](own_names(words[len(name.split()) :], name)) if name in known else None


def _without_help(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in (*HELP, HELP_ALL)]


def _subcommands(defaults: dict[str, Any] | None = None) -> Any:
    """All commands as tyro has subcommands: a union of dataclasses, and a second one below bench if it is there."""
    top: list[Any] = []
    below_bench: list[Any] = []
    for name, (arguments_class, _) in COMMANDS.items():
        default = (defaults or {}).get(name, tyro.MISSING_NONPROP)
        config = tyro.conf.subcommand(name.split()[-1], default=default, description=arguments_class.__doc__)
        (below_bench if name.startswith("bench ") else top).append(Annotated[arguments_class, config])
    if not below_bench:
        return Union[tuple(top)]  # noqa: UP007  # the members are made here
    nested: Any = Union[tuple(below_bench)]  # noqa: UP007  # the members are made here
    measure = tyro.conf.subcommand("bench", constructor_factory=lambda: nested, description="Measure speed.")
    return Union[(*top, Annotated[Any, measure])]


def _command_name(words: Sequence[str]) -> str:
    """`train`, or `bench update`."""
    name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
    if name in COMMANDS:
        return name
    if name == "bench" and "bench update" in COMMANDS:
        *others, last = (command.removeprefix("bench ") for command in COMMANDS if command.startswith("bench "))
        raise ConfigError(f"`td3 bench` measures one thing at a time: say {', '.join(others)} or {last}.")
    if name in ABSENT:
        raise ConfigError(f"`td3 {name}` {ABSENT[name]}")
    near = nearest(name, COMMANDS)
    hint = f"did you mean `td3 {near}`?" if near else f"the commands are {', '.join(COMMANDS)}."
    raise ConfigError(f"there is no command {name!r}: {hint}")


def _refused(sentence: str) -> int:
    print(f"td3: {sentence}", file=sys.stderr)
    return 2


def _close_stdout() -> None:
    with contextlib.suppress(OSError):  # it may have no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> int:
    from td3 import __version__

    print(f"td3 {__version__}")
    return 0


def _overview(stream: TextIO) -> int:
    print("td3: Twin Delayed DDPG, from one command to a trained agent\n", file=stream)
    for name, (arguments_class, _) in COMMANDS.items():
        print(f"  td3 {name:<17} {(arguments_class.__doc__ or '').split(':')[0].rstrip('.')}", file=stream)
    print("\ntd3 COMMAND --help says more.  Example: td3 train HalfCheetah-v5 --steps 50000", file=stream)
    print(f"td3 COMMAND ... {TRACEBACK} prints the Python traceback of an error.", file=stream)
    return 0 if stream is sys.stdout else 2
