"""The machine's peak rate, and the operations of an update."""

import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from td3.backends.choose import choose_backend
from td3.engine.capture import capture
from td3.engine.recording import Recording
from td3.resources import available_threads
from td3.run.directory import versions
from td3_lab.bench.timing import Case, interleave

CUBE = 256
"""Rows, columns and depth of the product whose rate is the peak: the largest product in an update."""
REPEATS = 16
"""Products per call, so that counting them costs nothing."""


def update_flops(
    state_size: int, action_size: int, hidden_sizes: Sequence[int], batch_size: int, policy_delay: int
) -> float:
    """Floating-point operations of the matrix products that one update requires.

    The actor's turn counts in proportion: it comes every `policy_delay` updates.
    """
    actor, actor_above_first = _multiplications((state_size, *hidden_sizes, action_size))
    critic, critic_above_first = _multiplications((state_size + action_size, *hidden_sizes, 1))
    targets = actor + 2 * critic
    # Forward; gradients of weights; gradients that travel down, which the first layer need not hand on.
    critics_turn = 2 * (critic + critic + critic_above_first)
    # Through critic 1 the gradient travels down to the action, and on through the actor; its weights are not asked for.
    through_critic = critic + critic_above_first + action_size * hidden_sizes[0]
    actors_turn = through_critic + actor + actor + actor_above_first
    return 2 * batch_size * (targets + critics_turn + actors_turn / policy_delay)


def _multiplications(sizes: Sequence[int]) -> tuple[int, int]:
    """Of one row through a network: in all layers, and in those above the first."""
    layers = [inputs * outputs for inputs, outputs in pairwise(sizes)]
    return sum(layers), sum(layers[1:])


def transition_bytes(state_size: int, action_size: int) -> int:
    """Bytes of one stored transition: state, action, next state, reward and terminated as float32."""
    return 4 * (2 * state_size + action_size + 2)


def sgemm_case(device: torch.device, threads: int, stack: int = 1) -> Case:
    """Floating-point operations per second of 256 x 256 x 256 products, the data already near.

    On a CPU they are PyTorch's or those of the kernels, whichever are faster here: PyTorch's library does not use the
    widest vectors of every processor. A GPU multiplies `stack` of them at once, in a graph, as the updates of many
    members do.
    """
    if device.type == "cpu":
        left, right, out = (torch.ones(1, CUBE, CUBE) for _ in range(3))
        backend, bias = choose_backend(device), torch.zeros(1, CUBE)
        products = {
            "torch": (partial(torch.mm, left[0], right[0], out=out[0]), torch.set_num_threads),
            "kernels": (partial(backend.linear, left, right, bias, None, out), backend.set_threads),
        }
        cases = {name: _replayed(product, threads, set_threads) for name, (product, set_threads) in products.items()}
        rates = interleave(cases, 0.2, slice_seconds=0.02)
        return cases[max(cases, key=lambda name: statistics.median(rates[name]))]
    left, right, out = (torch.ones(stack, CUBE, CUBE, device=device) for _ in range(3))
    torch.bmm(left, right, out=out)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        for _ in range(REPEATS):
            torch.bmm(left, right, out=out)

    def work(kept: object = (left, right, out)) -> float:  # a graph does not keep alive what it reads and writes
        graph.replay()
        return REPEATS * stack * 2.0 * CUBE**3

    return on_device(work, device, threads)


def _replayed(product: Callable[[], Any], threads: int, set_threads: Callable[[int], None]) -> Case:
    """Repeats of a product on a CPU, replayed as recorded updates are."""

    def multiply() -> None:
        for _ in range(REPEATS):
            product()

    recording = Recording(multiply)

    def work() -> float:
        recording.replay()
        return REPEATS * 2.0 * CUBE**3

    return on_device(work, torch.device("cpu"), threads, set_threads)


def on_device(
    work: Any, device: torch.device, threads: int, set_threads: Callable[[int], None] = torch.set_num_threads
) -> Case:
    """A case of PyTorch's work or ours: threads are set before, and a GPU is synchronized after."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return Case(work, prepare=lambda: set_threads(threads), finish=wait)


def thread_counts(asked: int, device: torch.device) -> list[int]:
    """The numbers of threads to measure: the given one, or one and all; with a GPU only one."""
    if device.type == "cuda":
        return [asked or 1]
    return [asked] if asked else sorted({1, available_threads()})


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The processor, its load when the measurement began, and the versions in use."""
    facts: dict[str, Any] = {"cpu": _cpu_model(), "cores": available_threads(), "load": round(os.getloadavg()[0], 2)}
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return {**facts, **versions()}


def machine_line(facts: dict[str, Any]) -> str:
    """The same as one line."""
    place = f"{facts['cpu']}, {facts['cores']} cores" + (f", {facts['gpu']}" if "gpu" in facts else "")
    return f"{place}, torch {facts['torch']}, load {facts['load']} at the start"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def announce(text: str) -> None:
    """Print progress on stderr; stdout is for the result."""
    print(text, file=sys.stderr, flush=True)
