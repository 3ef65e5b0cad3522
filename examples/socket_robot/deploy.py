"""Run an exported policy on the robot, at its control rate: needs neither td3 nor PyTorch.

python deploy.py runs/robot_Robot/latest/export
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import tyro
from connection import Connection, observation

SEEN = np.array([1.5, 2.0, 1.0])
"""Largest observations of training, either way: outside of them any answer of a network is arbitrary."""
HOLD = 0.1
"""m from the middle of the rail within which the slider has to be held."""
MOST_FAILURES = 3
"""Failed commands in a row after which the loop gives up; the driver's watchdog has braked long before."""


@dataclass
class Options:
    """Hold the slider in the middle of the rail by an exported policy."""

    export: tyro.conf.Positional[Path]  # Folder that td3 export has written
    port: int = 47001  # Where the driver listens
    periods: int = 500  # Control periods to run for
    start: float = 0.8  # Position to start from, in m


def main(options: Options) -> int:
    """Run the loop; the exit code is 0 if the slider is held at the end."""
    session = onnxruntime.InferenceSession(options.export / "actor.onnx")
    name = session.get_inputs()[0].name

    def act(state: np.ndarray) -> float:
        states = np.clip(state, -SEEN, SEEN).astype(np.float32)[None]
        return float(session.run(None, {name: states})[0][0, 0])

    act(np.zeros(3))  # the first call allocates
    driver = Connection(options.port)
    answer, command = driver.ask(home=options.start), 0.0
    slowest, missed, failures, in_a_row = 0.0, 0, 0, 0
    began = time.monotonic()
    for _ in range(options.periods):
        before = time.monotonic()
        command = act(observation(answer, command))
        slowest = max(slowest, time.monotonic() - before)
        try:
            answer, in_a_row = driver.ask(force=command), 0
        except ConnectionError as error:
            print(f"deploy: {error}", file=sys.stderr)
            failures, in_a_row, command = failures + 1, in_a_row + 1, 0.0
            if in_a_row == MOST_FAILURES:
                return 1
            continue
        missed += int(answer["missed"])
    rate = options.periods / (time.monotonic() - began)
    print(
        f"{options.periods} control periods at {rate:.1f} Hz; slowest action {1e3 * slowest:.1f} ms; {missed} missed, "
        f"{failures} failures; position {answer['position']:+.3f} m"
    )
    return 0 if abs(answer["position"]) < HOLD else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
