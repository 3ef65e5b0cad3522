"""Our own GPU kernels do what the plain operations do."""

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("shape", [(2, 256, 256), (6, 100, 300), (1, 7, 5)])
def test_bias_and_relu_in_one_kernel(shape):
    from td3.algorithm.kernels import bias_relu_

    generator = torch.Generator("cuda").manual_seed(0)
    values = torch.randn(shape, device="cuda", generator=generator)
    biases = torch.randn(shape[0], 2 * shape[2], device="cuda", generator=generator)[:, : shape[2]]
    expected = torch.relu(values + biases.unsqueeze(1))
    torch.testing.assert_close(bias_relu_(values.clone(), biases), expected, rtol=0, atol=0)


def test_adam_in_one_kernel_equals_pytorch():
    from td3.algorithm.kernels import adam_

    generator = torch.Generator("cuda").manual_seed(0)
    parameters = torch.randn(2, 3, 5_001, device="cuda", generator=generator)
    plain = parameters.clone().requires_grad_()
    optimizer = torch.optim.Adam([plain], lr=1e-3)
    first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
    steps = torch.zeros(2, 3, device="cuda")
    for _ in range(50):
        gradient = torch.randn(parameters.shape, device="cuda", generator=generator)
        adam_(parameters, gradient, first, second, steps, 1e-3)
        plain.grad = gradient
        optimizer.step()
    assert steps.tolist() == [[50.0] * 3] * 2
    torch.testing.assert_close(parameters, plain.detach(), rtol=1e-5, atol=1e-6)
