"""Export one agent into a folder, and compare every file with the agent."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file

from td3.errors import RunError
from td3.export.card import model_card, observation_type
from td3.export.exported_actor import (
    INPUT,
    ExportedActor,
    actions_by_onnx,
    actions_by_pt2,
    require_onnx,
    write_onnx,
    write_pt2,
)
from td3.export.sb3_zip import actions_by_sb3, require_sb3, write_sb3
from td3.files import write_atomically
from td3.policy import CLIP, Array
from td3.run.agent_file import SavedAgent
from td3.run.directory import Run, write_json

CHECKED = 1_000
"""Random observations on which every file is compared with the agent."""
CHECKED_IMAGES = 50
"""The same for images, which are a thousand times as large."""
TOLERANCE = 1e-4
"""Largest accepted difference, as a share of half the action range: rounding is a hundred times smaller."""
EXAMPLE = '''\
"""Get an action from the exported actor. Needs onnxruntime and numpy only."""

from pathlib import Path

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(Path(__file__).with_name("actor.onnx"))
observation = np.zeros({shape}, np.{kind})  # a batch of observations of {env!r}
(action,) = session.run(None, {{"observation": observation}})
print(action[0])  # in the environment's own units: env.step(action[0])
'''


class Export(NamedTuple):
    """The exported files, and how much each differs from the agent."""

    path: Path
    files: dict[str, float]
    """File -> largest difference of an action, as a share of half the action range."""
    normalized: bool = False
    """Whether the agent normalizes its observations."""
    agent: str = ""
    """Which agent it is: its seed and env step."""


def export_run(
    run: Run,
    out: Path | None = None,
    seed: int | None = None,
    which: str = "best",
    sb3: bool = False,
    trust: bool = False,
) -> Export:
    """Export one agent of a run; missing packages are reported before anything is written.

    With `sb3` the environment is created, and `trust` allows importing the module in its name.
    """
    require_onnx()
    if sb3:
        require_sb3()
        run.env_arguments(trust, f"td3 export {run.path} --sb3")
        if run.agent(seed, which).policy.encoder is not None:
            raise RunError(
                f"{run.path} learned from images, and its encoder cannot be written as sb3.zip: leave --sb3 out."
            )
        if not run.agent(seed, which).facts.get("critics_trained", True):
            raise RunError(
                f"{run.path} has replaced steps that do not train the critics of the package, and an sb3.zip needs "
                "them: leave --sb3 out."
            )
        if run.config.td3.critic_layer_norm:
            raise RunError(
                f"the critics of {run.path} have LayerNorm, which networks of Stable-Baselines3 lack: leave --sb3 out."
            )
    chosen = run.best_seed() if seed is None else seed
    agent = run.agent(chosen, which)
    source, folder = run.folder(chosen) / which, out or run.path / "export"
    _prepare(folder)
    observations = random_observations(agent)
    answers = _write_actor(agent, observations, folder)
    if sb3:
        tensors = load_file(source / "agent.safetensors")
        write_sb3(folder / "sb3.zip", tensors, agent.policy, run.config, agent.facts)
        # SB3's networks cannot clip, so they are compared within the clipping range.
        unclipped = random_observations(agent, within=CLIP)
        answers["sb3.zip"] = actions_by_sb3(folder / "sb3.zip", unclipped)
    files = {
        name: _difference(agent, unclipped if name == "sb3.zip" else observations, actions)
        for name, actions in answers.items()
    }
    _refuse_wrong(folder, files)
    for file in (source / "agent.safetensors", source / "agent.json"):
        shutil.copyfile(file, folder / file.name)
    write_json(folder / "config.json", run.config.to_json() | {"out": None})
    _write_example(agent, run.config.env, folder)
    write_json(
        folder / "export.json", {"seed": chosen, "which": which} | _facts(agent, run.config.env, observations, files)
    )
    if (run.path / "video.mp4").is_file():
        shutil.copyfile(run.path / "video.mp4", folder / "replay.mp4")
    write_atomically(folder / "README.md", model_card(run, agent, chosen, which, folder).encode())
    return Export(folder, files, agent.policy.normalizer is not None, agent.origin)


def export_agent(agent: SavedAgent, env: str, sb3_zip: bytes, out: Path) -> Export:
    """Export an agent that was trained by `td3_sb3`: it has no run directory, and a model of its own."""
    require_onnx()
    _prepare(out)
    observations = random_observations(agent)
    answers = _write_actor(agent, observations, out)
    write_atomically(out / "sb3.zip", sb3_zip)
    files = {name: _difference(agent, observations, actions) for name, actions in answers.items()}
    unclipped = random_observations(agent, within=CLIP)
    if agent.policy.normalizer is None:  # otherwise it is VecNormalize that normalizes, and not the model
        files["sb3.zip"] = _difference(agent, unclipped, actions_by_sb3(out / "sb3.zip", unclipped))
    _refuse_wrong(out, files)
    _write_example(agent, env, out)
    write_json(out / "export.json", _facts(agent, env, observations, files))
    return Export(out, files, agent.policy.normalizer is not None)


def _write_actor(agent: SavedAgent, observations: Array, folder: Path) -> dict[str, Array]:
    """Write the actor in both formats, and return what each file answers."""
    actor, example = ExportedActor(agent.policy), torch.from_numpy(observations[:2])
    write_pt2(actor, example, folder / "actor.pt2")
    write_onnx(actor, example, folder / "actor.onnx")
    return {
        "actor.onnx": actions_by_onnx(folder / "actor.onnx", observations),
        "actor.pt2": actions_by_pt2(folder / "actor.pt2", observations),
    }


def _write_example(agent: SavedAgent, env: str, folder: Path) -> None:
    shape = (1, *agent.policy.observation_shape)
    text = EXAMPLE.format(shape=shape, env=env, kind=observation_type(agent))
    write_atomically(folder / "infer.py", text.encode())


def random_observations(agent: SavedAgent, within: float = np.inf) -> Array:
    """Standard normal numbers, in rows from a tenth of their size to ten times it, or bytes; always the same ones.

    Where the agent normalizes observations, they are turned round: as many standard deviations from the mean, and on
    request none of them farther than `within`.
    """
    generator = np.random.default_rng(0)
    policy = agent.policy
    shape = policy.observation_shape
    if policy.encoder is not None:
        return generator.integers(0, 256, (CHECKED_IMAGES, *shape), np.uint8)
    sizes = 10 ** generator.uniform(-1, 1, (CHECKED, *(1 for _ in shape)))
    numbers = sizes * generator.standard_normal((CHECKED, *shape))
    if policy.normalizer is not None:
        mean, scale = (array.astype(np.float64).reshape(shape) for array in policy.normalizer)
        numbers = mean + np.clip(numbers, -0.99 * within, 0.99 * within) / scale
    return numbers.astype(np.float32)


OURS = (
    *("actor.onnx", "actor.pt2", "agent.json", "agent.safetensors", "config.json", "export.json"),
    *("infer.py", "README.md", "replay.mp4", "sb3.zip"),
)


def _prepare(folder: Path) -> None:
    """An empty folder, or one of an earlier export; other files are never touched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / "export.json").exists():
            raise RunError(f"{folder} holds other files: give another --out.")
        for name in OURS:  # files of an earlier export must not be mistaken for new ones
            (folder / name).unlink(missing_ok=True)
        write_json(folder / "export.json", {})
    except OSError as error:
        raise RunError(f"{folder} cannot be written ({error.strerror}): give another --out.") from None


