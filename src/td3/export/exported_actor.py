"""The actor as a self-contained PyTorch module, written as `.pt2` and as ONNX."""

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from td3.errors import missing_extra
from td3.pixels.layout import NumpyEncoder
from td3.policy import CLIP, Array, Policy

INPUT, OUTPUT = "observation", "action"
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
}
"""PyTorch's modules, by the name in the configuration."""


class ExportedActor(nn.Module):
    """A batch of observations, as the environment gives them -> actions, as it takes them.

    Where the agent learned from normalized observations, that is a part of it (`observation_mean`, `observation_scale`,
    and the clip); else these hold 0 and 1.
    """

    observation_mean: Tensor
    observation_scale: Tensor
    action_low: Tensor
    action_high: Tensor
    action_middle: Tensor
    action_half: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.action_shape = policy.action_shape
        self.layers = nn.ModuleList()
        for weight, bias in policy.layers:
            layer = nn.Linear(*weight.shape)
            with torch.no_grad():
                layer.weight.copy_(torch.tensor(weight.T))
                layer.bias.copy_(torch.tensor(bias.reshape(-1)))
            self.layers.append(layer)
        self.activation = ACTIVATIONS[policy.activation]()
        self.encoder = None if policy.encoder is None else ExportedEncoder(policy.encoder)
        size = policy.layers[0][0].shape[0]
        self.normalized = policy.normalizer is not None
        mean, scale = policy.normalizer or (np.zeros(size, np.float32), np.ones(size, np.float32))
        low, high = torch.tensor(policy.low), torch.tensor(policy.high)
        for name, tensor in (
            ("observation_mean", torch.tensor(mean)),
            ("observation_scale", torch.tensor(scale)),
            ("action_low", low),
            ("action_high", high),
            ("action_middle", (low + high) / 2),
            ("action_half", (high - low) / 2),
        ):
            self.register_buffer(name, tensor)
        self.requires_grad_(False)

    def forward(self, observation: Tensor) -> Tensor:
        """The action for each observation."""
        seen = observation.flatten(1) if self.encoder is None else self.encoder(observation)
        hidden = (seen - self.observation_mean) * self.observation_scale
        if self.normalized:
            hidden = hidden.clamp(-CLIP, CLIP)
        for layer in self.layers[:-1]:
            hidden = self.activation(layer(hidden))
        action = self.action_middle + self.action_half * torch.tanh(self.layers[-1](hidden))
        return action.clamp(self.action_low, self.action_high).view(-1, *self.action_shape)


class ExportedEncoder(nn.Module):
    """A batch of images, bytes as the environment gives them -> the features that the actor reads."""

    def __init__(self, reader: NumpyEncoder) -> None:
        super().__init__()
        self.layout, arrays = reader.layout, [torch.tensor(array) for array in reader.arrays]
        self.convolutions = nn.ModuleList()
        for weight, bias, stride in zip(arrays[:-4:2], arrays[1:-4:2], reader.strides, strict=True):
            layer = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2], stride)
            layer.load_state_dict({"weight": weight, "bias": bias})
            self.convolutions.append(layer)
        weight, bias, scale, offset = arrays[-4:]
        self.projection, self.norm = nn.Linear(*weight.shape[::-1]), nn.LayerNorm(len(scale))
        self.projection.load_state_dict({"weight": weight, "bias": bias})
        self.norm.load_state_dict({"weight": scale, "bias": offset})

    def forward(self, observation: Tensor) -> Tensor:
        """The features of each observation."""
        frames, channels, height, width, channels_last = self.layout
        order = (height, width, channels) if channels_last else (channels, height, width)
        framed = observation.reshape(-1, frames, *order)
        if channels_last:
            framed = framed.permute(0, 1, 4, 2, 3)
        flow = framed.reshape(-1, frames * channels, height, width).float() / 255 - 0.5
        for layer in self.convolutions:
            flow = torch.relu(layer(flow))
        return torch.tanh(self.norm(self.projection(flow.flatten(1))))


def write_pt2(actor: ExportedActor, example: Tensor, path: Path) -> None:
    """Write the actor as PyTorch's own exported program: `torch.export.load(path).module()(observations)`."""
    with _quiet():
        program = torch.export.export(actor, (example,), dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}})
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # names folders of this machine
        torch.export.save(program, path)


def write_onnx(actor: ExportedActor, example: Tensor, path: Path) -> None:
    """Write the actor as one ONNX file, for a batch of any size."""
    require_onnx()
    with _quiet():
        program = torch.onnx.export(
            actor,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
        )
        assert program is not None  # with dynamo=True there is one
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # names folders of this machine
        program.save(path, external_data=False)


def require_onnx() -> None:
    """Report a missing extra before anything is written."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        raise missing_extra("exporting an agent", "export")


def actions_by_pt2(path: Path, observations: Array) -> Array:
    """Actions of the written program."""
    with _quiet(), torch.no_grad():
        actions: Tensor = torch.export.load(path).module()(torch.from_numpy(observations))
    return actions.numpy()


def actions_by_onnx(path: Path, observations: Array) -> Array:
    """Actions of the written model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (actions,) = session.run([OUTPUT], {INPUT: observations})
    array: Array = actions
    return array


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' messages; the written files are checked afterwards."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
