"""The number of threads: chosen by measurement, reconsidered when the pace falls, without effect on the numbers."""

import os
import subprocess
import sys

from td3.backends.thread_tuner import AGAIN, SOON, TRIAL, WINDOW, IdleCores, ThreadTuner


class Machine:
    """Updates take what they cost with the threads that are set."""

    def __init__(self, **cost):
        self.cost = {int(name.removeprefix("threads_")): seconds for name, seconds in cost.items()}
        self.now, self.threads = 0.0, 0

    def set_threads(self, count):
        self.threads = count

    def run(self, tuner, updates):
        for _ in range(updates):
            seconds = self.cost[self.threads]
            self.now += seconds
            tuner(seconds)


def tuned(machine, most=2, updates=3 * TRIAL, idle_cores=lambda: None):
    tuner = ThreadTuner(most, machine.set_threads, idle_cores)
    machine.run(tuner, updates)
    return tuner


def test_the_faster_number_of_threads_wins():
    assert tuned(Machine(threads_1=2.0, threads_2=1.0)).threads == 2
    assert tuned(Machine(threads_1=1.0, threads_2=2.0)).threads == 1


def test_powers_of_two_up_to_the_limit_are_tried():
    assert ThreadTuner(6, lambda count: None, lambda: None).candidates == [1, 2, 4, 6]
    assert ThreadTuner(1, lambda count: None, lambda: None).candidates == [1]


def test_a_hopeless_number_of_threads_is_given_up_after_one_update():
    machine = Machine(threads_1=1.0, threads_2=100.0)
    tuner = tuned(machine, updates=TRIAL + 1)
    assert tuner.threads == machine.threads == 1
    assert machine.now == TRIAL + 100


def test_a_collapse_is_noticed_and_mended():
    machine = Machine(threads_1=2.0, threads_2=1.0)
    tuner = tuned(machine)
    machine.cost[2] = 50.0
    machine.run(tuner, 2 + 2 * TRIAL)
    assert tuner.threads == 1


def test_threads_come_back_when_the_neighbor_has_left():
    machine = Machine(threads_1=2.0, threads_2=50.0)
    tuner = tuned(machine)
    assert tuner.threads == 1
    machine.cost[2] = 1.0
    machine.run(tuner, AGAIN + WINDOW + 2 * TRIAL)
    assert tuner.threads == 2


def test_threads_come_back_soon_after_a_core_became_idle():
    machine, idle = Machine(threads_1=2.0, threads_2=50.0), [0.1]
    tuner = tuned(machine, idle_cores=lambda: idle[0])
    machine.run(tuner, SOON)
    assert tuner.threads == 1
    machine.cost[2], idle[0] = 1.0, 1.0
    machine.run(tuner, WINDOW + 2 * TRIAL)
    assert tuner.threads == 2


def test_a_core_that_was_idle_all_along_calls_for_no_trial():
    machine = Machine(threads_1=1.0, threads_2=2.0)
    tuner = tuned(machine, idle_cores=lambda: 1.0)
    calls = []
    tuner._set_threads = calls.append
    machine.run(tuner, AGAIN // 2)
    assert calls == []


def test_where_all_threads_are_in_use_idle_cores_are_not_read():
    machine, reads = Machine(threads_1=2.0, threads_2=1.0), []
    tuner = tuned(machine, idle_cores=lambda: reads.append(0))
    reads.clear()
    machine.run(tuner, AGAIN // 2)
    assert tuner.threads == 2
    assert reads == []


def test_idle_cores_are_idle_seconds_by_seconds(tmp_path):
    clock, stat = iter((10.0, 12.0, 13.0)), tmp_path / "stat"
    ticks = os.sysconf("SC_CLK_TCK")
    idle_cores = IdleCores(stat, lambda: next(clock))
    stat.write_text(f"cpu  900 0 300 {50 * ticks} {3 * ticks} 0 0 0 0 0\ncpu0 1 2 3\n")
    assert idle_cores() is None
    stat.write_text(f"cpu  950 0 310 {52 * ticks} {4 * ticks} 0 0 0 0 0\ncpu0 1 2 3\n")
    assert idle_cores() == 1.5
    stat.write_text("something else")
    assert idle_cores() is None


def test_without_proc_stat_idle_cores_are_unknown(tmp_path):
    assert IdleCores(tmp_path / "absent")() is None


def test_a_steady_pace_is_left_alone():
    machine = Machine(threads_1=2.0, threads_2=1.0)
    tuner = tuned(machine)
    calls = []
    tuner._set_threads = calls.append
    machine.run(tuner, AGAIN // 2)
    assert calls == []


def test_the_number_of_threads_does_not_change_the_numbers():
    script = """
import td3, hashlib, torch
from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.settings import TD3Config
from td3.engine import update_once
digests = set()
for threads in (1, 2, 3):
    torch.set_num_threads(threads)
    agent = Agent.create(Task(17, [-1.0] * 6, [1.0] * 6), TD3Config(), [0])
    memory = make_replay_buffer(1, 2_000, 17, 6)
    memory.add_(torch.randn(1, 2_000, 42, generator=torch.Generator().manual_seed(0)))
    streams = MemberStreams([0])
    for _ in range(20):
        update_once(agent, memory, streams, TD3Config())
    digests.add(hashlib.sha256(b"".join(t.numpy().tobytes() for t in agent.tensors().values())).hexdigest())
print(len(digests))
"""
    clean = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=clean, check=True)
    assert result.stdout.strip() == "1"
