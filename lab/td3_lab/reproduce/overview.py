"""The results in ten seconds: five lines, one table and one plot, from the stored curves."""

from collections.abc import Sequence
from pathlib import Path

from td3.policy import Array
from td3.statistics import Comparison, compare
from td3_lab.reproduce.command import MARGIN
from td3_lab.reproduce.comparisons import baseline_name, same_signs
from td3_lab.reproduce.figures import Curve, as_text, figures, last_evaluations, read_curve, shared, with_interval
from td3_lab.reproduce.published_seeds import LAST_TEN, MEASURES, NAMES, compared_part, published_seeds
from td3_lab.reproduce.rows import ABLATED_STEPS, BEGINNING, ROWS, SHORT, Row

REWARD_CHANGED = ("Reacher-v5",)
"""Tasks whose reward differs from that of the published runs."""
IDEAS = {
    "no-twin": "clipped double Q-learning",
    "no-smoothing": "target policy smoothing",
    "no-delay": "delayed policy updates",
}
_Pairs = dict[tuple[str, str], tuple[Array, Array]]


def _rows(table: str, results: Path) -> list[tuple[Row, Curve]]:
    """The rows of a table that were run; of table 1 with Gymnasium's own observations."""
    rows = [row for row in ROWS if row.table == table and not row.env_kwargs]
    return [(row, curve) for row in rows if (curve := read_curve(results / row.name)) is not None]


def _against_published(results: Path, end: int = 0, measure: str = LAST_TEN) -> _Pairs:
    """Our seeds and a source's by task and source, at a row's last env step or at `end`."""
    pairs = {}
    for row, curve in _rows("table1", results):
        last = end or int(curve.steps[-1])
        for source in NAMES:
            theirs = published_seeds(results, source, row.family, last).get(measure)
            if theirs is not None and row.env not in REWARD_CHANGED:
                pairs[row.family, source] = MEASURES[measure](compared_part(curve, source, last)), theirs
    return pairs


def _compared(ours: Array, theirs: Array) -> Comparison:
    return compare(ours, theirs, MARGIN * abs(float(theirs.mean())))


