"""A run that is ended again and again, in processes forked from one that has everything loaded.

By SIGKILL to the trainer, or by SIGTERM to its whole process group, as `timeout`, systemd, Slurm and `docker stop` do.
"""

import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

LATE = ("td3.report.page", "td3.report.doctor", "tensorboard.summary.writer.event_file_writer", "torch._dynamo")
"""What a run imports on its way, for seconds."""
STOPPED = 130
"""Exit code of a run that was stopped and has saved itself."""
CONTEXT = multiprocessing.get_context("forkserver")


class Plan(NamedTuple):
    """When to die: in the nth save at this operation, or after so many seconds; or when to have the group stopped."""

    save: int = 0
    operation: int = 0
    seconds: float = 0.0
    env_steps: int = 0
    """SIGTERM to the process group, `delay` seconds after this env step: in the middle of a round."""
    delay: float = 0.0


def train_until_killed(fields: dict[str, Any], plan: Plan | None) -> None:
    """Begin or go on with a run, and die as planned."""
    import torch

    from td3.checkpoints import Checkpoints
    from td3.config import resolve
    from td3.training import Silence, resume_run, train_run

    torch.set_num_threads(1)
    observer = Silence()
    if plan is not None and plan.env_steps:
        os.setsid()  # a group of its own, which the environments' processes will be in
        observer = _stop_group(plan)
    elif plan is not None and plan.seconds:
        threading.Thread(target=_die_later, args=(plan.seconds,), daemon=True).start()
    elif plan is not None:
        _die_in_save(Checkpoints, plan)
    try:
        if (Path(fields["out"]) / "config.json").exists():
            resume_run(Path(fields["out"]), observer=observer)
        else:
            train_run(resolve(**fields), observer)
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None


def _stop_group(plan: Plan) -> Any:
    """An observer that has the group stopped as planned, from another thread."""
    from td3.training import Silence

    class StopGroup(Silence):
        planned = False

        def progressed(self, env_steps: int) -> None:
            if env_steps >= plan.env_steps and not self.planned:
                self.planned = True
                threading.Thread(target=self.stop, daemon=True).start()

        def stop(self) -> None:
            time.sleep(plan.delay)
            os.killpg(0, signal.SIGTERM)

    return StopGroup()


def _die_later(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def _die_in_save(checkpoints: Any, plan: Plan) -> None:
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


def killed_often(fields: dict[str, Any], generator: random.Random) -> dict[str, int]:
    """Kill a run again and again, every other time inside a save, until it ends; counts the kills.

    A kill may come when the run has written its last word and only its process has not yet ended: it is done then,
    and there is nothing to resume.
    """
    from td3.run import read_facts

    kills = {"in a save": 0, "at any moment": 0}
    while True:
        kind = min(kills, key=lambda name: kills[name])
        if kind == "in a save":
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


def stopped_often(fields: dict[str, Any], generator: random.Random, at_most: int = 3) -> int:
    """Stop the process group of a run a few times, each a little later, then let it end; counts the stops."""
    stops = 0
    for env_steps in sorted(generator.sample(range(1, fields["steps"]), at_most)):
        code = _run(fields, Plan(env_steps=env_steps, delay=generator.uniform(0.0, 0.004)))
        if code == 0:  # the signal came too late
            return stops
        assert code == STOPPED, code
        stops += 1
    code = _run(fields, None)
    assert code == 0, code
    return stops


def _run(fields: dict[str, Any], plan: Plan | None) -> int:
    process = CONTEXT.Process(target=train_until_killed, args=(fields, plan))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def preload() -> None:
    """Have the server load everything once; its children then start at once."""
    CONTEXT.set_forkserver_preload(["td3.training", "td3.environments.rail", *LATE])
