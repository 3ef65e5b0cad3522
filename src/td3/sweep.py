"""Tasks x settings x seeds: each a run in its own folder, trained as a Ray task, summarized in one table.

OUT/
  results.csv   report.html               a row, and a curve, for each task and setting, over its seeds
  runs.csv                                a row for each run: where it is, how it ended
  HalfCheetah-v5/tau=0.005/seed_3/        a run: resume, evaluate, watch, report, doctor work on it

The same call again skips what is finished and resumes the rest. A run whose process or machine dies is resumed, by
Ray, on whichever machine has room.
"""

import contextlib
import csv
import io
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.collect import connected, look_also_in, module_folders, require_cluster
from td3.config import TrainConfig, preset_config
from td3.errors import ConfigError, RunError, UserError
from td3.files import outside, read_regular_file, write_atomically
from td3.report.records import RunRecords, combine, read_run
from td3.report.render import write_report
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
    require_cluster(address)
    for run in runs:
        assert run.config.out is not None
        if outside(run.config.out, out):
            raise RunError(f"{run.config.out} is behind a link that leads out of its sweep: remove the link.")
        _require_same(run)
    token = _mark(out)
    waiting = {number: run for number, run in enumerate(runs) if not _finished(run.config)}
    if len(waiting) < len(runs):
        say(f"{len(runs) - len(waiting)} of {len(runs)} runs are finished already.")
    reasons: dict[int, str] = {}
    interrupted = False
    if waiting:
        with connected(address) as ray:
            interrupted = _train_all(ray, waiting, len(runs), out, token, cpus, gpus, reasons, say)
    outcomes = [_outcome(run, reasons.get(number, "")) for number, run in enumerate(runs)]
    return Sweep(out, outcomes, _gather(outcomes, out), interrupted)


def train_or_resume(config: TrainConfig, out: Path, token: str, folders: Sequence[str] = ()) -> str:
    """A Ray task: train or resume a run; returns why it could not be finished, or an empty text."""
    look_also_in(folders)
    if _read(out / ".sweep") != token:
        return (
            f"the machine that was to train it does not see {out}: put --out into a folder that all machines share "
            "under the same name."
        )
    assert config.out is not None
    try:
        if (config.out / "config.json").exists():
            if not _finished(config):
                resume_run(config.out, config.steps, env=config.env)
        else:
            train_run(config)
    except UserError as error:
        return str(error)
    return ""


def _train_all(
    ray: Any,
    waiting: dict[int, SweepRun],
    total: int,
    out: Path,
    token: str,
    cpus: int,
    gpus: float,
    reasons: dict[int, str],
    say: Callable[[str], None],
) -> bool:
    """Distribute the runs, report each that ends and record failures; returns whether Ctrl-C ended it."""
    from ray.exceptions import RayError

    cores = int(ray.cluster_resources().get("CPU", 0))
    if cores < cpus:
        raise ConfigError(f"a run is to have {cpus} CPU cores, and the cluster has {cores}: give fewer --cpus.")
    say(f"{len(waiting)} runs, {cpus} CPU core{'s' * (cpus > 1)} each, {cores} in the cluster.")
    task = ray.remote(train_or_resume).options(
        num_cpus=cpus, num_gpus=gpus, max_retries=LIVES - 1, scheduling_strategy="SPREAD"
    )
    pending = {}
    for number, run in waiting.items():
        assert run.config.out is not None
        # A task works in a folder of Ray's.
        config = replace(run.config, threads=run.config.threads or cpus, out=run.config.out.absolute())
        config = replace(config, device="cpu") if config.device == "auto" and not gpus else config
        pending[task.remote(config, out.absolute(), token, module_folders(config.env))] = number
    try:
        while pending:
            for reference in ray.wait(list(pending), num_returns=1, timeout=0.5)[0]:
                number = pending.pop(reference)
                try:
                    reasons[number] = ray.get(reference)
                except RayError as error:
                    reasons[number] = (
                        f"its process ended {LIVES} times, or could not be begun ({type(error).__name__})."
                    )
                outcome = _outcome(waiting[number], reasons[number])
                said = f"return {outcome.mean_return:,.1f}" if not outcome.reason else outcome.reason
                say(f"[{total - len(pending)} of {total}] {outcome.run.name}: {said}")
    except KeyboardInterrupt:
        say("Stopping: runs under way save themselves.")
        for reference in pending:
            ray.cancel(reference)
        deadline = time.monotonic() + SAVING_SECONDS
        with contextlib.suppress(KeyboardInterrupt):
            ray.wait(list(pending), num_returns=len(pending), timeout=max(0.0, deadline - time.monotonic()))
        return True
    return False


def _require_same(run: SweepRun) -> None:
    """Refuse a folder that holds a different run; only the number of steps may have grown."""
    assert run.config.out is not None
    if not (run.config.out / "config.json").exists():
        return
    found = Run(run.config.out).config.to_json()
    wanted = run.config.to_json()
    free = ["out", "steps", "device", "threads"]
    # Those of the shorter run, which it keeps, where neither was chosen.
    free += [name for name in ("eval_every", "log_every") if _is_default(found, name) and _is_default(wanted, name)]
    differing = [name for name in wanted if name not in free and found[name] != wanted[name]]
    if "td3" in differing:
        preset = asdict(preset_config(run.config.preset, run.config.env, run.config.steps))
        grown = {"learning_starts", *(["buffer_size"] if run.config.preset == "paper" else [])}

        def began_shorter(name: str) -> bool:
            """Whether this is a preset's number that grows with the run: an extended run keeps what it began with."""
            now = wanted["td3"][name]
            return name in grown and now == preset[name] and found["td3"][name] <= now

        inner = [name for name in wanted["td3"] if found["td3"].get(name) != wanted["td3"][name]]
        differing.remove("td3")
        differing += [f"td3.{name}" for name in inner if not began_shorter(name)]
    if differing:
        raise ConfigError(
            f"{run.config.out} holds a run with another {', '.join(differing)} than this sweep has: "
            "give another --out, or the settings that it was begun with."
        )
    if found["steps"] > run.config.steps:
        raise ConfigError(f"{run.config.out} is a run of {found['steps']:,} env steps: --steps cannot be fewer.")


def _is_default(config: dict[str, Any], name: str) -> bool:
    return bool(config[name] == getattr(TrainConfig(config["env"], config["steps"], envs=config["envs"]), name))


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
