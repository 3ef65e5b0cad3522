"""The line to the driver; training and deployment use the same."""

import contextlib
import json
import socket
import time
from typing import TextIO

import numpy as np

PATIENCE = 10.0
"""Seconds in which a driver that is just starting may be waited for."""


class Connection:
    """One line to one robot, opened when it is first needed and again after a failure."""

    def __init__(self, port: int, timeout: float = 0.5) -> None:
        self.port, self.timeout = port, timeout
        self.lines: TextIO | None = None
        self.user: object = None
        """Whoever moved the robot last: training and evaluation share it."""

    def ask(self, **message: float) -> dict[str, float]:
        """The driver's answer; a failure is a ConnectionError, after which the next call connects again."""
        try:
            if self.lines is None:
                self.lines = self._connect()
            self.lines.write(json.dumps(message) + "\n")
            self.lines.flush()
            if not (answer := self.lines.readline()):
                raise ConnectionError("it closed the connection")
            return json.loads(answer)
        except (OSError, ValueError) as error:
            self.close()
            raise ConnectionError(f"the driver on port {self.port} failed: {error}") from error

    def close(self) -> None:
        """Hang up."""
        lines, self.lines = self.lines, None
        if lines is not None:
            with contextlib.suppress(OSError):  # what could not be sent
                lines.close()

    def _connect(self) -> TextIO:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), self.timeout) as opened:
                    return opened.makefile("rw")  # which keeps the socket, with its timeout, until it is closed
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def observation(answer: dict[str, float], command: float) -> np.ndarray:
    """What the policy sees: position and velocity, and the command that has not reached the motor yet."""
    return np.array([answer["position"], answer["velocity"], command], np.float32)
