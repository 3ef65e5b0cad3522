"""Measure physics alone and updates alone: `python -m td3_lab.worlds.bench physics|update [options]`."""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from td3_lab.worlds.captured import Captured
from td3_lab.worlds.learner import Learner
from td3_lab.worlds.replay import ReplayBuffer
from td3_lab.worlds.settings import Settings


def rate(run: Callable[[], object], seconds: float) -> float:
    """Return how often `run` runs in a second, after 10 runs to warm up; the device is waited for every 20 runs."""
    for _ in range(10):
        run()
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(20):
            run()
        count += 20
        torch.cuda.synchronize()
    return count / (time.perf_counter() - start)


def physics(task: str, worlds: int, iterations: int | None, seconds: float) -> dict[str, Any]:
    """Measure env steps per second of physics alone, and of worlds with observations, rewards and restarts."""
    from td3_lab.worlds.tasks import TASKS
    from td3_lab.worlds.worlds import Worlds

    begun = time.perf_counter()
    batch = Worlds(TASKS[task](), worlds, "cuda", solver_iterations=iterations)
    torch.cuda.synchronize()
    made = time.perf_counter() - begun
    action = torch.zeros(worlds, batch.actions, device="cuda")

    def act() -> None:
        batch.begin(action.uniform_(-1, 1))

    def simulate() -> None:
        act()
        batch.physics()

    def step() -> None:
        simulate()
        batch.finish()

    assert batch.stream is not None
    with torch.cuda.stream(batch.stream):
        whole = rate(step, seconds)
        alone = rate(simulate, seconds)
    return {
        "task": task,
        "worlds": worlds,
        "solver_iterations": iterations,
        "made_in_seconds": round(made, 1),
        "physics_env_steps_per_second": round(alone * worlds),
        "eager_env_steps_per_second": round(whole * worlds),
        "overflowed": int(batch.overflowed),
        "blown_up": int(batch.blown_up),
    }


def update(settings: Settings, seconds: float, observations: int = 17, actions: int = 6) -> dict[str, Any]:
    """Measure updates per second on random transitions; every second update moves the actor."""
    device = torch.device("cuda")
    torch._dynamo.reset()
    begun = time.perf_counter()
    learner = Learner(settings, observations, actions, device)
    buffer = ReplayBuffer(1000, 1024, observations, actions, device)
    buffer.table.normal_()
    buffer.table[..., -2:] = 0
    buffer.filled.fill_(1000)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    parts = [
        Captured(partial(learner.update, buffer, move_actor=move), stream, (learner.generator,))
        for move in (False, True)
    ]
    for part in parts:
        part.record()

    def pair() -> None:
        for part in parts:
            part()

    made = time.perf_counter() - begun
    pairs = rate(pair, seconds)
    return {
        "batch": settings.batch,
        "layer_norm": settings.layer_norm,
        "bf16": settings.bf16,
        "compiled": settings.compiled,
        "fused": settings.fused,
        "made_in_seconds": round(made, 1),
        "updates_per_second": round(2 * pairs),
    }


def main() -> None:
    """Measure and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("physics", "update"))
    parser.add_argument("--tasks", nargs="*", default=["HalfCheetah-v5", "Ant-v5", "Humanoid-v5"])
    parser.add_argument("--worlds", nargs="*", type=int, default=[1024, 4096])
    parser.add_argument("--iterations", nargs="*", type=int, default=[0], help="of the solver; 0 keeps the model's")
    parser.add_argument("--batches", nargs="*", type=int, default=[8192])
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if options.what == "physics":
        for task in options.tasks:
            for worlds in options.worlds:
                for iterations in options.iterations:
                    print(json.dumps(physics(task, worlds, iterations or None, options.seconds)), flush=True)
        return
    for batch in options.batches:
        for layer_norm, fused in ((True, True), (True, False), (False, True), (False, False)):
            settings = replace(Settings(), batch=batch, layer_norm=layer_norm, fused=fused)
            print(json.dumps(update(settings, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
