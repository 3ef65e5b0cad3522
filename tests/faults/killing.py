"""A run that is killed with SIGKILL again and again, in processes forked from one that has everything loaded."""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

CONTEXT = multiprocessing.get_context("forkserver")


class Plan(NamedTuple):
    """When to die: in the nth save at this operation, or after so many seconds."""

    save: int = 0
    operation: int = 0
    seconds: float = 0.0


def train_until_killed(fields: dict[str, Any], plan: Plan | None) -> None:
    """Begin or go on with a run, and die as planned; `most_shards` is when its saves merge shards."""
    import torch

    from td3.config import resolve
    from td3.run import checkpoints
    from td3.run.checkpoints import Checkpoints
    from td3.training import resume_run, train_run

    torch.set_num_threads(1)
    fields = dict(fields)
    if most := fields.pop("most_shards", 0):
        checkpoints.MOST_SHARDS = most
    if plan is not None and plan.seconds:
        threading.Thread(target=_die_later, args=(plan.seconds,), daemon=True).start()
    elif plan is not None:
        die_in_save(Checkpoints, plan)
    if (Path(fields["out"]) / "config.json").exists():
        resume_run(Path(fields["out"]), trust=True)
    else:
        train_run(resolve(**fields))


def _die_later(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_save(checkpoints: Any, plan: Plan) -> None:
    """Have this process die in the nth save, at the given operation."""
    from faults.operations import watched

    real, saves = checkpoints.save, []

    def save(*arguments: Any) -> None:
        saves.append(1)
        if len(saves) == plan.save:
            with watched(plan.operation, "kill"):
                real(*arguments)
        else:
            real(*arguments)

    checkpoints.save = save


def killed_often(fields: dict[str, Any], generator: random.Random, most: int) -> dict[str, int]:
    """Kill a run again and again, every other time inside a save, until it ends or was killed so often; counts kills.

    A kill may come when the run has written its last word and only its process has not yet ended: it is done then,
    and there is nothing to resume.
    """
    from td3.run.directory import read_facts

    kills = {"in a save": 0, "at any moment": 0}
    while True:
        kind = min(kills, key=lambda name: kills[name])
        if sum(kills.values()) >= most:
            plan = None
        elif kind == "in a save":
            plan = Plan(save=generator.choice((1, 2, 2)), operation=generator.randrange(36))
        else:
            plan = Plan(seconds=generator.uniform(0.05, 0.6))
        code = _run(fields, plan)
        if code == 0:
            return kills
        assert code == -signal.SIGKILL, code
        kills[kind] += 1
        if read_facts(Path(fields["out"]) / "status.json").get("status") == "finished":
            return kills


def _run(fields: dict[str, Any], plan: Plan | None) -> int:
    return exit_code(train_until_killed, fields, plan)


def exit_code(target: Any, *arguments: Any) -> int:
    """How a process ended that called this."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def train_until_terminated(fields: dict[str, Any], seconds: float, steps: int) -> None:
    """Begin or go on with a run whose whole process group gets SIGTERM, as from `timeout` or a scheduler.

    So many seconds after it has begun to start, or in the round that begins after so many env steps.
    """
    from td3.collect.collector import Collector
    from td3.training import Trainer

    os.setsid()
    if seconds:
        threading.Thread(target=_terminate_later, args=(seconds,), daemon=True).start()
    real_round, real_begin, due = Trainer._round, Collector.begin, []

    def watched_round(self: Trainer) -> None:
        if steps and self.env_steps >= steps:
            due.append(1)
        real_round(self)

    def watched_begin(self: Collector, actions: Any) -> None:
        if due:
            os.killpg(0, signal.SIGTERM)
            time.sleep(0.1)
        real_begin(self, actions)

    Trainer._round, Collector.begin = watched_round, watched_begin  # type: ignore[method-assign]  # watched
    try:
        train_until_killed(fields, None)
    except KeyboardInterrupt:
        sys.exit(130)


def _terminate_later(seconds: float) -> None:
    time.sleep(seconds)
    os.killpg(0, signal.SIGTERM)


def terminated_often(fields: dict[str, Any], moments: Sequence[tuple[float, int]]) -> list[int]:
    """A run that is told to stop at each of these moments and resumed each time; returns the exit codes."""
    return [
        *(exit_code(train_until_terminated, fields, *moment) for moment in moments),
        exit_code(train_until_killed, fields, None),
    ]


def preload() -> None:
    """Have the server load everything once; its children then start at once."""
    CONTEXT.set_forkserver_preload(["td3.training", "td3.environments.rail"])
