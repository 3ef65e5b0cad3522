"""Networks of the fast learner as lists of tensors, and what it does with distributions over atoms."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional


@dataclass
class Networks:
    """Several MLPs of one shape at once; every tensor of a layer begins with the axis `[network]`.

    A hidden layer is linear, LayerNorm (where asked for) and ReLU; parameters are float32, products are in `precision`.
    Inputs and outputs are padded to a multiple of 8 inside: other widths keep a GPU's matrix units from being used.
    """

    layers: list[list[Tensor]]
    precision: torch.dtype
    outputs: int
    fused: bool = False
    """Whether bias, LayerNorm and ReLU are one kernel (`fused.py`)."""

    @classmethod
    def initialized(
        cls,
        count: int,
        sizes: tuple[int, ...],
        *,
        layer_norm: bool,
        precision: torch.dtype,
        generator: torch.Generator,
        last: float | None = None,
        fused: bool = False,
    ) -> "Networks":
        """Return networks with PyTorch's uniform initialization; `last` is the width of the last layer's instead."""
        device, layers = generator.device, []
        for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            is_last = index == len(sizes) - 2
            width = last if is_last and last is not None else 1 / math.sqrt(fan_in)
            padded = fan_in + (-fan_in % 8 if index == 0 else 0)
            draws = torch.rand(
                (count, padded + 1, fan_out + (-fan_out % 8 if is_last else 0)), generator=generator, device=device
            )
            values = width * (2 * draws - 1)
            weight, bias = values[:, :padded], values[:, padded:]
            layer = [weight.contiguous(), bias.contiguous()]
            if layer_norm and not is_last:
                layer += [torch.ones_like(bias), torch.zeros_like(bias)]
            layers.append([tensor.requires_grad_() for tensor in layer])
        if fused:
            import td3_lab.worlds.fused  # noqa: F401 (registers the kernels)
        return cls(layers, precision, sizes[-1], fused and layer_norm)

    @property
    def parameters(self) -> list[Tensor]:
        """Return every tensor, layer by layer."""
        return [tensor for layer in self.layers for tensor in layer]

    def frozen(self) -> "Networks":
        """Return the same networks without a gradient of their own."""
        layers = [[tensor.detach() for tensor in layer] for layer in self.layers]
        return Networks(layers, self.precision, self.outputs, self.fused)

    def copied(self) -> "Networks":
        """Return a copy without gradients, for target networks."""
        layers = [[tensor.detach().clone() for tensor in layer] for layer in self.layers]
        return Networks(layers, self.precision, self.outputs, self.fused)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the outputs `[network, batch, output]` for inputs `[batch, input]`, in float32."""
        (count, width, _), low = self.layers[0][0].shape, self.precision
        padded = functional.pad(inputs, (0, width - inputs.shape[-1])).to(low)
        hidden = padded.expand(count, *padded.shape)
        for index, (weight, bias, *norm) in enumerate(self.layers):
            product = torch.bmm(hidden, weight.to(low))
            if norm and self.fused:
                hidden = torch.ops.td3_lab.norm_relu(product, bias, *norm)[0]
                continue
            hidden = product.float() + bias
            if norm:
                centered = hidden - hidden.mean(-1, keepdim=True)
                hidden = centered * torch.rsqrt(centered.square().mean(-1, keepdim=True) + 1e-5) * norm[0] + norm[1]
            if index < len(self.layers) - 1:
                hidden = hidden.relu().to(low)
        return hidden[..., : self.outputs]


def expected(logits: Tensor, atoms: Tensor) -> Tensor:
    """Return the expected values of categorical distributions over the atoms."""
    return (logits.softmax(-1) * atoms).sum(-1)


def projected(probabilities: Tensor, atoms: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """Return the distribution of `reward + discount * value` on the same atoms, each mass split between neighbors."""
    low, high, last = atoms[0], atoms[-1], atoms.shape[0] - 1
    values = (reward[:, None] + discount[:, None] * atoms).clamp(low, high)
    slot = (values - low) * (last / (high - low))
    # A sum over all pairs of atoms instead of a scatter: compiled, it is one kernel, without atomic additions.
    share = (1 - (slot[:, None, :] - torch.arange(last + 1, device=atoms.device)[:, None]).abs()).clamp(min=0)
    return (share * probabilities[:, None, :]).sum(-1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean over the batch of the cross-entropy, summed over the networks `[network, batch, atom]`."""
    return -(target * logits.log_softmax(-1)).sum(-1).mean(-1).sum()


def resampling(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix and a bias that turn logits over old atoms into logits of the same distribution over new atoms.

    Logits are interpolated; outside the old atoms they fall by 2 for each old atom of distance, by 6
    at most. Equal atoms give the
    identity.
    """
    last = old.shape[0] - 1
    slot = (new - old[0]) * (last / (old[-1] - old[0]))
    inside = slot.clamp(0, last)
    below = inside.floor().clamp(max=last - 1)
    upper, index = (inside - below)[:, None], below.long()[:, None]
    matrix = torch.zeros(last + 1, last + 1, device=old.device).scatter(1, index, 1 - upper)
    matrix = matrix.scatter_add(1, index + 1, upper)
    same = (old == new).all()
    matrix = torch.where(same, torch.eye(last + 1, device=old.device), matrix)
    return matrix, torch.where(same, 0.0, (-2 * (slot - inside).abs()).clamp(min=-6))
