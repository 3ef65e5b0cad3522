"""Who accompanies every run: time budget, TensorBoard, hints and the report, none of which can end it."""

import contextlib
import csv
import io
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from td3.config import TrainConfig
from td3.errors import RunError
from td3.evaluate import Evaluation
from td3.files import open_plain, read_regular_file
from td3.report.tracking import TensorBoard, tensorboard_installed
from td3.run.directory import LARGEST_TABLE

PARTS = ("env", "act", "update", "store", "evaluate", "save", "other")
"""What the time is booked on."""
REFRESH_SECONDS = 60.0
"""The report is written, and the doctor asked, at the first evaluation after so long, and at the end."""


class Together:
    """An observer and its companions: all are told everything; a companion that fails is left out from then on.

    Companions have those methods of an observer that they care for, and `close`.
    """

    def __init__(self, observer: Any, companions: Sequence[Any] = ()) -> None:
        self.observer, self.companions = observer, list(companions)

    def started(self, config: TrainConfig, path: Path, device: str) -> None:
        """The run begins."""
        self._tell("started", config, path, device)

    def progressed(self, env_steps: int) -> None:
        """Told to the observer alone: it happens at every step."""
        self.observer.progressed(env_steps)

    def logged(self, env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """A row of metrics per seed."""
        self._tell("logged", env_steps, rows)

    def evaluated(self, env_steps: int, evaluation: Evaluation) -> None:
        """All seeds were evaluated."""
        self._tell("evaluated", env_steps, evaluation)

    def diagnosed(self, env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """A row of diagnostics per seed."""
        self._tell("diagnosed", env_steps, rows)

    def spent(self, env_steps: int, seconds: dict[str, float]) -> None:
        """Where the time went."""
        self._tell("spent", env_steps, seconds)

    def hinted(self, text: str) -> None:
        """Something looks wrong."""
        self._tell("hinted", text)

    def noted(self, text: str) -> None:
        """Something worth knowing."""
        self._tell("noted", text)

    def warned(self, text: str) -> None:
        """Something went wrong that training survives."""
        self._tell("warned", text)

    def close(self) -> None:
        """The run is over; the observer closes itself."""
        for companion in list(self.companions):
            self._safely(companion, "close")

    def _tell(self, event: str, *facts: Any) -> None:
        getattr(self.observer, event)(*facts)
        for companion in list(self.companions):
            self._safely(companion, event, *facts)

    def _safely(self, companion: Any, event: str, *facts: Any) -> None:
        try:
            getattr(companion, event, _nothing)(*facts)
        except Exception as error:
            # Whatever it is: hours of training are worth more than a curve in a browser.
            self.companions.remove(companion)
            name, fault = type(companion).__name__, f"{type(error).__name__}: {error}"
            logging.getLogger("td3").warning("%s failed and is left out; the run goes on (%s)", name, fault)


def _nothing(*facts: Any) -> None:
    """For what a companion does not care for."""


class Companions(Together):
    """What every run has beside it; `first_step` is the env step that a resumed run goes on from."""

    def __init__(self, observer: Any, first_step: int = 0) -> None:
        super().__init__(observer)
        self._first_step = first_step

    def started(self, config: TrainConfig, path: Path, device: str) -> None:
        """Open what needs the run directory."""
        self.companions = [Times(path, device, self._first_step), Refresher(path, self.observer.hinted)]
        if tensorboard_installed():
            try:
                self.companions.append(TensorBoard(config, path, self._first_step))
            except Exception as error:  # as above: the run is worth more
                logging.getLogger("td3").warning("no TensorBoard events are written (%s)", error)
        super().started(config, path, device)


class Times:
    """times.csv: seconds of each part between evaluations, of all seeds together. It holds times: no two are alike.

    Rows beyond `first_step`, from which a resumed run goes on, are cut off.
    """

    def __init__(self, path: Path, device: str, first_step: int = 0) -> None:
        self._device, kept = device, []
        with contextlib.suppress(OSError, ValueError, csv.Error):
            text = read_regular_file(path / "times.csv", LARGEST_TABLE).decode() if first_step else ""
            rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
            kept = [row for row in rows if row and row[0].isdecimal() and int(row[0]) <= first_step]
        self._file = open_plain(path / "times.csv", "w")
        for row in (("env_steps", *PARTS, "device"), *kept):
            self._write(row)

    def spent(self, env_steps: int, seconds: dict[str, float]) -> None:
        """Write a row."""
        self._write((env_steps, *(f"{seconds.get(part, 0.0):.6f}" for part in PARTS), self._device))

    def _write(self, row: Sequence[Any]) -> None:
        csv.writer(self._file, lineterminator="\n").writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Refresher:
    """Asks the doctor and writes report.html, seldom enough to cost nothing; no hint comes twice."""

    def __init__(self, path: Path, hint: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._hint, self._clock = path, hint, clock
        self._last, self._given = clock(), set[str]()

    def spent(self, env_steps: int, seconds: dict[str, float]) -> None:
        """The last thing told of an evaluation: everything of it is on disk."""
        if self._clock() - self._last >= REFRESH_SECONDS:
            self._refresh()
            self._last = self._clock()

    def close(self) -> None:
        """The final report."""
        self._refresh()

    def _refresh(self) -> None:
        from td3.report.doctor import examine_run
        from td3.report.page import write_report
        from td3.report.records import read_run

        with contextlib.suppress(RunError):  # a run that ended before its first evaluation
            records = read_run(self._path)
            for finding in examine_run(records):
                if finding.name not in self._given:
                    self._given.add(finding.name)
                    self._hint(f"{finding.said} {finding.advice}")
            write_report([records], self._path / "report.html")
