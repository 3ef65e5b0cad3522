"""The page of a user's own run: its networks, names of its states and actions, frames of the chosen transitions."""

import base64
import contextlib
import inspect
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation
from safetensors import SafetensorError
from safetensors.torch import load_file

import td3
from td3.algorithm.agent import Agent
from td3.algorithm.replacing import Replacement
from td3.algorithm.streams import MemberStreams
from td3.engine import update_once
from td3.engine.check import try_changes
from td3.environments import InProcessVectorEnv, check_environment, make_environment
from td3.errors import AgentFileError, RunError, UserError
from td3.policy import CLIP, Array, Policy
from td3.run.directory import Run, require_trusted_steps
from td3.variants import find_replacements, read_record, record_of
from td3_lessons.explain.record import Recorder, flat, new_learner, train_on
from td3_lessons.explain.trace import Trace, assembled, facts_of

FRAME = 160
"""Width of a frame in the page, in pixels."""
KNOWN = {
    "Rail-v0": (["position", "velocity"], ["force"]),
    "Pendulum-v1": (["cos of the angle", "sin of the angle", "angular velocity"], ["torque"]),
    "MountainCarContinuous-v0": (["position", "velocity"], ["force"]),
    "LunarLanderContinuous-v3": (
        ["x", "y", "x velocity", "y velocity", "angle", "angular velocity", "left leg", "right leg"],
        ["main engine", "side engine"],
    ),
}
"""Names of states and actions where the environment itself does not tell them."""


def record_run(path: Path, seed: int | None = None, steps: int = 2_000, *, trust: bool = False) -> Trace:
    """The trace of a user's own run: its six networks, new transitions, and updates until the actor has moved.

    A run keeps its networks and not its replay buffer: new transitions are collected by its actor, with its
    exploration noise, and the optimizers and the state of replaced steps start from zero. Steps that the run
    replaced are executed, of files of its own only with `trust`.
    """
    run, command = Run(path), f"td3 explain --run {path}"
    env_arguments = run.env_arguments(trust, command)
    require_trusted_steps(run.config, path, trust, command)
    replacements = find_replacements(run.config.variant, run.config.replace_steps)
    chosen = run.best_seed() if seed is None else seed
    policy, saved = run.agent(chosen, "last")
    settings, env = run.config.td3, run.config.env
    if saved.get("frames"):
        raise RunError(
            f"{path} was trained from images, and the page draws states of a few numbers: explain another run."
        )
    environment = _Log(make_environment(**env_arguments))
    environments = InProcessVectorEnv([_as_the_networks_see_it(environment, policy)])
    spaces, steps = check_environment(environments.environments[0], env), min(steps, settings.buffer_size)
    environment.calls.clear()  # those of the check
    agent, buffer = new_learner(settings, chosen, environments, steps, replacements)
    if replacements:
        try_changes(agent, [chosen], settings)
    _load_networks(agent, run.folder(chosen) / "last" / "agent.safetensors")
    done = int(saved["updates"]) - int(saved["updates"]) % settings.policy_delay
    agent.updates[:] = done
    timed_out = train_on(
        agent, buffer, environments, replace(settings, learning_starts=0), chosen, steps, lambda *_: None
    )

    recorder, kept, streams = Recorder(replacements), {}, MemberStreams([chosen], position=done)
    for number in range(done + 1, done + max(2, settings.policy_delay) + 1):
        with recorder.looking() as calls:
            update_once(agent, buffer, streams, settings)
        kept[number] = flat(calls)
    kept = {number: kept[number] for number in sorted(kept)[-2:]}

    rows = buffer.rows[0].numpy().copy()
    filled = len(rows)
    if any(one.number == 4 for one in replacements):
        rows, timed_out = _with_batches(rows, timed_out, list(kept.values()))
    low, high = (bound(rows[:, : spaces.state_size], 0)[:2].tolist() for bound in (np.min, np.max))
    if spaces.state_size == 1:  # the plane needs a second side
        low, high = [*low, -1.0], [*high, 1.0]
    states, actions = names_of(environment, env, spaces.state_size, spaces.action_size)
    facts = facts_of(env, chosen, settings, agent, states, actions, low, high)
    facts |= {"loaded": str(path), "filled": [filled] * len(kept)}
    if replacements:
        facts["replaced"] = replaced_steps(path, replacements)
    env_steps, returns = run.evaluations(chosen)
    if not facts["live"]:  # the page computes nothing from the states then, and draws two dimensions of them
        far = spaces.state_size + spaces.action_size
        near = min(2, spaces.state_size)
        rows = np.concatenate((rows[:, :near], rows[:, spaces.state_size : far + near], rows[:, -2:]), 1)
    arrays = {"memory": rows, "timed_out": timed_out.astype(np.float32)}
    arrays |= {"curve.env_steps": env_steps.astype(float), "curve.td3_return": returns.mean(1)}
    trace = assembled(arrays, facts, kept, timed_out)
    environments.close()
    frames = rendered(env_arguments, environment.calls, facts["shown"], [record["rows"] for record in kept.values()])
    return replace(trace, facts=facts | frames)


