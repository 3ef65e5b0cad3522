"""Write the tables and plots of docs/results*.md, and the README's results: `python -m td3_lab.reproduce.page`."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from td3.report.paper import ABLATIONS, published
from td3.statistics import mean_interval
from td3_lab.reproduce import overview, plots
from td3_lab.reproduce.comparisons import baseline_name, compared, papers_difference, same_signs
from td3_lab.reproduce.figures import (
    LAST,
    VALUED_STEPS,
    Curve,
    as_text,
    figures,
    last_evaluations,
    read_curve,
    read_values,
    shared,
    with_interval,
)
from td3_lab.reproduce.published_seeds import (
    EARLY_STEPS,
    LAST_TEN,
    MEASURES,
    NAMES,
    OVER_TIME,
    SEEDS,
    UNCOUNTED,
    compared_part,
    published_seeds,
)
from td3_lab.reproduce.rows import (
    ABLATED,
    BEGINNING,
    PUBLISHED,
    PUBLISHED_BULLET,
    ROWS,
    SHORT,
    TABLES,
    Row,
)

_SB3 = (f"SB3 to {SHORT:,}, 1 seed", "SB3 at 1M, 3 seeds")
TASK_TABLES = {"table1": ("paper", "Tianshou", "author's re-run"), "bullet": _SB3, "course": _SB3}
"""Tables with a line for each task, and whose figures they have."""
FEWEST_FOR_IQM = 4
"""Seeds below which the interquartile mean is the mean."""


def tables(results: Path) -> dict[str, str]:
    """All tables as Markdown, by name."""
    rows = {table: [(row, read_curve(results / row.name)) for row in ROWS if row.table == table] for table in TABLES}
    found = {table: _settings_table(rows[table], results) for table in TABLES if table not in TASK_TABLES}
    found |= {table: _task_table(rows[table], by, results) for table, by in TASK_TABLES.items()}
    tasks = [row for row in ROWS if row.table == "table1" and not row.env_kwargs]
    found |= {source: _published_table(results, [(row, source) for row in tasks]) for source in NAMES}
    long = [row for row in ROWS if row.table == "table1" and row.steps > SHORT]
    pairs = [(row, source) for row in long for source in (*NAMES, *[baseline_name(row)] * bool(row.env_kwargs))]
    pairs += [(row, "paper") for row in ROWS if row.preset == "paper"]
    pairs.sort(key=lambda pair: [row.env for row in long].index(pair[0].env))
    found["beginning"] = _published_table(results, pairs, BEGINNING)
    found["over_time"] = _over_time_table(results, [(row, source) for row, source in pairs if row in tasks])
    found["overestimation"] = _overestimation_table(results)
    found |= {"seeds": _seeds_table(results), "earlier": _earlier_table(results), "early": _early_table(results)}
    every = [each for table in rows.values() for each in table]
    return {**found, "not_run": _not_run(every), "commands": _commands(every)}


def _others(row: Row, results: Path) -> tuple[str, ...]:
    """What others published for the task of a row, as its table names them."""
    if row.table != "table1":
        found = published_seeds(results, "sb3", row.family, SHORT).get(LAST_TEN)
        return "-" if found is None else as_text(float(found.mean())), PUBLISHED_BULLET.get(row.family, "-")
    paper = None if row.env_kwargs else published(row.env)
    highest = "-" if paper is None else f"{as_text(paper.highest)} +- {as_text(paper.spread)}"
    return highest, *(PUBLISHED.get(row.task) or PUBLISHED.get(row.family, ("-", "-")))


def _task_table(rows: list[tuple[Row, Curve | None]], by: Sequence[str], results: Path) -> str:
    """A line for each row, with the figures that others published."""
    head = ["task", "env steps", "seeds", "highest mean +- std", "last ten evaluations (95 % interval)"]
    head += ["IQM (interval)", "area", f"single evaluation at {SHORT:,}", *by]
    lines = [head, ["---"] * len(head)]
    for row, curve in rows:
        others = _others(row, results)
        if curve is None:
            lines.append([row.task, _steps(row, curve), str(row.seeds), "not run", *[""] * 4, *others])
            continue
        found = figures(curve)
        lines.append(
            [
                row.task,
                _steps(row, curve),
                _seeds(row, curve),
                f"{as_text(found.highest)} +- {as_text(found.highest_std)}",
                with_interval(found.last, found.last_low, found.last_high),
                with_interval(found.iqm, found.iqm_low, found.iqm_high) if found.seeds >= FEWEST_FOR_IQM else "-",
                as_text(found.area),
                "-" if found.early is None else as_text(found.early),
                *others,
            ]
        )
    return _markdown(lines)


def _published_table(results: Path, pairs: Sequence[tuple[Row, str]], end: int = 0) -> str:
    """Rows against the seeds of a source, or of another row, by every measure up to each row's last env step.

    With `end`: by the last ten evaluations up to that env step.
    """
    head = ["task", "preset", "compared with", "measure, up to env step", "td3", "the other"]
    lines = [[*head, "difference (95 % interval)", "margin", "verdict"]]
    lines.append(["---"] * len(lines[0]))
    for row, source in pairs:
        curve, other = read_curve(results / row.name), read_curve(results / source)
        if curve is None or curve.steps[-1] < end:
            continue
        last = end or int(curve.steps[-1])
        theirs = published_seeds(results, source, row.family, last)
        if other is not None:
            theirs = {measure: of(compared_part(other, source, last)) for measure, of in MEASURES.items()}
        for measure in [measure for measure in theirs if measure == LAST_TEN or not end]:
            ours = MEASURES[measure](compared_part(curve, source, last))
            cells = [row.task, f"`{row.preset}`", NAMES.get(source, f"`{source}`"), f"{measure}, {last:,}"]
            both = as_text(float(ours.mean())), as_text(float(theirs[measure].mean()))
            lines.append([*cells, *both, *compared(ours, theirs[measure])])
    return _markdown(lines)


def _over_time_table(results: Path, pairs: Sequence[tuple[Row, str]]) -> str:
    """The last ten evaluations of rows less those of a source's seeds, up to some env steps and to each row's end."""
    lines = [["task", "compared with", *[f"{end:,}" for end in OVER_TIME], "its end"], ["---"] * (3 + len(OVER_TIME))]
    for row, source in pairs:
        if (curve := read_curve(results / row.name)) is None:
            continue
        cells = [row.task, NAMES[source]]
        for end in (*OVER_TIME, int(curve.steps[-1])):
            ours = compared_part(curve, source, end)
            theirs = published_seeds(results, source, row.family, end).get(LAST_TEN)
            if theirs is None or end not in curve.steps:
                cells.append("-")
            else:
                cells.append(compared(last_evaluations(ours), theirs)[0])
        lines.append(cells)
    return _markdown(lines)


def _settings_table(rows: list[tuple[Row, Curve | None]], results: Path) -> str:
    """A line for each row, with its difference to the row that it is compared with."""
    head = ["task", "change", "seeds", "env steps", "last ten evaluations"]
    head += ["compared with (seeds)", "difference (95 % interval)", "margin", "verdict"]
    rates = any(curve is not None and curve.success is not None for _, curve in rows)
    ablations = any(row.variant in ABLATIONS for row, _ in rows)
    lines = [[*head, *["success rate"] * rates, *["the paper's difference", "same sign"] * ablations]]
    lines.append(["---"] * len(lines[0]))
    signs = same_signs(rows, results)
    for row, curve in rows:
        cells = [row.env, row.change, _seeds(row, curve), _steps(row, curve), "not run", "", "", "", ""]
        if curve is not None:
            baseline = read_curve(results / baseline_name(row))
            cells[4] = as_text(float(last_evaluations(curve).mean()))
            if baseline is not None and baseline_name(row) != row.name:
                ours, theirs = map(last_evaluations, shared(curve, baseline))
                cells[5:] = [f"{as_text(float(theirs.mean()))} ({len(theirs)})", *compared(ours, theirs)]
        if rates:
            cells.append("" if curve is None or curve.success is None else f"{curve.success:.0%}")
        if ablations:
            paper = papers_difference(row)
            cells += ["-" if paper is None else f"{paper:+,.0f}", signs.get(row.name, "")]
        lines.append(cells)
    return _markdown(lines)


def _seeds_table(results: Path) -> str:
    """The last ten evaluations of each seed, sorted."""
    lines = [["task", "last ten evaluations of each seed, sorted"], ["---"] * 2]
    curves = [(row.task, read_curve(results / row.name)) for row in ROWS if row.table == "table1"]
    lines += [[task, ", ".join(map(as_text, sorted(last_evaluations(curve))))] for task, curve in curves if curve]
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
        last = with_interval(float(theirs.mean()), float(low), float(high))
        lines.append([name, commit, str(len(theirs)), last, *compared(last_evaluations(stored), theirs)])
    return _markdown(lines)


def _early_table(results: Path) -> str:
    """The beginning of a run, beside one with eight environments, and beside Tianshou after as many updates."""
    one, eight = (read_curve(results / f"halfcheetah_v5{name}") for name in ("", "_eight_envs"))
    if one is None or eight is None:
        return "not run"
    head = ["env steps", "updates", f"preset `author`, {len(one.returns)} seeds (95 % interval)"]
    head += [
        f"the same with eight environments, {len(eight.returns)} seeds",
        f"Tianshou, {SEEDS} seeds, as many updates",
    ]
    lines = [head, ["---"] * len(head)]
    for step in EARLY_STEPS:
        cells = [f"{step:,}", f"{step - UNCOUNTED:,}"]
        tianshou = published_seeds(results, "tianshou", "HalfCheetah", step).get("evaluation", np.empty(0))
        for at in (*(curve.returns[:, curve.steps == step].ravel() for curve in (one, eight)), tianshou):
            low, high = mean_interval(at) if len(at) else (0, 0)
            cells.append(f"{at.mean():,.0f} ({low:,.0f} to {high:,.0f})" if len(at) else "-")
        lines.append(cells)
    return _markdown(lines)


def _overestimation_table(results: Path) -> str:
    """Critic 1's values and discounted returns of TD3 and its ablations, up to 500,000 env steps or the row's end."""
    head = ["task", "algorithm", "seeds", "up to env step", "critic 1's value", "discounted return"]
    lines = [[*head, "overestimation (95 % interval)"]]
    lines.append(["---"] * len(lines[0]))
    rows = [row for row in ROWS if row.env in ABLATED and not row.env_kwargs]
    rows = [row for row in rows if row.table in ("table1", "table2") or row.preset == "paper"]
    rows.sort(key=lambda row: ([*ABLATED].index(row.env), bool(row.variant)))  # of each task, TD3 first
    for row in rows:
        if (curve := read_curve(results / row.name)) is None:
            continue
        algorithm = (
            row.change if row.table == "table2" else "TD3" + f", preset `{row.preset}`" * (row.preset != "author")
        )
        cells = [row.env, algorithm, _seeds(row, curve), "", "not recorded", "", ""]
        found = read_values(results / row.name)
        if found is not None and len(last := np.flatnonzero(np.isin(found[0], VALUED_STEPS))[-LAST:]):
            values, returns = (each[:, last].mean(1) for each in found[1:])
            low, high = mean_interval(values - returns)
            interval = f"{(values - returns).mean():+,.1f}" + f" ({low:+,.1f} to {high:+,.1f})" * (len(values) > 1)
            cells[3:] = [f"{found[0][last[-1]]:,}", *(as_text(float(x.mean())) for x in (values, returns)), interval]
        lines.append(cells)
    return _markdown(lines)


def _commands(rows: list[tuple[Row, Curve | None]]) -> str:
    """The command, commit, hardware and time of every row."""
    lines = [["row", "command", "commit", "hardware", "training seconds"], ["---"] * 5]
    for row, curve in rows:
        made = curve.made if curve is not None else {"command": row.command, "hardware": "not run"}
        seconds = f"{made['seconds']:,.0f}" if made.get("seconds") is not None else "-"
        lines.append([row.name, f"`{made['command']}`", made.get("commit") or "-", made["hardware"], seconds])
    return _markdown(lines)


def _not_run(rows: list[tuple[Row, Curve | None]]) -> str:
    """The rows without results, and those whose env steps or seeds are not all there."""
    missing = [f"`{row.name}`" for row, curve in rows if curve is None]
    parts = []
    for row, curve in rows:
        if curve is not None and int(curve.steps[-1]) < row.steps:
            parts.append(f"`{row.name}` ({_steps(row, curve)} env steps)")
        if curve is not None and len(curve.returns) + len(curve.made.get("frozen", ())) < row.seeds:
            parts.append(f"`{row.name}` ({_seeds(row, curve)} seeds)")
    return f"- Not run: {', '.join(missing) or 'none'}.\n- Run in part: {', '.join(parts) or 'none'}."


def _steps(row: Row, curve: Curve | None) -> str:
    """The env steps of a row, and how many there are where its run was interrupted."""
    reached = row.steps if curve is None else int(curve.steps[-1])
    return f"{row.steps:,}" if reached == row.steps else f"{reached:,} of {row.steps:,}"


def _seeds(row: Row, curve: Curve | None) -> str:
    """The seeds of a row, and how many there are where some were not run or diverged."""
    if curve is None or len(curve.returns) == row.seeds:
        return str(row.seeds)
    frozen = len(curve.made.get("frozen", ()))
    return f"{len(curve.returns)} of {row.seeds}" + f" ({frozen} diverged)" * bool(frozen)


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def filled(page: str, name: str, table: str) -> str:
    """A page with a table between its marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, after = page.split(begin)[0], page.split(end)[1]
    return f"{before}{begin}\n{table}\n{end}{after}"


def blocks(results: Path) -> dict[str, str]:
    """Everything that pages have between marks, by name."""
    answer = {"summary": overview.summary(results), "headline": _markdown(overview.headline(results))}
    return {**tables(results), **answer, "limits": overview.limits(results)}


def pages(root: Path) -> list[Path]:
    """The pages that have results between marks."""
    return [root / "README.md", *sorted((root / "docs").glob("results*.md"))]


def with_blocks(page: Path, found: dict[str, str]) -> str:
    """A page with all of its results made anew; the README's links lead into docs."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"<!-- (\w+): begin -->", text):
        block = found[name].replace("](", "](docs/") if page.name == "README.md" else found[name]
        text = filled(text, name, block)
    return text


def write(root: Path) -> None:
    """Put the results into the pages and the README, and draw the plots."""
    found = blocks(root / "results")
    for page in pages(root):
        page.write_text(with_blocks(page, found), encoding="utf-8")
    for name, draw in plots.PLOTS.items():
        draw(root / "results", root / "docs" / "images" / f"{name}.png")
    (root / "docs" / "images" / "results.svg").write_text(overview.plot(root / "results"), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
