"""The callbacks that every run has, and two of them: times.csv, and the report with the doctor's hints."""

import contextlib
import csv
import io
import itertools
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from td3.callbacks.agents import AgentCallback
from td3.callbacks.callback import Callback
from td3.callbacks.checkpoints import CheckpointCallback, StatusCallback
from td3.callbacks.evaluation import EvaluationCallback
from td3.callbacks.logs import LogCallback
from td3.callbacks.notes import DivergenceCallback, NotesCallback
from td3.callbacks.tracking import TensorBoard, tensorboard_installed
from td3.config import TrainConfig
from td3.errors import RunError
from td3.files import open_plain, read_regular_file
from td3.run.directory import LARGEST_TABLE, MOST_ROWS, PARTS
from td3.run.tables import MemberWriter

if TYPE_CHECKING:
    from td3.training import Trainer

REFRESH_SECONDS = 60.0
"""The report is written, and the doctor asked, at the first evaluation after so long, and at the end."""


def standard_callbacks(trainer: "Trainer", given: Sequence[Callback] = ()) -> list[Callback]:
    """All callbacks of a run, in the order in which events reach them.

    Tables, agents and status are on disk before the given callbacks are told; checkpoints are written when all are.
    """
    config, checkpoints = trainer.config, CheckpointCallback(trainer.path)
    trackers: list[Callback] = [TensorBoard()] if tensorboard_installed() else []
    return [
        LogCallback(config),
        AgentCallback(config),
        StatusCallback(checkpoints),
        NotesCallback(),
        EvaluationCallback(trainer.evaluator),
        *given,
        TimesCallback(),
        ReportCallback(),
        *trackers,
        DivergenceCallback(),
        checkpoints,
    ]


def open_files_of(config: TrainConfig) -> int:
    """Files that a run keeps open: the tables of every seed, and what TensorBoard shows of it."""
    return config.seeds * (len(MemberWriter.FILES) + tensorboard_installed())


class TimesCallback(Callback):
    """times.csv: seconds of each part between evaluations, of all seeds together.

    Rows beyond the env step from which a run is resumed are cut off.
    """

    optional = True
    _file: IO[str] | None = None

    def on_training_start(self, trainer: "Trainer") -> None:
        """Open the table."""
        path, kept = trainer.path / "times.csv", []
        with contextlib.suppress(OSError, ValueError, csv.Error):
            content = read_regular_file(path, LARGEST_TABLE) if trainer.first_step else b""
            rows = csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""))
            whole = (row for row in rows if len(row) == len(PARTS) + 2 and row[0].isdecimal())
            kept = [row for row in itertools.islice(whole, MOST_ROWS) if int(row[0]) <= trainer.first_step]
        self._file = open_plain(path, "w")
        for row in (("env_steps", *PARTS, "device"), *kept):
            self._write(row)

    def on_timing(self, trainer: "Trainer", seconds: dict[str, float]) -> None:
        """Write a row."""
        self._write((trainer.env_steps, *(f"{seconds.get(part, 0.0):.6f}" for part in PARTS), trainer.placement))

    def on_training_end(self, trainer: "Trainer") -> None:
        """Close the table."""
        if self._file:
            self._file.close()

    def _write(self, row: Sequence[Any]) -> None:
        assert self._file is not None
        csv.writer(self._file, lineterminator="\n").writerow(row)
        self._file.flush()


class ReportCallback(Callback):
    """report.html and the doctor's hints, seldom enough to cost nothing; no hint comes twice."""

    optional = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last, self._given = clock(), set[str]()

    def on_timing(self, trainer: "Trainer", seconds: dict[str, float]) -> None:
        """The last event of an evaluation: everything of it is on disk."""
        if self._clock() - self._last >= REFRESH_SECONDS:
            self._refresh(trainer)
            self._last = self._clock()

    def on_training_end(self, trainer: "Trainer") -> None:
        """The final report."""
        self._refresh(trainer)

    def _refresh(self, trainer: "Trainer") -> None:
        from td3.report.doctor import examine_run
        from td3.report.records import read_run
        from td3.report.render import write_report

        # A run that ended before its first evaluation, or was moved away.
        with contextlib.suppress(RunError, FileNotFoundError):
            records = read_run(trainer.path)
            for finding in examine_run(records):
                if finding.name not in self._given:
                    self._given.add(finding.name)
                    trainer.callbacks.on_hint(trainer, f"{finding.said} {finding.advice}")
            write_report([records], trainer.path / "report.html")
