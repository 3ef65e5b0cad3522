"""`td3 bench scaling`: how the cost of an update grows with its sizes."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from td3.errors import RunError, missing_extra
from td3.resources import available_threads
from td3.settings import TD3Config
from td3.training import backend_flags, choose_device
from td3_lab.bench import learners, machine, timing
from td3_lab.bench.options import ScalingBench, Sweep

POINTS: dict[Sweep, tuple[int, ...]] = {
    "batch": (64, 128, 256, 512, 1024, 2048, 4096),
    "width": (64, 128, 256, 512, 1024),
    "seeds": (1, 2, 4, 8, 16, 32, 64),
    "buffer": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "envs": (1, 2, 4, 8, 16, 32),
}
TITLES: dict[Sweep, str] = {
    "batch": "transitions per batch",
    "width": "units per hidden layer",
    "seeds": "seeds, one process",
    "buffer": "transitions in the buffer",
    "envs": "environments of one seed",
}
SEED_ROWS = 10_000
"""Transitions in each seed's buffer where their number is varied, so that 64 of them stay small."""
SLICE_SECONDS = 0.25


def measure(options: ScalingBench) -> tuple[dict[str, Any], str]:
    """Measure, write the files if a directory is given, and return results as data and text."""
    device = choose_device(options.device)
    facts = machine.describe_machine(device)
    threads = options.threads or available_threads()
    if options.out is not None:
        _require_place(options.out)
    sweeps = {sweep: _sweep(sweep, options, device, threads) for sweep in options.sweeps}
    figures = {"threads": threads, "device": options.device, "env": options.env, "sweeps": sweeps, "machine": facts}
    text = _text(figures)
    if options.out is not None:
        (options.out / "scaling.json").write_text(json.dumps(figures, indent=1) + "\n")
        (options.out / "scaling.md").write_text(text + "\n")
        draw(figures, options.out / "scaling.png")
    return figures, text


def _sweep(sweep: Sweep, options: ScalingBench, device: torch.device, threads: int) -> list[dict[str, Any]]:
    """One row per value: work per second, milliseconds for each, and its share of the ceiling."""
    machine.announce(f"Varying {TITLES[sweep]} for {options.seconds:g} s.")
    with backend_flags(), contextlib.ExitStack() as stack:
        cases = {}
        for value in POINTS[sweep]:
            cases[str(value)] = stack.enter_context(_case(sweep, value, options.env, device, threads))
        stack_size = 2 * max(POINTS["seeds"]) if sweep == "seeds" else 2
        cases["sgemm"] = machine.sgemm_case(device, threads, stack_size)
        rates = timing.interleave(cases, options.seconds, min(SLICE_SECONDS, options.seconds / (2 * len(cases))))
    rows = []
    for value in POINTS[sweep]:
        found = timing.summary(rates[str(value)])
        row = {"value": value, "per_s": found["median"], "per_s_spread": found, "ms": 1_000 / found["median"]}
        if sweep != "envs":
            ceiling = [rate / _flops(sweep, value) for rate in rates["sgemm"]]
            row["share_of_ceiling"] = timing.ratio(rates[str(value)], ceiling)["median"]
        if sweep == "buffer":
            row["megabytes"] = value * machine.transition_bytes(learners.STATE_SIZE, learners.ACTION_SIZE) / 1e6
        rows.append(row)
    return rows


@contextlib.contextmanager
def _case(sweep: Sweep, value: int, env: str, device: torch.device, threads: int) -> Iterator[timing.Case]:
    settings = TD3Config()
    width, batch_size = settings.hidden_sizes[0], settings.batch_size
    if sweep == "envs":
        with contextlib.closing(learners.Td3Loop(env, value, width, batch_size, device, threads)) as loop:
            yield loop.case
        return
    members = value if sweep == "seeds" else 1
    count = {"buffer": value, "seeds": SEED_ROWS}.get(sweep, learners.ROWS)
    buffer = learners.synthetic_buffer(members, count, device)
    width = value if sweep == "width" else width
    yield learners.td3_updates(buffer, width, value if sweep == "batch" else batch_size, threads)


def _flops(sweep: Sweep, value: int) -> float:
    settings = TD3Config()
    hidden = (value, value) if sweep == "width" else settings.hidden_sizes
    batch_size = value if sweep == "batch" else settings.batch_size
    return machine.update_flops(learners.STATE_SIZE, learners.ACTION_SIZE, hidden, batch_size, settings.policy_delay)


def _require_place(out: Path) -> None:
    if not learners.installed("matplotlib"):
        raise missing_extra("drawing the plot", "plots")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "scaling.json").open("ab").close()
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): give another --out.") from None


def _text(figures: Mapping[str, Any]) -> str:
    parts = [f"{machine.machine_line(figures['machine'])}, threads: {figures['threads']}"]
    for sweep, rows in figures["sweeps"].items():
        unit = "env step" if sweep == "envs" else "update"
        headings = [TITLES[sweep], f"{unit}s/s", f"ms per {unit}"]
        headings += ["share of ceiling"] if sweep != "envs" else []
        headings += ["MB"] if sweep == "buffer" else []
        parts += ["", timing.table(headings, [_cells(row) for row in rows])]
    return "\n".join(parts)


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [f"{row['value']:,}", timing.spread(row["per_s_spread"]), f"{row['ms']:.2f}"]
    cells += [f"{row['share_of_ceiling']:.2f}"] if "share_of_ceiling" in row else []
    return cells + ([f"{row['megabytes']:,.1f}"] if "megabytes" in row else [])


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """One panel per sweep: milliseconds and their quartiles against the value varied, on logarithmic axes.

    All panels share one scale of time, so that what costs nothing looks flat.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    sweeps: Mapping[Sweep, Sequence[Mapping[str, Any]]] = figures["sweeps"]
    figure = Figure(figsize=(3.2 * len(sweeps), 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(sweeps), sharey=True, squeeze=False)[0]
    for axes, (sweep, rows) in zip(panels, sweeps.items(), strict=True):
        values, times = [row["value"] for row in rows], [row["ms"] for row in rows]
        spreads = [row["per_s_spread"] for row in rows]
        below = [time - 1_000 / spread["high"] for time, spread in zip(times, spreads, strict=True)]
        above = [1_000 / spread["low"] - time for time, spread in zip(times, spreads, strict=True)]
        axes.errorbar(values, times, [below, above], fmt="o-", color="#1f5fa8", markersize=4, capsize=2)
        axes.set(xscale="log", yscale="log", xlabel=TITLES[sweep])
        axes.set_title("per env step" if sweep == "envs" else "per update", fontsize=10)
        axes.set_xticks(values, [_short(value) for value in values], fontsize=8)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(visible=True, which="major", alpha=0.3)
    panels[0].set_ylabel("milliseconds")
    figure.savefig(path, dpi=80)


def _short(value: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size and value % size == 0:
            return f"{value // size}{letter}"
    return str(value)
