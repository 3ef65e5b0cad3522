"""Write the tables and the plot of docs/results.md and the README's table: `python -m td3.reproduce.page`."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from td3.policy import Array
from td3.report.paper import published
from td3.reproduce.command import MARGIN
from td3.reproduce.figures import LAST, Curve, figures, last_evaluations, overestimation, read_curve, read_values
from td3.reproduce.rows import BULLET_TASKS, PUBLISHED, PUBLISHED_BULLET, ROWS, TABLES, TIANSHOU_EARLY, Row
from td3.statistics import compare, mean_interval

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
README_BEGIN, README_END = "<!-- results: begin -->", "<!-- results: end -->"
OURS, PAPER = "#0072B2", "#E69F00"
FEWEST_FOR_IQM = 4
"""Seeds below which the interquartile mean is the mean."""


def tables(results: Path) -> str:
    """All tables as Markdown."""
    parts = []
    for table, title in TABLES.items():
        rows = [(row, read_curve(results / row.name)) for row in ROWS if row.table == table]
        if table in ("table2", "variants", "offline", "goals", "changes"):
            body = _settings_table(rows, results)
        elif table == "table1":
            body = _task_table(rows, PUBLISHED, ["paper", "Tianshou", "author's re-run"])
        else:
            body = _task_table(rows, PUBLISHED_BULLET, ["SB3 to 300,000, 1 seed", "SB3 at 1M, 3 seeds"])
        parts.append(f"### {title}\n\n{body}\n\n{_provenance(rows)}")
    parts.append(f"### Overestimation\n\n{_overestimation_table(results)}")
    parts.append(f"### Every seed of the paper's tasks\n\n{_seeds_table(results)}")
    parts.append(f"### Earlier runs of the same seeds\n\n{_earlier_table(results)}")
    parts += _early_part(results)
    return "\n\n".join(parts)


def readme_table(results: Path) -> str:
    """The rows of table 1 that were run, one line each."""
    head = ["task", "env steps", "seeds", "return (95 % interval)", "IQM", "highest mean", "paper", "engine", "commit"]
    lines = [head, ["---"] * len(head)]
    for row in (row for row in ROWS if row.table == "table1"):
        if (curve := read_curve(results / row.name)) is not None:
            found = figures(curve)
            interval = f"{_number(found.last_low)} to {_number(found.last_high)}"
            lines.append(
                [
                    *(row.task, _steps(row, curve), str(found.seeds), f"{_number(found.last)} ({interval})"),
                    *(_number(found.iqm), _number(found.highest), PUBLISHED[row.env.partition("-v")[0]][0]),
                    *(str(curve.made.get("engine", "-")), curve.made.get("commit") or "-"),
                ]
            )
    return _markdown(lines)


def _task_table(
    rows: list[tuple[Row, Curve | None]], published: Mapping[str, tuple[str, ...]], by: Sequence[str]
) -> str:
    """A line for each row, with the figures that these others published."""
    head = ["task", "env steps", "seeds", "highest mean +- std", "last ten evaluations (95 % interval)"]
    head += ["IQM (interval)", "area", "at 300,000", *by]
    lines = [head, ["---"] * len(head)]
    for row, curve in rows:
        others = published.get(row.env.partition("-v")[0], ("-",) * len(by))
        if curve is None:
            lines.append([row.task, _steps(row, curve), str(row.seeds), "not run", *[""] * 4, *others])
            continue
        found = figures(curve)
        lines.append(
            [
                row.task,
                _steps(row, curve),
                str(found.seeds),
                f"{_number(found.highest)} +- {_number(found.highest_std)}",
                f"{_number(found.last)} ({_number(found.last_low)} to {_number(found.last_high)})",
                f"{_number(found.iqm)} ({_number(found.iqm_low)} to {_number(found.iqm_high)})"
                if found.seeds >= FEWEST_FOR_IQM
                else "-",
                _number(found.area),
                "-" if found.early is None else _number(found.early),
                *others,
            ]
        )
    return _markdown(lines)


def _settings_table(rows: list[tuple[Row, Curve | None]], results: Path) -> str:
    """A line for each row, with its difference to the row that it is compared with."""
    head = ["task", "change", "seeds", "env steps", "last ten evaluations"]
    head += ["compared with (seeds)", "difference (95 % interval)", "margin", "verdict"]
    rates = any(curve is not None and curve.success is not None for _, curve in rows)
    lines = [[*head, "success rate"] if rates else head]
    lines.append(["---"] * len(lines[0]))
    for row, curve in rows:
        cells = [row.env, row.change, str(row.seeds), _steps(row, curve), "not run", "", "", "", ""]
        if curve is not None:
            ours, baseline = last_evaluations(curve), read_curve(results / _baseline(row))
            cells[4] = _number(float(ours.mean()))
            if baseline is not None and _baseline(row) != row.name:
                theirs = last_evaluations(until(baseline, int(curve.steps[-1])))
                cells[5:] = [f"{_number(float(theirs.mean()))} ({len(theirs)})", *_compared(ours, theirs)]
        if rates:
            cells.append("" if curve is None or curve.success is None else f"{curve.success:.0%}")
        lines.append(cells)
    return _markdown(lines)


def _compared(ours: Array, theirs: Array) -> tuple[str, str, str]:
    """The difference with its interval, the margin, and the verdict."""
    found = compare(ours, theirs, MARGIN * abs(float(theirs.mean())))
    digits = 0 if abs(theirs.mean()) >= 100 else 1
    three = (f"{value:+,.{digits}f}" for value in (found.difference, found.low, found.high))
    return "{} ({} to {})".format(*three), f"{found.margin:,.{digits}f}", found.verdict.replace("_", " ")


def _seeds_table(results: Path) -> str:
    """The last ten evaluations of each seed, sorted."""
    lines = [["task", "last ten evaluations of each seed, sorted"], ["---"] * 2]
    curves = [(row.task, read_curve(results / row.name)) for row in ROWS if row.table == "table1"]
    lines += [[task, ", ".join(map(_number, sorted(last_evaluations(curve))))] for task, curve in curves if curve]
    return _markdown(lines)


def _earlier_table(results: Path) -> str:
    """Runs of stored rows by older code: how far the stored run is from each."""
    head = ["row", "commit", "seeds", "last ten evaluations (95 % interval)"]
    lines = [[*head, "stored row, difference (95 % interval)", "margin", "verdict"], ["---"] * 7]
    for folder in sorted((results / "earlier").glob("*")):
        name, _, commit = folder.name.rpartition("_")
        earlier, stored = read_curve(folder), read_curve(results / name)
        assert earlier is not None
        assert stored is not None
        theirs = last_evaluations(earlier)
        low, high = mean_interval(theirs)
        last = f"{_number(float(theirs.mean()))} ({_number(float(low))} to {_number(float(high))})"
        lines.append([name, commit, str(len(theirs)), last, *_compared(last_evaluations(stored), theirs)])
    return _markdown(lines)


def _early_part(results: Path) -> list[str]:
    """The beginning of a run, beside one with eight environments, and beside Tianshou after as many updates."""
    one, eight = (read_curve(results / f"halfcheetah_v5{name}") for name in ("", "_eight_envs"))
    if one is None or eight is None:
        return []
    head = ["env steps", "updates", f"preset `author`, {len(one.returns)} seeds (95 % interval)"]
    head += [f"the same with eight environments, {len(eight.returns)} seeds", "Tianshou, as many updates"]
    lines = [head, ["---"] * len(head)]
    for step in (40_000, 45_000, 50_000, 75_000, 100_000, 125_000):
        updates = step - 25_000  # the random steps
        cells = [f"{step:,}", f"{updates:,}"]
        for curve in (one, eight):
            at = curve.returns[:, curve.steps == step].ravel()
            low, high = mean_interval(at) if len(at) else (0, 0)
            cells.append(f"{at.mean():,.0f} ({low:,.0f} to {high:,.0f})" if len(at) else "-")
        lines.append([*cells, TIANSHOU_EARLY.get(updates, "-")])
    return [f"### The first 125,000 env steps of HalfCheetah-v5\n\n{_markdown(lines)}"]


def _baseline(row: Row) -> str:
    """The name of the row that this one is compared with."""
    plain = (r.name for r in ROWS if r.table == "table1" and r.env == row.env and not r.env_kwargs)
    return row.baseline or next(plain)


VALUED = [
    row for row in ROWS if row.env in ("Hopper-v5", "Walker2d-v5") and (row.table == "table1" or "ddpg" in row.name)
]
"""Rows whose critics' values are compared with returns, as in figure 1 of the paper."""


