"""Draw the learning curve of Pendulum from pixels: `python results/pendulum_pixels/plot.py`."""

import csv
from pathlib import Path

import matplotlib.pyplot as plt

RANDOM = -1155.8
"""Mean return of the run's first ten episodes, whose actions are random."""

here = Path(__file__).parent
with (here / "evaluations.csv").open() as file:
    rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
steps, means, spreads = ([row[name] for row in rows] for name in ("env_steps", "mean_return", "std_return"))

figure, axes = plt.subplots(figsize=(7.2, 3.6), dpi=150, layout="constrained")
axes.errorbar(steps, means, spreads, color="#0072B2", linewidth=2, capsize=3, label="td3, one seed, +- std")
axes.axhline(RANDOM, color="#E69F00", linestyle="--", label=f"random actions: {RANDOM:,.0f}")
axes.set(
    xlabel="env steps (each is two steps of the pendulum)",
    ylabel="return of 5 noise-free episodes",
    title="Pendulum-v1 from three 48 x 48 frames",
    xlim=(0, steps[-1] * 1.01),
    ylim=(None, 0),
)
axes.spines[["top", "right"]].set_visible(False)
axes.grid(alpha=0.25)
axes.legend(frameon=False, loc="center right")
figure.savefig(here.parents[1] / "docs" / "images" / "pendulum_pixels.png")