def headline(results: Path) -> list[list[str]]:
    """Each of the paper's tasks beside what others published, all by the same measure at the same env steps."""
    lines = [["task", "env steps", "td3 (95 % interval)", *(NAMES[source] for source in reversed(NAMES))]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for row, curve in _rows("table1", results):
        found, last = figures(curve), int(curve.steps[-1])
        others = [published_seeds(results, source, row.family, last)[LAST_TEN] for source in reversed(NAMES)]
        cells = [row.task, f"{last:,}", with_interval(found.last, found.last_low, found.last_high)]
        lines.append([*cells, *(as_text(float(theirs.mean())) for theirs in others)])
    return lines


def summary(results: Path) -> str:
    """Five lines: how good, against whom, how fast, what each idea is worth, what variants add."""
    found = {key: _compared(*pair) for key, pair in _against_published(results).items()}
    level, same = _level(found)
    good = (
        f"by the mean at the end of training, no difference from published TD3 is shown on {_listed(level)}; "
        f"{_listed(same)} are equivalent."
    )
    seconds, row = next((curve.made["seconds"], row) for row, curve in _rows("table1", results))
    fast = f"ten seeds of {row.family}, {row.steps:,} env steps each, take {seconds:,.0f} s of training on one H200."
    early = " Early learning is slower than the paper's." * bool(_behind_early(results))
    lines = {
        "[How good?](results_published.md)": " ".join([good, *_decided(found, "mean")]) + early,
        "Against whom?": "ten seeds of Tianshou with the same settings, and the paper's own ten.",
        "[How fast?](performance.md)": fast,
        "[What is each idea of TD3 worth?](results_ablations.md)": _ideas(results),
        "[What do variants add?](results_variants.md)": _variants(results),
    }
    return "\n".join(f"- **{question}** {text[0].upper()}{text[1:]}" for question, text in lines.items())


def limits(results: Path) -> str:
    """What the five lines leave out."""
    pairs = _against_published(results)
    found = {key: _compared(*pair) for key, pair in pairs.items()}
    losses = {task: max(-found[task, s].low / pairs[task, s][1].mean() for s in NAMES) for task in _level(found)[0]}
    iqm = {key: _compared(*pair) for key, pair in _against_published(results, measure="their IQM").items()}
    gains = []
    for row, curve in _rows("changes", results):
        if row.preset == "paper":
            ours, theirs = _both(row, curve, results)
            gains.append(f"{ours.mean() / theirs.mean():.1f} times ({row.family})")
    worst = _listed([f"{_percent(loss)} ({task})" for task, loss in losses.items()], "or")
    sentences = [
        f"**Limits.** The data cannot rule out a real loss of up to {worst}.",
        *_decided(iqm, "interquartile mean"),
        f"After {BEGINNING:,} env steps the default preset is behind the paper on {_listed(_behind_early(results))}; "
        f"`--preset paper` has {_listed(gains)} the default's return there.",
        f"After {ABLATED_STEPS:,} env steps it is still significantly below {_listed(_behind(results))}.",
        f"Ablations ran for {ABLATED_STEPS:,} env steps. Removing any other single idea has no significant effect.",
        f"Variants are n-step returns, prioritized replay, LayerNorm and combinations, after {SHORT:,} env steps.",
    ]
    return " ".join(sentences)


def _level(found: dict[tuple[str, str], Comparison]) -> tuple[list[str], list[str]]:
    """The tasks where no difference is shown from any source, and those that are equivalent to all."""
    verdicts: dict[str, set[str]] = {}
    for (task, _), each in found.items():
        verdicts.setdefault(task, set()).add(each.verdict)
    same = [task for task, said in verdicts.items() if said == {"equivalent"}]
    return [t for t, said in verdicts.items() if t not in same and said <= {"equivalent", "undecided"}], same


def _behind(results: Path) -> list[str]:
    """Whom the default preset is still worse than at the env step of the ablations, and where."""
    pairs = _against_published(results, ABLATED_STEPS)
    return [
        f"{NAMES[source]} on {task}" for (task, source), pair in pairs.items() if _compared(*pair).verdict == "worse"
    ]


def _behind_early(results: Path) -> list[str]:
    """The tasks where the default preset is worse than the paper at first."""
    early = {task: pair for (task, source), pair in _against_published(results, BEGINNING).items() if source == "paper"}
    return [task for task, pair in early.items() if _compared(*pair).verdict == "worse"]


def _decided(found: dict[tuple[str, str], Comparison], measure: str) -> list[str]:
    """The tasks where a verdict says which side is better, if there are any."""
    sides: dict[str, list[str]] = {}
    for (task, source), each in found.items():
        if each.verdict in ("worse", "better"):
            sides.setdefault(task, []).append(f"{'below' if each.verdict == 'worse' else 'above'} {NAMES[source]}")
    differ = [f"{_listed(places[::-1])} on {task}" for task, places in sides.items()]
    return [f"By the {measure}, td3 is {_listed(differ)}."] if differ else []


def _ideas(results: Path) -> str:
    rows = _rows("table2", results)
    signs = same_signs([*rows], results)
    losses: dict[str, list[tuple[float, str]]] = {idea: [] for idea in IDEAS}
    for row, curve in rows:
        if row.variant in IDEAS and signs.get(row.name) in ("yes", "no"):
            ours, theirs = _both(row, curve, results)
            loss = 1 - float(ours.mean() / theirs.mean())
            losses[row.variant].append((-loss, f"{_percent(loss)} on {row.family}"))
    told = {IDEAS[idea]: _listed([text for _, text in sorted(lost)]) for idea, lost in losses.items() if lost}
    text = "; ".join(f"{idea} {lost}" for idea, lost in told.items())
    first = next(iter(told))
    return text.replace(first, f"{first} is worth", 1).replace(" %", " % of the return", 1) + "."


def _variants(results: Path) -> str:
    rows = _rows("variants", results)
    found = [(row.family, _compared(*_both(row, curve, results)).verdict) for row, curve in rows]
    better, worse = ([task for task, verdict in found if verdict == side] for side in ("better", "worse"))
    where = _listed([f"{worse.count(task)} are worse on {task}" for task in dict.fromkeys(worse)])
    rates = [
        f"from {_percent(plain.success)} to {_percent(curve.success)} ({row.family})"
        for row, curve in _rows("goals", results)
        if row.variant and (plain := read_curve(results / baseline_name(row))) and plain.success and curve.success
    ]
    return (
        f"{len(better) or 'none'} of {len(rows)} comparisons is better than TD3; {where}. "
        f"Hindsight raises the success rate {_listed(rates)}."
    )


def _both(row: Row, curve: Curve, results: Path) -> tuple[Array, Array]:
    """The last ten evaluations of a row's seeds, and of those of the row that it is compared with."""
    baseline = read_curve(results / baseline_name(row))
    assert baseline is not None
    ours, theirs = map(last_evaluations, shared(curve, baseline))
    return ours, theirs


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.0f} %"


