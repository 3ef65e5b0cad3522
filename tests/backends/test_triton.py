"""Our own GPU kernels do what the plain operations do."""

import pytest
import torch

from td3.algorithm.optimizer import OPTIMIZERS
from td3.backends.choose import choose_backend
from td3.backends.torch_backend import TORCH

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def normal(*shape, seed=0):
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))


# Stack, rows, inner, columns: the sizes of HalfCheetah's networks for one, ten and 32 members, and odd ones.
SIZES = [
    (2, 256, 23, 256),
    (2, 256, 256, 256),
    (2, 256, 256, 1),
    (20, 256, 256, 256),
    (64, 256, 256, 256),
    (32, 256, 1, 6),
    (6, 100, 300, 400),
    (1, 7, 5, 3),
]


@pytest.mark.parametrize(("stack", "rows", "inner", "columns"), SIZES)
def test_a_product_with_bias_and_relu(stack, rows, inner, columns):
    from td3.backends.triton_kernels import product

    left, right = normal(stack, rows, inner), normal(stack, inner, columns, seed=1)
    bias = normal(stack, 2 * columns, seed=2)[:, :columns]
    out = torch.full((stack, rows, columns), float("nan"), device="cuda")
    product(left, right, out, bias=bias, relu=True)
    exact = torch.relu(left.double() @ right.double() + bias.double().unsqueeze(1))
    assert float((out - exact).norm() / exact.norm()) < 1e-6
    product(left, right, out)
    exact = left.double() @ right.double()
    assert float((out - exact).norm() / exact.norm()) < 1e-6


