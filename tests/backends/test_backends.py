"""Every backend computes what the reference computes, operation by operation; the choice is made once per agent."""

import pytest
import torch
from torch import nn

from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import StackedMLP, parameter_count
from td3.algorithm.optimizer import OPTIMIZERS
from td3.backends import cpu
from td3.backends.backend import Backend, Moments, NonFinite
from td3.backends.choose import choose_backend
from td3.backends.torch_backend import ACTIVATIONS, TORCH, TorchBackend
from td3.settings import TD3Config

HERE = [
    pytest.param(
        "cpu", marks=pytest.mark.skipif(cpu.why_not() is not None, reason=f"no kernels, because {cpu.why_not()}")
    ),
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
STACK, ROWS, INPUTS, OUTPUTS = 4, 9, 7, 5


def normal(*shape, seed=0, device="cpu"):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("activation", ["relu", None])
@pytest.mark.parametrize("repeated", [True, False])
def test_a_layer(device, activation, repeated):
    backend = choose_backend(device)
    inputs = normal(STACK // 2 if repeated else STACK, ROWS, INPUTS, device=device)
    weight, bias = normal(STACK, INPUTS, OUTPUTS, seed=1, device=device), normal(STACK, OUTPUTS, seed=2, device=device)
    ours, theirs = (torch.full((STACK, ROWS, OUTPUTS), torch.nan, device=device) for _ in range(2))
    assert backend.repeats_inputs
    backend.linear(inputs, weight, bias, activation, ours)
    TORCH.linear(inputs.repeat(STACK // len(inputs), 1, 1), weight, bias, activation, theirs)
    close(ours, theirs)


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("activation", ["relu", None])
@pytest.mark.parametrize("wanted", ["all", "parameters", "inputs"])
def test_a_layer_backwards(device, activation, wanted):
    results = []
    for backend in (choose_backend(device), TORCH):
        gradient, inputs = (
            normal(STACK, ROWS, OUTPUTS, device=device),
            normal(STACK, ROWS, INPUTS, seed=1, device=device),
        )
        weight = normal(STACK, INPUTS, OUTPUTS, seed=2, device=device)
        parameters = torch.zeros_like(weight), torch.zeros(STACK, OUTPUTS, device=device)
        out = torch.zeros(STACK, ROWS, INPUTS, device=device)
        found = backend.linear_backward(
            gradient,
            inputs.relu(),
            weight,
            activation,
            None if wanted == "inputs" else parameters,
            None if wanted == "parameters" else out,
        )
        results.append((found, *parameters))
    for one, other in zip(*results, strict=True):
        close(one, other)


@pytest.mark.parametrize("device", HERE)
def test_adam_at_a_rate_that_changes(device):
    results = []
    for backend in (choose_backend(device), TORCH):
        parameters = normal(2, 3, 50, device=device)
        moments = Moments(*(torch.zeros_like(parameters) for _ in range(2)), torch.zeros(2, 3, device=device))
        active = torch.ones(3, dtype=torch.int32, device=device)
        rate = torch.tensor(1e-3, dtype=torch.float32 if device == "cuda" else torch.float64, device=device)
        for number in range(20):
            rate.fill_(1e-2 / (1 + number))
            backend.adam_(parameters, normal(2, 3, 50, seed=number, device=device), moments, rate, active)
        results.append((parameters, *moments))
    for one, other in zip(*results, strict=True):
        close(one, other)


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("kind", [choose_backend, lambda device: TORCH], ids=["kernels", "pytorch"])
def test_a_backward_pass_after_a_step_of_adam_is_refused(device, kind):
    sizes, backend = (4, 8, 2), kind(device)
    parameters = normal(2, parameter_count(sizes), device=device).requires_grad_()
    outputs = StackedMLP(sizes, parameters, backend=backend)(normal(2, 5, 4, device=device))
    adam = OPTIMIZERS["adam"](parameters, 1e-3, backend)
    adam.step_(normal(*parameters.shape, seed=1, device=device))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2e18])
def test_a_gradient_that_is_not_finite_is_refused(device, bad):
    gradient, actives = normal(2, 3, 50, device=device), []
    gradient[1, 2, 7] = bad
    for backend in (choose_backend(device), TORCH):
        active = torch.ones(3, dtype=torch.int32, device=device)
        if device == "cpu":
            with pytest.raises(NonFinite, match="a gradient is too large or not a number"):
                backend.check_gradient_(gradient, active)
        else:
            backend.check_gradient_(gradient, active)
        actives.append(active.tolist())
    assert actives[0] == actives[1] == ([1, 1, 1] if device == "cpu" else [1, 1, 0])


@pytest.mark.parametrize("device", HERE)
def test_gathers_and_sums_of_losses(device):
    backend = choose_backend(device)
    rows, indices = normal(3, 20, 6, device=device), torch.tensor([[0, 19, 4]] * 3, device=device)
    assert torch.equal(backend.gather(rows, indices), TORCH.gather(rows, indices))
    assert torch.equal(TORCH.gather(rows, indices)[1], rows[1, indices[1]])
    numbers, cursor = torch.arange(60, device=device).view(3, 4, 5) + 7, torch.tensor([2, 4, 11], device=device)
    filled = torch.tensor(11, device=device)
    assert torch.equal(backend.indices_at(numbers, cursor, filled), numbers.flatten(0, 1)[cursor] % 11)
    assert torch.equal(TORCH.indices_at(numbers, cursor, filled), numbers.flatten(0, 1)[cursor] % 11)
    sums = [torch.zeros(4, 3, dtype=torch.float64, device=device) for _ in range(2)]
    for actor in (None, normal(3, seed=5, device=device)):
        for one, into in zip((backend, TORCH), sums, strict=True):
            one.accumulate_(into, normal(3, seed=3, device=device), normal(3, seed=4, device=device), actor)
    assert torch.equal(*sums)
    assert sums[0][3].tolist() == [1, 1, 1]


MODULES = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "leaky_relu": nn.LeakyReLU}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_pytorchs_forwards_and_backwards(activation):
    sizes = (3, 8, 6, 2)
    parameters = normal(1, parameter_count(sizes)).double().requires_grad_()
    network = StackedMLP(sizes, parameters, activation)
    inputs = normal(1, 11, 3, seed=1).double().requires_grad_()
    flow = inputs
    for depth, (weight, bias) in enumerate(network.layers()):
        flow = flow @ weight + bias.unsqueeze(1)
        flow = MODULES[activation]()(flow) if depth < 2 else flow
    wanted = torch.autograd.grad(flow.square().sum(), (parameters, inputs))
    outputs = network(inputs)
    found = torch.autograd.grad(outputs.square().sum(), (parameters, inputs))
    for one, other in zip((outputs, *found), (flow, *wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def spec_of(**changes):
    return Task(3, (-1.0,), (1.0,)), TD3Config(
        hidden_sizes=(8, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3, **changes
    )


def test_a_backend_is_chosen_once_and_everything_of_the_agent_has_it():
    agent = Agent.create(*spec_of(), (0, 1))
    assert isinstance(agent.backend, Backend)
    assert agent.backend.name == ("torch" if cpu.why_not() else "cpu")
    for learner in (agent, agent.member(1), agent.copied()):
        assert learner.backend is agent.backend
        networks = (learner.actor.network, *learner.critics.networks, *learner.critics_target.networks)
        assert {id(network.backend) for network in networks} == {id(agent.backend)}
        assert learner.critics_optimizer.backend is learner.actor_optimizer.backend is agent.backend


def test_what_the_kernels_do_not_know_is_left_to_pytorch():
    assert choose_backend("cpu", torch.float64).name == "torch"
    assert choose_backend("cpu", torch.float64).slower_because is None
    tanh = choose_backend("cpu", activation="tanh")
    assert tanh.name == "torch"
    assert tanh.slower_because == "the fast kernels know relu, not tanh"
    assert Agent.create(*spec_of(activation="tanh"), [0]).backend.name == "torch"


def test_without_a_compiler_the_reference_serves_and_says_why(monkeypatch):
    monkeypatch.setattr(cpu, "why_not", lambda: "there is no C compiler")
    backend = choose_backend("cpu")
    assert type(backend) is TorchBackend
    assert backend.slower_because == "there is no C compiler"


def test_a_backend_can_be_asked_for():
    assert Agent.create(*spec_of(), [0], backend=TORCH).backend is TORCH
