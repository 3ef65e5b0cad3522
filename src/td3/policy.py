"""A trained actor in numpy: no PyTorch is needed to act, and a small network answers in microseconds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td3.errors import UserError
from td3.pixels.layout import NumpyEncoder

Array = NDArray[Any]
CLIP = 10.0
"""Normalized observations stay within this many standard deviations (as in `td3.algorithm.normalizer`)."""
NORM_EPSILON = 1e-5
"""Added to the variance in LayerNorm (as in `td3.backends.backend`, which imports PyTorch)."""
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda values: np.maximum(values, 0, out=values),
    "tanh": lambda values: np.tanh(values, out=values),
    "elu": lambda values: np.where(values > 0, values, np.expm1(np.minimum(values, 0))),
    "leaky_relu": lambda values: np.where(values > 0, values, 0.01 * values),
}
"""Between the layers of a network, by name, some of them in place; `td3.backends` has the same in PyTorch."""


def forward(layers: Sequence[tuple[Array, Array]], inputs: Array, activation: str, layer_norm: bool = False) -> Array:
    """Outputs of linear layers `inputs @ weight + bias`; between them an activation, behind LayerNorm if there is."""
    hidden, activate = inputs, ACTIVATIONS[activation]
    for weight, bias in layers[:-1]:
        hidden = hidden @ weight
        hidden += bias
        if layer_norm:  # without learned scale and shift
            centered = hidden - hidden.mean(-1, keepdims=True)
            hidden = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + NORM_EPSILON)
        hidden = activate(hidden)
    weight, bias = layers[-1]
    return np.asarray(hidden @ weight + bias)


class Policy:
    """state -> action, without noise, for one actor or for a stack of them (one per member).

    The arrays may be views of an actor that is still learning: then the policy is always up to date. An actor that
    learned from normalized states has a `normalizer`: the mean taken from each of them, and the scale that follows.
    """

    def __init__(
        self,
        layers: Sequence[tuple[Array, Array]],
        action_low: Sequence[float],
        action_high: Sequence[float],
        observation_shape: Sequence[int],
        action_shape: Sequence[int],
        normalizer: tuple[Array, Array] | None = None,
        encoder: NumpyEncoder | None = None,
        activation: str = "relu",
    ) -> None:
        self.layers = [(weight, bias[..., None, :]) for weight, bias in layers]
        self.low, self.high = (np.asarray(bound, np.float32) for bound in (action_low, action_high))
        self._middle, self._half = (self.low + self.high) / 2, (self.high - self.low) / 2
        self.observation_shape, self.action_shape = tuple(observation_shape), tuple(action_shape)
        self.normalizer, self.encoder, self.activation = normalizer, encoder, activation

    def __call__(self, states: Array) -> Array:
        """Actions `[*members, count, action]` for states `[*members, count, state]`."""
        outputs = forward(self.layers, self.seen(states), self.activation)
        return np.asarray(self._middle + self._half * np.tanh(outputs))

    def seen(self, states: Array) -> Array:
        """What the networks read of states `[*members, count, state]`: these, normalized, or an image's features."""
        if self.encoder is not None:
            return self.encoder(states)
        if self.normalizer is None:
            return states
        mean, scale = (array[..., None, :] for array in self.normalizer)
        return np.asarray(np.clip((states - mean) * scale, -CLIP, CLIP))

    def member(self, index: int) -> "Policy":
        """The policy of one member of a stack."""
        layers = [(weight[index], bias[index, ..., 0, :]) for weight, bias in self.layers]
        mean_and_scale = None if self.normalizer is None else (self.normalizer[0][index], self.normalizer[1][index])
        encoder = self.encoder and self.encoder.member(index)
        bounds = self.low.tolist(), self.high.tolist()
        shapes = self.observation_shape, self.action_shape
        return Policy(layers, *bounds, *shapes, mean_and_scale, encoder, self.activation)

    def act(self, observation: Any) -> Array:
        """The action for one observation, or the actions for a batch of them."""
        try:
            array = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise UserError(
                f"the agent was trained on observations of shape {self.observation_shape}, one or a batch of them, "
                f"but {type(observation).__name__} was given, which is no array of numbers: give what training saw, "
                "such as gymnasium.spaces.flatten(env.observation_space, observation)."
            ) from None
        depth = len(self.observation_shape)
        if array.shape[array.ndim - depth :] != self.observation_shape or array.ndim - depth not in (0, 1):
            raise UserError(
                f"the agent was trained on observations of shape {self.observation_shape}, one or a batch of them, "
                f"but an array of shape {array.shape} was given."
            )
        batch = array.reshape(-1, int(np.prod(self.observation_shape)))
        if not np.all(np.isfinite(batch)):
            raise UserError("the observation holds NaN or infinity: look at where it comes from.")
        actions = np.clip(self(batch), self.low, self.high)
        return actions.reshape(*array.shape[: array.ndim - depth], *self.action_shape)
