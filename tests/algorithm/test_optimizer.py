"""Our optimizers take the very steps that PyTorch's take, for all members at once or for each alone."""

import pytest
import torch

from td3.algorithm.optimizer import OPTIMIZERS, SGD, Adam, Optimizer
from td3.backends.torch_backend import TORCH

PEERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
STEPS = 50


def parameters_and_gradients(*stack, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(*stack, 30, generator=generator, dtype=dtype)
    gradients = torch.randn(STEPS, *stack, 30, generator=generator, dtype=dtype)
    # Gradients of very different size, and some that are nil.
    return parameters, gradients * torch.logspace(-6, 3, 30, dtype=dtype) * (torch.arange(30) % 7 > 0)


def test_the_first_step_of_adam_by_hand():
    parameters = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    Adam(parameters, 0.1).step_(torch.tensor([[4.0, -0.5, 0.0]], dtype=torch.float64))
    # After one step the bias-corrected moments are g and g * g: the step is the learning rate, against the sign.
    torch.testing.assert_close(parameters, torch.tensor([[0.9, -1.9, 3.0]], dtype=torch.float64), rtol=0, atol=1e-7)


def test_a_step_of_gradient_descent_by_hand():
    parameters = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    SGD(parameters, 0.5).step_(torch.tensor([[4.0, -1.0]], dtype=torch.float64))
    assert parameters.tolist() == [[-1.0, -1.5]]


@pytest.mark.parametrize("stack", [(1,), (3,), (2, 3)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_steps_equal_pytorchs(name, stack):
    parameters, gradients = parameters_and_gradients(*stack)
    theirs = parameters.clone().requires_grad_()
    peer, ours = PEERS[name]([theirs], lr=1e-3), OPTIMIZERS[name](parameters, 1e-3)
    for gradient in gradients:
        theirs.grad = gradient.clone()
        peer.step()
        ours.step_(gradient)
        torch.testing.assert_close(parameters, theirs.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("stack", [(3,), (2, 3)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_members_alone_step_exactly_as_together(name, stack):
    together, gradients = parameters_and_gradients(*stack, dtype=torch.float32)
    apart = together.clone()
    whole, shared = OPTIMIZERS[name](together, 1e-3), OPTIMIZERS[name](apart, 1e-3)
    members = [shared.member(apart[..., index : index + 1, :], index) for index in range(3)]
    for gradient in gradients:
        whole.step_(gradient)
        for index, member in enumerate(members):
            member.step_(gradient[..., index : index + 1, :])
    assert torch.equal(together, apart)
    for tensor, other in zip(whole.state().values(), shared.state().values(), strict=True):
        assert torch.equal(tensor, other)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_members_may_stand_at_different_counts(name):
    parameters, gradients = parameters_and_gradients(2)
    alone = parameters[1:].clone()
    shared, own = OPTIMIZERS[name](parameters, 1e-3), OPTIMIZERS[name](alone, 1e-3)
    first, second = (shared.member(parameters[index : index + 1], index) for index in range(2))
    for number, gradient in enumerate(gradients):
        first.step_(gradient[:1])
        if number % 3 == 0:
            second.step_(gradient[1:])
            own.step_(gradient[1:])
    assert torch.equal(parameters[1:], alone)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_copy_goes_on_alike_and_shares_nothing(name):
    parameters, gradients = parameters_and_gradients(2)
    ours = OPTIMIZERS[name](parameters, 1e-3)
    for gradient in gradients[:10]:
        ours.step_(gradient)
    copied_parameters = parameters.clone()
    copy = ours.copied(copied_parameters, TORCH)
    for gradient in gradients[10:]:
        copy.step_(gradient)
    assert not torch.equal(parameters, copied_parameters)
    for gradient in gradients[10:]:
        ours.step_(gradient)
    assert torch.equal(parameters, copied_parameters)


def test_adam_keeps_two_moments_and_a_count():
    optimizer = Adam(torch.zeros(2, 3, 5), 1e-3)
    assert {name: tuple(tensor.shape) for name, tensor in optimizer.state().items()} == {
        "first_moment": (2, 3, 5),
        "second_moment": (2, 3, 5),
        "steps": (2, 3),
    }
    for _ in range(4):
        optimizer.step_(torch.ones(2, 3, 5))
    assert optimizer.state()["steps"].tolist() == [[4, 4, 4], [4, 4, 4]]


def test_gradient_descent_keeps_nothing():
    assert SGD(torch.zeros(1, 5), 1e-3).state() == {}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_that_ask_for_gradients_are_changed_in_place(name):
    parameters = torch.zeros(1, 5, requires_grad=True)
    optimizer = OPTIMIZERS[name](parameters, 1e-3)
    assert isinstance(optimizer, Optimizer)
    optimizer.step_(torch.ones(1, 5))
    assert bool((parameters < 0).all())
    assert parameters.grad is None
