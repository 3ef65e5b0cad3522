"""Start training from the weights of a saved agent (`td3 train --from`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from td3.environments import TaskSpaces
from td3.errors import AgentFileError
from td3.policy import Array
from td3.run.agent_file import load_tensors_of, network_views
from td3.run.directory import Run, read_facts

if TYPE_CHECKING:
    from torch import Tensor

    from td3.algorithm.agent import Agent

PARTS = {
    "actor": ("actor.",),
    "critics": ("critic_1.", "critic_2."),
    "target networks": ("actor_target.", "critic_target_1.", "critic_target_2."),
    "encoder": ("encoder.", "encoder_target."),
}
"""What an agent's file may hold, and how the names of its tensors begin; a snapshot holds the actor alone."""

OLDER = {"activation": "relu", "critic_layer_norm": False}
"""What agents are that were saved before these could be chosen."""
ONE = np.ones(1)


def agent_folder(path: Path, seed: int) -> Path:
    """The folder of the agent to start this seed from.

    An agent's folder, or a file in it, is for every seed. A run gives each seed its own last agent, and seeds that it
    does not have that of its best one.
    """
    if (path / "agent.json").exists():
        return path
    if path.is_file() and path.name in ("agent.json", "agent.safetensors"):
        return path.parent
    run = Run(path)
    chosen = seed if seed in run.seeds else run.best_seed()
    folders = [run.folder(chosen) / which for which in ("last", "best")]
    return next((folder for folder in folders if (folder / "agent.json").exists()), folders[0])


def start_from_(agent: "Agent", path: Path, seeds: Sequence[int], spaces: TaskSpaces) -> str:
    """Give every member the weights of a saved agent; says what was taken.

    Optimizers stay new. Target networks that the file does not have begin as copies, and so does what normalizes
    observations. Raises `AgentFileError` where sizes, action range, activation or normalization differ.
    """
    message, sources = "", []
    for member, seed in enumerate(seeds):
        folder = agent_folder(path, seed)
        facts, tensors = load_tensors_of(folder)
        _require_same_task(folder, facts, agent, spaces)
        views = network_views(agent, member)
        _require_usable(folder, views, tensors)
        present = {part for part, names in PARTS.items() if any(name.startswith(names) for name in tensors)}
        for name, view in views.items():
            online = name.replace("_target", "")
            if (source := name if name in tensors else online) in tensors and not name.startswith("observation."):
                view.copy_(_tensor(tensors[source]))
        if agent.normalizer is not None:
            mean, scale = (_tensor(tensors[f"observation.{part}"]) for part in ("mean", "scale"))
            count = float(tensors.get("observation.count", max(1, facts.get("env_steps", 1)) * ONE)[0])
            agent.normalizer.member(member).continue_from_(mean, scale, count)
            present.add("normalizer")
        taken = ", ".join(part for part in (*PARTS, "normalizer") if part in present)
        sources.append(folder)
        unit = "updates" if read_facts(folder / "../../config.json").get("dataset") else "env steps"
        message = message or f"Started from {folder}: {taken} after {facts.get('env_steps', 0):,} {unit}"
    others = [f"seed {seed} from {folder}" for seed, folder in zip(seeds[1:], sources[1:], strict=True)]
    more = f" (and likewise {', '.join(others)})" if others else ""
    return f"{message}{more}; optimizers and replay buffer are new."


def _require_same_task(folder: Path, facts: Mapping[str, Any], agent: "Agent", spaces: TaskSpaces) -> None:
    for name, here in (
        ("observation_shape", list(spaces.observation_shape)),
        ("action_shape", list(spaces.action_shape)),
        ("action_low", list(spaces.action_low)),
        ("action_high", list(spaces.action_high)),
        ("activation", agent.actor.network.activation),
        ("critic_layer_norm", agent.critics.network.layer_norm),
    ):
        there = facts.get(name, OLDER.get(name))
        if there != here:
            raise AgentFileError(
                f"{folder} has {name.replace('_', ' ')} {there}, and this run {here}: start from an agent of the same "
                "environment and settings."
            )


def _require_usable(folder: Path, views: Mapping[str, "Tensor"], tensors: Mapping[str, Array]) -> None:
    if ("observation.mean" in tensors) != ("observation.mean" in views):
        does, advice = ("reads", "add") if "observation.mean" in tensors else ("does not read", "leave out")
        raise AgentFileError(f"{folder} {does} normalized observations: {advice} --normalize-observations.")
    count = tensors.get("observation.count", ONE)
    if not all(np.isfinite(array).all() for array in tensors.values()) or count.shape != (1,) or count[0] < 1:
        raise AgentFileError(
            f"{folder} has weights that are not finite, or a count below 1: it cannot be started from."
        )
    networks = {name: tuple(view.shape) for name, view in views.items() if not name.startswith("observation.")}
    for name in sorted({*networks} | {name for name in tensors if not name.startswith("observation.")}):
        network = name.split(".")[0]
        is_absent = not any(other.startswith(f"{network}.") for other in tensors)
        here, there = networks.get(name), tensors[name].shape if name in tensors else None
        if here != there and not is_absent:
            raise AgentFileError(
                f"{folder} has {name} of shape {there}, and this run {here}: give the same hidden sizes "
                "(--td3.hidden-sizes) and variants."
            )


def _tensor(array: Array) -> "Tensor":
    import torch

    return torch.from_numpy(array.copy())
