"""Compare the tasks with Gymnasium's own, state by state: `python -m td3_lab.worlds.parity [TASK ...] [--states N]`.

Gymnasium simulates in float64 on the host, under random, rhythmic and trained policies, terminal states included.

- functions: observation, reward terms and termination of Gymnasium's own states, in float64: equal up to rounding;
- step: one env step of Warp (float32) from the same state, warm start and action: errors relative to each
  quantity's standard deviation over the states, as quantiles, since contacts make a few of them large.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from td3_lab.worlds.policy import Policy
from td3_lab.worlds.task import State
from td3_lab.worlds.tasks import TASKS
from td3_lab.worlds.worlds import Worlds

Array = NDArray[Any]
NAMES = [field.name for field in fields(State)]
FUNCTION_TOLERANCE = 1e-6
"""Largest error of observation and reward terms, relative to max(1, |value|), for equal states in float64.

Gymnasium squares float32 actions, so the cost of actions is rounded to about 1e-7."""


class Rhythm:
    """Sine waves on every actuator, with a random frequency and random phases."""

    def __init__(self, half: Array, rng: np.random.Generator) -> None:
        self.half, self.frequency = half, rng.uniform(0.05, 0.6)
        self.phase, self.clock = rng.uniform(0, 2 * np.pi, half.shape), 0

    def __call__(self, observation: Array) -> Array:
        """Return the next action."""
        self.clock += 1
        return self.half * np.sin(self.frequency * self.clock + self.phase)


@dataclass
class Noisy:
    """A trained policy, or rest, with normal or uniform noise."""

    half: Array
    rng: np.random.Generator
    noise: float
    trained: Policy | None = None

    def __call__(self, observation: Array) -> Array:
        """Return an action in the range of the actuators."""
        noise = self.noise * self.rng.standard_normal(self.half.shape)
        base = 0.0 if self.trained is None else self.trained(observation)
        return self.half * np.clip(base + noise, -1, 1)


def policies(
    half: Array, rng: np.random.Generator, trained: Policy | None
) -> Iterator[Callable[[NDArray[Any]], NDArray[Any]]]:
    """Give policies without end: random, rhythmic, nearly resting, and trained ones with noise."""
    while True:
        yield Noisy(half, rng, rng.uniform(0.1, 1))
        yield Rhythm(half, rng)
        yield Noisy(half, rng, 0.05)
        if trained is not None:
            for noise in (0.0, 0.1, 0.3):
                yield Noisy(half, rng, noise, trained)


def record(name: str, states: int, trained: Policy | None = None, seed: int = 0) -> dict[str, Array]:
    """Return steps of Gymnasium: the state before, the action, and everything afterwards."""
    env = gymnasium.make(name)
    model, data = env.unwrapped.model, env.unwrapped.data  # type: ignore[attr-defined]
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    rng, task = np.random.default_rng(seed), TASKS[name]()
    task.masses = torch.tensor(model.body_mass)
    rows: list[dict[str, Any]] = []
    for episode, policy in enumerate(policies((space.high - space.low) / 2, rng, trained)):
        observation, _ = env.reset(seed=seed + episode)
        for step in range(300):
            action = np.clip(policy(observation), space.low, space.high).astype(np.float32)
            before = {f"before_{key}": getattr(data, key).copy() for key in ("qpos", "qvel", "qacc_warmstart")}
            position = float(task.position(_state([_snapshot(data)]))[0])
            observation, reward, terminated, _, info = env.step(action)
            # Every end of an episode, and states from the whole of it, more of the policies that survive longer.
            if terminated or step % 7 == episode % 7:
                terms = {f"term_{k.removeprefix('reward_')}": v for k, v in info.items() if _is_term(k)}
                after = {"observation": observation, "reward": reward, "terminated": terminated}
                moments = {"before_position": position, "contacts": data.ncon, "action": action}
                rows.append({**before, **moments, **_snapshot(data), **after, **terms})
            if terminated or len(rows) >= states:
                break
        if len(rows) >= states:
            break
    return {key: np.stack([np.asarray(row[key], dtype=np.float64) for row in rows]) for key in rows[0]}


def _is_term(name: str) -> bool:
    return name.startswith("reward_") or name.endswith("_penalty")


def _snapshot(data: Any) -> dict[str, Array]:
    return {name: getattr(data, name).copy() for name in NAMES}


def _state(rows: list[dict[str, Array]]) -> State:
    return State(**{name: torch.tensor(np.stack([row[name] for row in rows])) for name in NAMES})


def _error(got: torch.Tensor, want: Array) -> float:
    """Return the largest error relative to max(1, |value|)."""
    wanted = torch.tensor(want)
    return float(((got - wanted).abs() / wanted.abs().clamp(min=1)).max())


def compare_functions(name: str, steps: dict[str, Array]) -> dict[str, float]:
    """Return the errors of observation, reward terms and termination for Gymnasium's own states."""
    import mujoco

    task = TASKS[name]()
    task.masses = torch.tensor(mujoco.MjModel.from_xml_path(task.model_path()).body_mass)
    seconds = float(gymnasium.make(name).unwrapped.dt)  # type: ignore[attr-defined]
    state = State(**{key: torch.tensor(steps[key]) for key in NAMES})
    velocity = (task.position(state) - torch.tensor(steps["before_position"])) / seconds
    terminated = task.terminated(state)
    terms = task.reward(state, torch.tensor(steps["action"]), velocity, terminated)
    errors = {f"reward_{key}": _error(values, steps[f"term_{key}"]) for key, values in terms.items()}
    return {
        "observation": _error(task.observation(state), steps["observation"]),
        "reward": _error(torch.stack(list(terms.values())).sum(0), steps["reward"]),
        **errors,
        "terminations_that_differ": float((terminated.numpy() != steps["terminated"].astype(bool)).sum()),
    }