def _listed(texts: Sequence[str], last: str = "and") -> str:
    return f" {last} ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


STYLE = (
    "svg{--ink:#1b1d21;--paper:#fdfdfc;--soft:#5b616b;--faint:#d5d8dc;--wash:#f2f4f5;--c0:#0072b2;--c1:#d98300}"
    "@media(prefers-color-scheme:dark){svg{--ink:#e6e8eb;--paper:#15171a;--soft:#a3aab4;--faint:#3a3f46;--wash:#1f2226;"
    "--c0:#4aa8e0;--c1:#f0a029}}text{font:13px system-ui,sans-serif;fill:var(--ink)}.soft{fill:var(--soft)}"
    ".head{font-size:15px;font-weight:600}"
)
"""The colors of the drawings of the fifteen steps."""
LEFT, RIGHT, TOP, SPACING, SPAN = 186, 454, 66, 36, 0.4
"""Margins of the plot, the height of a task, and the largest share shown."""


def plot(results: Path) -> str:
    """The difference from each published result with its interval, as a share of the published mean, as SVG."""
    pairs = _against_published(results)
    tasks = list(dict.fromkeys(task for task, _ in pairs))
    bottom = TOP + SPACING * len(tasks)

    def across(share: float) -> float:
        return LEFT + (share + SPAN) / (2 * SPAN) * (RIGHT - LEFT)

    shares = {}
    for key, (ours, theirs) in pairs.items():
        found, mean = _compared(ours, theirs), abs(float(theirs.mean()))
        shares[key] = found.difference / mean, found.low / mean, found.high / mean
    covered = all(low <= 0 <= high for _, low, high in shares.values())
    title = "No difference from published TD3 is shown" if covered else "td3 against published TD3"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 {bottom + 46}" role="img"><title>{title}</title>',
        f'<style>{STYLE}</style><rect width="480" height="{bottom + 46}" rx="8" fill="var(--paper)"/>',
        f'<text class="head" x="16" y="26">{title}</text>',
        '<circle cx="22" cy="44" r="4.5" fill="var(--c0)"/><text class="soft" x="32" y="48">against Tianshou\'s ten '
        "seeds</text>",
        '<rect x="248" y="40" width="8" height="8" fill="var(--c1)"/><text class="soft" x="262" y="48">against the '
        "paper's ten seeds</text>",
        f'<rect x="{across(-MARGIN):.1f}" y="{TOP}" width="{across(MARGIN) - across(-MARGIN):.1f}" '
        f'height="{bottom - TOP}" fill="var(--wash)"/>',
    ]
    for share in (-0.4, -0.2, 0.0, 0.2, 0.4):
        color = "ink" if share == 0 else "faint"
        parts.append(f'<path d="M{across(share):.1f} {TOP}V{bottom}" stroke="var(--{color})"/>')
        label = _percent(share, "+") if share else "equal"
        parts.append(
            f'<text class="soft" x="{across(share):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
        )
    for index, task in enumerate(tasks):
        middle = TOP + SPACING * (index + 0.5)
        parts.append(f'<text x="{LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{task}</text>')
        for source, y, color in (("tianshou", middle - 6, "c0"), ("paper", middle + 6, "c1")):
            mean, low, high = (across(min(max(share, -SPAN), SPAN)) for share in shares[task, source])
            parts.append(f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="var(--{color})" stroke-width="2.5"/>')
            mark = f'<circle cx="{mean:.1f}" cy="{y:.1f}" r="4.5" fill="var(--{color})"/>'
            if source == "paper":
                mark = f'<rect x="{mean - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="var(--{color})"/>'
            parts.append(mark)
    note = "return of td3 minus the published return, 95 % interval"
    parts.append(f'<text class="soft" x="{RIGHT}" y="{bottom + 36}" text-anchor="end">{note}</text></svg>')
    return "\n".join(parts) + "\n"
