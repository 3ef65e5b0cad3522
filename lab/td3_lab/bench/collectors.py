"""`td3 bench collectors`: how fast Ray collectors deliver, and what a question and a broadcast of weights cost."""

import contextlib
import statistics
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from td3.algorithm.agent import Agent, Task
from td3.collect import RayCollector, require_cluster
from td3.config import resolve
from td3.engine import acting_policy
from td3.environments import TaskSpaces, check_environment, make_environment
from td3.policy import Policy
from td3.resources import available_threads
from td3.settings import TD3Config
from td3_lab.bench import machine
from td3_lab.bench.options import CollectorsBench

STEP_SECONDS = 0.01
QUESTIONS = 200


class Waiting(gym.Env[Any, Any]):
    """An environment whose step is 10 ms of waiting, as that of a real device is; it keeps no core busy."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (17,), np.float32)
        self.action_space = Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of 1,000 steps."""
        super().reset(seed=seed)
        self._left = 1_000
        return np.zeros(17, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait."""
        time.sleep(STEP_SECONDS)
        self._left -= 1
        return np.zeros(17, np.float32), 0.0, False, self._left == 0, {}


if "Waiting-v0" not in gym.registry:
    gym.register("Waiting-v0", entry_point="td3_lab.bench.collectors:Waiting")


def measure(options: CollectorsBench) -> tuple[dict[str, Any], str]:
    """Measure, and return results as data and text."""
    require_cluster(options.ray_address)
    counts = []
    for count in options.collectors:
        machine.announce(f"{count} collectors for {options.seconds:g} s.")
        counts.append(_rate(options, count))
    for row in counts:
        row["times_one"] = row["env_steps_per_s"] / counts[0]["env_steps_per_s"] * counts[0]["collectors"]
    figures = {"env": options.env, "collectors": counts, **_costs(options), "threads": available_threads()}
    lines = ["| collectors | env steps/s | times one |", "|---|---|---|"]
    lines += [f"| {r['collectors']} | {r['env_steps_per_s']:,.0f} | {r['times_one']:.2f} |" for r in counts]
    lines += [
        "",
        f"A question and its answer, one env step of Rail-v0: {figures['question_ms']:.2f} ms (median).",
        f"A broadcast of the actor, {figures['weights_bytes']:,} bytes: {figures['broadcast_ms']:.2f} ms (median).",
        f"A transition: {figures['transition_bytes']} bytes.",
    ]
    return figures, "\n".join(lines)


def _rate(options: CollectorsBench, count: int) -> dict[str, Any]:
    """Env steps per second that arrive when nobody learns; every chunk is asked for with new weights."""
    config = resolve(
        options.env,
        workers="ray",
        ray_address=options.ray_address,
        envs=count,
        learning_starts=0,
        max_staleness=10**9,
    )
    with contextlib.closing(make_environment(**config.env_arguments)) as probe:
        spaces = check_environment(probe, config.env)
    policy = _actor(spaces)
    with contextlib.closing(RayCollector(config, spaces)) as collector:
        version, steps, began = 0, 0, 0.0
        while not began or time.perf_counter() - began < options.seconds:
            collector.send(version, lambda: policy)
            found = collector.take(version)
            version += 1
            if found is not None:
                steps += found[0].shape[1]
            if not began and collector.figures()["collectors"]["chunks"] >= 2 * count:  # all have started
                began, steps = time.perf_counter(), 0
        seconds = time.perf_counter() - began
    return {"collectors": count, "env_steps_per_s": steps / seconds}


def _costs(options: CollectorsBench) -> dict[str, Any]:
    """What one question, one broadcast and one transition of 17 observations and 6 actions are."""
    import ray

    config = resolve("Rail-v0", workers="ray", ray_address=options.ray_address, learning_starts=0)
    with contextlib.closing(make_environment(**config.env_arguments)) as probe:
        spaces = check_environment(probe, config.env)
    cheetah = _actor(TaskSpaces(17, (-1.0,) * 6, (1.0,) * 6, (17,), (6,)))
    with contextlib.closing(RayCollector(config, spaces)) as collector:
        while not collector.figures()["collectors"]["chunks"]:
            collector.send(0, lambda: _actor(spaces))
            collector.take(0)
        weights, actor = ray.put(_actor(spaces)), collector.actors[0]
        question = [_seconds(lambda: ray.get(actor.collect.remote(weights, 1))) for _ in range(QUESTIONS)]
        broadcast = [_seconds(lambda: ray.put(cheetah)) for _ in range(QUESTIONS)]
    return {
        "question_ms": 1e3 * statistics.median(question),
        "broadcast_ms": 1e3 * statistics.median(broadcast),
        "weights_bytes": sum(array.nbytes for layer in cheetah.layers for array in layer),
        "transition_bytes": 4 * (2 * 17 + 6 + 2),
    }


def _actor(spaces: TaskSpaces) -> Policy:
    """A newly initialized actor of preset author."""
    task = Task(spaces.state_size, spaces.action_low, spaces.action_high)
    return acting_policy(Agent.create(task, TD3Config(), [0]))


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
