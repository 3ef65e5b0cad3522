"""Write the tables and the plot of docs/results.md and the README's table: `python -m td3.reproduce.page`."""

import re
import sys
from pathlib import Path

import numpy as np

from td3.report.paper import published
from td3.reproduce.figures import Curve, figures, last_evaluations, read_curve
from td3.reproduce.rows import PUBLISHED, ROWS, TABLES, Row
from td3.statistics import compare, mean_interval

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
README_BEGIN, README_END = "<!-- results: begin -->", "<!-- results: end -->"
OURS, SEED, PAPER = "#0072B2", "#56B4E9", "#E69F00"


def tables(results: Path) -> str:
    """All tables as Markdown."""
    parts = []
    for table, title in TABLES.items():
        rows = [(row, read_curve(results / row.name)) for row in ROWS if row.table == table]
        body = _settings_table(rows, results) if table in ("table2", "changes") else _task_table(rows)
        parts.append(f"### {title}\n\n{body}\n\n{_provenance(rows)}")
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
                    *(row.env, f"{row.steps:,}", str(found.seeds), f"{_number(found.last)} ({interval})"),
                    *(_number(found.iqm), _number(found.highest), PUBLISHED[row.env.partition("-v")[0]][0]),
                    *(str(curve.made.get("engine", "-")), curve.made.get("commit") or "-"),
                ]
            )
    return _markdown(lines)


def _task_table(rows: list[tuple[Row, Curve | None]]) -> str:
    head = [
        *(
            "task",
            "env steps",
            "seeds",
            "highest mean +- std",
            "last ten evaluations (95 % interval)",
            "IQM (interval)",
        ),
        *("area", "at 300,000", "paper", "Tianshou", "author's re-run"),
    ]
    lines = [head, ["---"] * len(head)]
    for row, curve in rows:
        others = PUBLISHED.get(row.env.partition("-v")[0], ("-", "-", "-"))
        name = row.env + (" (27 observations)" if row.env_kwargs else "")
        if curve is None:
            lines.append([name, f"{row.steps:,}", str(row.seeds), "not run", *[""] * 4, *others])
            continue
        found = figures(curve)
        lines.append(
            [
                name,
                f"{row.steps:,}",
                str(found.seeds),
                f"{_number(found.highest)} +- {_number(found.highest_std)}",
                f"{_number(found.last)} ({_number(found.last_low)} to {_number(found.last_high)})",
                f"{_number(found.iqm)} ({_number(found.iqm_low)} to {_number(found.iqm_high)})",
                _number(found.area),
                "-" if found.early is None else _number(found.early),
                *others,
            ]
        )
    return _markdown(lines)


def _settings_table(rows: list[tuple[Row, Curve | None]], results: Path) -> str:
    head = [
        "task",
        "change",
        "seeds",
        "env steps",
        "last ten evaluations",
        "difference to TD3 (95 % interval)",
        "verdict",
    ]
    lines = [head, ["---"] * len(head)]
    for row, curve in rows:
        plain = next(r for r in ROWS if r.table == "table1" and r.env == row.env and not r.env_kwargs)
        baseline = read_curve(results / plain.name)
        if curve is None or baseline is None:
            lines.append([row.env, row.change, str(row.seeds), f"{row.steps:,}", "not run", "", ""])
            continue
        ours, theirs = last_evaluations(curve), last_evaluations(until(baseline, int(curve.steps[-1])))
        found = compare(ours, theirs, 0.1 * abs(float(theirs.mean())))
        lines.append(
            [
                *(row.env, row.change, str(len(ours)), f"{row.steps:,}", _number(float(ours.mean()))),
                f"{found.difference:+,.0f} ({found.low:+,.0f} to {found.high:+,.0f})",
                found.verdict.replace("_", " "),
            ]
        )
    return _markdown(lines)


def until(curve: Curve, step: int) -> Curve:
    """The curve up to an env step: the same run, had it been shorter."""
    kept = curve.steps <= step
    return curve._replace(steps=curve.steps[kept], returns=curve.returns[:, kept])


def _provenance(rows: list[tuple[Row, Curve | None]]) -> str:
    """The command, commit, hardware and time of every row that was run."""
    lines = [["row", "command", "commit", "hardware", "seconds"], ["---"] * 5]
    for row, curve in rows:
        if curve is not None:
            made = curve.made
            seconds = "-" if made.get("seconds") is None else f"{made['seconds']:,.0f}"
            lines.append([row.name, f"`{made['command']}`", made.get("commit") or "-", made["hardware"], seconds])
    return _markdown(lines) if len(lines) > 2 else "No row of this table has been run."


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


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
        steps = curve.steps / 1e6
        low, high = mean_interval(curve.returns)
        panel.plot(steps, curve.returns.T, color=SEED, linewidth=0.5, alpha=0.6)
        panel.fill_between(steps, low, high, color=OURS, alpha=0.25, linewidth=0)
        panel.plot(
            steps, curve.returns.mean(0), color=OURS, linewidth=1.8, label=f"td3, mean of {len(curve.returns)} seeds"
        )
        if known := published(row.env):
            panel.axhspan(
                known.highest - known.spread, known.highest + known.spread, color=PAPER, alpha=0.15, linewidth=0
            )
            panel.axhline(known.highest, color=PAPER, linestyle="--", linewidth=1, label="paper, highest mean (Gym v1)")
        bottom = float(np.quantile(curve.returns, 0.02))
        panel.set(title=row.env, xlim=(0, steps[-1]), xlabel="env steps (millions)", ylabel="return")
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


def _fill(page: Path, begin: str, text: str, end: str) -> None:
    block = f"{begin}\n{text}\n{end}"
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: block, page.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
