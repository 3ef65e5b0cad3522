"""Write the tables and plots of docs/results.md and the README's table: `python -m td3.reproduce.page`."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from td3.policy import Array
from td3.report.paper import ABLATIONS, published
from td3.reproduce import plots
from td3.reproduce.command import MARGIN
from td3.reproduce.figures import (
    LAST,
    VALUED_STEPS,
    Curve,
    at_steps,
    figures,
    last_evaluations,
    read_curve,
    read_values,
)
from td3.reproduce.rows import ABLATED, PUBLISHED, PUBLISHED_BULLET, ROWS, TABLES, TIANSHOU_EARLY, Row
from td3.statistics import compare, mean_interval

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
README_BEGIN, README_END = "<!-- results: begin -->", "<!-- results: end -->"
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
    ablations = any(row.variant in ABLATIONS for row, _ in rows)
    lines = [[*head, *["success rate"] * rates, *["the paper's difference"] * ablations]]
    lines.append(["---"] * len(lines[0]))
    for row, curve in rows:
        cells = [row.env, row.change, str(row.seeds), _steps(row, curve), "not run", "", "", "", ""]
        if curve is not None:
            ours, baseline = last_evaluations(curve), read_curve(results / _baseline(row))
            cells[4] = _number(float(ours.mean()))
            if baseline is not None and _baseline(row) != row.name:
                theirs = last_evaluations(at_steps(baseline, curve.steps))
                cells[5:] = [f"{_number(float(theirs.mean()))} ({len(theirs)})", *_compared(ours, theirs)]
        if rates:
            cells.append("" if curve is None or curve.success is None else f"{curve.success:.0%}")
        if ablations:
            task, paper = row.env.partition("-v")[0], published(row.env)
            cells.append(f"{ABLATIONS[row.variant][task] - paper.last_ten:+,.0f}" if paper and paper.last_ten else "-")
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


def _overestimation_table(results: Path) -> str:
    """Critic 1's values and discounted returns of TD3 and its ablations, at env steps that all of them have."""
    head = ["task", "algorithm", "seeds", "critic 1's value", "discounted return", "overestimation (95 % interval)"]
    lines = [head, ["---"] * len(head)]
    rows = [row for row in ROWS if row.table in ("table1", "table2") and not row.env_kwargs]
    for row in (row for env in ABLATED for row in rows if row.env == env):
        if read_curve(results / row.name) is None:
            continue
        cells = [row.env, row.change or "TD3", str(row.seeds), "not recorded", "", ""]
        if (found := read_values(results / row.name)) is not None:
            last = np.flatnonzero(np.isin(found[0], VALUED_STEPS))[-LAST:]
            values, returns = (each[:, last].mean(1) for each in found[1:])
            low, high = mean_interval(values - returns)
            interval = f"{(values - returns).mean():+,.1f} ({low:+,.1f} to {high:+,.1f})"
            cells[3:] = [_number(float(values.mean())), _number(float(returns.mean())), interval]
        lines.append(cells)
    return _markdown(lines)


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


def write(root: Path) -> None:
    """Put the tables into the page and the README, and draw the plot."""
    _fill(root / "docs" / "results.md", BEGIN, tables(root / "results"), END)
    _fill(root / "README.md", README_BEGIN, readme_table(root / "results"), README_END)
    for name, draw in plots.PLOTS.items():
        draw(root / "results", root / "docs" / "images" / f"{name}.png")


def _fill(page: Path, begin: str, text: str, end: str) -> None:
    block = f"{begin}\n{text}\n{end}"
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: block, page.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
