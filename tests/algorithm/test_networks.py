"""The stacked networks compute what plain linear layers compute, and nothing that is not asked for."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import linear, relu

from td3.algorithm.networks import StackedMLP, Workspace, layer_views, parameter_count

SIZES = (5, 16, 12, 3)
STACKS = [(1,), (3,), (2, 1), (2, 3)]


def random_network(stack, sizes=SIZES, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(*stack, parameter_count(sizes), generator=generator, dtype=dtype) / 3
    return StackedMLP(sizes, parameters.requires_grad_())


def random_inputs(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(parameters, sizes, inputs):
    """The same with `torch.nn.functional.linear` and autograd, one network after another."""
    stack = parameters.shape[:-1]
    inputs = inputs.expand(*stack, *inputs.shape[-2:])
    outputs = []
    for one, rows in zip(parameters.flatten(0, -2), inputs.flatten(0, -3), strict=True):
        hidden, start = rows, 0
        for depth, (size_in, size_out) in enumerate(pairwise(sizes)):
            weight = one[start : start + size_in * size_out].view(size_in, size_out)
            bias = one[start + size_in * size_out : start + (size_in + 1) * size_out]
            start += (size_in + 1) * size_out
            hidden = linear(hidden, weight.T, bias)
            if depth < len(sizes) - 2:
                hidden = relu(hidden)
        outputs.append(hidden)
    return torch.stack(outputs).view(*stack, *outputs[0].shape)


def test_a_network_of_one_hidden_unit_by_hand():
    network = StackedMLP((2, 1, 1), torch.tensor([[1.0, -2.0, 0.5, 3.0, -1.0]]))
    # 3 * relu(4 - 2 + 0.5) - 1 = 6.5 and 3 * relu(1 - 6 + 0.5) - 1 = -1.
    assert network(torch.tensor([[[4.0, 1.0], [1.0, 3.0]]])).tolist() == [[[6.5], [-1.0]]]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("sizes", [SIZES, (5, 16, 1), (4, 1, 2), (3, 40, 40, 1)])
@pytest.mark.parametrize("rows", [1, 7])
def test_forward_and_backward_equal_plain_linear_layers(stack, sizes, rows):
    network = random_network(stack, sizes)
    inputs = random_inputs(*stack, rows, sizes[0]).requires_grad_()
    weights = random_inputs(*stack, rows, sizes[-1], seed=2)
    outputs, expected = network(inputs), plain(network.parameters, sizes, inputs)
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    wanted = torch.autograd.grad((expected * weights).sum(), (network.parameters, inputs))
    found = torch.autograd.grad((outputs * weights).sum(), (network.parameters, inputs))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_twins_read_the_same_batch():
    network, inputs = random_network((2, 3)), random_inputs(3, 7, 5).requires_grad_()
    expected = plain(network.parameters, SIZES, inputs)
    outputs = network(inputs)
    assert outputs.shape == (2, 3, 7, 3)
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    (wanted,) = torch.autograd.grad(expected.square().sum(), inputs)
    (found,) = torch.autograd.grad(outputs.square().sum(), inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_one_batch_after_another_gives_each_its_own_gradient():
    network = random_network((2,))
    for seed, rows in ((1, 7), (2, 7), (3, 4), (4, 7)):
        inputs = random_inputs(2, rows, 5, seed=seed)
        (wanted,) = torch.autograd.grad(plain(network.parameters, SIZES, inputs).square().sum(), network.parameters)
        (found,) = torch.autograd.grad(network(inputs).square().sum(), network.parameters)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_may_share_what_they_do_not_keep(dtype):
    def gradients(workspace):
        learning, frozen = random_network((2,), dtype=dtype), random_network((1,), (5, 16, 12, 1), dtype)
        scratch = StackedMLP(SIZES, random_network((3,), dtype=dtype).parameters.detach())
        for network in (learning, frozen, scratch):
            network.share_workspace(workspace or Workspace())
        inputs = random_inputs(1, 7, 5).to(dtype).requires_grad_()
        q_values = frozen(inputs)
        outputs = learning(inputs.expand(2, 7, 5))
        scratch(random_inputs(3, 7, 5, seed=5).to(dtype))
        return torch.autograd.grad(outputs.square().sum() + q_values.square().sum(), (learning.parameters, inputs))

    for shared, apart in zip(gradients(Workspace()), gradients(None), strict=True):
        assert torch.equal(shared, apart)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_that_do_not_fit_are_refused(dtype):
    network = random_network((2,), dtype=dtype)
    with pytest.raises(ValueError, match=r"the network reads 5 numbers of torch\.float.., not 6 of torch\.float.."):
        network(random_inputs(2, 7, 6).to(dtype))
    other = torch.float64 if dtype == torch.float32 else torch.float32
    with pytest.raises(ValueError, match="the network reads 5 numbers"):
        network(random_inputs(2, 7, 5).to(other))


def test_outputs_outlive_the_next_call():
    network = random_network((2,))
    first = network(random_inputs(2, 7, 5)).detach()
    kept = first.clone()
    network(random_inputs(2, 7, 5, seed=9))
    assert torch.equal(first, kept)


def test_a_network_sees_its_parameters_change():
    network, inputs = random_network((2,)), random_inputs(2, 7, 5)
    network(inputs)
    network.parameters.detach().mul_(0.5)
    torch.testing.assert_close(network(inputs), plain(network.parameters, SIZES, inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stack", [(3,), (2, 3)])
def test_a_slice_computes_as_the_whole(stack):
    network, inputs = random_network(stack), random_inputs(*stack, 7, 5)
    whole = network(inputs).detach()
    for member in range(3):
        part = StackedMLP(SIZES, network.parameters.detach()[..., member : member + 1, :])
        found = part(inputs[..., member : member + 1, :, :])
        torch.testing.assert_close(found, whole[..., member : member + 1, :, :], rtol=1e-12, atol=1e-12)


def test_no_gradient_is_made_for_frozen_parameters():
    network = random_network((2,))
    frozen = StackedMLP(SIZES, network.parameters.detach())
    inputs = random_inputs(2, 7, 5)
    assert not frozen(inputs).requires_grad
    # The gradient still passes through to the inputs.
    inputs.requires_grad_()
    (found,) = torch.autograd.grad(frozen(inputs).square().sum(), inputs)
    (wanted,) = torch.autograd.grad(plain(frozen.parameters, SIZES, inputs).square().sum(), inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert network.parameters.grad is None
    assert frozen.parameters.grad is None


def test_no_gradient_is_made_for_stored_inputs():
    network, inputs = random_network((2,)), random_inputs(2, 7, 5)
    network(inputs).square().sum().backward()
    assert inputs.grad is None
    assert network.parameters.grad is not None


def test_without_gradients_nothing_is_kept():
    network = random_network((2,))
    with torch.no_grad():
        assert network(random_inputs(2, 7, 5)).grad_fn is None


def test_the_layers_lie_one_after_the_other_in_one_tensor():
    assert parameter_count((2, 3, 1)) == 2 * 3 + 3 + 3 + 1
    (weight, bias), (last_weight, last_bias) = layer_views(torch.arange(26.0).reshape(2, 13), (2, 3, 1))
    assert weight[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert bias[1].tolist() == [19, 20, 21]
    assert last_weight[0].tolist() == [[9], [10], [11]]
    assert last_bias[1].tolist() == [25]


@pytest.mark.parametrize("count", [8, 12, 14, 17_057])
def test_numbers_that_are_left_over_or_missing_are_refused(count):
    """Saved by these views, a network of 17,057 numbers would otherwise be a file of 4, without an error."""
    with pytest.raises(ValueError, match=rf"{count} numbers are no network of sizes \(2, 3, 1\)"):
        layer_views(torch.zeros(2, count), (2, 3, 1))


def test_layers_are_views():
    network = random_network((2,))
    weight, bias = network.layers()[1]
    weight.detach().fill_(7)
    bias.detach().fill_(8)
    assert int((network.parameters == 7).sum()) == 2 * 16 * 12
    assert int((network.parameters == 8).sum()) == 2 * 12


def test_initial_weights_are_uniform_within_one_over_the_root_of_the_inputs():
    network = StackedMLP.initialized((16, 400, 300, 2), [torch.Generator().manual_seed(seed) for seed in (0, 1)])
    for (weight, bias), inputs in zip(network.layers(), (16, 400, 300), strict=True):
        bound = inputs**-0.5
        assert float(weight.abs().max()) <= bound
        assert float(bias.abs().max()) <= bound
        assert float(weight.abs().max()) > 0.95 * bound
        assert abs(float(weight.std()) / (bound / 3**0.5) - 1) < 0.05


def test_initial_weights_depend_on_their_own_generator_alone():
    def initialized(*seeds):
        return StackedMLP.initialized(SIZES, [torch.Generator().manual_seed(seed) for seed in seeds]).parameters

    assert torch.equal(initialized(3, 4, 5)[1], initialized(4)[0])
    assert not torch.any(initialized(3, 4)[0] == initialized(3, 4)[1])


def test_orthogonal_weights_have_their_gain_and_no_bias():
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    network = StackedMLP.initialized((5, 8, 8, 3), generators, torch.float64, "orthogonal")
    for (weight, bias), gain in zip(network.layers(), (2.0, 2.0, 1.0), strict=True):
        narrow = weight if weight.shape[-2] >= weight.shape[-1] else weight.mT
        product = narrow.mT @ narrow
        torch.testing.assert_close(product, gain * torch.eye(narrow.shape[-1], dtype=torch.float64).expand(2, -1, -1))
        assert not bias.any()
        assert not torch.equal(weight[0], weight[1])
