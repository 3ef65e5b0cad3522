"""Files of a run, read and validated: columns of its CSV tables, fields of its JSON files.

Numbers are within their ranges, texts are short and printable. A file that is missing is empty, as in a run of an
earlier version; one that holds anything else than what training writes is refused with its name, row and column.
"""

import csv
import io
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.errors import RunError
from td3.files import read_json, read_regular_file
from td3.policy import Array
from td3.run.directory import LARGEST_JSON, LARGEST_TABLE, MOST_ROWS, PARTS
from td3.run.tables import DIAGNOSTICS, METRICS

Table = dict[str, Array]
LARGEST_COUNT = 2.0**53
"""Whole numbers up to here are exact as float64."""
LARGEST_NUMBER = 1e100
"""Numbers up to here can be squared and added up; training works in float32, which ends at 3.4e38."""
LONGEST_TEXT = 2_000
MOST_COLUMNS, LONGEST_LINE = 1_000, 1 << 18
ROWS_AT_A_TIME = 1_000
"""Cells are texts, of twenty times their bytes, until they are numbers."""


class Frozen(NamedTuple):
    """Where and why training of one seed stopped while the others continued."""

    env_steps: int
    reason: str


class Wrong(ValueError):
    """A cell that cannot be read."""


@dataclass(frozen=True)
class _Number:
    """A reader of numbers within a range; `undefined` allows NaN and infinity, which a diverged run writes."""

    low: float
    high: float
    whole: bool = False
    undefined: bool = False

    def __call__(self, text: str) -> float:
        """The number in one cell."""
        try:
            value = float(text)
        except ValueError:
            value = None
        if value is None or not (self._accepts(value) or self._is_undefined(value, text)):
            description = "a whole number" if self.whole else "a number"
            also = ", NaN or infinity" if self.undefined else ""
            raise Wrong(f"{description} from {self.low:g} to {self.high:g}{also}")
        return value

    def _accepts(self, value: float) -> bool:
        return self.low <= value <= self.high and (not self.whole or value.is_integer())

    def _is_undefined(self, value: float, text: str) -> bool:
        # Digits beyond the range of float64 were not written by training.
        return self.undefined and not math.isfinite(value) and not any(map(str.isdigit, text))

    def column(self, cells: list[str]) -> Array | None:
        """All cells at once, if each is a number within the range or NaN; a report reads thousands of them."""
        try:
            values = np.array([float(cell) for cell in cells])
        except ValueError:
            return None
        fine = (values >= self.low) & (values <= self.high) & (not self.whole or values == np.floor(values))
        return values if (fine | (np.isnan(values) & self.undefined)).all() else None