def replaced_steps(path: Path, replacements: Sequence[Replacement]) -> dict[str, dict[str, Any]]:
    """What the page shows of the functions in the place of steps, by the number of the step."""
    before = {one["number"]: one.get("sha256") for one in read_record(path)}
    found: dict[str, dict[str, Any]] = {}
    for one, record in zip(replacements, record_of(replacements), strict=True):
        code = inspect.unwrap(one.function).__code__
        file = Path(code.co_filename)
        package = Path(td3.__file__).parent.parent
        found[str(one.number)] = {
            "function": one.function.__name__,
            "step": one.step_name,
            "file": file.relative_to(package).as_posix() if file.is_relative_to(package) else file.name,
            "line": code.co_firstlineno,
            "source": record["source"],
            "changed": before.get(one.number) != record["sha256"],
        }
    return found


def _with_batches(rows: Array, timed_out: Array, records: Sequence[dict[str, Array]]) -> tuple[Array, Array]:
    """The buffer, and after it those rows of the batches that are not in it; records get their places.

    A replaced step 4 may take its rows in another way, or change them.
    """
    places = {row.tobytes(): place for place, row in enumerate(rows)}
    others: list[Array] = []
    for record in records:
        parts = [record[name] for name in ("state", "action", "next_state")]
        batch = np.concatenate([*parts, record["reward"][:, None], record["terminated"][:, None]], 1, dtype=rows.dtype)
        for row in batch:
            if row.tobytes() not in places:
                places[row.tobytes()] = len(rows) + len(others)
                others.append(row[None])
        record["rows"] = np.array([places[row.tobytes()] for row in batch])
    return np.concatenate((rows, *others)), np.pad(timed_out, (0, len(others)))


