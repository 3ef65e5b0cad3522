"""Where in the user's own code an exception came from: file, line and source line, below an error's sentence.

The lines are a note of the error (PEP 678): Python prints it below the sentence too, and it survives pickling. The
exception itself is the error's cause.
"""

import linecache
import os
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from td3.errors import EnvironmentFault, UserError

Error = TypeVar("Error", bound=UserError)
MOST_FRAMES = 5
"""Frames of the user's code that are shown, the innermost ones."""
LONGEST_TEXT = 300
"""Maximum characters of an exception's text; an environment may raise megabytes."""
OWN = str(Path(__file__).parent)
INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class WorkerError(Exception):
    """An exception of another process, as the text of its traceback."""

    def __str__(self) -> str:
        """The traceback, set off from this process's own."""
        return f'\n"""\n{self.args[0]}"""'


class Reason(str):
    """The sentence of an error, with its cause and its notes."""

    __cause__: BaseException | None = None
    __notes__: Sequence[str] = ()


def short(error: BaseException) -> str:
    """The error's type and text in one short line; only its type if it has no text or cannot be printed."""
    try:
        text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "its text cannot be printed"
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= LONGEST_TEXT else f"{line[:LONGEST_TEXT]} ..."


def describe(error: BaseException) -> str:
    """The error's type and text, and the file and line of the user's code that raised it, in one line."""
    frames = user_frames(error)
    return f"{short(error)} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else short(error)


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames outside this package, Python and installed packages; else the innermost one, of an installed package.

    A file that cannot be parsed is a frame of its own.
    """
    codes = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = [(code, line) for code, line in codes if not _is_in(code.co_filename, (OWN, *INSTALLED))]
    if not found and codes and not _is_ours(codes[-1][0].co_filename):
        found = codes[-1:]  # an environment that was installed
    frames = [traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in found if line]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append(traceback.FrameSummary(error.filename, error.lineno, "<module>", line=error.text))
    return frames[-MOST_FRAMES:]


def lines_of(error: BaseException) -> str:
    """The user's frames, as Python prints them, and the exception; empty where no line of the user's raised it."""
    linecache.checkcache()
    frames = user_frames(error)
    return "".join([*traceback.format_list(frames), short(error)]) if frames else ""


def with_lines(fault: Error, error: BaseException) -> Error:
    """The fault, with the user's lines of the error below its sentence."""
    if lines := lines_of(error):
        fault.add_note(lines)
    return fault


def reason_of(fault: BaseException) -> Reason:
    """The sentence of a fault, with its cause and its notes."""
    return reworded(fault, str(fault))


def reworded(told: BaseException | str, sentence: str) -> Reason:
    """Another sentence with the cause and the notes of an error or of a reason."""
    reason = Reason(sentence)
    reason.__cause__, reason.__notes__ = getattr(told, "__cause__", None), list(getattr(told, "__notes__", ()))
    return reason


def fault_of(told: BaseException | str, sentence: str = "", kind: type[Error] = EnvironmentFault) -> Error:  # type: ignore[assignment]  # of the type variable
    """An error to raise for a reason, or another one in the place of an error, with its cause and its notes."""
    fault = kind(sentence or str(told))
    fault.__cause__ = getattr(told, "__cause__", None)
    for note in getattr(told, "__notes__", ()):
        fault.add_note(note)
    return fault


def _is_in(file: str, folders: Sequence[str]) -> bool:
    return file.startswith(("<frozen", *(f"{folder}{os.sep}" for folder in folders)))


def _is_ours(file: str) -> bool:
    """Whether it is of this package, Python, or Gymnasium, whose own errors say enough."""
    in_python = _is_in(file, INSTALLED) and "site-packages" not in file
    return in_python or _is_in(file, (OWN,)) or "gymnasium" in Path(file).parts