def _overestimation_table(results: Path) -> str:
    head = ["task", "algorithm", "seeds", "critic 1's value", "discounted return", "overestimation (95 % interval)"]
    lines = [head, ["---"] * len(head)]
    for row in VALUED:
        found, excess = read_values(results / row.name), overestimation(results / row.name)
        named = [row.env, "DDPG" if row.variant else "TD3", str(row.seeds)]
        if found is None or excess is None:
            lines.append([*named, "not recorded" if read_curve(results / row.name) else "not run", "", ""])
            continue
        low, high = mean_interval(excess)
        means = [_number(float(each[:, -LAST:].mean())) for each in found[1:]]
        lines.append([*named, *means, f"{excess.mean():+,.1f} ({low:+,.1f} to {high:+,.1f})"])
    return _markdown(lines)


def plot_values(results: Path, out: Path) -> None:
    """Critic 1's value and the discounted return over training, mean and standard error over seeds."""
    import matplotlib.pyplot as plt

    run = [(row, found) for row in VALUED if (found := read_values(results / row.name))]
    if not run:
        return
    figure, axes = plt.subplots(
        1, len(run), figsize=(4 * len(run), 2.9), dpi=140, layout="constrained", squeeze=False, sharex=True
    )
    for panel, (row, (steps, values, returns)) in zip(axes.flat, run, strict=True):
        for each, color, label in ((values, OURS, "critic 1's value"), (returns, PAPER, "discounted return")):
            mean, error = each.mean(0), each.std(0, ddof=1) / len(each) ** 0.5
            panel.fill_between(steps / 1e6, mean - error, mean + error, color=color, alpha=0.25, linewidth=0)
            panel.plot(steps / 1e6, mean, color=color, linewidth=1.8, label=label)
        title = f"{row.env}, {'DDPG' if row.variant else 'TD3'}, {len(values)} seeds"
        panel.set(title=title, xlabel="env steps (millions)", ylabel="value at the start of an episode")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    axes.flat[0].legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(out)


