"""Draw a learning curve from results/TASK/evaluations.csv: `python results/plot.py halfcheetah_v5`."""

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from td3.statistics import at_the_end, mean_interval

# The paper's table: highest mean over seeds, and its standard deviation over ten seeds (arXiv 1802.09477, table 1).
PAPER = {"halfcheetah_v5": (9636.95, 859.065)}


def main(task: str) -> None:
    """Write docs/images/TASK.png and print the figures that the texts quote."""
    folder = Path(__file__).parent / task
    curves: dict[int, dict[int, float]] = defaultdict(dict)
    with (folder / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            curves[int(row["seed"])][int(row["env_steps"])] = float(row["mean_return"])
    steps = np.array(sorted(curves[0]))
    returns = np.array([[curve[step] for step in steps] for curve in curves.values()])
    low, high = mean_interval(returns)
    env = json.loads((folder / "config.json").read_text())["env"]

    figure, axes = plt.subplots(figsize=(7.2, 4), dpi=150, layout="constrained")
    axes.plot(steps / 1e6, returns.T, color="#56B4E9", linewidth=0.6, alpha=0.7)
    axes.fill_between(steps / 1e6, low, high, color="#0072B2", alpha=0.25, linewidth=0)
    axes.plot(
        steps / 1e6,
        returns.mean(0),
        color="#0072B2",
        linewidth=2,
        label=f"td3, mean of {len(returns)} seeds, 95 % interval" if len(returns) > 1 else "td3, one seed",
    )
    if task in PAPER:
        mean, spread = PAPER[task]
        axes.axhspan(mean - spread, mean + spread, color="#E69F00", alpha=0.15, linewidth=0)
        axes.axhline(mean, color="#E69F00", linestyle="--", label=f"the paper's table: {mean:,.0f} +- {spread:,.0f}")
    axes.set(
        xlabel="env steps (millions)", ylabel="return of 10 noise-free episodes", title=env, xlim=(0, steps[-1] / 1e6)
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(Path(__file__).parent.parent / "docs" / "images" / f"{task}.png")

    best = returns.mean(0).argmax()
    last = returns[:, at_the_end(steps)].mean(1)
    last_low, last_high = mean_interval(last)
    peak = returns[:, best]
    print(f"highest mean over seeds: {peak.mean():,.1f}{_spread(peak)} at {steps[best]:,}")
    within = f", 95 % interval {last_low:,.0f} to {last_high:,.0f}" if len(last) > 1 else ""
    print(f"mean over the last tenth of the env steps: {last.mean():,.1f}{within}")
    for step in sorted(
        {50_000, 75_000, 100_000, 125_000, 150_000, 200_000, 500_000, int(steps[-1])} & set(steps.tolist())
    ):
        place = list(steps).index(step)
        column = returns[:, place]
        within = f", 95 % interval {low[place]:,.0f} to {high[place]:,.0f}" if len(column) > 1 else ""
        print(f"at {step:,}: {column.mean():,.1f}{_spread(column)}{within}")


def _spread(returns: np.ndarray) -> str:
    return f" +- {returns.std(ddof=1):,.1f}" if len(returns) > 1 else ""


if __name__ == "__main__":
    main(sys.argv[1])
