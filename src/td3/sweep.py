"""Tasks x settings x seeds: each a run in its own folder, trained in a process of its own, summarized in one table.

OUT/
  results.csv   report.html               a row, and a curve, for each task and setting, over its seeds
  runs.csv                                a row for each run: where it is, how it ended
  HalfCheetah-v5/tau=0.005/seed_3/        a run: resume, evaluate, watch, report, doctor work on it

The same call again skips what is finished and resumes the rest. A run whose process or machine dies is resumed. On
several machines the processes are Ray's.
"""

import contextlib
import csv
import io
import math
import multiprocessing
import os
import secrets
import signal
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.collect import connected, look_also_in, module_folders, require_cluster
from td3.config import TrainConfig, preset_config
from td3.environments.child_processes import PARENTS_SIGNALS, belong_to, parents_signals_blocked
from td3.errors import ConfigError, RunError, UserError
from td3.files import outside, read_regular_file, write_atomically
from td3.report.records import RunRecords, combine, read_run
from td3.report.render import write_report
from td3.resources import available_cores
from td3.run.directory import LARGEST_JSON, Run, read_facts
from td3.statistics import interquartile_mean, iqm_interval
from td3.training import resume_run, train_run

LIVES = 5
"""Attempts of a run before it counts as failed: machines fail, and some environments kill their process."""
SAVING_SECONDS = 60.0
"""Seconds in which runs may save a checkpoint after Ctrl-C."""
RESULTS = ("task", "setting", "seeds", "iqm", "low", "high", "mean", "std", "env_steps", "unfinished")


class SweepRun(NamedTuple):
    """One run of a sweep."""

    task: str
    setting: str
    """Its setting within the task, such as tau=0.005; empty if there is only one."""
    config: TrainConfig

    @property
    def name(self) -> str:
        """Task, setting and seed as text."""
        return " ".join(part for part in (self.task, self.setting, f"seed {self.config.seed}") if part)


class Outcome(NamedTuple):
    """How a run of a sweep ended."""

    run: SweepRun
    status: str
    reason: str
    mean_return: float
    """Mean return over the last tenth of its env steps, as in reports; NaN if it was not evaluated."""


class Sweep(NamedTuple):
    """The result of a sweep."""

    path: Path
    outcomes: list[Outcome]
    table: list[dict[str, Any]]
    interrupted: bool


def folder_of(out: Path, task: str, setting: str, seed: int) -> Path:
    """The folder of a run of a sweep."""
    parts = (part.replace("/", "_").replace(":", "_").replace(" ", "x") for part in (task, setting) if part)
    return out.joinpath(*parts, f"seed_{seed}")


def run_sweep(
    runs: Sequence[SweepRun],
    out: Path,
    address: str | None = None,
    cpus: int = 1,
    gpus: float = 0.0,
    say: Callable[[str], None] = print,
) -> Sweep:
    """Train all runs, as many at once as there are cores for; every `config.out` is a separate folder below `out`."""
    if address is not None:
        require_cluster(address)
    for run in runs:
        assert run.config.out is not None
        if outside(run.config.out, out):
            raise RunError(f"{run.config.out} is behind a link that leads out of its sweep: remove the link.")
        _require_same(run)
    token = _mark(out)
    waiting = {
        number: _to_train(run.config, cpus, gpus) for number, run in enumerate(runs) if not _finished(run.config)
    }
    if len(waiting) < len(runs):
        say(f"{len(runs) - len(waiting)} of {len(runs)} runs are finished already.")
    reasons: dict[int, str] = {}
    interrupted = False
    if waiting:
        if address is None:
            ends = _train_here(waiting, cpus, gpus, say)
        else:
            ends = _train_on_cluster(waiting, cpus, gpus, say, address, out, token)
        try:
            with contextlib.closing(ends):
                for number, reason in ends:
                    reasons[number], outcome = reason, _outcome(runs[number], reason)
                    said = f"return {outcome.mean_return:,.1f}" if not outcome.reason else outcome.reason
                    say(f"[{len(runs) - len(waiting) + len(reasons)} of {len(runs)}] {outcome.run.name}: {said}")
        except KeyboardInterrupt:
            interrupted = True
    outcomes = [_outcome(run, reasons.get(number, "")) for number, run in enumerate(runs)]
    return Sweep(out, outcomes, _gather(outcomes, out), interrupted)


def _to_train(config: TrainConfig, cpus: int, gpus: float) -> TrainConfig:
    """The configuration for a process that may work in another folder."""
    assert config.out is not None
    device = "cpu" if config.device == "auto" and not gpus else config.device
    return replace(config, threads=config.threads or cpus, out=config.out.absolute(), device=device)


def train_or_resume(config: TrainConfig) -> str:
    """Train or resume a run; returns why it could not be finished, or an empty text."""
    assert config.out is not None
    try:
        if not (config.out / "config.json").exists():
            train_run(config)
        elif not _finished(config):
            resume_run(config.out, config.steps, env=config.env)
    except UserError as error:
        return str(error)
    return ""