def _text(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise Wrong(f"a text of at most {LONGEST_TEXT:,} characters")
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _histogram(text: str) -> Array:
    """Counts, as diagnostics.csv holds them; an empty list if there are none."""
    try:
        bars = json.loads(text)
    except (ValueError, RecursionError):
        bars = None
    is_list = isinstance(bars, list) and len(bars) <= 1_000
    if not is_list or not all(type(bar) is int and 0 <= bar <= LARGEST_COUNT for bar in bars):
        raise Wrong("a JSON list of whole numbers")
    return np.array(bars, np.float64)


_COUNT = _Number(0.0, LARGEST_COUNT, whole=True)
_MEASURED = _Number(-LARGEST_NUMBER, LARGEST_NUMBER, undefined=True)
_SIZE = _Number(0.0, LARGEST_NUMBER, undefined=True)
_SHARE = _Number(0.0, 1.0, undefined=True)
_SECONDS = _Number(0.0, LARGEST_NUMBER)
Columns = Mapping[str, Callable[[str], Any]]
METRICS_COLUMNS: Columns = {
    name: _COUNT if name in ("env_steps", "updates", "episodes", "timeouts") else _MEASURED for name in METRICS
} | {"episode_length": _SIZE}
DIAGNOSTICS_COLUMNS: Columns = dict.fromkeys(DIAGNOSTICS, _SIZE) | {
    "env_steps": _COUNT,
    **dict.fromkeys(("q_start", "return_start"), _MEASURED),
    **dict.fromkeys(("saturation", "stuck", "actor_dead", "critic_dead"), _SHARE),
    **dict.fromkeys(("policy_actions", "played_actions"), _histogram),
}
EVALUATIONS_COLUMNS: Columns = {
    "env_steps": _COUNT,
    "mean_return": _MEASURED,
    **dict.fromkeys(("std_return", "mean_length"), _SIZE),
    "success_rate": _SHARE,
}
TIMES_COLUMNS: Columns = {"env_steps": _COUNT, **dict.fromkeys(PARTS, _SECONDS), "device": _text}


def read_table(path: Path, columns: Columns) -> Table:
    """These columns of a CSV file, all of one length: empty without the file, NaN if a column is missing.

    A last line without an end is being written, and is not there yet. The header is row 1.
    """
    rows = _rows(path)
    header = next(rows, ["env_steps"])
    if "env_steps" not in header or len({*header}) < len(header) or len(header) > MOST_COLUMNS:
        raise RunError(f"{path}, row 1: the names of its columns are not those of a run: {_REMEDY}")
    places = {name: header.index(name) for name in columns if name in header}
    parts = {name: [_column(path, name, columns[name], [], 0)] for name in places}
    count = 0
    while some := list(itertools.islice(rows, ROWS_AT_A_TIME)):
        for line, row in enumerate(some, count + 2):
            if len(row) != len(header):
                raise RunError(f"{path}, row {line}: it has {len(row)} cells, and row 1 has {len(header)}: {_REMEDY}")
        for name, column in places.items():
            parts[name].append(_column(path, name, columns[name], [row[column] for row in some], count))
        count += len(some)
        if count > MOST_ROWS:
            raise RunError(f"{path} has more than {MOST_ROWS:,} rows, which no run writes: {_REMEDY}")
    return {
        name: np.concatenate(parts[name]) if name in places else _missing(read, count) for name, read in columns.items()
    }


def _rows(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV file, one after another; none without the file."""
    try:
        content = read_regular_file(path, LARGEST_TABLE)
        lines = io.TextIOWrapper(io.BytesIO(content[: content.rfind(b"\n") + 1]), "utf-8", newline="")
        yield from csv.reader(iter(lambda: lines.readline(LONGEST_LINE), ""), strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): put the run's own file there.") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}): {_REMEDY}") from None
    except csv.Error as error:
        raise RunError(f"{path} is damaged: it is not CSV ({error}). {_REMEDY.capitalize()}") from None


def _column(path: Path, name: str, read: Callable[[str], Any], cells: list[str], before: int) -> Array:
    """The values of these cells, which have so many rows before them."""
    if isinstance(read, _Number) and (quickly := read.column(cells)) is not None:
        return quickly
    values = np.empty(len(cells), np.float64 if isinstance(read, _Number) else object)
    for line, cell in enumerate(cells, before + 2):
        try:
            values[line - before - 2] = read(cell)
        except Wrong as wrong:
            raise RunError(f"{path}, row {line}, column {name}: {_shown(cell)} is not {wrong}: {_REMEDY}") from None
    return values


def _missing(read: Callable[[str], Any], rows: int) -> Array:
    """The same value in every row, which takes the memory of one."""
    value = np.empty(1, np.float64 if isinstance(read, _Number) else object)
    if isinstance(read, _Number):
        value[0] = 0.0 if read is _SECONDS else np.nan
    else:
        value[0] = np.zeros(0) if read is _histogram else ""
    return np.broadcast_to(value, (rows,))


_REMEDY = "restore the file, or delete it to read the run without it."


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = _text(value[:41] if isinstance(value, str) else json.dumps(value)[:41])
    text = f"{text[:40]}..." if len(text) > 40 else text
    return repr(text) if isinstance(value, str) else text


def _read_object(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path, LARGEST_JSON)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): put the run's own file there.") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged: it is not JSON ({str(error)[:200]}). {_REMEDY.capitalize()}") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} is damaged: {_shown(values)} is not an object. {_REMEDY.capitalize()}")
    return values


def read_versions(path: Path) -> dict[str, str]:
    """versions.json: packages and their versions."""
    return {_field(path, "names", name): _field(path, name, value) for name, value in _read_object(path).items()}


def read_status(path: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """status.json: the fields that are used; others are ignored. `frozen` is by seed."""
    values = _read_object(path)
    kinds = {"status": str, "reason": str, "env_steps": int, "seconds": float, "saving_seconds": float}
    status: dict[str, Any] = {name: _field(path, name, values[name], kinds[name]) for name in kinds if name in values}
    frozen = values.get("frozen", {})
    by_name = {str(seed): seed for seed in seeds}
    if not isinstance(frozen, dict) or not all(isinstance(facts, dict) for facts in frozen.values()):
        raise RunError(f"{path}, field frozen: {_shown(frozen)} is not an object of objects: {_REMEDY}")
    if unknown := [name for name in frozen if name not in by_name]:
        raise RunError(f"{path}, field frozen: {_shown(unknown[0])} is not a seed of this run: {_REMEDY}")
    status["frozen"] = {
        by_name[name]: Frozen(
            _field(path, f"frozen.{name}.env_steps", facts.get("env_steps"), int),
            _field(path, f"frozen.{name}.reason", facts.get("reason", "no reason was written")),
        )
        for name, facts in frozen.items()
    }
    return status | {"critics_trained": values.get("critics_trained") is not False}


def _field(path: Path, name: str, value: Any, wanted: type = str) -> Any:
    """One value of a JSON file, as the cells of tables are read."""
    try:
        if wanted is str:
            if not isinstance(value, str):
                raise Wrong("a text")
            return _text(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Wrong("a number")
        # Not by float(): a number of hundreds of digits has no float.
        number = (_COUNT if wanted is int else _SECONDS)(repr(value))
        return int(number) if wanted is int else number
    except Wrong as wrong:
        raise RunError(f"{path}, field {_text(name[:80])}: {_shown(value)} is not {wrong}: {_REMEDY}") from None
