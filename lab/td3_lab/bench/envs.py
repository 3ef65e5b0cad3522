"""`td3 bench envs`: how fast environments step: sequentially, in threads, in processes, in a batch, in EnvPool."""

import contextlib
import importlib.util
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from td3.collect.collector import Collector
from td3.environments import check_environment, fastest_workers, in_batch, make_environment, place, requested_workers
from td3.environments.vector import VectorSource
from td3.resources import available_threads
from td3_lab.bench import machine, timing
from td3_lab.bench.options import EnvsBench
from td3_lab.bench.slow import make_slow

PATIENCE_SECONDS = 120.0
ONE = "one environment"
RATIOS = {"ratio_to_one": "times one", "ratio_to_none": "times one after another"}


def measure(options: EnvsBench) -> tuple[dict[str, Any], str]:
    """Step the environments with every kind of worker, and return results as data and text."""
    make: Callable[[], gym.Env[Any, Any]] = partial(make_environment, options.env)
    if options.step_ms:
        make = partial(make_slow, options.env, options.step_ms / 1_000)
    with contextlib.closing(make()) as probe:
        spaces = check_environment(probe, options.env)
    batch = in_batch(make, available_threads())
    chosen = batch if batch and options.envs > 1 else fastest_workers(make, options.envs)
    machine.announce(f"Stepping {options.envs} environments in every way for {options.seconds:g} s.")
    ways = {ONE: (1, requested_workers("none", 1))}
    ways.update(
        {kind: (options.envs, requested_workers(kind, options.envs)) for kind in ("none", "threads", "processes")}
    )
    if batch:
        ways["batch"] = options.envs, batch
    pool = None if options.step_ms else envpool_source(options.env)
    with contextlib.ExitStack() as stack:
        cases = {}
        for name, (count, worker_backend) in ways.items():
            environments = stack.enter_context(contextlib.closing(place(make, count, worker_backend, PATIENCE_SECONDS)))
            collector = Collector(environments, [0], spaces.action_low, spaces.action_high, 0.1)
            cases[name] = timing.Case(partial(_round, collector))
        if pool:
            vector = stack.enter_context(contextlib.closing(pool.make(options.envs, seed=0)))
            collector = Collector(vector, [0], spaces.action_low, spaces.action_high, 0.1)
            cases["envpool"] = timing.Case(partial(_round, collector))
        rates = timing.interleave(cases, options.seconds, max(timing.SLICE_SECONDS, 10 * options.step_ms / 1_000))
    figures: dict[str, Any] = {
        "env": options.env,
        "envs": options.envs,
        "step_ms": options.step_ms,
        "chosen": chosen.kind,
        "env_steps_per_s": {name: timing.summary(found) for name, found in rates.items()},
        "ratio_to_one": {name: timing.ratio(found, rates[ONE]) for name, found in rates.items()},
        "ratio_to_none": {name: timing.ratio(found, rates["none"]) for name, found in rates.items()},
        "machine": machine.describe_machine(torch.device("cpu")),
    }
    return figures, _text(figures)


def envpool_source(env: str) -> VectorSource | None:
    """EnvPool's environments of the same name; None where it is not installed or does not have them."""
    if importlib.util.find_spec("envpool") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = import_module("envpool").list_all_envs()
    return VectorSource(partial(_pool, env)) if env in known else None


def _pool(env: str, num_envs: int, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered")
        return import_module("envpool").make(env, env_type="gymnasium", num_envs=num_envs, seed=seed)


def _round(collector: Collector) -> float:
    rows, _ = collector.step(collector.act(None))
    return float(np.prod(rows.shape[:2]))


def _text(figures: dict[str, Any]) -> str:
    titles = {
        ONE: ONE,
        "none": "one after another",
        "threads": "in threads",
        "processes": "in processes",
        "batch": "in a native batch",
        "envpool": "in EnvPool",
    }
    slower = f", each step {figures['step_ms']:g} ms longer" if figures["step_ms"] else ""
    heading = f"{machine.machine_line(figures['machine'])}\n\n{figures['env']}, {figures['envs']} environments{slower}"
    rows = [
        [titles[name], timing.spread(rate), *(timing.spread(figures[ratio][name], 2) for ratio in RATIOS)]
        for name, rate in figures["env_steps_per_s"].items()
    ]
    table = timing.table(["", "env steps/s", *RATIOS.values()], rows)
    return f"{heading}\n{table}\n`--workers auto` takes: {titles[figures['chosen']]}"