def _train_here(
    waiting: Mapping[int, TrainConfig], cpus: int, gpus: float, say: Callable[[str], None]
) -> Generator[tuple[int, str], None, None]:
    """Train runs in processes; yields each that ends, and why it is unfinished. Closing it saves those under way."""
    context, places = multiprocessing.get_context("spawn"), _places(cpus, gpus)
    say(f"{len(waiting)} runs, {len(places)} at a time.")
    queue, attempts, running = deque(waiting), Counter[int](), dict[int, tuple[Any, Any, str]]()
    try:
        while queue or running:
            if queue and places:
                number, place = queue.popleft(), places.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(waiting[number], place, sender, os.getpid()))
                with parents_signals_blocked():
                    process.start()
                    running[number] = process, receiver, place
                sender.close()
                attempts[number] += 1
                continue
            time.sleep(0.1)
            for number in [number for number, (process, *_) in running.items() if process.exitcode is not None]:
                _, receiver, place = running.pop(number)
                places.append(place)
                reason = f"its process ended {LIVES} times." if attempts[number] == LIVES else None
                with contextlib.suppress(EOFError):
                    if receiver.poll():
                        reason = receiver.recv()
                if reason is None:
                    queue.appendleft(number)
                else:
                    yield number, reason
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            if running:
                say("Stopping: runs under way save themselves.")
            for process, *_ in running.values():
                process.terminate()
            deadline = time.monotonic() + SAVING_SECONDS
            for process, *_ in running.values():
                process.join(max(0.0, deadline - time.monotonic()))
        for process, *_ in running.values():
            process.kill()