class _Log(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps every call, so that the same episodes can be played again in an environment that renders."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.calls: list[tuple[str, Any, Array]] = []

    def reset(self, **given: Any) -> Any:
        observation, info = self.env.reset(**given)
        self.calls.append(("reset", given, np.array(observation, copy=True)))
        return observation, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.calls.append(("step", np.array(action, copy=True), np.array(result[0], copy=True)))
        return result


def names_of(environment: Any, env: str, states: int, actions: int) -> tuple[list[str], list[str]]:
    """Names of the state and action dimensions: from MuJoCo's model, from the table above, or numbers."""
    known = KNOWN.get(env, ([], []))
    with contextlib.suppress(AttributeError, ImportError, TypeError):
        known = _mujoco_names(environment.unwrapped)
    plain = ([f"state {n + 1}" for n in range(states)], [f"action {n + 1}" for n in range(actions)])
    fits = [len(known[0]) == states, len(known[1]) == actions]
    return known[0] if fits[0] else plain[0], known[1] if fits[1] else plain[1]


def _mujoco_names(inner: Any) -> tuple[list[str], list[str]]:
    """Joint and actuator names, in the order in which Gymnasium's MuJoCo tasks observe them."""
    model, parts = inner.model, inner.observation_structure
    positions: list[str] = []
    velocities: list[str] = []
    for index in range(model.njnt):
        joint, wide = model.joint(index), len(model.joint(index).qpos0)
        if wide == 1:
            positions.append(f"{joint.name} position")
            velocities.append(f"{joint.name} velocity")
        else:  # a free joint: place and quaternion, then six velocities
            positions += [f"{joint.name} {axis}" for axis in ("x", "y", "z", "qw", "qx", "qy", "qz")[:wide]]
            velocities += [f"{joint.name} {axis} velocity" for axis in ("x", "y", "z", "roll", "pitch", "yaw")]
    states = positions[parts.get("skipped_qpos", 0) :] + velocities
    others = {name: size for name, size in parts.items() if name not in ("skipped_qpos", "qpos", "qvel") and size}
    states += [f"{name} {n + 1}" for name, size in others.items() for n in range(size)]
    return states, [model.actuator(index).name or f"actuator {index + 1}" for index in range(model.nu)]


def rendered(
    env_arguments: Mapping[str, Any],
    calls: Sequence[tuple[str, Any, Array]],
    shown: Sequence[Sequence[int]],
    rows: Sequence[Array],
) -> dict[str, Any]:
    """Frames of the shown transitions, before and after, as data URIs; nothing where the environment cannot render.

    The same seeds and actions are played again; where that gives other observations, no frame is shown.
    """
    try:
        from PIL import Image  # noqa: F401  # of the extra `video`

        from td3.pixels.wrappers import render_frame
        from td3.report.video_stage import make_rendered

        screen = make_rendered(**env_arguments)
    except (ImportError, UserError):
        return {}
    wanted = {int(record[place]) for record, places in zip(rows, shown, strict=True) for place in places}
    images: dict[int, tuple[str, str]] = {}
    size, number, before = (0, 0), -1, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a renderer's own complaints
            for position, (kind, given, seen) in enumerate(calls):
                if kind == "reset":
                    now, _ = screen.reset(**given)
                else:
                    now = screen.step(given)[0]
                    number += 1
                if not np.allclose(now, seen, atol=1e-4):
                    return {}
                if number in wanted and kind == "step" and before is not None:
                    after, size = _encoded(render_frame(screen, env_arguments["env"]))
                    images[number] = before, after
                following = number + 1 in wanted and position + 1 < len(calls) and calls[position + 1][0] == "step"
                before = _encoded(render_frame(screen, env_arguments["env"]))[0] if following else None
                if wanted <= set(images):
                    break
    except UserError:
        return {}
    finally:
        screen.close()
    if not wanted <= set(images):
        return {}
    frames: dict[str, Any] = {"height": round(120 * size[1] / size[0])}
    for index, (record, places) in enumerate(zip(rows, shown, strict=True)):
        pairs = [images[int(record[place])] for place in places]
        frames[str(index)] = [{"before": a, "after": b, "width": size[0], "height": size[1]} for a, b in pairs]
    return {"frames": frames}


def _encoded(frame: Array) -> tuple[str, tuple[int, int]]:
    from PIL import Image

    height = round(FRAME * frame.shape[0] / frame.shape[1])
    written = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame)).resize((FRAME, height)).save(written, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}", (FRAME, height)


def _as_the_networks_see_it(environment: gym.Env[Any, Any], policy: Policy) -> gym.Env[Any, Any]:
    """With observations normalized, if the agent learned from such: the page shows what its networks read."""
    if policy.normalizer is None:
        return environment
    space = Box(-CLIP, CLIP, environment.observation_space.shape)

    def seen(observation: Array) -> Array:
        flat = np.asarray(observation, np.float32).reshape(1, -1)
        return policy.seen(flat).reshape(space.shape).astype(np.float32)

    return TransformObservation(environment, seen, space)


def _load_networks(agent: Agent, file: Path) -> None:
    try:
        tensors = load_file(str(file))
        for name, network, twins in (
            ("actor", agent.actor.network, (None,)),
            ("actor_target", agent.actor_target.network, (None,)),
            ("critic", agent.critics.network, (0, 1)),
            ("critic_target", agent.critics_target.network, (0, 1)),
        ):
            for twin in twins:
                label = name if twin is None else f"{name}_{twin + 1}"
                for depth, (weight, bias) in enumerate(network.layers()):
                    place = (0,) if twin is None else (twin, 0)
                    weight.detach()[place].copy_(tensors[f"{label}.{depth}.weight"].T)
                    bias.detach()[place].copy_(tensors[f"{label}.{depth}.bias"])
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read ({error}).") from None
    except (KeyError, RuntimeError) as error:
        raise AgentFileError(f"{file} does not hold the six networks of this run ({error}).") from None