def compare_step(name: str, steps: dict[str, Array], device: str = "cpu") -> dict[str, float]:
    """Return quantiles of the errors of one env step of Warp, relative to standard deviations over the states."""
    count = len(steps["reward"])
    worlds = Worlds(TASKS[name](), count, device, spread_clocks=False)
    names = ("before_qpos", "before_qvel", "before_qacc_warmstart", "before_position", "action")
    qpos, qvel, warmstart, position, action = (_float32(steps[key], device) for key in names)
    step = worlds.step_from(qpos, qvel, warmstart, position, action)
    got = step.observation.cpu().double().numpy()
    spread = np.maximum(steps["observation"].std(0), 1e-3)
    error = (np.abs(got - steps["observation"]) / spread).max(1)
    reward_error = np.abs(step.reward.cpu().double().numpy() - steps["reward"]) / max(steps["reward"].std(), 1e-3)
    quantiles = (0.5, 0.9, 0.99)
    return {
        **{f"observation_{q}": float(np.quantile(error, q)) for q in quantiles},
        **{f"reward_{q}": float(np.quantile(reward_error, q)) for q in quantiles},
        "terminations_that_differ": float((step.terminated.cpu().numpy() != steps["terminated"].astype(bool)).sum()),
        "worlds_over_the_contact_limits": float(worlds.overflowed),
        "worlds_blown_up": float(worlds.blown_up),
    }


def _float32(values: Array, device: str) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)


def compare(name: str, states: int, trained: Policy | None = None, device: str = "cpu") -> dict[str, Any]:
    """Return both comparisons and what the states were."""
    steps = record(name, states, trained)
    return {
        "task": name,
        "states": len(steps["reward"]),
        "terminal": int(steps["terminated"].sum()),
        "with_contacts": int((steps["contacts"] > 0).sum()),
        "trained_policy": trained is not None,
        "functions": compare_functions(name, steps),
        "step": compare_step(name, steps, device),
    }


def main() -> None:
    """Compare the named tasks and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--states", type=int, default=1000)
    parser.add_argument("--policy", type=Path, help="a policy that learn.py wrote, for one task")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    trained = Policy.load(options.policy) if options.policy else None
    for name in options.tasks:
        print(json.dumps(compare(name, options.states, trained, options.device)), flush=True)


if __name__ == "__main__":
    main()
