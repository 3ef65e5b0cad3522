"""Rows of the results tables against the rows and the published seeds that they are compared with."""

from pathlib import Path

import numpy as np

from td3.policy import Array
from td3.report.paper import ABLATIONS, published
from td3.statistics import FEWEST_SEEDS, compare, differing
from td3_lab.reproduce.command import MARGIN
from td3_lab.reproduce.figures import Curve, last_evaluations, read_curve, shared
from td3_lab.reproduce.rows import ROWS, Row


def compared(ours: Array, theirs: Array) -> tuple[str, str, str]:
    """The difference with its interval, the margin, and the verdict."""
    found = compare(ours, theirs, MARGIN * abs(float(theirs.mean())))
    digits = 0 if abs(theirs.mean()) >= 100 else 1
    difference, low, high = (f"{value:+,.{digits}f}" for value in (found.difference, found.low, found.high))
    interval = "" if np.isnan(found.low) else f" ({low} to {high})"
    return difference + interval, f"{found.margin:,.{digits}f}", found.verdict.replace("_", " ")


def baseline_name(row: Row) -> str:
    """The name of the row that this one is compared with."""
    plain = (r.name for r in ROWS if r.table == "table1" and r.env == row.env and not r.env_kwargs)
    return row.baseline or next(plain)


def papers_difference(row: Row) -> float | None:
    """What the paper's ablation of this row changed its last ten evaluations by; None where it has none."""
    paper = published(row.env)
    if row.variant not in ABLATIONS or paper is None or paper.last_ten is None:
        return None
    return ABLATIONS[row.variant][row.family] - paper.last_ten


def same_signs(rows: list[tuple[Row, Curve | None]], results: Path) -> dict[str, str]:
    """Whether each ablation, by its name, differs from TD3 as the paper's does, corrected for their number."""
    pairs = {}
    for row, curve in rows:
        paper, baseline = papers_difference(row), read_curve(results / baseline_name(row))
        if curve is not None and baseline is not None and paper:
            ours, theirs = map(last_evaluations, shared(curve, baseline))
            if min(len(ours), len(theirs)) >= FEWEST_SEEDS:
                pairs[row.name] = ours, theirs, paper
    differs = differing([(ours, theirs) for ours, theirs, _ in pairs.values()])
    signs = {}
    for (name, (ours, theirs, paper)), differ in zip(pairs.items(), differs, strict=True):
        same = (ours.mean() > theirs.mean()) == (paper > 0)
        signs[name] = ("yes" if same else "no") if differ else "not significant"
    return signs
