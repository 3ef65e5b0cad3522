"""Play learned policies in ordinary Gymnasium on the host: `python -m td3_lab.worlds.play RUN [--episodes N]`.

Reads the policies that `learn.py` wrote at moments of the training and writes `RUN/curve.csv`.
"""

import argparse
import csv
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from td3_lab.worlds.policy import Policy


def play(task: str, path: Path, seed: int) -> tuple[float, int]:
    """Return the return and the length of one episode, without noise."""
    policy, env = Policy.load(path), gymnasium.make(task)
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    observation, _ = env.reset(seed=seed)
    total, length, ended = 0.0, 0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(middle + half * policy(observation))
        total, length, ended = total + float(reward), length + 1, terminated or truncated
    return total, length


def curve(run: Path, episodes: int, processes: int) -> list[dict[str, Any]]:
    """Play every policy of a run and write the learning curve."""
    moments = [json.loads(line) for line in (run / "moments.jsonl").read_text().splitlines()]
    task = json.loads((run / "settings.json").read_text())["task"]
    jobs = [(task, run / moment["policy"], 10_000 + seed) for moment in moments for seed in range(episodes)]
    with ProcessPoolExecutor(processes) as pool:
        results = list(pool.map(play, *zip(*jobs, strict=True)))
    rows = []
    for index, moment in enumerate(moments):
        returns, lengths = np.array(results[index * episodes : (index + 1) * episodes]).T
        figures = {"return": returns.mean(), "std": returns.std(), "length": lengths.mean()}
        rows.append({**moment, **{key: round(float(value), 1) for key, value in figures.items()}})
    with (run / "curve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def main() -> None:
    """Play the policies of the named runs and print the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    for run in options.runs:
        for row in curve(run, options.episodes, options.processes):
            line = "{seconds:7.1f} s {env_steps:11,} steps {updates:8,} updates  return {return:8.1f} +- {std:.0f}"
            print(f"{run.name}: {line.format(**row)}  length {row['length']:.0f}", flush=True)


if __name__ == "__main__":
    main()