def _difference(agent: SavedAgent, observations: Array, actions: Array) -> float:
    half = (agent.policy.high - agent.policy.low) / 2
    difference = np.abs(actions - agent.act(observations)).reshape(len(observations), -1) / half
    return float(difference.max())


def _refuse_wrong(folder: Path, files: dict[str, float]) -> None:
    for name, difference in files.items():
        if not difference <= TOLERANCE:  # NaN is refused too
            (folder / name).unlink()
            raise RunError(
                f"{folder / name} differs from the agent by {difference:.1e} of half the action range, so "
                "it was removed: try the versions of torch, onnx and onnxruntime that constraints.txt names."
            )


def _facts(agent: SavedAgent, env: str, observations: Array, files: dict[str, float]) -> dict[str, Any]:
    policy = agent.policy
    return {
        "env": env,
        "env_steps": agent.facts.get("env_steps"),
        "input": {"name": INPUT, "shape": ["batch", *policy.observation_shape], "type": observation_type(agent)},
        "output": {"name": "action", "shape": ["batch", *policy.action_shape], "type": "float32"},
        "normalizes_observations": policy.normalizer is not None,
        "action_low": policy.low.tolist(),
        "action_high": policy.high.tolist(),
        "checked_on": f"{len(observations)} random observations",
        "difference": files,
        "difference_is": "the largest of an action, as a share of half the action range",
        "versions": agent.facts.get("versions", {}),
    }
