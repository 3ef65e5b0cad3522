"""The trace: what the page replays. Arrays by name and a few facts, made from a run, in one file without pickle."""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.networks import StackedMLP, parameter_count
from td3.algorithm.step_02_actor import ActionRange, Actor
from td3.algorithm.step_03_twin_critics import TwinCritics
from td3.policy import Array
from td3.settings import TD3Config
from td3_lessons.explain.moments import choose_rows

GRID = 61
"""Points of a curve over the action."""
DRAWN = 24
"""Layers up to this width are drawn weight by weight, and computed in the page."""


@dataclass(frozen=True)
class Trace:
    """Arrays and facts of one recorded run."""

    arrays: dict[str, Array]
    facts: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write one `.npz`, the facts inside it as JSON text."""
        text = np.frombuffer(json.dumps(self.facts, sort_keys=True).encode(), np.uint8)
        written = io.BytesIO()
        np.savez_compressed(written, facts=text, **self.arrays)  # type: ignore[arg-type]  # names are free
        path.write_bytes(written.getvalue())

    @classmethod
    def load(cls, path: Any) -> "Trace":
        """What `save` wrote."""
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            kept = {name: arrays[name] for name in arrays.files}
        return cls(kept, json.loads(bytes(kept.pop("facts")).decode()))

    def payload(self) -> dict[str, Any]:
        """For the page: the facts, the shapes, and every number as float32 in one base64 text."""
        shapes, blob = {}, io.BytesIO()
        for name, array in self.arrays.items():
            shapes[name] = [blob.tell() // 4, list(array.shape)]
            blob.write(np.ascontiguousarray(array, "<f4").tobytes())
        return {"facts": self.facts, "arrays": shapes, "blob": base64.b64encode(blob.getvalue()).decode()}


@cache
def lesson_trace() -> Trace:
    """The trace that comes with the package, TD3 on Rail (`python -m td3_lessons.explain.export --record` makes it)."""
    return Trace.load(resources.files("td3_lessons.explain").joinpath("data", "rail.npz"))


def facts_of(
    env: str,
    seed: int,
    settings: TD3Config,
    agent: Agent,
    state_names: list[str],
    action_names: list[str],
    low: list[float],
    high: list[float],
) -> dict[str, Any]:
    """What the page must know of a run besides its arrays."""
    sizes = {"actor": list(agent.actor.network.sizes), "critic": list(agent.critics.network.sizes)}
    # The page computes networks with ReLU and without LayerNorm, and the steps as they are.
    plain = settings.activation == "relu" and not settings.critic_layer_norm and agent.changes is None
    live = max(max(widths) for widths in sizes.values()) <= DRAWN and plain
    action_range = agent.actor.action_range
    return {
        "env": env,
        "seed": seed,
        "live": live,
        "truth": False,
        "sizes": sizes,
        "row_state": sizes["actor"][0] if live else min(2, sizes["actor"][0]),
        "drawn_sizes": {name: [min(width, 16 if not live else width) for width in w] for name, w in sizes.items()},
        "settings": {name: value for name, value in asdict(settings).items() if not name.endswith("hidden_sizes")},
        "low": action_range.low.tolist(),
        "high": action_range.high.tolist(),
        "state_names": state_names,
        "action_names": action_names,
        "plane_low": low,
        "plane_high": high,
    }


def assembled(arrays: dict[str, Array], facts: dict[str, Any], kept: dict[int, dict[str, Array]], ends: Array) -> Trace:
    """Choose the rows to show, drop what can be read elsewhere, and thin out what is too large to ship."""
    numbers = sorted(kept)
    facts["updates"], facts["shown"] = numbers, []
    for index, number in enumerate(numbers):
        record = kept[number]
        even = kept[numbers[index + 1 - index % 2]] if len(numbers) > 1 else record
        shown = choose_rows(record, ends)
        facts["shown"].append(shown)
        own = {name: record[name] for name in record if name not in _IN_MEMORY}
        if "actor_after" not in own:
            own |= {
                name: even[name]
                for name in ("actor_before", "actor_first_moment", "actor_second_moment", "actor_steps")
                if name in even
            }
        if not facts["live"]:
            own |= _slices(record, even, facts, shown)
            own = {name: _thinned(name, value, facts) for name, value in own.items()}
        arrays |= {f"{name}.{index}": value for name, value in own.items()}
    return Trace({name: np.asarray(value, np.float32) for name, value in arrays.items()}, facts)


_IN_MEMORY = ("state", "action", "reward", "next_state", "terminated")


def _picks(sizes: Sequence[int], drawn: Sequence[int]) -> Array:
    """Places of the drawn weights in the flat parameters: evenly spaced units of every layer."""
    places, start = [], 0
    for depth in range(len(sizes) - 1):
        units = [np.linspace(0, sizes[d] - 1, drawn[d]).round().astype(int) for d in (depth, depth + 1)]
        places.append((start + units[0][:, None] * sizes[depth + 1] + units[1][None]).ravel())
        start += sizes[depth] * sizes[depth + 1]
        places.append(start + units[1])
        start += sizes[depth + 1]
    assert start == parameter_count(sizes)
    return np.concatenate(places)


def _thinned(name: str, value: Array, facts: dict[str, Any]) -> Array:
    for kind in ("actor", "critic"):
        if name.startswith(kind) and value.shape and value.shape[-1] == parameter_count(facts["sizes"][kind]):
            return np.asarray(value[..., _picks(facts["sizes"][kind], facts["drawn_sizes"][kind])])
    return value


def _kind(facts: dict[str, Any]) -> tuple[str, bool]:
    """The activation of all networks, and whether the critics have LayerNorm."""
    settings = facts["settings"]
    return settings.get("activation", "relu"), settings.get("critic_layer_norm", False)


def _slices(
    record: dict[str, Array], even: dict[str, Array], facts: dict[str, Any], shown: list[int]
) -> dict[str, Array]:
    """Curves over the first action dimension at the shown rows, where the page cannot compute them itself."""
    low, high = torch.tensor(facts["low"]), torch.tensor(facts["high"])
    activation, layer_norm = _kind(facts)

    def actor(parameters: Array) -> Any:
        network = StackedMLP(facts["sizes"]["actor"], torch.tensor(parameters)[None], activation)
        return lambda states: Actor(network, ActionRange(low, high))(torch.tensor(states)[None])[0].numpy()

    def critics(parameters: Array) -> TwinCritics:
        weights = torch.tensor(parameters)[:, None]
        return TwinCritics(StackedMLP(facts["sizes"]["critic"], weights, activation, layer_norm=layer_norm))

    grid = np.linspace(facts["low"][0], facts["high"][0], GRID, dtype=np.float32)

    def curves(judges: TwinCritics, states: Array, actions: Array) -> Array:
        many = np.repeat(actions[:, None], GRID, 1)
        many[..., 0] = grid
        flat_states = np.repeat(states[:, None], GRID, 1).reshape(-1, states.shape[-1])
        return q_values(judges, flat_states, many.reshape(-1, actions.shape[-1])).reshape(2, len(states), GRID)

    state, next_state, action = (record[name][shown] for name in ("state", "next_state", "action"))
    turn = record if "actor_after" in record else even
    before, after = actor(turn["actor_before"]), actor(turn["actor_after"])
    plane = np.stack(
        np.meshgrid(
            *[np.linspace(a, b, 25) for a, b in zip(facts["plane_low"], facts["plane_high"], strict=True)],
            indexing="xy",
        ),
        -1,
    )
    states = np.repeat(record["state"].mean(0)[None], 625, 0).astype(np.float32)
    states[:, : min(2, states.shape[1])] = plane.reshape(-1, 2)[:, : states.shape[1]]
    return {
        "slice_target": curves(critics(record["critics_target_before"]), next_state, record["smoothed_action"][shown]),
        "slice_before": curves(critics(record["critics_before"]), state, action),
        "slice_after": curves(critics(record["critics_after"]), state, action),
        "slice_actor": curves(critics(record["critics_after"]), state, before(state)),
        "policy_before": before(state),
        "policy_after": after(state) if "actor_after" in record else before(state),
        "next_online": before(next_state),
        "policy_map": before(states)[:, 0].reshape(25, 25),
        "policy_map_target": actor(record["actor_target_before"])(states)[:, 0].reshape(25, 25),
    }


@torch.no_grad()
def q_values(critics: Any, states: Array, actions: Array) -> Array:
    """Both critics' Q-values of states and actions without a member axis, `[2, batch]`."""

    def tensor(values: Array) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values, np.float32))[None]

    return np.asarray(critics(tensor(states), tensor(actions))[:, 0].numpy())