def _places(cpus: int, gpus: float) -> list[str]:
    """For each run that can train at the same time, the GPUs that it sees (CUDA_VISIBLE_DEVICES); empty without."""
    if (cores := available_cores()) < cpus:
        raise ConfigError(f"a run is to have {cpus} CPU cores, and this machine has {cores}: give fewer --cpus.")
    if not gpus:
        return [""] * (cores // cpus)
    import torch

    count, each = torch.cuda.device_count(), math.ceil(gpus)
    if count < each:
        raise ConfigError(f"a run is to have {gpus:g} GPUs, and this machine has {count}: give fewer --gpus.")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = visible if len(visible) >= count and visible[0] else [str(number) for number in range(count)]
    groups = [",".join(names[first : first + each]) for first in range(0, count - each + 1, each)]
    return (groups * max(1, int(1 / gpus)))[: cores // cpus]


def _work(config: TrainConfig, place: str, sender: Any, parent: int) -> None:
    """A process for one run: it ends with the sweep, and saves its run at SIGTERM; Ctrl-C is for the sweep alone."""
    if hasattr(signal, "sigpending") and signal.sigpending() & {*PARENTS_SIGNALS}:
        return  # the sweep was stopped while this process started
    belong_to(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    if place:
        os.environ["CUDA_VISIBLE_DEVICES"] = place
    os.dup2(2, 1)  # what environments print is no part of the sweep's output
    try:
        sender.send(train_or_resume(config))
    except KeyboardInterrupt:
        pass  # it has saved itself
    except Exception as error:
        traceback.print_exc()
        sender.send(f"{type(error).__name__}: {error}")


def _train_on_cluster(
    waiting: Mapping[int, TrainConfig],
    cpus: int,
    gpus: float,
    say: Callable[[str], None],
    address: str,
    out: Path,
    token: str,
) -> Generator[tuple[int, str], None, None]:
    """The same with tasks of Ray."""
    with connected(address) as ray:
        from ray.exceptions import RayError

        if (cores := int(ray.cluster_resources().get("CPU", 0))) < cpus:
            raise ConfigError(f"a run is to have {cpus} CPU cores, and the cluster has {cores}: give fewer --cpus.")
        say(f"{len(waiting)} runs, {cpus} CPU core{'s' * (cpus > 1)} each, {cores} in the cluster.")
        task = ray.remote(train_on_machine).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=LIVES - 1, scheduling_strategy="SPREAD"
        )
        pending = {
            task.remote(config, out.absolute(), token, module_folders(config.env)): number
            for number, config in waiting.items()
        }
        try:
            while pending:
                for reference in ray.wait(list(pending), num_returns=1, timeout=0.5)[0]:
                    number = pending.pop(reference)
                    try:
                        reason = ray.get(reference)
                    except RayError as error:
                        name = type(error).__name__
                        reason = f"its process ended {LIVES} times, or could not be begun ({name})."
                    yield number, reason
        finally:
            if pending:
                say("Stopping: runs under way save themselves.")
                for reference in pending:
                    ray.cancel(reference)
                with contextlib.suppress(KeyboardInterrupt):
                    ray.wait(list(pending), num_returns=len(pending), timeout=SAVING_SECONDS)


def train_on_machine(config: TrainConfig, out: Path, token: str, folders: Sequence[str]) -> str:
    """`train_or_resume` on a machine of a cluster, which must see the sweep's folder."""
    look_also_in(folders)
    if _read(out / ".sweep") != token:
        return (
            f"the machine that was to train it does not see {out}: put --out into a folder that all machines share "
            "under the same name."
        )
    return train_or_resume(config)


def _require_same(run: SweepRun) -> None:
    """Refuse a folder that holds a different run; only the number of steps may have grown."""
    wanted, out = run.config, run.config.out
    assert out is not None
    if not (out / "config.json").exists():
        return
    found, usual = Run(out).config, preset_config(wanted.preset, wanted.env, wanted.steps)
    # A preset's numbers that grow with the run: an extended run keeps what it began with.
    growing = ("learning_starts", "buffer_size") if wanted.preset == "paper" else ("learning_starts",)
    own = [name for name in growing if getattr(wanted.td3, name) == getattr(usual, name)]
    began = {name: min(getattr(found.td3, name), getattr(wanted.td3, name)) for name in own}
    before, now = _settings(found), _settings(replace(wanted, td3=replace(wanted.td3, **began)))
    # So are schedules that follow from its length, where neither was chosen.
    schedules = ("eval_every", "log_every")
    kept = [name for name in schedules if all(_is_default(config, name) for config in (found, wanted))]
    if differing := [name for name in now if before[name] != now[name] and name not in kept]:
        raise ConfigError(
            f"{out} holds a run with another {', '.join(differing)} than this sweep has: "
            "give another --out, or the settings that it was begun with."
        )
    if found.steps > wanted.steps:
        raise ConfigError(f"{out} is a run of {found.steps:,} env steps: --steps cannot be fewer.")


def _settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that a run keeps, by the names of their options."""
    settings = {f"td3.{name}": value for name, value in asdict(config.td3).items()}
    return settings | {n: v for n, v in vars(config).items() if n not in ("td3", "out", "steps", "device", "threads")}


def _is_default(config: TrainConfig, name: str) -> bool:
    return bool(getattr(config, name) == getattr(TrainConfig(config.env, config.steps, envs=config.envs), name))


def _mark(out: Path) -> str:
    """A file that shows that a machine accesses the same folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        token = _read(out / ".sweep") or secrets.token_hex(8)
        write_atomically(out / ".sweep", token.encode())
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): give another --out.") from None
    return token


def _read(path: Path) -> str:
    try:
        return read_regular_file(path, LARGEST_JSON).decode()
    except (OSError, ValueError):
        return ""


def _finished(config: TrainConfig) -> bool:
    assert config.out is not None
    facts = read_facts(config.out / "status.json")
    done = facts.get("env_steps", 0)
    return facts.get("status") == "finished" and isinstance(done, int) and done >= config.steps


def _outcome(run: SweepRun, reason: str) -> Outcome:
    assert run.config.out is not None
    status = str(read_facts(run.config.out / "status.json").get("status", "not begun"))
    mean_return, missing = float("nan"), ""
    try:
        records = read_run(run.config.out)
        mean_return = float(records.last_tenth[0])
        if not records.evaluated:
            missing = (
                f"{run.config.out} has no evaluations, so it has no result: delete it, and the same command trains it "
                "again with evaluations."
            )
    except UserError as error:
        missing = str(error)
    reason = reason or (missing if _finished(run.config) else "")
    return Outcome(run, status, reason, mean_return)


def _gather(outcomes: Sequence[Outcome], out: Path) -> list[dict[str, Any]]:
    """The table over seeds, as a file and as rows; and the report, if any run is finished."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.run.task, outcome.run.setting), []).append(outcome)
    table, together = [], []
    for (task, setting), members in groups.items():
        # A finished run that was not evaluated, or whose files cannot be read, has no result: its reason is reported,
        # and the others count.
        done = [member for member in members if _finished(member.run.config) and np.isfinite(member.mean_return)]
        row: dict[str, Any] = {"task": task, "setting": setting, "seeds": len(done)}
        returns = np.array([member.mean_return for member in done])
        if done:
            low, high = iqm_interval(returns)
            spread = float(returns.std(ddof=1)) if len(returns) > 1 else 0.0
            figures = (float(interquartile_mean(returns)), float(low), float(high), float(returns.mean()), spread)
            row |= dict(zip(("iqm", "low", "high", "mean", "std"), figures, strict=True))
            row |= {"low": None, "high": None} if len(returns) == 1 else {}
            row["env_steps"] = done[0].run.config.steps
            together.append(_together(members, done))
        table.append({**row, "unfinished": len(members) - len(done)})
    _write_csv(out / "results.csv", RESULTS, [[row.get(name, "") for name in RESULTS] for row in table])
    runs = [
        (o.run.task, o.run.setting, o.run.config.seed, o.status, o.mean_return, o.run.config.out, o.reason)
        for o in outcomes
    ]
    _write_csv(out / "runs.csv", ("task", "setting", "seed", "status", "mean_return", "run", "reason"), runs)
    if together:
        write_report(together, out / "report.html")
    return table


def _together(members: Sequence[Outcome], done: Sequence[Outcome]) -> RunRecords:
    """The finished runs of one task and setting, combined; each has its own times."""
    assert members[0].run.config.out is not None
    records = [read_run(member.run.config.out) for member in done if member.run.config.out is not None]
    return combine(members[0].run.config.out.parent, records)


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomically(path, text.getvalue().encode())
