"""A simulated robot and its driver: a slider on a rail, commanded over a socket, as a motor controller is.

    python driver.py

The driver has one client at a time. Each line it gets is JSON, and it answers each with one line:

    {"home": 0.5}     move to this position in m and stop there: the start of an episode
    {"force": -0.2}   drive with this share of the largest force until the next control period ends

It answers at the end of the control period, so its client runs at the control rate. Like a real one it fails now and
then: it drops the connection, or it does not answer.
"""

import json
import random
import socket
import time
from dataclasses import dataclass
from typing import TextIO

import tyro

PERIOD = 0.05
"""Seconds of a control period in the robot's own time."""
LARGEST_FORCE, FRICTION = 8.0, 4.0
"""N, and N s/m."""
RAIL = 1.5
"""m from the middle to the end stops."""
WATCHDOG = 5
"""Missed control periods after which the motor brakes."""


@dataclass
class Options:
    """Start the simulated driver; it ends by Ctrl-C, or when nobody has connected for a while."""

    port: int = 47001  # Where it listens, on this machine only; 0 for any free port, which it prints
    rate: float = 20.0  # Control periods per second of wall-clock time; 0 for as fast as commands come
    latency: float = 0.002  # Seconds between the end of a control period and the answer
    mass: float = 1.0  # Of the slider, in kg
    failures: float = 0.0005  # Probability of a failure, per command
    seed: int = 0  # Seed of the failures
    idle: float = 600.0  # Seconds without a client after which it ends


class Slider:
    """The physics: a command reaches the motor one control period late."""

    def __init__(self, mass: float) -> None:
        self.mass, self.position, self.velocity = mass, 0.0, 0.0
        self.command = 0.0

    def home(self, position: float) -> None:
        """Stand still at a position."""
        self.position, self.velocity, self.command = position, 0.0, 0.0

    def advance(self, command: float) -> None:
        """One control period, driven by the command before this one."""
        force = LARGEST_FORCE * self.command - FRICTION * self.velocity
        self.velocity += PERIOD * force / self.mass
        self.position += PERIOD * self.velocity
        if abs(self.position) > RAIL:  # the end stops
            self.position, self.velocity = max(-RAIL, min(RAIL, self.position)), 0.0
        self.command = max(-1.0, min(1.0, command))


class Driver:
    """Answers one client after another."""

    def __init__(self, options: Options) -> None:
        self.options, self.slider, self.random = options, Slider(options.mass), random.Random(options.seed)
        self.period = 1 / options.rate if options.rate > 0 else 0.0
        self.period_ends = 0.0

    def serve(self) -> None:
        """Listen until nobody connects any more."""
        with socket.create_server(("127.0.0.1", self.options.port)) as listener:
            print(f"driver: listening on port {listener.getsockname()[1]}", flush=True)
            listener.settimeout(self.options.idle)
            while True:
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    return
                connection.settimeout(self.options.idle)
                try:
                    with connection, connection.makefile("rw") as lines:
                        self.answer(lines)
                except OSError as error:
                    print(f"driver: {error}", flush=True)

    def answer(self, lines: TextIO) -> None:
        """Answer a client until it leaves."""
        for line in lines:
            message = json.loads(line)
            failure = self.random.random()
            if failure < self.options.failures:
                if failure < self.options.failures / 2:
                    raise ConnectionAbortedError("overcurrent: connection dropped")
                print("driver: a command was lost", flush=True)
                continue
            missed = self.wait()
            if "home" in message:
                self.slider.home(message["home"])
            else:
                self.slider.advance(message["force"])
            answer = {"position": self.slider.position, "velocity": self.slider.velocity, "missed": missed}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()

    def wait(self) -> int:
        """Wait for the end of the control period; returns how many were missed, which the last command drove."""
        if not self.period:
            return 0
        now = time.monotonic()
        missed = max(0, int((now - self.period_ends) / self.period))
        for _ in range(min(missed, WATCHDOG)):
            self.slider.advance(self.slider.command)
        if missed > WATCHDOG:
            self.slider.home(self.slider.position)  # the brake
        self.period_ends = now + self.period if missed else self.period_ends + self.period
        time.sleep(max(0.0, self.period_ends - now) + self.options.latency)
        return missed


if __name__ == "__main__":
    Driver(tyro.cli(Options)).serve()
