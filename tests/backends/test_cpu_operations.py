"""What a recording leaves to the kernels comes out as PyTorch computes it, to the last bit."""

import pytest
import torch

from td3.algorithm.agent import Agent, Task
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.backends import cpu
from td3.backends import cpu_operations as instructions
from td3.backends.torch_backend import TORCH
from td3.engine import update_once
from td3.engine.recording import Recording
from td3.settings import TD3Config

pytestmark = pytest.mark.skipif(cpu.why_not() is not None, reason=f"no kernels, because {cpu.why_not()}")


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


A, B, ROW, WHOLE = normal(2, 30, 6), normal(2, 30, 6, seed=1), normal(6, seed=2), torch.arange(60).reshape(2, 30)
LONG = normal(2, 2_000, seed=3)
LOW, HIGH, NUMBERS = -ROW.abs(), ROW.abs(), torch.tensor([3, 29, 0, 3])
OPERATIONS = {
    "add": lambda: A + B,
    "a row to all": lambda: A + ROW,
    "a number": lambda: A + 0.1,
    "subtract": lambda: A - B,
    "from a number": lambda: 1 - A,
    "transposed": lambda: A.mT - B.mT,
    "multiply": lambda: A * B,
    "by a number": lambda: A * 0.3,
    "divide": lambda: A / B,
    "by a whole number": lambda: A / 7,
    "negate": lambda: -A,
    "square": lambda: A.square(),
    "to the first power": lambda: A.pow(1),
    "the smaller": lambda: torch.minimum(A, B),
    "clamp": lambda: A.clamp(-0.5, 0.5),
    "clamp the wrong way round": lambda: A.clamp(0.5, -0.5),
    "clamp to rows": lambda: A.clamp(LOW, HIGH),
    "side by side": lambda: torch.cat((A, B[..., :2]), -1),
    "one below the other": lambda: torch.cat((A, B), 1),
    "rows": lambda: A[0].index_select(0, NUMBERS),
    "remainder": lambda: WHOLE.remainder(torch.tensor(7)),
    "negative remainder": lambda: (WHOLE + torch.tensor(-30)).remainder(torch.tensor(7)),
    "ones": lambda: torch.ones_like(A),
    "of the twins": lambda: A.sum(0),
    "of one": lambda: A[:1, :1, :1].sum(),
    "along rows": lambda: A.view(2, 3, 60).sum(-1),
    "of all": lambda: A.sum((0, 1, 2)),
    "mean along rows": lambda: A.view(2, 3, 60).mean(-1, keepdim=True),
    "mean of the twins": lambda: A.unsqueeze(1).mean((0, 2, 3)),
    "tanh backwards": lambda: torch.ops.aten.tanh_backward(A, B),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_repeated_with_new_numbers(name):
    saved, result = (A.clone(), B.clone()), []
    recording = Recording(lambda: result.append(OPERATIONS[name]()))
    try:
        A.copy_(normal(2, 30, 6, seed=3))
        B.copy_(normal(2, 30, 6, seed=4))
        result[0].fill_(77)
        recording.replay()
        assert torch.equal(result[0], OPERATIONS[name]())
    finally:
        A.copy_(saved[0])
        B.copy_(saved[1])
    assert all(isinstance(call, cpu.Program) for call in recording._calls)


@pytest.mark.parametrize("count", [1, 7, 8, 20, 32, 100, 256, 511, 512])
def test_sums_of_any_length(count):
    numbers, result = normal(5, count), []
    recording = Recording(lambda: result.append(numbers.sum(-1)))
    numbers.copy_(normal(5, count, seed=1))
    recording.replay()
    assert torch.equal(result[0], numbers.sum(-1))


def test_an_order_of_summing_that_is_not_known_is_left_to_pytorch(monkeypatch):
    monkeypatch.setattr(instructions, "_sums_as_pytorch_does", lambda count: False)
    recording = Recording(lambda: A.view(2, 3, 60).sum(-1))
    assert not any(isinstance(call, cpu.Program) for call in recording._calls)


def test_operations_in_place():
    target, online, sums = normal(40_000), normal(40_000, seed=1), torch.zeros(3, dtype=torch.float64)
    expected, wanted = target.clone(), sums.clone()

    def work(target, sums):
        target.lerp_(online, 0.005)
        sums.add_(online[:3])
        target.mul_(1.5)
        target[:10].copy_(online[10:20])

    recording = Recording(lambda: work(target, sums))
    assert [len(call.instructions) for call in recording._calls] == [4]
    for threads in (1, 2):
        cpu.set_threads(threads)
        recording.replay()
    cpu.set_threads(1)
    for _ in range(3):
        work(expected, wanted)
    assert torch.equal(target, expected)
    assert torch.equal(sums, wanted)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_is_asked_about_one_number_is_asked_again(broken):
    from td3.algorithm.optimizer import NonFinite, require_finite

    numbers, after = torch.ones(5), torch.zeros(())

    def work():
        require_finite(numbers.sum(), "it")
        after.add_(1)

    recording = Recording(work)
    numbers[2] = broken
    with pytest.raises(NonFinite):
        recording.replay()
    assert float(after) == 1


@pytest.mark.parametrize(
    "work",
    [
        lambda: A.double() + 1,
        lambda: torch.add(A, B, alpha=2),
        lambda: A.clamp(min=0),
        lambda: A.pow(3),
        lambda: torch.tanh(A),
        lambda: torch.lerp(A, B, 0.9),
        lambda: A.clone().lerp_(B, 0.4999999999),
        lambda: A.remainder(B),
        lambda: torch.zeros(2, 30, 6, dtype=torch.float64).add_(0.1),
        lambda: A[0, 0, 0].sum(0),
        lambda: A[0, 0, 0].mean(-1),
        lambda: torch.cat((A, torch.empty(0)), 1),
        lambda: A.clamp(LOW, HIGH * float("nan")).nan_to_num(5.0),
        lambda: A.sum(1),
        lambda: A.mean((0, 2)),
        lambda: A.mT.sum(-1),
        lambda: LONG.sum(-1),
        lambda: LONG.mean(-1),
    ],
)
def test_others_are_left_to_pytorch(work):
    result = []
    recording = Recording(lambda: result.append(work()))
    result[0].fill_(77)
    recording.replay()
    assert torch.equal(result[0], work())


@pytest.mark.parametrize("updates", [100, pytest.param(1_000, marks=pytest.mark.long)])
def test_updates_by_the_kernels_are_those_of_pytorchs_operations(updates):
    settings = TD3Config(hidden_sizes=(32, 40), batch_size=20, buffer_size=500)
    spec = (
        Task(4, [-1.0, -2.0], [1.0, 0.5]),
        TD3Config(hidden_sizes=settings.hidden_sizes, actor_learning_rate=1e-3, critic_learning_rate=1e-3),
    )
    agent, reference = Agent.create(*spec, [5]), Agent.create(*spec, [5], backend=TORCH)
    assert (agent.backend.name, reference.backend.name) == ("cpu", "torch")
    buffer = make_replay_buffer(1, 500, 4, 2)
    rows = normal(1, 500, 12)
    rows[..., -1] = (rows[..., -1] > 1).float()
    buffer.add_(rows)
    worst = 0.0
    for number in range(updates):
        for name, tensor in agent.tensors().items():
            reference.tensors()[name].copy_(tensor)
        for learner in (agent, reference):
            update_once(learner, buffer, MemberStreams([5], position=number), settings)
        for name in ("actor", "actor_target", "critics", "critics_target"):
            ours, theirs = agent.tensors()[name], reference.tensors()[name]
            worst = max(worst, float((ours - theirs).norm() / theirs.norm()))
    assert worst < 1e-5
