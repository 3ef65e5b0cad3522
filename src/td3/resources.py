"""What this machine has: threads and free memory, with a container's limits counted in."""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from td3.errors import ConfigError

CGROUP = Path("/sys/fs/cgroup")
COPIES = 3
"""The agent, and the two that are compared at the start of a run."""
OTHER_FILES, MOST_OTHER_FILES = 32, 256
"""Open files besides those of every seed: what a run needs at least, and with many worker processes at most."""


def available_threads() -> int:
    """Threads that this process may use: the available cores, capped by OMP_NUM_THREADS."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(available_cores(), int(asked)) if asked.isdigit() and int(asked) > 0 else available_cores()


def available_cores() -> int:
    """CPU cores that this process may use: its affinity, capped by the container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota, _, period = _read(CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


@contextlib.contextmanager
def room_for_files(needed: int, seeds: int) -> Iterator[None]:
    """So many files may be open inside; refuses what the system does not allow, before anything is made."""
    try:
        import resource
    except ImportError:  # not on Windows
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (math.inf if limit == resource.RLIM_INFINITY else limit for limit in before)
    already = len([*Path("/dev/fd").iterdir()])
    if already + needed + OTHER_FILES > hard:
        fitting = int((hard - already - OTHER_FILES) * seeds / needed)
        raise ConfigError(
            f"{seeds:,} seeds keep {needed:,} files open, and this process may have {hard:,}, of which {already:,} are "
            f"open: train at most {max(1, fitting):,} seeds, or raise the limit (ulimit -Hn)."
        )
    wanted = already + needed + MOST_OTHER_FILES
    if wanted <= soft:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(wanted, hard)), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread of PyTorch for small networks; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def available_memory() -> int | None:
    """Bytes of RAM that can still be taken, or None where the system does not say."""
    lines = _read(Path("/proc/meminfo")).splitlines()
    offers = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = _read(CGROUP / "memory.max"), _read(CGROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        offers.append(int(limit) - int(used) + _reclaimable())
    return min(offers) if offers else None


def require_network_memory(
    needed: int, hidden_sizes: Sequence[int], batch_size: int, members: int, device: torch.device, advice: str = ""
) -> None:
    """Refuse networks that do not fit, before anything is allocated."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if free is not None and needed > 0.9 * free:
        sizes, seeds = " ".join(map(str, hidden_sizes)), f"{members:,} seed{'s' * (members > 1)}"
        raise ConfigError(
            f"the networks need about {gigabytes(needed)} for {seeds} with hidden sizes {sizes} and batches of "
            f"{batch_size:,}, and {'the GPU' if device.type == 'cuda' else 'this machine'} has {gigabytes(free)} free: "
            + (advice or "lower --td3.hidden-sizes or --td3.batch-size, or train fewer seeds.")
        )


def require_state_memory(needed: int, members: int, device: torch.device) -> None:
    """Refuse state of replaced steps that does not fit beside the copies of it that checks make."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if free is not None and COPIES * needed > 0.9 * free:
        seeds = f"{members:,} seed{'s' * (members > 1)}"
        raise ConfigError(
            f"the state of the replaced steps needs {gigabytes(needed)} for {seeds}, {COPIES} times with copies for "
            f"checks, and {'the GPU' if device.type == 'cuda' else 'this machine'} has {gigabytes(free)} free: declare "
            "smaller sizes in state={...}, lower --td3.buffer-size, or train fewer seeds."
        )


def require_memory(
    needed: int,
    buffer_size: int,
    members: int,
    device: torch.device,
    wish: str = "auto",
    advice: str = "",
    reserved: int = 0,
) -> bool:
    """Whether the replay buffer of a GPU goes into this machine's RAM: where it does not fit on the GPU, or on a wish.

    Refuses what fits nowhere, before anything is allocated; `advice` replaces the usual one, and `reserved` bytes are
    kept free for what else the run needs.
    """
    offers: dict[str, int | None] = {}
    if device.type == "cuda" and wish != "host":
        offers["the GPU"] = torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" or wish != "gpu":
        offers["this machine"] = available_memory()
    for place, free in offers.items():
        if free is None or needed + reserved <= 0.9 * free:
            return device.type == "cuda" and place == "this machine"
    most = max(free for free in offers.values() if free is not None)
    fitting = max(0, int(buffer_size * (0.9 * most - reserved) / needed))
    places = " and ".join(f"{place} has {gigabytes(free)} free" for place, free in offers.items() if free is not None)
    raise ConfigError(
        f"the replay buffer needs {gigabytes(needed)} for {members} x {buffer_size:,} transitions, and {places}: "
        + (advice or f"lower --td3.buffer-size to at most {fitting:,}, or train fewer seeds.")
    )


def gigabytes(count: int) -> str:
    """A size in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _reclaimable() -> int:
    for line in _read(CGROUP / "memory.stat").splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
