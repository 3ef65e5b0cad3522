"""Observations that are images: how they lie in an array, and their encoder in numpy, for acting without PyTorch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SMALLEST, LARGEST = 8, 256
"""Pixels of a side: what is smaller is a table of numbers, and what is larger should be made smaller first."""
LARGE = 36
"""Sides from here on are read by three convolutions, smaller ones by two."""


class Layout(NamedTuple):
    """An image observation: so many frames, each `[height, width, channel]` or `[channel, height, width]`."""

    frames: int
    channels: int
    height: int
    width: int
    channels_last: bool

    @property
    def frame_size(self) -> int:
        """Bytes of one frame."""
        return self.channels * self.height * self.width


def layout_of(shape: Sequence[int], frames: int) -> Layout | None:
    """How an observation of this shape, with so many frames stacked in front, is an image; None if it is none.

    Where a frame has three sides, the channels are the shorter one of the first and the last.
    """
    frame = tuple(shape[1:]) if frames > 1 or len(shape) == 4 else tuple(shape)
    if len(frame) == 2:
        found = Layout(frames, 1, *frame, False)
    elif len(frame) == 3 and frame[2] <= frame[0]:
        found = Layout(frames, frame[2], frame[0], frame[1], True)
    elif len(frame) == 3:
        found = Layout(frames, *frame, False)
    else:
        return None
    return found if min(found.height, found.width) >= SMALLEST else None


def convolutions_for(layout: Layout) -> tuple[tuple[int, int, int], ...]:
    """Outputs, side of the kernel and stride of each convolution: three that take 84 pixels to 20, 9 and 7, or two."""
    if min(layout.height, layout.width) >= LARGE:
        return ((16, 8, 4), (32, 4, 2), (32, 3, 1))
    return ((16, 4, 2), (32, 3, 2))


def encoder_shapes(layout: Layout, convolutions: Sequence[Sequence[int]], features: int) -> tuple[tuple[int, ...], ...]:
    """The shape of each weight and bias: of the convolutions, of the linear layer, of the normalization."""
    found: list[tuple[int, ...]] = []
    inputs, height, width = layout.frames * layout.channels, layout.height, layout.width
    for outputs, kernel, stride in convolutions:
        found += [(outputs, inputs, kernel, kernel), (outputs,)]
        inputs, height, width = outputs, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return (*found, (features, inputs * height * width), *[(features,)] * 3)


class NumpyEncoder:
    """images -> features, as `td3.pixels.encoder.Encoder` computes them; for one agent or a stack of members.

    The arrays may be views of an encoder that is still learning: weight and bias of each convolution, of the linear
    layer, of the normalization.
    """

    def __init__(self, layout: Layout, strides: Sequence[int], arrays: Sequence[Array]) -> None:
        self.layout, self.strides, self.arrays = layout, tuple(strides), list(arrays)

    def __call__(self, states: Array) -> Array:
        """Features `[*members, count, feature]` of states `[*members, count, pixel]`, whose pixels are 0 to 255."""
        if self.arrays[-1].ndim > 1:
            return np.stack([self.member(index)(own) for index, own in enumerate(states)])
        if states.ndim > 2:
            return self(states.reshape(-1, states.shape[-1])).reshape(*states.shape[:-1], -1)
        frames, channels, height, width, channels_last = self.layout
        order = (height, width, channels) if channels_last else (channels, height, width)
        framed = states.reshape(-1, frames, *order)
        if channels_last:
            framed = np.moveaxis(framed, -1, -3)
        flow = framed.reshape(-1, frames * channels, height, width).astype(np.float32) / 255 - np.float32(0.5)
        for depth, stride in enumerate(self.strides):
            flow = _convolved(flow, self.arrays[2 * depth], self.arrays[2 * depth + 1], stride)
        *_, weight, bias, scale, offset = self.arrays
        flow = flow.reshape(len(flow), -1) @ weight.T + bias
        flow -= flow.mean(-1, keepdims=True)
        flow /= np.sqrt(np.square(flow).mean(-1, keepdims=True) + np.float32(1e-5))
        return np.asarray(np.tanh(flow * scale + offset))

    def member(self, index: int) -> "NumpyEncoder":
        """The reader of one member of a stack."""
        return NumpyEncoder(self.layout, self.strides, [array[index] for array in self.arrays])


def _convolved(flow: Array, weight: Array, bias: Array, stride: int) -> Array:
    """A convolution without padding, and ReLU."""
    outputs, _, kernel, _ = weight.shape
    windows = np.lib.stride_tricks.sliding_window_view(flow, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    count, _, rows, columns = windows.shape[:4]
    patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(count * rows * columns, -1)
    convolved = patches @ weight.reshape(outputs, -1).T + bias
    return np.asarray(np.maximum(convolved, 0).reshape(count, rows, columns, outputs).transpose(0, 3, 1, 2))
