"""`td3 bench peers`: env steps per second of this package and of others, on the same task, in rotating order."""

import contextlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import torch

from td3.errors import missing_extra
from td3.resources import available_threads
from td3.training import choose_device
from td3_lab.bench import learners, machine, timing
from td3_lab.bench.options import PeersBench

TITLES = {
    "td3": "td3",
    "sb3": "Stable-Baselines3",
    "sbx": "sbx (JAX)",
    "author": "the author's update alone",
}
PACKAGES = {"sb3": ("stable_baselines3", "stable-baselines3"), "sbx": ("sbx", "sbx-rl")}
SLICE_SECONDS = 1.0
"""Many of the chunks in which the others' loops are called."""


def measure(options: PeersBench) -> tuple[dict[str, Any], str]:
    """Measure, and return results as data and text."""
    device = choose_device(options.device)
    facts = machine.describe_machine(device)
    if not learners.installed("stable_baselines3"):
        raise missing_extra("comparing with other libraries", "bench")
    if options.author is not None:
        learners.import_checkout(options.author)  # a wrong path is refused before the warm-up
    machine.announce("Warming up.")
    cases: dict[tuple[str, int], timing.Case] = {}
    with contextlib.ExitStack() as stack:
        for threads in machine.thread_counts(options.threads, device):
            loop = learners.Td3Loop(options.env, 1, options.width, options.batch_size, device, threads)
            cases["td3", threads] = stack.enter_context(contextlib.closing(loop)).case
        cases |= _baseline_cases(options, device)
        machine.announce(f"Measuring {len(cases)} cases side by side for {options.seconds:g} s.")
        slice_seconds = min(SLICE_SECONDS, options.seconds / (2 * len(cases)))
        rates = timing.interleave(cases, options.seconds, slice_seconds)
    best = {name: _fastest(name, rates) for name in TITLES if any(name == case for case, _ in rates)}
    found = {name: timing.summary(rates[case]) for name, case in best.items()}
    ratios = {name: timing.ratio(rates[best["td3"]], rates[case]) for name, case in best.items() if name != "td3"}
    figures = {
        "env": options.env,
        "steps_per_s": {name: found[name]["median"] for name in found if name != "author"},
        **({"author_updates_per_s": found["author"]["median"]} if "author" in found else {}),
        **{f"ratio_to_{name}": ratio["median"] for name, ratio in ratios.items()},
        "spread": found,
        "ratios_spread": ratios,
        "threads": dict(best.values()),
        "batch_size": options.batch_size,
        "width": options.width,
        "device": options.device,
        "rounds": len(rates[best["td3"]]),
        "machine": facts | {pip: metadata.version(pip) for name, (_, pip) in PACKAGES.items() if name in found},
    }
    return figures, _text(figures)


def _baseline_cases(options: PeersBench, device: torch.device) -> dict[tuple[str, int], timing.Case]:
    cases = {}
    for name, (package, _) in PACKAGES.items():
        # JAX decides for itself how many threads it takes.
        counts = machine.thread_counts(options.threads, device) if name == "sb3" else [available_threads()]
        for threads in counts if learners.installed(package) else ():
            cases[name, threads] = learners.their_loop(
                package, options.env, options.batch_size, options.width, device, threads
            )
    if options.author is not None:
        for threads in machine.thread_counts(options.threads, device):
            cases["author", threads] = learners.author_updates(options.author, options.batch_size, device, threads)
    return cases


def _fastest(name: str, rates: Mapping[tuple[str, int], Sequence[float]]) -> tuple[str, int]:
    cases = [case for case in rates if case[0] == name]
    return max(cases, key=lambda case: timing.summary(rates[case])["median"])


def _text(figures: Mapping[str, Any]) -> str:
    ratios = figures["ratios_spread"]
    rows = [
        [
            TITLES[name],
            str(figures["threads"][name]),
            timing.spread(rate),
            timing.spread(ratios[name], 2) if name in ratios else "",
        ]
        for name, rate in figures["spread"].items()
    ]
    return "\n".join(
        [
            f"{figures['env']}, one update per env step, batch {figures['batch_size']}, width {figures['width']}",
            machine.machine_line(figures["machine"]),
            f"Medians over {figures['rounds']} interleaved rounds, quartiles in brackets.",
            "",
            timing.table(["", "threads", "env steps/s", "td3 is faster by"], rows),
        ]
    )
