import os

import pytest
import torch

from td3 import resources
from td3.errors import ConfigError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """A container's limits, to be written by the test."""
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path


def test_threads_are_the_cores_of_this_process(cgroup):
    assert resources.available_threads() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("quota", "threads"), [("100000 100000", 1), ("150000 100000", 1), ("20000 100000", 1)])
def test_threads_are_capped_by_the_containers_quota(cgroup, quota, threads):
    (cgroup / "cpu.max").write_text(quota)
    assert resources.available_threads() == threads


def test_no_quota_is_no_cap(cgroup):
    (cgroup / "cpu.max").write_text("max 100000")
    assert resources.available_threads() == len(os.sched_getaffinity(0))


def test_omp_num_threads_is_respected(cgroup, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert resources.available_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
    assert resources.available_threads() == len(os.sched_getaffinity(0))


def test_memory_is_capped_by_the_containers_limit(cgroup):
    free = resources.available_memory()
    assert free is not None
    assert free > 1e8
    (cgroup / "memory.max").write_text("50000000")
    (cgroup / "memory.current").write_text("30000000")
    (cgroup / "memory.stat").write_text("anon 1\ninactive_file 5000000\n")
    assert resources.available_memory() == 25_000_000


def test_a_memory_that_fits_is_allowed():
    resources.require_memory(1_000, 10, 1, CPU)


def test_a_memory_that_does_not_fit_is_refused_with_what_to_change(monkeypatch):
    monkeypatch.setattr(resources, "available_memory", lambda: 2_000_000_000)
    with pytest.raises(ConfigError) as caught:
        resources.require_memory(8_000_000_000, 4_000_000, 2, CPU)
    assert str(caught.value) == (
        "the replay buffer needs 8.0 GB for 2 x 4,000,000 transitions, and this machine has 2.0 GB free: "
        "lower --td3.buffer-size to at most 900,000, or train fewer seeds."
    )
    resources.require_memory(8_000_000_000 * 900_000 // 4_000_000, 900_000, 2, CPU)


def test_where_the_system_does_not_say_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(resources, "available_memory", lambda: None)
    resources.require_memory(10**18, 10**9, 1, CPU)


@pytest.fixture
def offers(monkeypatch):
    """So much free memory on the GPU and in the machine, in GB."""

    def offer(gpu, host):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(gpu * 1e9), int(100e9)))
        monkeypatch.setattr(resources, "available_memory", lambda: host and int(host * 1e9))

    return offer


@pytest.mark.parametrize(
    ("gpu", "host", "wish", "in_host_ram"),
    [(10, 10, "auto", False), (1, 10, "auto", True), (1, None, "auto", True), (10, 10, "host", True)],
)
def test_a_gpus_memory_lies_on_it_if_it_fits_and_else_in_the_machine(offers, gpu, host, wish, in_host_ram):
    offers(gpu, host)
    assert resources.require_memory(8_000_000_000, 4_000_000, 2, GPU, wish) is in_host_ram


@pytest.mark.parametrize(
    ("wish", "places", "fitting"),
    [
        ("auto", "the GPU has 1.0 GB free and this machine has 2.0 GB free", "900,000"),
        ("gpu", "the GPU has 1.0 GB free", "450,000"),
        ("host", "this machine has 2.0 GB free", "900,000"),
    ],
)
def test_what_fits_nowhere_is_refused(offers, wish, places, fitting):
    offers(1, 2)
    with pytest.raises(ConfigError) as caught:
        resources.require_memory(8_000_000_000, 4_000_000, 2, GPU, wish)
    assert str(caught.value) == (
        f"the replay buffer needs 8.0 GB for 2 x 4,000,000 transitions, and {places}: "
        f"lower --td3.buffer-size to at most {fitting}, or train fewer seeds."
    )


def test_a_cpus_memory_is_its_own(offers):
    offers(100, 10)
    assert resources.require_memory(8_000_000_000, 4_000_000, 2, CPU, "gpu") is False
