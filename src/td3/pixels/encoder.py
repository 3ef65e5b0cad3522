"""What comes before the steps where a state is an image: a small convolutional network that turns it into features.

Both critics read the same features and their loss alone trains the encoder; the actor's gradient does not reach it. The
critics' targets and the actor's target read an encoder's target, which follows as theirs do (step 15).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor
from torch.nn import functional

from td3.algorithm.streams import derive_seed


class EncoderPlan(NamedTuple):
    """How images lie in a state, and the layers that read them; everything but the weights."""

    frames: int
    channels: int
    height: int
    width: int
    channels_last: bool
    """Whether a frame is `[height, width, channel]`; else it is `[channel, height, width]`."""
    shapes: tuple[tuple[int, ...], ...]
    """Of weight and bias of each convolution, of the linear layer, of the normalization."""
    strides: tuple[int, ...]
    """Of each convolution."""
    shift: int
    """Pixels by which an image is moved at random, each way, when it is learned from; 0 leaves it where it is."""

    @property
    def pixels(self) -> int:
        """Numbers in one state."""
        return self.frames * self.channels * self.height * self.width

    @property
    def features(self) -> int:
        """Numbers that the encoder makes of a state."""
        return self.shapes[-1][0]

    @property
    def sizes(self) -> list[int]:
        """Numbers in each weight and bias."""
        return [math.prod(shape) for shape in self.shapes]


@runtime_checkable
class ShiftStreams(Protocol):
    """What moving images asks of randomness."""

    def shifts(self, count: int, most: int) -> Int[Tensor, "member {count} 4"]:
        """Whole numbers from 0 to `most`: down and right, for the state and for the next one."""


class Encoder:
    """images -> features within [-1, 1]: convolutions with ReLU, a linear layer, LayerNorm, tanh; one per member."""

    def __init__(self, plan: EncoderPlan, parameters: Float[Tensor, "member parameter"]) -> None:
        self.plan, self.parameters = plan, parameters

    def __call__(self, states: Shaped[Tensor, "member batch pixel"]) -> Float[Tensor, "member batch feature"]:
        """Features of states whose pixels are from 0 to 255, of whatever type."""
        return self.of_images(self.images(states))

    def images(
        self, states: Shaped[Tensor, "member batch pixel"]
    ) -> Shaped[Tensor, "member batch channel height width"]:
        """The states as images, a channel for each frame (and color)."""
        frames, channels, height, width, channels_last = self.plan[:5]
        order = (height, width, channels) if channels_last else (channels, height, width)
        framed = states.view(*states.shape[:2], frames, *order)
        return (framed.movedim(-1, -3) if channels_last else framed).flatten(2, 3)

    def of_images(
        self, images: Shaped[Tensor, "member batch channel height width"]
    ) -> Float[Tensor, "member batch feature"]:
        """Features of images; members have weights of their own, so it is one after another."""
        parts = torch.split(self.parameters, self.plan.sizes, -1)
        return torch.stack([self._of_member(images[m], [part[m] for part in parts]) for m in range(len(images))])

    def _of_member(self, images: Tensor, parts: Sequence[Tensor]) -> Tensor:
        weights = [part.view(shape) for part, shape in zip(parts, self.plan.shapes, strict=True)]
        flow = images.to(parts[0].dtype) / 255 - 0.5
        for depth, stride in enumerate(self.plan.strides):
            flow = functional.conv2d(flow, weights[2 * depth], weights[2 * depth + 1], stride).relu_()
        *_, weight, bias, scale, offset = weights
        flow = functional.linear(flow.flatten(1), weight, bias)
        return functional.layer_norm(flow, scale.shape, scale, offset).tanh()

    def over(self, parameters: Float[Tensor, "member parameter"], _backend: object = None) -> "Encoder":
        """Encoders of the same kind with other parameters."""
        return Encoder(self.plan, parameters)


def make_encoder_and_target(
    seeds: Sequence[int], plan: EncoderPlan, device: torch.device | str, dtype: torch.dtype
) -> tuple[Encoder, Encoder]:
    """An encoder per seed, initialized as PyTorch's own layers are, and a target that starts as its exact copy."""
    parameters = torch.empty(len(seeds), sum(plan.sizes), dtype=dtype)
    for own, seed in zip(parameters, seeds, strict=True):
        generator = torch.Generator().manual_seed(derive_seed(seed, "encoder"))
        *layers, scale, offset = torch.split(own, plan.sizes)
        for weight, bias, shape in zip(layers[::2], layers[1::2], plan.shapes[::2], strict=False):
            bound = math.prod(shape[1:]) ** -0.5
            for part in (weight, bias):
                part.uniform_(-bound, bound, generator=generator)
        scale.fill_(1)
        offset.fill_(0)
    parameters = parameters.to(device)
    target = Encoder(plan, parameters.clone())
    return Encoder(plan, parameters.requires_grad_()), target


def encode(
    encoder: Encoder,
    encoder_target: Encoder,
    state: UInt8[Tensor, "member batch pixel"],
    next_state: UInt8[Tensor, "member batch pixel"],
    random: ShiftStreams,
) -> tuple[Float[Tensor, "member batch feature"], Float[Tensor, "member batch feature"]]:
    """Features of a batch's states, through which the critics' loss reaches the encoder, and of its next states.

    Images are first moved by a few random pixels, the frames of one state together (DrQ, arXiv 2004.13649): an
    encoder that sees every image in many places does not learn the few thousand it has by heart.
    """
    images, next_images = encoder.images(state), encoder.images(next_state)
    if most := encoder.plan.shift:
        shifts = random.shifts(state.shape[1], 2 * most)
        images = shifted(images, shifts[..., :2], most)
        next_images = shifted(next_images, shifts[..., 2:], most)
    with torch.no_grad():
        next_features = encoder_target.of_images(next_images)
    return encoder.of_images(images), next_features


def shifted(
    images: Shaped[Tensor, "member batch channel height width"], shifts: Int[Tensor, "member batch 2"], most: int
) -> Shaped[Tensor, "member batch channel height width"]:
    """Each image with its edge repeated `most` times all around, cut out again from its own place."""
    flat = images.flatten(0, 1)
    rows, columns = flat.shape[2:]
    padded = flat.new_empty(*flat.shape[:2], rows + 2 * most, columns + 2 * most)
    inside = padded[..., most:-most]
    inside[..., most:-most, :] = flat
    inside[..., :most, :], inside[..., -most:, :] = flat[..., :1, :], flat[..., -1:, :]
    padded[..., :most], padded[..., -most:] = inside[..., :1], inside[..., -1:]
    down, right = shifts.flatten(0, 1).unbind(-1)
    windows = padded.unfold(2, rows, 1).unfold(3, columns, 1)
    return windows[torch.arange(len(flat), device=flat.device), :, down, right].view_as(images)