def test_indices_are_read_in_any_order_of_memory():
    backend, rows = choose_backend("cuda"), normal(3, 20, 5)
    numbers = torch.arange(12, device="cuda") % 7
    for indices in (numbers[:4].expand(3, -1), numbers.view(4, 3).mT, numbers.view(3, 4)[:, ::2]):
        assert torch.equal(backend.gather(rows, indices), TORCH.gather(rows, indices))


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize(("stack", "rows", "inner", "columns"), SIZES)
def test_a_product_of_transposed_views_with_mask_and_sums(stack, rows, inner, columns, summed):
    from td3.backends.triton_kernels import product

    left, right = normal(stack, inner, rows).mT, normal(stack, columns, inner, seed=1).mT
    active = normal(stack, columns, rows, seed=2).mT
    out = torch.full((stack, columns, rows), float("nan"), device="cuda").mT
    sums = torch.full((stack, 3 * rows), float("nan"), device="cuda")[:, :rows]
    product(left, right, out, active=active, row_sums=sums if summed else None)
    exact = (left.double() @ right.double()) * (active > 0)
    assert float((out - exact).norm() / exact.norm()) < 1e-6
    if summed:
        torch.testing.assert_close(sums.double(), left.double().sum(2), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("stack", [2, 10, 20, 64])
@pytest.mark.parametrize("broken", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_not_finite_shows_in_its_own_row_alone(stack, broken):
    from td3.backends.triton_kernels import product

    left, right = normal(stack, 256, 256), normal(stack, 256, 256, seed=1)
    left[1, 2, 3] = broken
    out = product(left, right, torch.empty(stack, 256, 256, device="cuda"))
    assert not out[1, 2].isfinite().any()
    out[1, 2] = 0
    assert out.isfinite().all()
    kept = product(left, right, torch.empty(stack, 256, 256, device="cuda"), relu=True)[1, 2]
    assert kept.isnan().all() if broken != broken else kept.isinf().any()


@pytest.mark.parametrize("size", [1e-30, 1e18])
def test_very_small_and_very_large_numbers_are_multiplied_as_well(size):
    from td3.backends.triton_kernels import product

    left, right = normal(20, 256, 256), normal(20, 256, 256, seed=1)
    out = product(left * size, right / size, torch.empty(20, 256, 256, device="cuda"))
    exact = left.double() @ right.double()
    assert float((out - exact).norm() / exact.norm()) < 1e-6


def test_twins_read_the_same_batch():
    from td3.backends.triton_kernels import product

    left, right = normal(3, 40, 20), normal(6, 20, 30, seed=1)
    out = product(left, right, torch.empty(6, 40, 30, device="cuda"))
    torch.testing.assert_close(out, left.repeat(2, 1, 1) @ right, rtol=1e-4, atol=1e-5)


def test_networks_and_their_gradients_equal_double_precision():
    from td3.algorithm.networks import StackedMLP, parameter_count

    sizes = (23, 256, 256, 6)
    single = normal(2, 3, parameter_count(sizes)) / 16
    inputs = normal(3, 256, 23, seed=1)
    results = []
    for dtype in (torch.float32, torch.float64):
        backend = choose_backend("cuda", dtype)
        network = StackedMLP(sizes, single.to(dtype).requires_grad_(), backend=backend)
        for broadcast in (inputs.to(dtype), inputs.to(dtype).requires_grad_()):
            outputs = network(broadcast)
            wanted = [network.parameters] + ([broadcast] if broadcast.requires_grad else [])
            found = torch.autograd.grad(outputs.square().sum(), wanted)
            results.append([outputs.detach(), *(gradient.clone() for gradient in found)])
    for ours, exact in zip(results[:2], results[2:], strict=True):
        for one, other in zip(ours, exact, strict=True):
            assert float((one - other).norm() / other.norm()) < 1e-6


def test_pytorch_refuses_a_backward_after_the_buffers_were_used_again():
    from td3.algorithm.networks import StackedMLP, parameter_count

    parameters = normal(1, parameter_count((4, 8, 2))).requires_grad_()
    network = StackedMLP((4, 8, 2), parameters, backend=choose_backend("cuda"))
    first = network(normal(1, 5, 4))
    network(normal(1, 5, 4, seed=1))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()


def test_adam_in_one_kernel_equals_pytorch():
    from td3.backends.triton_kernels import adam_

    parameters = normal(2, 3, 5_001)
    plain = parameters.clone().requires_grad_()
    optimizer = torch.optim.Adam([plain], lr=1e-3)
    first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
    steps, active = torch.zeros(2, 3, device="cuda"), torch.ones(3, dtype=torch.int32, device="cuda")
    for step in range(50):
        gradient = normal(*parameters.shape, seed=step)
        adam_(parameters, gradient, first, second, steps, active, torch.tensor(1e-3, device="cuda"))
        plain.grad = gradient
        optimizer.step()
    assert steps.tolist() == [[50.0] * 3] * 2
    torch.testing.assert_close(parameters, plain.detach(), rtol=1e-5, atol=1e-6)
    assert active.tolist() == [1, 1, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernels", "plain"])
def test_one_number_that_is_not_finite_freezes_its_member_as_a_whole_and_for_good(kind, bad, dtype):
    parameters = normal(2, 3, 3_000).to(dtype)
    make, backend = OPTIMIZERS[kind], choose_backend("cuda", dtype)
    optimizer, others = (make(some, 0.1, backend) for some in (parameters, parameters[:, ::2].clone()))
    for step in range(3):
        gradient = normal(2, 3, 3_000, seed=step).to(dtype)
        if step == 1:
            before = {name: tensor[:, 1].clone() for name, tensor in tensors_of(optimizer).items()}
            gradient[1, 1, 1_234] = bad
        optimizer.step_(gradient)
        others.step_(gradient[:, ::2].clone())
    assert optimizer.active.tolist() == [1, 0, 1]
    assert others.active.tolist() == [1, 1]
    for name, tensor in tensors_of(optimizer).items():
        assert torch.equal(tensor[:, 1], before[name]), name
        assert torch.equal(tensor[:, ::2], tensors_of(others)[name]), name


def tensors_of(optimizer):
    return {"parameters": optimizer.parameters, **optimizer.state()}


def test_a_lone_member_that_shares_memory_is_frozen_too():
    parameters = normal(2, 3, 100)
    optimizer = OPTIMIZERS["adam"](parameters, 0.1, choose_backend("cuda"))
    before = parameters.clone()
    optimizer.member(parameters[:, 1:2], 1).step_(torch.full((2, 1, 100), torch.inf, device="cuda"))
    assert torch.equal(parameters, before)
    assert optimizer.active.tolist() == [1, 0, 1]
    assert optimizer.state()["steps"].tolist() == [[0.0] * 3] * 2


def test_critics_and_encoder_are_frozen_together():
    from td3.algorithm.optimizer import JointOptimizer

    critics, encoder = normal(2, 2, 50), normal(2, 70)
    joint = JointOptimizer(*(OPTIMIZERS["adam"](some, 0.1, choose_backend("cuda")) for some in (critics, encoder)))
    before = critics.clone(), encoder.clone()
    gradient = normal(2, 70, seed=3)
    gradient[1, 5] = torch.nan
    joint.step_(normal(2, 2, 50, seed=2), gradient)
    assert joint.active.tolist() == [1, 0]
    assert torch.equal(critics[:, 1], before[0][:, 1])
    assert torch.equal(encoder[1], before[1][1])
    assert not torch.equal(critics[:, 0], before[0][:, 0])
    assert not torch.equal(encoder[0], before[1][0])


def test_rows_and_their_transitions():
    from td3.backends.triton_kernels import gather, rows_at

    numbers = torch.empty(3, 4, 1_000, dtype=torch.int64, device="cuda").random_()
    slots, filled = torch.tensor([2, 0, 3], device="cuda"), torch.tensor(70, device="cuda")
    members = torch.arange(3, device="cuda")
    rows = rows_at(numbers, members * 4 + slots, filled)
    assert torch.equal(rows, numbers[members, slots] % 70)
    buffer = normal(3, 100, 42)
    assert torch.equal(gather(buffer, rows), torch.stack([buffer[m][rows[m]] for m in range(3)]))


@pytest.mark.parametrize("members", [1, 200])
def test_losses_are_added_up(members):
    from td3.algorithm.update import Losses
    from td3.engine.losses import LossSums

    sums, plain = LossSums(members, "cuda", choose_backend("cuda")), LossSums(members)
    for actor in (None, normal(members, seed=2), None):
        losses = Losses(normal(members), actor, normal(members, seed=1))
        sums.add_(losses)
        plain.add_(Losses(*(part if part is None else part.cpu() for part in losses)))
    assert torch.equal(sums.sums.cpu(), plain.sums)
