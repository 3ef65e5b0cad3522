"""Run directories: written by hand, healthy or with one thing changed, and short real ones."""

import csv
import json
from pathlib import Path

import gymnasium as gym
import jaxtyping
import numpy as np

import td3
from td3.config import resolve
from td3.environments.rail import Rail
from td3.run.tables import DIAGNOSTICS, METRICS

HEALTHY = {
    "q_start": 480.0,
    "return_start": 500.0,
    "saturation": 0.3,
    "stuck": 0.0,
    "actor_dead": 0.2,
    "critic_dead": 0.1,
    "actor_gradient": 1e-3,
    "exploration": 0.12,
    "observation_scale": 5.0,
    "observation_spread": 2.0,
    "reward_scale": 5.0,
    "policy_actions": json.dumps([5] * 20),
    "played_actions": json.dumps([5] * 20),
}
PER_ROW = {
    "episodes": 1,
    "timeouts": 1,
    "episode_return": 900.0,
    "episode_length": 1_000.0,
    "critic_loss": 3.0,
    "actor_loss": -200.0,
    "mean_q": 200.0,
}


def write_rows(path: Path, header, rows) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


EVALUATIONS = ("env_steps", "mean_return", "std_return", "mean_length", "success_rate")


def make_run(
    folder: Path,
    seeds: int = 2,
    evaluations: int = 21,
    every: int = 5_000,
    final: float = 1_000.0,
    spread: float = 20.0,
    ill_seed: int | None = None,
    env: str = "HalfCheetah-v5",
    mujoco: str = "3.4.0",
    status: str | None = "finished",
    slow: float = 1.0,
    updates: float | None = None,
    frozen: tuple[int, ...] = (),
    **changes,
) -> Path:
    """A run of `evaluations` evaluations; `changes` go to the config, to rows of metrics or to rows of diagnostics.

    With `ill_seed` the changed rows are that seed's alone.
    """
    config = {name: changes.pop(name) for name in list(changes) if name not in HEALTHY | PER_ROW}
    steps = np.arange(evaluations) * every
    resolved = resolve(env, steps=int(steps[-1]) or 1, seeds=seeds, out=folder, **{"learning_starts": 1_000, **config})
    ratio = resolved.td3.utd_ratio
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(resolved.to_json()))
    (folder / "versions.json").write_text(json.dumps({"python": "3.11", "mujoco": mujoco}))
    if status:
        stopped = {str(seed): {"env_steps": int(steps[-1]), "reason": "its loss was NaN"} for seed in frozen}
        known = {"status": status, "env_steps": int(steps[-1]), **({"frozen": stopped} if stopped else {})}
        (folder / "status.json").write_text(json.dumps(known))
    parts = ("env", "act", "update", "store", "evaluate", "save", "other")
    seconds = 0.009 * slow * every * seeds * ratio
    times = [(step, 1, 1, seconds, 0.1, 1, 0.1, 0.1, "cpu") for step in steps]
    write_rows(folder / "times.csv", ("env_steps", *parts, "device"), times)
    for number, seed in enumerate(resolved.member_seeds):
        own = folder / f"seed_{seed}"
        own.mkdir()
        random = np.random.default_rng(seed)
        curve = final * steps / max(steps[-1], 1) + (number - (seeds - 1) / 2) * spread
        returns = curve[:, None] + random.normal(0, 1, (evaluations, 4))
        np.savez(own / "evaluations.npz", timesteps=steps, results=returns, ep_lengths=np.full_like(returns, 1000))
        told = [(step, row.mean(), row.std(), 1000.0, 0.5) for step, row in zip(steps, returns, strict=True)]
        write_rows(own / "evaluations.csv", EVALUATIONS, told)
        ill = changes if ill_seed in (None, seed) else {}
        logged = np.arange(1_000, steps[-1] + 1, 1_000)
        rows = [
            {
                **PER_ROW,
                "env_steps": step,
                "updates": int(max(0, step - 1_000) * ratio) if updates is None else updates,
                **{name: value for name, value in ill.items() if name in PER_ROW},
            }
            for step in logged
        ]
        write_rows(own / "metrics.csv", METRICS, [[row[name] for name in METRICS] for row in rows])
        figures = {**HEALTHY, **{name: value for name, value in ill.items() if name in HEALTHY}}
        table = [[step if name == "env_steps" else figures[name] for name in DIAGNOSTICS] for step in steps]
        write_rows(own / "diagnostics.csv", DIAGNOSTICS, table)
    return folder


class LoudRail(Rail):
    """Rewards and observations ten thousand times as large."""

    def __init__(self):
        super().__init__()
        self.observation_space = gym.spaces.Box(-3e4, 3e4, (2,))

    def reset(self, **options):
        state, info = super().reset(**options)
        return 1e4 * state, info

    def step(self, action):
        state, reward, *rest = super().step(action)
        return 1e4 * state, 1e4 * reward, *rest


if "LoudRail-v0" not in gym.registry:
    gym.register("LoudRail-v0", entry_point=LoudRail, max_episode_steps=100)


SHORT = {
    "hidden_sizes": (32, 32),
    "batch_size": 32,
    "learning_starts": 200,
    "threads": 1,
    "eval_episodes": 2,
    "device": "cpu",
    "steps": 3_000,
    "eval_every": 150,
}


def train_short(out: Path, env: str, **fields) -> td3.Run:
    """A real run of a few seconds; without the shape checks it takes a quarter of the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        return td3.train(env, **{**SHORT, "out": out, **fields})
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