def until(curve: Curve, step: int) -> Curve:
    """The curve up to an env step: the same run, had it been shorter."""
    kept = curve.steps <= step
    return curve._replace(steps=curve.steps[kept], returns=curve.returns[:, kept])


def _provenance(rows: list[tuple[Row, Curve | None]]) -> str:
    """The command, commit, hardware and time of every row that was run."""
    lines = [["row", "command", "commit", "hardware", "training seconds"], ["---"] * 5]
    for row, curve in rows:
        if curve is not None:
            made = curve.made
            seconds = "-" if made.get("seconds") is None else f"{made['seconds']:,.0f}"
            lines.append([row.name, f"`{made['command']}`", made.get("commit") or "-", made["hardware"], seconds])
    return _markdown(lines) if len(lines) > 2 else "No row of this table has been run."


def _steps(row: Row, curve: Curve | None) -> str:
    """The env steps of a row, and how many there are where its run was interrupted."""
    reached = row.steps if curve is None else int(curve.steps[-1])
    return f"{row.steps:,}" if reached == row.steps else f"{reached:,} of {row.steps:,}"


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _draw(panel: Any, curve: Curve, color: str, label: str) -> None:
    """The mean of a curve with its interval, and every seed thin."""
    steps, (low, high) = curve.steps / 1e6, mean_interval(curve.returns)
    panel.plot(steps, curve.returns.T, color=color, linewidth=0.5, alpha=0.4)
    panel.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
    panel.plot(steps, curve.returns.mean(0), color=color, linewidth=1.8, label=label)


def plot_bullet(results: Path, out: Path) -> None:
    """The PyBullet tasks, presets `bullet` and `course` in one panel for each task."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(BULLET_TASKS), figsize=(12, 2.9), dpi=140, layout="constrained")
    for panel, (task, env) in zip(axes.flat, BULLET_TASKS.items(), strict=True):
        for preset, color in (("bullet", OURS), ("course", PAPER)):
            if (curve := read_curve(results / f"{preset}_{task}")) is not None:
                _draw(panel, curve, color, f"preset {preset}, mean of {len(curve.returns)} seeds")
        panel.set(title=env, xlim=(0, 0.3), xlabel="env steps (millions)", ylabel="return")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    axes.flat[0].legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(out)


def plot(results: Path, out: Path) -> None:
    """Every task of table 1 that was run: the mean with its interval, each seed, and the paper's band."""
    import matplotlib.pyplot as plt

    run = [(row, curve) for row in ROWS if row.table == "table1" and (curve := read_curve(results / row.name))]
    columns = min(3, len(run))
    lines = -(-len(run) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4 * columns, 2.9 * lines), dpi=140, layout="constrained", squeeze=False
    )
    for panel in axes.flat[len(run) :]:
        panel.axis("off")
    for panel, (row, curve) in zip(axes.flat, run, strict=False):
        _draw(panel, curve, OURS, f"td3, mean of {len(curve.returns)} seeds")
        if known := published(row.env):
            panel.axhspan(
                known.highest - known.spread, known.highest + known.spread, color=PAPER, alpha=0.15, linewidth=0
            )
            panel.axhline(known.highest, color=PAPER, linestyle="--", linewidth=1, label="paper, highest mean (Gym v1)")
        bottom = float(np.quantile(curve.returns, 0.02))
        panel.set(title=row.task, xlim=(0, curve.steps[-1] / 1e6), xlabel="env steps (millions)", ylabel="return")
        panel.set_ylim(bottom=bottom - 0.05 * abs(bottom))
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    axes.flat[0].legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(out)


def write(root: Path) -> None:
    """Put the tables into the page and the README, and draw the plot."""
    _fill(root / "docs" / "results.md", BEGIN, tables(root / "results"), END)
    _fill(root / "README.md", README_BEGIN, readme_table(root / "results"), README_END)
    plot(root / "results", root / "docs" / "images" / "results.png")
    plot_bullet(root / "results", root / "docs" / "images" / "bullet.png")
    plot_values(root / "results", root / "docs" / "images" / "overestimation.png")


def _fill(page: Path, begin: str, text: str, end: str) -> None:
    block = f"{begin}\n{text}\n{end}"
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: block, page.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
