"""Critics with LayerNorm: their gradient against autograd's, their backends against each other, and runs with them."""

import pytest
import torch
from scripted import SMALL
from torch import nn

import td3
from td3.algorithm.agent import Agent, Task
from td3.algorithm.networks import StackedMLP, parameter_count
from td3.backends import cpu
from td3.backends.backend import NORM_EPSILON
from td3.backends.choose import choose_backend
from td3.backends.torch_backend import TORCH
from td3.errors import RunError
from td3.export.folder import export_run
from td3.settings import TD3Config
from td3_lessons.explain.own_run import record_run

KINDS = [
    pytest.param(
        "cpu", marks=pytest.mark.skipif(cpu.why_not() is not None, reason=f"no kernels, because {cpu.why_not()}")
    ),
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
    ),
]
FIELDS = {**SMALL, "steps": 80, "device": "cpu"}


def plain_forward(network: StackedMLP, inputs, activation):
    """The same network by PyTorch's own layer_norm and autograd."""
    hidden = inputs
    for depth, (weight, bias) in enumerate(network.layers()):
        hidden = hidden @ weight + bias.unsqueeze(-2)
        if depth < len(network.sizes) - 2:
            hidden = activation(nn.functional.layer_norm(hidden, hidden.shape[-1:], eps=NORM_EPSILON))
    return hidden


def normalized_network(sizes=(3, 7, 6, 2), stack=(2, 3), activation="relu", dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(*stack, parameter_count(sizes), generator=generator, dtype=dtype).requires_grad_()
    return StackedMLP(sizes, parameters, activation, layer_norm=True)


@pytest.mark.parametrize(
    ("name", "activation"), [("relu", torch.relu), ("tanh", torch.tanh), ("elu", nn.functional.elu)]
)
def test_forward_and_backward_are_those_of_autograd(name, activation):
    network = normalized_network(activation=name)
    inputs = torch.randn(2, 3, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    ours, theirs = network(inputs), plain_forward(network, inputs, activation)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = [
        torch.autograd.grad((out * weights).sum(), (inputs, network.parameters), retain_graph=True)
        for out in (theirs, network(inputs))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_frozen_parameters_let_the_gradient_through():
    network = normalized_network()
    frozen = network.over(network.parameters.detach())
    inputs = torch.randn(2, 3, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    (ours,) = torch.autograd.grad(frozen(inputs).sum(), inputs)
    (theirs,) = torch.autograd.grad(plain_forward(network, inputs, torch.relu).sum(), inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("device", KINDS)
@pytest.mark.parametrize("units", [1, 5, 16, 256, 300])
def test_every_backend_normalizes_as_the_reference_does(device, units):
    backend, generator = choose_backend(device), torch.Generator().manual_seed(units)
    values = (torch.randn(2, 37, units, generator=generator) * 3 + 20).to(device)
    gradient = torch.randn(2, 37, units, generator=generator).to(device)
    results = []
    for one in (backend, TORCH):
        out, unkept = values.clone(), values.clone()
        kept = one.normalize_(out, "relu", keep=True)
        assert one.normalize_(unkept, "relu", keep=False) is None
        assert torch.equal(out, unkept)
        results.append((out, *kept, one.normalize_backward(gradient.clone(), *kept)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.skipif(cpu.why_not() is not None, reason=f"no kernels, because {cpu.why_not()}")
def test_the_number_of_threads_changes_no_bit():
    values = torch.randn(2, 200, 77, generator=torch.Generator().manual_seed(0))
    backend, found = choose_backend("cpu"), []
    before = backend.get_threads()
    try:
        for threads in (1, 3):
            backend.set_threads(threads)
            out = values.clone()
            kept = backend.normalize_(out, "relu", keep=True)
            found.append((out, *kept, backend.normalize_backward(values.clone(), *kept)))
    finally:
        backend.set_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_only_the_critics_are_normalized_and_copies_stay_so():
    spec = (
        Task(3, [-1.0], [1.0]),
        TD3Config(hidden_sizes=(8, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3, critic_layer_norm=True),
    )
    agent = Agent.create(*spec, (0, 1))
    for one in (agent, agent.copied(), agent.member(1)):
        networks = (*one.critics.networks, *one.critics_target.networks)
        assert all(network.layer_norm for network in networks)
        assert not one.actor.network.layer_norm
        assert not one.actor_target.network.layer_norm
    plain = Agent.create(
        Task(3, [-1.0], [1.0]),
        TD3Config(hidden_sizes=(8, 8), actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        (0, 1),
    )
    for name, tensor in plain.tensors().items():
        assert torch.equal(agent.tensors()[name], tensor), name


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "changed", [{"utd_ratio": 2.5}, {"seeds": 2, "activation": "tanh"}, {"variant": "layer-norm,n-step"}]
)
def test_recorded_updates_are_eager_ones(tmp_path, changed):
    given = {**FIELDS, "variant": "layer-norm", **changed}
    runs = [td3.train("Rail-v0", out=tmp_path / engine, engine=engine, **given) for engine in ("recorded", "eager")]
    assert all(run.config.td3.critic_layer_norm for run in runs)
    for seed in runs[0].seeds:
        ours, theirs = ((run.folder(seed) / "last" / "agent.safetensors").read_bytes() for run in runs)
        assert ours == theirs


def test_what_cannot_hold_normalized_critics_says_so(tmp_path):
    run = td3.train("Rail-v0", out=tmp_path / "run", variant="layer-norm", **FIELDS)
    with pytest.raises(RunError, match="have LayerNorm, which networks of Stable-Baselines3 lack"):
        export_run(run, sb3=True)
    assert not record_run(run.path, steps=50).facts["live"]  # the page shows recorded curves instead
