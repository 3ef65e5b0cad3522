"""`td3 bench update`: updates per second, compared with baselines and with the peak rate of matrix products."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from td3.settings import TD3Config
from td3.training import backend_flags, choose_device
from td3_lab.bench import learners, machine, timing
from td3_lab.bench.compiled import compiled_updates
from td3_lab.bench.options import UpdateBench

BASELINES = {"author": "the author's code", "sb3": "Stable-Baselines3", "compiled": "torch.compile"}
NAMES = {"td3": "td3", "sgemm": "matrix products", "changed": "td3 with the changes", **BASELINES}
Rates = Mapping[tuple[str, int], Sequence[float]]


def measure(options: UpdateBench) -> tuple[dict[str, Any], str]:
    """Measure, and return results as data and text."""
    device = choose_device(options.device)
    facts = machine.describe_machine(device)
    threads = machine.thread_counts(options.threads, device)
    with backend_flags(options.precision):
        cases = _cases(options, device, threads)
        names = [NAMES[name] for name in dict.fromkeys(name for name, _ in cases)]
        machine.announce(f"Measuring {', '.join(names)} side by side for {options.seconds:g} s.")
        rates = timing.interleave(cases, options.seconds)
        both = {name: case for name, case in cases.items() if name[0] in ("td3", "changed")}
        changed = bool(options.variant or options.replace_steps)
        by_cpu = timing.interleave(both, options.seconds / 2, clock=time.process_time) if changed else {}
    flops = machine.update_flops(
        learners.STATE_SIZE,
        learners.ACTION_SIZE,
        (options.width, options.width),
        options.batch_size,
        TD3Config().policy_delay,
    )
    rows = [_row(rates, count, flops) for count in threads]
    if changed:
        for row, count in zip(rows, threads, strict=True):
            row["changed_updates_per_s"] = timing.summary(rates["changed", count])["median"]
            row["ratio_of_changed"] = timing.ratio(rates["changed", count], rates["td3", count])
            row["ratio_of_changed_by_cpu_time"] = timing.ratio(by_cpu["changed", count], by_cpu["td3", count])
    best = max(rows, key=lambda row: row["updates_per_s"])
    figures = {
        **best,
        "device": options.device,
        "precision": options.precision,
        "engine": cases["td3", best["threads"]].kind(),
        "batch_size": options.batch_size,
        "width": options.width,
        "members": options.members,
        "mflop_per_update": flops / 1e6,
        "rounds": len(next(iter(rates.values()))),
        "by_threads": rows,
        "machine": facts,
    }
    return figures, _text(figures)


def _cases(options: UpdateBench, device: torch.device, threads: Sequence[int]) -> dict[tuple[str, int], timing.Case]:
    buffer = learners.synthetic_buffer(options.members, learners.ROWS, device)
    cases = {}
    for count in threads:
        sizes, precision = (options.width, options.batch_size, count), options.precision
        cases["td3", count] = learners.td3_updates(buffer, *sizes, precision=precision)
        cases["sgemm", count] = machine.sgemm_case(device, count, 2 * options.members)
        if options.variant or options.replace_steps:
            changed = options.variant, options.replace_steps
            cases["changed", count] = learners.td3_updates(buffer, *sizes, *changed, precision)
        if options.author is not None:
            cases["author", count] = learners.author_updates(options.author, options.batch_size, device, count)
        if options.compile:
            cases["compiled", count] = compiled_updates(buffer, options.width, options.batch_size, count)
        if learners.installed("stable_baselines3"):
            cases["sb3", count] = learners.sb3_updates(options.batch_size, options.width, device, count)
    return cases


def _row(rates: Rates, threads: int, flops: float) -> dict[str, Any]:
    """The results at one number of threads; every ratio is between cases of the same round."""
    ours, sgemm = rates["td3", threads], rates["sgemm", threads]
    ceiling = [rate / flops for rate in sgemm]
    share = timing.ratio(ours, ceiling)
    figures: dict[str, Any] = {
        "threads": threads,
        "updates_per_s": timing.summary(ours)["median"],
        "updates_per_s_spread": timing.summary(ours),
        "sgemm_gflop_per_s": timing.summary(sgemm)["median"] / 1e9,
        "ceiling_updates_per_s": timing.summary(ceiling)["median"],
        "share_of_ceiling": share["median"],
        "share_of_ceiling_spread": share,
    }
    for baseline in BASELINES:
        if (baseline, threads) in rates:
            theirs = rates[baseline, threads]
            ratio = timing.ratio(ours, theirs)
            figures[f"{baseline}_updates_per_s"] = timing.summary(theirs)["median"]
            figures[f"ratio_to_{baseline}"], figures[f"ratio_to_{baseline}_spread"] = ratio["median"], ratio
    return figures


def _text(figures: Mapping[str, Any]) -> str:
    headings = ["threads", "updates/s", "ceiling", "share of ceiling"]
    present = [baseline for baseline in BASELINES if f"ratio_to_{baseline}" in figures]
    headings += [f"{BASELINES[baseline]}" for baseline in present] + [
        f"ratio to {BASELINES[baseline]}" for baseline in present
    ]
    if "ratio_of_changed" in figures:
        headings += ["changed", "changed / unchanged", "by CPU time"]
    rows = [
        [
            str(row["threads"]),
            timing.spread(row["updates_per_s_spread"]),
            f"{row['ceiling_updates_per_s']:,.0f}",
            timing.spread(row["share_of_ceiling_spread"], 2),
            *(f"{row[f'{baseline}_updates_per_s']:,.0f}" for baseline in present),
            *(timing.spread(row[f"ratio_to_{baseline}_spread"], 2) for baseline in present),
            *_of_changed(row),
        ]
        for row in figures["by_threads"]
    ]
    setting = (
        f"{figures['engine']}, batch {figures['batch_size']}, width {figures['width']}, seeds {figures['members']}, "
        f"{figures['mflop_per_update']:,.0f} MFLOP an update"
    )
    return "\n".join(
        [
            f"{figures['updates_per_s']:,.0f} updates/s with {_threads(figures['threads'])} ({setting})",
            machine.machine_line(figures["machine"]),
            f"Medians over {figures['rounds']} interleaved rounds, quartiles in brackets.",
            "Ceiling: updates/s if only the matrix products took time, at this machine's rate for 256 x 256 matrices.",
            "",
            timing.table(headings, rows),
        ]
    )


def _of_changed(row: Mapping[str, Any]) -> list[str]:
    """The columns of updates with variants or replaced steps, where some were asked for."""
    if "ratio_of_changed" not in row:
        return []
    ratios = [timing.spread(row[name], 2) for name in ("ratio_of_changed", "ratio_of_changed_by_cpu_time")]
    return [f"{row['changed_updates_per_s']:,.0f}", *ratios]


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
