"""Do many small runs still give the same bits? Store their hashes before a rebuild, check them after every move.

    python lab/safety_net.py --store               # before: writes lab/safety_net.json
    python lab/safety_net.py                       # after: names every configuration that differs, exit code 1
    python lab/safety_net.py --only n-step         # some of them
    python lab/safety_net.py --without replay       # where the layout of rows was changed on purpose

Hashed are the weights of the last agents with their targets, the tables of metrics, the evaluations and the stored
transitions. The bits depend on the processor and on PyTorch, so the file names both, and a check on another machine is
refused: store the hashes of the older commit there first.
"""

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from safetensors.numpy import load_file

import td3

FILE = Path(__file__).with_suffix(".json")
SMALL: dict[str, Any] = {
    "steps": 600,
    "hidden_sizes": (32, 32),
    "batch_size": 32,
    "learning_starts": 200,
    "eval_every": 300,
    "eval_episodes": 2,
    "save_every": 600,  # by default it depends on the clock, and with it how transitions are cut into files
}
CLOCKS = ("seconds", "time", "wall")


class Reacher(gym.Env[Any, Any]):
    """Move a point towards a goal: short episodes that end at different times."""

    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, goals: bool = False) -> None:
        box = gym.spaces.Box(-4, 4, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal") if goals else ("observation", "desired_goal")
        self.goals, self.observation_space = goals, gym.spaces.Dict(dict.fromkeys(names, box))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.point, self.goal = self.np_random.uniform(-1, 1, (2, 1)).astype(np.float32)
        self.time, self.length = 0, int(self.np_random.integers(5, 20))
        return self._shown(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Move."""
        self.point, self.time = np.clip(self.point + 0.2 * action, -3, 3).astype(np.float32), self.time + 1
        reward = self.compute_reward(self.point, self.goal, {})
        near = not self.goals and abs(float(self.point[0] - self.goal[0])) < 0.02
        return self._shown(), float(reward), near, self.time >= (12 if self.goals else self.length), {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """Minus the distance, as hindsight asks for it."""
        return -np.abs(np.asarray(achieved) - np.asarray(desired)).sum(-1)

    def _shown(self) -> dict[str, Any]:
        shown = {"observation": self.point, "achieved_goal": self.point, "desired_goal": self.goal}
        return {name: shown[name].copy() for name in self.observation_space}


def flat_reacher() -> gym.Env[Any, Any]:
    """The same in one vector."""
    return gym.wrappers.FlattenObservation(Reacher())


def goal_reacher() -> gym.Env[Any, Any]:
    """With the goal that was achieved, for hindsight."""
    return gym.wrappers.TimeLimit(Reacher(goals=True), 12)


def same_step(num_envs: int, seed: int) -> VectorEnv[Any, Any, Any]:
    """A vector environment that resets in the step in which an episode ends."""
    return SyncVectorEnv([flat_reacher] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def next_step(num_envs: int, seed: int) -> VectorEnv[Any, Any, Any]:
    """A vector environment that resets in the step after."""
    return SyncVectorEnv([flat_reacher] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def disabled(num_envs: int, seed: int) -> VectorEnv[Any, Any, Any]:
    """A vector environment that is reset by its user."""
    return SyncVectorEnv([flat_reacher] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def huber(q_values: torch.Tensor, target_q: torch.Tensor, step_state: dict[str, torch.Tensor]) -> torch.Tensor:
    """A replaced step 11 with state of its own."""
    step_state["calls"] += 1
    error = (q_values - target_q).abs()
    return torch.where(error < 1, 0.5 * error.square(), error - 0.5).mean(-1).sum(0)


def _huber() -> Any:
    return td3.replace_step(11, state={"calls": 1})(huber)


def train(env: Any = "Pendulum-v1", **settings: Any) -> Callable[[Path], None]:
    """A configuration that trains once."""
    return lambda out: _train(env, out, **settings)


def _train(env: Any, out: Path, **settings: Any) -> None:
    td3.train(env, out=out, **{**SMALL, **settings})


def replaced(out: Path) -> None:
    """A step of the user's own."""
    _train("Pendulum-v1", out, replace_steps=[_huber()], seeds=2)


def resumed(out: Path) -> None:
    """A run that is extended."""
    _train("Pendulum-v1", out, steps=400, variant=("prioritized",))
    td3.resume(out, steps=600)


def offline(out: Path) -> None:
    """TD3+BC from the transitions of another run."""
    from td3.config import resolve
    from td3.training.api import train_run

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        _train("Pendulum-v1", source, steps=400)
        small = {**SMALL, "learning_starts": 0, "steps": 300}
        train_run(resolve("Pendulum-v1", dataset=str(source), out=out, variant=("behavior-cloning",), **small))


def continued(out: Path) -> None:
    """A run that begins with another's agent and transitions."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        _train("Pendulum-v1", source, steps=400)
        _train("Pendulum-v1", out, init_from=str(source))


CONFIGURATIONS: dict[str, Callable[[Path], None]] = {
    "recorded": train(),
    "eager": train(engine="eager"),
    "three seeds in threads": train(seeds=3, threads=2),
    "four environments": train(envs=4, utd_ratio=0.5),
    "workers in threads": train(envs=2, workers="threads"),
    "workers in processes": train(envs=2, workers="processes", seeds=2),
    "mujoco in a batch": train("HalfCheetah-v5", envs=2, seeds=2, steps=400),
    "vector, same step": train(same_step, envs=8),
    "vector, next step": train(next_step, envs=8),
    "vector, disabled": train(disabled, envs=8),
    "vector, two seeds": train(same_step, envs=4, seeds=2),
    "no-delay": train(variant=("no-delay",)),
    "no-smoothing": train(variant=("no-smoothing",)),
    "no-twin": train(variant=("no-twin",)),
    "ddpg": train(variant=("ddpg",)),
    "layer-norm": train(variant=("layer-norm",), seeds=2),
    "prioritized": train(variant=("prioritized",), buffer_size=300),
    "n-step": train(flat_reacher, variant=("n-step",), n_step=3, buffer_size=300),
    "n-step, vector": train(same_step, envs=4, variant=("n-step",), n_step=3),
    "n-step and prioritized": train(flat_reacher, variant=("n-step", "prioritized"), seeds=2),
    "hindsight": train(goal_reacher, variant=("hindsight",)),
    "hindsight, three environments": train(goal_reacher, variant=("hindsight",), envs=3, seeds=2),
    "normalized observations": train(normalize_observations=True, seeds=2),
    "updates after episodes": train(flat_reacher, train_freq="episode", seeds=2),
    "linear rate, two updates": train(learning_rate_schedule="linear", utd_ratio=2.0),
    "a small ring": train(buffer_size=100, timeouts="terminate"),
    "sgd, elu, orthogonal": train(optimizer="sgd", activation="elu", initialization="orthogonal"),
    "action repeat": train(action_repeat=2),
    "pixels": train(pixels=True, image_size=32, frames=2, steps=120, learning_starts=60, eval_every=60, save_every=120),
    "preset paper": train(preset="paper"),
    "preset bullet": train(preset="bullet"),
    "replaced step": replaced,
    "resumed": resumed,
    "offline": offline,
    "continued from a run": continued,
}


def hashes_of(name: str) -> tuple[str, dict[str, str], float]:
    """Train a configuration; its hashes and seconds."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        CONFIGURATIONS[name](run)
        return name, _hashes(run), time.perf_counter() - begun


def _hashes(run: Path) -> dict[str, str]:
    """Short hashes of what a run learned."""
    parts = {kind: hashlib.sha256() for kind in ("weights", "metrics", "evaluations", "replay")}
    for file in sorted(run.rglob("last/agent.safetensors")) or sorted(run.rglob("agent.safetensors")):
        # Whatever names and order a file has: the numbers are what must stay.
        for array in sorted((a.tobytes() for a in load_file(file).values()), key=lambda b: (len(b), b)):
            parts["weights"].update(array)
    for table in ("metrics", "evaluations"):
        for file in sorted(run.rglob(f"{table}.csv")):
            with file.open(newline="") as lines:
                for row in csv.DictReader(lines):
                    kept = {k: v for k, v in row.items() if not any(word in k for word in CLOCKS)}
                    parts[table].update(repr(sorted(kept.items())).encode())
    for file in sorted(run.rglob("replay_buffer/*.safetensors")):
        for _, array in sorted(load_file(file).items()):
            parts["replay"].update(array.tobytes())
    return {kind: part.hexdigest()[:16] for kind, part in parts.items()}


def machine() -> dict[str, str]:
    """What the bits depend on."""
    with Path("/proc/cpuinfo").open() as lines:
        flags = next((line for line in lines if line.startswith("flags")), "")
    processor = hashlib.sha256(flags.encode()).hexdigest()[:8]
    return {"python": platform.python_version(), "torch": torch.__version__, "processor": processor}


def main() -> int:
    """Store or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="store_true", help="write the hashes instead of comparing them")
    parser.add_argument("--only", default="", help="configurations whose name has this text")
    parser.add_argument("--without", nargs="*", default=[], help="hashes that are not compared")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    stored = json.loads(FILE.read_text()) if FILE.exists() else {"machine": machine(), "hashes": {}}
    if not options.store and stored["machine"] != machine():
        print(f"{FILE.name} is of {stored['machine']}, and this is {machine()}: store the older commit's hashes here.")
        return 2
    names = [name for name in CONFIGURATIONS if options.only in name]
    differing = 0
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        for name, hashes, seconds in pool.map(hashes_of, names):
            before = stored["hashes"].get(name, {})
            changed = [k for k in hashes if hashes[k] != before.get(k) and k not in options.without]
            if options.store:
                stored["hashes"][name] = hashes
            differing += bool(changed)
            print(f"{name:32} {seconds:6.1f} s  {'differs: ' + ', '.join(changed) if changed else 'equal'}", flush=True)
    if options.store:
        FILE.write_text(json.dumps({**stored, "machine": machine()}, indent=1) + "\n")
        return 0
    print(f"{len(names) - differing} of {len(names)} equal")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
