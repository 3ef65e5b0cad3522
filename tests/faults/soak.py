"""Train for an hour while something goes wrong every minute: `python tests/faults/soak.py Pendulum-v1 60 OUT`.

Prints one JSON object: faults by kind, rows that are missing or double, memory at the start and the end, returns.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

KINDS = ("exception", "NaN", "kill", "crash in a save", "shape", "terminate")
TRIGGER = "TD3_SOAK_TRIGGER"


class Shaky(gym.Wrapper):
    """Any environment; when the trigger file appears, its next step does what the file says."""

    def __init__(self, task: str, **options: Any) -> None:
        super().__init__(gym.make(task, **options))
        self.trigger = Path(os.environ[TRIGGER])

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.trigger.exists():
            kind = self.trigger.read_text()
            if kind in ("exception", "NaN", "shape"):
                self.trigger.unlink(missing_ok=True)
            if kind == "exception":
                raise RuntimeError("injected")
            if kind == "NaN":
                reward = float("nan")
            if kind == "shape":
                observation = observation[:-1]
            if kind == "kill":
                self.trigger.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return observation, reward, terminated, truncated, info


def make(task: str, **options: Any) -> gym.Env:
    return Shaky(task, **options)


for name in ("Pendulum-v1", "HalfCheetah-v5", "Hopper-v5"):
    if f"Shaky{name}" not in gym.registry:
        limit = gym.spec(name).max_episode_steps
        gym.register(f"Shaky{name}", entry_point="faults.soak:make", kwargs={"task": name}, max_episode_steps=limit)


def train(arguments: list[str], trigger: Path) -> None:
    """In the child: train, and die inside a save when the trigger says so."""
    from td3 import cli
    from td3.run import checkpoints

    real = checkpoints.write_atomically

    def write(path: Path, content: bytes) -> Any:
        if trigger.exists() and trigger.read_text() == "crash in a save" and path.name == "state.safetensors":
            trigger.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, content)

    checkpoints.write_atomically = write
    sys.exit(cli.main(arguments))


class Soak:
    """A run, the faults injected into it, and what was seen of its process."""

    def __init__(self, task: str, minutes: float, out: Path, every: float = 60.0) -> None:
        self.task, self.out, self.trigger, self.every = task, out, out.with_suffix(".trigger"), every
        self.end = time.time() + 60 * minutes
        self.faults: Counter[str] = Counter()
        self.restarts = 0
        self.resident: list[list[tuple[float, int]]] = []

    def begin(self) -> subprocess.Popen[bytes]:
        small = ["--td3.learning-starts", "1000", "--eval-every", "5000", "--eval-episodes", "5", "--threads", "1"]
        first = ["train", f"faults.soak:Shaky{self.task}", "--steps", "100000000", "--out", str(self.out), *small]
        arguments = ["resume", str(self.out)] if (self.out / "config.json").exists() else first
        self.resident.append([])
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, __file__, "--child", str(self.trigger), *arguments],
            env={**os.environ, TRIGGER: str(self.trigger), "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
        )

    def run(self) -> None:
        process = self.begin()
        kinds, next_fault = cycle(KINDS), time.time() + self.every
        while time.time() < self.end:
            time.sleep(1)
            self.encode_batch(process)
            if process.poll() is not None:
                self.restarts += 1
                process = self.begin()
            if time.time() > next_fault:
                kind, next_fault = next(kinds), next_fault + self.every
                self.faults[kind] += 1
                if kind == "terminate":
                    process.send_signal(signal.SIGTERM)
                else:
                    self.trigger.write_text(kind)
        self.trigger.unlink(missing_ok=True)
        process.send_signal(signal.SIGTERM)
        process.wait()

    def encode_batch(self, process: subprocess.Popen[bytes]) -> None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
            self.resident[-1].append((time.time(), resident))
        except (OSError, StopIteration):
            return

    def figures(self) -> dict[str, Any]:
        from td3.run.checkpoints import Checkpoints

        checkpoint, refused = Checkpoints(self.out).newest()
        assert checkpoint is not None
        rows = sum(shard.shape[1] for _, shard in checkpoint.rows())
        finite = all(bool(np.isfinite(shard).all()) for _, shard in checkpoint.rows())
        with (self.out / "seed_0" / "metrics.csv").open() as file:
            steps = [int(row["env_steps"]) for row in csv.DictReader(file)]
        with (self.out / "seed_0" / "evaluations.csv").open() as file:
            returns = [(int(row["env_steps"]), float(row["mean_return"])) for row in csv.DictReader(file)]
        settled = [segment[len(segment) // 2 :] for segment in self.resident if len(segment) > 20]
        means = [float(np.mean([resident for _, resident in segment])) / 1024 for segment in settled]
        return {
            "task": self.task,
            "env_steps": checkpoint.env_steps,
            "faults": dict(self.faults),
            "restarts": self.restarts,
            "refused_checkpoints": refused,
            "rows_in_memory": rows,
            "rows_expected": min(checkpoint.env_steps, 1_000_000),
            "all_finite": finite,
            "metrics_rows_missing_or_double": steps != list(range(1000, 1000 * len(steps) + 1, 1000)),
            "resident_mb_of_each_process": [round(mean, 1) for mean in means],
            "returns": returns,
            "last_ten_evaluations": float(np.mean([value for _, value in returns[-10:]])),
        }


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        train(sys.argv[3:], Path(sys.argv[2]))
    else:
        soak = Soak(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), *map(float, sys.argv[4:]))
        soak.run()
        print(json.dumps(soak.figures()))
