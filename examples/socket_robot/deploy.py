"""Run an exported policy on the robot, at its control rate: `python deploy.py runs/robot_Robot/latest/export`.

It needs NumPy and onnxruntime, and neither td3 nor PyTorch.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from connection import Connection, observation

SEEN = np.array([1.5, 2.0, 1.0])
"""Largest observations of training, either way: outside of them any answer of a network is arbitrary."""
MOST_FAILURES = 3
"""Failed commands in a row after which the loop gives up; the driver's watchdog has braked long before."""


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Hold the slider in the middle of the rail by an exported policy.")
    parser.add_argument("export", type=Path, help="folder that td3 export has written")
    parser.add_argument("--port", type=int, default=47001, help="where the driver listens")
    parser.add_argument("--periods", type=int, default=200, help="control periods to run for")
    parser.add_argument("--start", type=float, default=0.8, help="position to start from, in m")
    return parser.parse_args()


def main(export: Path, port: int, periods: int, start: float) -> int:
    """Run the loop; the exit code is 1 if it gave up."""
    session = onnxruntime.InferenceSession(export / "actor.onnx")
    name = session.get_inputs()[0].name

    def act(state: np.ndarray) -> float:
        states = np.clip(state, -SEEN, SEEN).astype(np.float32)[None]
        return float(session.run(None, {name: states})[0][0, 0])

    act(np.zeros(3))  # the first call allocates
    driver = Connection(port)
    answer, command = driver.ask(home=start), 0.0
    slowest, missed, failures, in_a_row = 0.0, 0, 0, 0
    began = time.monotonic()
    for _ in range(periods):
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
    rate = periods / (time.monotonic() - began)
    print(
        f"{periods} control periods at {rate:.1f} Hz; slowest action {1e3 * slowest:.1f} ms; {missed} missed, "
        f"{failures} failures; position {answer['position']:+.3f} m"
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(**vars(options())))
    except ConnectionError as error:  # before the slider has moved
        sys.exit(f"deploy: {error}")
