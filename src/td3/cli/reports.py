"""`td3 report`, `td3 doctor` and `td3 reproduce`: what a run recorded."""

import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from td3.cli.options import Commands, RunPath
from td3.errors import ConfigError
from td3.reproduce.rows import OUT

if TYPE_CHECKING:
    from td3.config import TrainConfig
    from td3.run.directory import Run


@dataclass(frozen=True)
class ReportCommand:
    """Write an HTML report of learning curves, results and diagnostics: `td3 report runs/HalfCheetah-v5/latest`."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """One run directory, or several to compare; the first of a task is the reference."""
    out: Path | None = None
    """The report (.html); by default report.html in the run directory, or in the current folder for several runs."""
    margin: float = 0.1
    """Runs are equivalent within this share of the reference's return."""
    json: bool = False
    """Print the results as one JSON object instead of text."""


@dataclass(frozen=True)
class DoctorCommand:
    """Diagnose common training problems and suggest fixes: `td3 doctor runs/HalfCheetah-v5/latest`.

    Exit code 0: no problem found (remarks do not count). 1: problems found. 2: the run cannot be read.
    """

    run: RunPath
    """The run directory; it may still be training."""
    json: bool = False
    """Print the findings as one JSON object instead of text."""


@dataclass(frozen=True)
class ReproduceCommand:
    """List the stored results, or train a row and compare it with the stored one: `td3 reproduce hopper_v5`.

    What is compared is the mean of each seed's last ten evaluations, by Welch's 95 % interval of the difference; within
    10 % of the stored return they are equivalent. A row of ten seeds takes minutes on a large GPU and hours on a CPU.
    """

    rows: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ROW...")] = ()
    """Rows or whole tables to train; without any, the stored results are listed."""
    seeds: int | None = None
    """Seeds to train instead of the row's own number; a verdict needs at least five."""
    first_seed: int | None = None
    """The first of them, where others of a row are trained at another time or place; --store adds them to the row."""
    steps: int | None = None
    """Env steps of each seed instead of the row's own number; compared as far as it goes."""
    results: Path = Path("results")
    """The folder of stored results, in a checkout of td3."""
    store: str | None = None
    """Store the trained rows in the results folder, with these words for the hardware: --store "2 cores"."""
    interrupted: bool = False
    """With --store: store a run that has not finished as far as it is, without continuing it."""
    out: Path = OUT
    """Folder of the runs; existing ones are resumed."""
    json: bool = False
    """Print the comparisons as one JSON object instead of text."""


def report_command(command: ReportCommand) -> int:
    """Write the report of one run or several."""
    from td3.report.records import read_run
    from td3.report.render import write_report
    from td3.report.summary import describe_runs, figures

    if not command.runs:
        raise ConfigError("`td3 report` needs a run directory: td3 report runs/HalfCheetah-v5/latest")
    runs = [read_run(path) for path in command.runs]
    out = command.out or (runs[0].path / "report.html" if len(runs) == 1 else Path("report.html"))
    write_report(runs, out, command.margin)
    found = {"report": str(out), **figures(runs, command.margin)}
    print(json.dumps(found) if command.json else "\n".join([*describe_runs(found), f"The report is {out}"]))
    return 0


def doctor_command(command: DoctorCommand) -> int:
    """Examine a run."""
    from td3.report.doctor import RULES, all_clear, examine_run, remarks_on
    from td3.report.records import read_run

    records = read_run(command.run)
    findings, remarks = examine_run(records), remarks_on(records)
    if command.json:
        facts = {"findings": [f._asdict() for f in findings], "remarks": [r._asdict() for r in remarks]}
        print(json.dumps({"run": str(command.run), **facts, "notes": records.notes}))
        return 1 if findings else 0
    if not findings:
        looked = f"{len(RULES)} things looked at, {records.env_steps:,} {records.config.unit}"
        print(f"{command.run}: {all_clear(records)} ({looked}).")
    for finding in findings:
        print(f"{finding.name}: {finding.said}\n  Try: {finding.advice}")
    for remark in remarks:
        print(f"Remark, {remark.name}: {remark.said}\n  {remark.advice}")
    for note in records.notes:
        print(note)
    return 1 if findings else 0


def reproduce_command(command: ReproduceCommand) -> int:
    """List stored results, or train rows, compare them with what is stored, and store them."""
    from td3.callbacks.progress import ProgressDisplay, RetryingConsole
    from td3.reproduce.command import listing, reproduce
    from td3.reproduce.store import CommitNote
    from td3.run.directory import Run, read_facts
    from td3.training import resume_run, train_run

    def train(config: "TrainConfig", out: Path) -> "Run":
        if command.interrupted or read_facts(out / "status.json").get("status") == "finished":
            return Run(out)
        display = ProgressDisplay(RetryingConsole(stderr=command.json, highlight=False))
        try:
            resumed = (out / "config.json").exists()
            callbacks = [display, CommitNote()]
            return resume_run(out, None, callbacks) if resumed else train_run(replace(config, out=out), callbacks)
        finally:
            display.close()

    if not command.rows:
        print("\n".join(listing(command.results)))
        return 0
    say = partial(print, file=sys.stderr if command.json else sys.stdout)
    shorter = {
        name: getattr(command, name) for name in ("seeds", "first_seed", "steps") if getattr(command, name) is not None
    }
    try:
        folders = command.results, command.out
        found = reproduce(command.rows, *folders, shorter, command.store, train, say, command.interrupted)
    except KeyboardInterrupt:
        say("Stopped; the same command continues it.")
        return 130
    if command.json:
        print(json.dumps(found))
    return 0


COMMANDS: Commands = {
    "report": (ReportCommand, report_command),
    "reproduce": (ReproduceCommand, reproduce_command),
    "doctor": (DoctorCommand, doctor_command),
}
