"""Agents on disk: `agent.safetensors` with the six networks, `agent.json` with what is needed to act. No pickle."""

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from td3.environments import TaskSpaces
from td3.errors import AgentFileError
from td3.files import outside, read_json, read_regular_file, write_atomically
from td3.pixels.layout import NumpyEncoder, convolutions_for, encoder_shapes, layout_of
from td3.policy import ACTIVATIONS, Array, Policy

if TYPE_CHECKING:
    from torch import Tensor

    from td3.algorithm.agent import Agent  # only to write: an agent is read, and acts, without PyTorch

FORMAT = "td3-agent"
VERSION, NORMALIZED_VERSION, ACTIVATION_VERSION = 1, 2, 3
"""Readers of format 1 do not know normalized observations and would act on raw ones; readers of formats 1 and 2 do not
know activations other than ReLU."""
LARGEST_JSON, LARGEST_AGENT = 1 << 20, 1 << 28
"""Larger files (in bytes) are not read: networks with 3,000 units per layer are smaller."""
LARGEST_PICTURES = 1 << 22
"""Numbers of an observation of images: 16 frames of 256 x 256 pixels in four channels."""
REPLACES = "replaces"
"""In agent.json: the description of the tensors that were there before, until those of this one are written."""


class SavedAgent(NamedTuple):
    """An agent read from disk: its policy, and the facts saved with it."""

    policy: Policy
    facts: dict[str, Any]

    @property
    def origin(self) -> str:
        """Which agent this is, in words."""
        return f"seed {self.facts.get('seed', 0)} at step {self.facts.get('env_steps', 0):,}"

    def __repr__(self) -> str:
        """Environment, seed and step."""
        return f"SavedAgent({self.facts.get('env')}: {self.origin})"

    def act(self, observation: Any) -> Array:
        """The action for one observation, or the actions for a batch of them; numpy in, numpy out."""
        return self.policy.act(observation)

    def _repr_html_(self) -> str:
        """Origin and sizes, for notebooks."""
        facts, policy = self.facts, self.policy
        sizes = [policy.layers[0][0].shape[-2], *(weight.shape[-1] for weight, _ in policy.layers)]
        rows = {
            "environment": facts.get("env"),
            "seed": facts.get("seed"),
            "env step": f"{facts.get('env_steps', 0):,}",
            "observation": facts.get("observation_shape"),
            "action": facts.get("action_shape"),
            "actor": " - ".join(map(str, sizes)),
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>"


def network_tensors(agent: "Agent", member: int) -> dict[str, Array]:
    """One member's six networks by name, weights as PyTorch's own linear layers have them, `[outputs, inputs]`."""
    return {name: view.cpu().contiguous().numpy() for name, view in network_views(agent, member).items()}


def network_views(agent: "Agent", member: int) -> dict[str, "Tensor"]:
    """The same as views: writing into them changes the agent."""
    import torch

    from td3.algorithm.networks import layer_views

    named = {}
    for name, network, twins in (
        ("actor", agent.actor.network, (None,)),
        ("actor_target", agent.actor_target.network, (None,)),
        ("critic", agent.critics.network, (0, 1)),
        ("critic_target", agent.critics_target.network, (0, 1)),
    ):
        for twin in twins:
            stacked = network.parameters.detach()
            parameters = (stacked if twin is None else stacked[twin])[member]
            label = name if twin is None else f"{name}_{twin + 1}"
            for depth, (weight, bias) in enumerate(layer_views(parameters, network.sizes)):
                named[f"{label}.{depth}.weight"] = weight.T
                named[f"{label}.{depth}.bias"] = bias
    if agent.normalizer is not None:
        named |= {f"observation.{part}": getattr(agent.normalizer, part)[member] for part in ("mean", "scale", "count")}
    for name, encoder in (("encoder", agent.encoder), ("encoder_target", agent.encoder_target)):
        if encoder is not None:
            parts = torch.split(encoder.parameters.detach()[member], encoder.plan.sizes)
            for label, part, shape in zip(encoder_names(len(parts)), parts, encoder.plan.shapes, strict=True):
                named[f"{name}.{label}"] = part.view(shape)
    return named


def encoder_names(count: int) -> list[str]:
    """The names of so many arrays of an encoder, in their order."""
    layers = [*map(str, range(count // 2 - 2)), "projection", "norm"]
    return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]


def save_agent(
    folder: Path,
    agent: "Agent",
    member: int,
    spaces: TaskSpaces,
    facts: Mapping[str, Any],
    actor_only: bool = False,
) -> None:
    """Write one member's networks and the facts about them; a reader sees the old pair or the new one.

    agent.json first describes both the new tensors and those that they replace, so that whichever are there when the
    process is killed are described.
    """
    folder.mkdir(parents=True, exist_ok=True)
    named = network_tensors(agent, member)
    acting, trained = ("actor.", "observation.", "encoder."), agent.trains_critics
    kept = acting if actor_only else ("",) if trained else (*acting, "actor_target.")
    tensors = save_tensors({name: named[name] for name in named if name.startswith(kept)})
    activation = agent.actor.network.activation
    described = {
        "format": FORMAT,
        "version": ACTIVATION_VERSION if activation != "relu" else NORMALIZED_VERSION if agent.normalizer else VERSION,
        "sha256": hashlib.sha256(tensors).hexdigest(),
        "activation": activation,
        "critic_layer_norm": agent.critics.network.layer_norm,
        **spaces._asdict(),
        **facts,
        **({} if trained else {"critics_trained": False}),
    }
    both = described
    with contextlib.suppress(AgentFileError):  # there is none yet, or a damaged one
        both = {**described, REPLACES: _read_pair(folder)[0]}
    write_atomically(folder / "agent.json", json.dumps(both, indent=2).encode())
    write_atomically(folder / "agent.safetensors", tensors)
    if both is not described:
        write_atomically(folder / "agent.json", json.dumps(described, indent=2).encode())


def load_agent(folder: Path) -> SavedAgent:
    """The agent in a folder; raises `AgentFileError` for anything that `save_agent` did not write."""
    for name in ("agent.json", "agent.safetensors"):
        if outside(folder / name, folder):
            raise AgentFileError(f"{folder / name} is a link out of its folder: put a copy of the file there.")
    facts, raw = _read_pair(folder)
    try:
        _check_facts(facts)
        tensors = load_tensors(raw)
        layers = _actor_layers(tensors)
        low, high = (_bound(facts[name]) for name in ("action_low", "action_high"))
        observation_shape, action_shape = (_shape(facts[name]) for name in ("observation_shape", "action_shape"))
        widths = (math.prod(observation_shape), math.prod(action_shape))
        encoder = _encoder(tensors, facts, observation_shape)
        reads = widths[0] if encoder is None else len(encoder.arrays[-1])
        if (layers[0][0].shape[0], layers[-1][0].shape[1]) != (reads, widths[1]):
            raise ValueError("the networks do not fit the spaces")
        if not len(low) == len(high) == widths[1]:
            raise ValueError("the networks do not fit the spaces")
        is_normalized = facts["version"] == NORMALIZED_VERSION or (
            facts["version"] == ACTIVATION_VERSION and "observation.mean" in tensors
        )
        normalizer = _normalizer(tensors, widths[0]) if is_normalized else None
        shapes = observation_shape, action_shape
        policy = Policy(layers, low, high, *shapes, normalizer, encoder, facts.get("activation", "relu"))
        policy(np.zeros((1, widths[0]), np.float32))
    except (SafetensorError, KeyError, ValueError, TypeError, IndexError) as error:
        raise AgentFileError(f"{folder} does not hold a usable agent ({error}).") from None
    return SavedAgent(policy, facts)


def load_tensors_of(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Facts and all tensors of the agent in a folder; raises `AgentFileError` as `load_agent` does."""
    load_agent(folder)
    facts, raw = _read_pair(folder)
    return facts, load_tensors(raw)


def _read_pair(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The facts about the tensors that are there, and their file; raises `AgentFileError` if none describe them."""
    for _ in range(2):  # the second time for an agent that was replaced between the two reads
        described = _read_facts(folder / "agent.json")
        try:
            raw = read_regular_file(folder / "agent.safetensors", LARGEST_AGENT)
        except OSError as error:
            raise AgentFileError(f"{folder} has no readable agent.safetensors: {error.strerror}.") from None
        except ValueError as error:
            raise AgentFileError(f"{folder} does not hold a usable agent ({error}).") from None
        digest = hashlib.sha256(raw).hexdigest()
        for facts in described:
            if facts.get("sha256") == digest:
                return facts, raw
    raise AgentFileError(f"{folder} is damaged: agent.safetensors is not the file that agent.json describes.")


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Raise ValueError if a fact that commands use has the wrong type."""
    for name in ("seed", "env_steps", "updates"):
        if type(facts.get(name, 0)) is not int or not 0 <= facts.get(name, 0) < 1 << 62:
            raise ValueError(f"{name} is not a whole number of at least 0")
    if (activation := facts.get("activation", "relu")) not in ACTIVATIONS:
        raise ValueError(f"its activation, {activation!r}, is none of {', '.join(ACTIVATIONS)}")
    versions = facts.get("versions", {})
    if not isinstance(versions, dict) or not all(isinstance(version, str) for version in versions.values()):
        raise ValueError("versions are not names with text")


def _actor_layers(tensors: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    layers: list[tuple[Array, Array]] = []
    while f"actor.{len(layers)}.weight" in tensors:
        depth = len(layers)
        layers.append((np.ascontiguousarray(tensors[f"actor.{depth}.weight"].T), tensors[f"actor.{depth}.bias"]))
    if not layers or not all(np.all(np.isfinite(array)) for layer in layers for array in layer):
        raise ValueError("the actor is missing or holds NaN")
    if any(weight.ndim != 2 or bias.shape != weight.shape[1:] for weight, bias in layers):
        raise ValueError("the actor's layers are not linear ones")
    return layers


def _normalizer(tensors: Mapping[str, Array], size: int) -> tuple[Array, Array]:
    mean, scale = tensors["observation.mean"], tensors["observation.scale"]
    if any(array.shape != (size,) or not np.isfinite(array).all() for array in (mean, scale)) or (scale <= 0).any():
        raise ValueError("what normalizes observations does not fit them")
    return mean, scale


def _encoder(
    tensors: Mapping[str, Array], facts: Mapping[str, Any], observation_shape: tuple[int, ...]
) -> NumpyEncoder | None:
    """The image encoder of an agent; None if it was trained on vectors."""
    if not facts.get("frames"):
        return None
    (frames,), strides = _shape([facts["frames"]]), _shape(facts["strides"])
    layout = layout_of(observation_shape, frames)
    if layout is None or frames * layout.frame_size > LARGEST_PICTURES:
        raise ValueError(f"its observations, {observation_shape}, are not images, or larger than any that train")
    arrays = [tensors[f"encoder.{name}"] for name in encoder_names(2 * len(strides) + 4)]
    layers = [(*array.shape[::2], stride) for array, stride in zip(arrays[::2], strides, strict=False)]
    if tuple(layers) != convolutions_for(layout):
        raise ValueError("the encoder has other layers than td3 makes")
    if tuple(array.shape for array in arrays) != encoder_shapes(layout, layers, len(arrays[-1])):
        raise ValueError("the encoder does not fit the images")
    if not all(np.all(np.isfinite(array)) for array in arrays):
        raise ValueError("the encoder holds NaN")
    return NumpyEncoder(layout, strides, arrays)


def _bound(values: Any) -> Sequence[float]:
    if not isinstance(values, list) or not all(type(value) in (int, float) and abs(value) < 1e38 for value in values):
        raise ValueError("an action bound is not a list of numbers")
    return values


def _shape(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(size) is int and size > 0 for size in values):
        raise ValueError("a shape is not a list of sizes")
    return tuple(values)


def _read_facts(path: Path) -> list[dict[str, Any]]:
    """What agent.json describes: an agent, and the one that it was about to replace when its writer was killed."""
    try:
        facts = read_json(path, LARGEST_JSON)
    except OSError as error:
        raise AgentFileError(f"{path.parent} is not an agent: agent.json cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise AgentFileError(f"{path} is damaged or foreign: it is not JSON ({error}).") from None
    replaced = facts.pop(REPLACES, None) if isinstance(facts, dict) else None
    described = [facts] if replaced is None else [facts, replaced]
    for each in described:
        if not isinstance(each, dict) or each.get("format") != FORMAT:
            raise AgentFileError(f"{path} was not written by td3.")
        if each.get("version") not in (VERSION, NORMALIZED_VERSION, ACTIVATION_VERSION):
            raise AgentFileError(
                f"{path} has version {each.get('version')!r} of the format, and this td3 reads {VERSION} to "
                f"{ACTIVATION_VERSION}."
            )
    return described
