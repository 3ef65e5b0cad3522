import subprocess
import sys

import pytest
import torch
from td3_lab.bench import machine
from torch.utils.flop_counter import FlopCounterMode

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import MemberStreams
from td3.backends import cpu
from td3.engine import update_once
from td3.settings import TD3Config

CPU = torch.device("cpu")


def test_an_update_of_preset_author_on_half_cheetah_is_413_mflop():
    settings = TD3Config()
    flops = machine.update_flops(17, 6, settings.hidden_sizes, settings.batch_size, settings.policy_delay)
    assert flops == pytest.approx(413e6, rel=0.002)


@pytest.mark.parametrize(("delay", "flops"), [(1, 128), (2, 108)])
def test_the_operations_of_the_smallest_networks_by_hand(delay, flops):
    """Actor 1-2-1, critics 2-2-1, one row: multiplications 4 and 6, of them 2 and 2 above the first layer.

    Targets 4 + 12; critics 2 * (6 + 6 + 2) = 28; actor: critic forward 6 and down to the action 2 + 2, its own
    forward 4, weights 4 and down 2, 20 together. (16 + 28 + 20 / delay) multiplications and as many additions.
    """
    assert machine.update_flops(1, 1, (2,), 1, delay) == flops


def test_the_real_update_multiplies_what_was_counted(monkeypatch):
    monkeypatch.setattr(cpu, "_load", lambda: (None, "PyTorch cannot count what our kernels do"))
    settings = TD3Config(hidden_sizes=(64, 64), batch_size=32)
    agent = Agent.create(
        Task(17, [-1.0] * 6, [1.0] * 6),
        TD3Config(hidden_sizes=settings.hidden_sizes, actor_learning_rate=3e-4, critic_learning_rate=3e-4),
        [0],
    )
    memory, streams = ReplayBuffer(1, 100, 17, 6), MemberStreams([0])
    memory.add_(torch.randn(1, 100, 42))
    with FlopCounterMode(display=False) as counter:
        for _ in range(settings.policy_delay):
            update_once(agent, memory, streams, settings)
    counted = counter.get_total_flops() / settings.policy_delay
    # More by the gradient of stored states in the actor's turn, less by a product with a single column.
    assert machine.update_flops(17, 6, (64, 64), 32, 2) == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("faster", ["torch", "kernels"])
def test_the_peak_is_that_of_the_faster_products(monkeypatch, faster):
    if cpu.why_not():
        pytest.skip("no kernels here")
    used = []
    for module, name in ((torch, "set_num_threads"), (cpu, "set_threads")):
        monkeypatch.setattr(module, name, lambda count, name=name: used.append((name, count)))
    monkeypatch.setattr(
        machine, "interleave", lambda cases, *_, **__: {name: [1.0 + (name == faster)] for name in cases}
    )
    case = machine.sgemm_case(CPU, 2)
    case.prepare()
    assert used == [("set_num_threads" if faster == "torch" else "set_threads", 2)]
    assert case.work() == machine.REPEATS * 2 * 256**3


def test_without_kernels_the_peak_is_that_of_pytorch(monkeypatch):
    monkeypatch.setattr(cpu, "_load", lambda: (None, "no compiler"))
    case = machine.sgemm_case(CPU, 1)
    case.prepare()
    assert case.work() == machine.REPEATS * 2 * 256**3


@pytest.mark.parametrize(("asked", "cores", "counts"), [(0, 2, [1, 2]), (0, 1, [1]), (3, 2, [3])])
def test_one_thread_and_all_are_measured_unless_told_otherwise(monkeypatch, asked, cores, counts):
    monkeypatch.setattr(machine, "available_threads", lambda: cores)
    assert machine.thread_counts(asked, CPU) == counts
    assert machine.thread_counts(asked, torch.device("cuda")) == [asked or 1]


def test_the_machine_is_described():
    facts = machine.describe_machine(CPU)
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert f"torch {facts['torch']}" in machine.machine_line(facts)


@pytest.mark.parametrize(("state", "action", "expected"), [(17, 6, 168), (3, 1, 36), (348, 17, 2860)])
def test_bytes_of_a_transition(state, action, expected):
    assert machine.transition_bytes(state, action) == expected == 4 * (2 * state + action + 2)
    memory = ReplayBuffer(3, 50, state, action)
    assert memory.rows.untyped_storage().nbytes() == 3 * 50 * expected


FILL = """
import re
from pathlib import Path
import torch
from td3.algorithm.step_01_replay_buffer import ReplayBuffer

def kilobytes(field):
    return int(re.search(field + r":\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1))

torch.set_num_threads(1)  # two would wait for each other where a neighbor has a core
chunk = torch.ones(1, 1_000, 42)
ReplayBuffer(1, 2_000, 17, 6).add_(chunk)
before = kilobytes("VmRSS")
memory = ReplayBuffer(1, 1_000_000, 17, 6)
for _ in range(1_000):
    memory.add_(chunk)
assert len(memory) == 1_000_000
print((kilobytes("VmHWM") - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_million_transitions_take_the_stated_memory():
    done = subprocess.run([sys.executable, "-c", FILL], capture_output=True, text=True, check=True)
    assert int(done.stdout) == pytest.approx(1_000_000 * machine.transition_bytes(17, 6), rel=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_products_on_a_gpu_write_into_memory_of_their_own():
    case = machine.sgemm_case(torch.device("cuda"), 1, 20)
    others = [torch.full((20, 256, 256), 2.0, device="cuda") for _ in range(3)]
    case.work()
    assert all((other == 2).all() for other in others)
