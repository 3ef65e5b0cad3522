"""`td3 report` and `td3 doctor`: what a run recorded."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from td3.cli.options import Commands, Json, RunPath
from td3.errors import ConfigError


@dataclass(frozen=True)
class ReportCommand:
    """Write an HTML report of learning curves, results and diagnostics: `td3 report runs/HalfCheetah-v5/latest`.

    Compare runs, a seed each: `td3 report base='jobs/a_*' new='jobs/b_*'`.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME=]RUN...")]
    """One run directory, or several to compare; the first group of a task is the reference. Runs of one name are one
    group, and so are runs without a name that differ only in seed. RUN may be a pattern (jobs/a_*), or a folder with
    logs of Stable-Baselines3 or CleanRL."""
    out: Path | None = None
    """The report (.html); by default report.html in the run directory, or in the current folder for several runs."""
    margin: float = 0.1
    """Runs are equivalent within this share of the reference's return."""
    normalize: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK=LOW,HIGH")] = ()
    """The scores that count as 0 and 1 on each task, for IQM, mean and median over several tasks."""
    csv: Path | None = None
    """Also write the comparison as a CSV file."""
    latex: Path | None = None
    """Also write the comparison as a LaTeX table."""
    json: Json = False


@dataclass(frozen=True)
class DoctorCommand:
    """Diagnose common training problems and suggest fixes: `td3 doctor runs/HalfCheetah-v5/latest`.

    Exit code 0: no problem found (remarks do not count). 1: problems found. 2: the run cannot be read.
    """

    run: RunPath
    """The run directory; it may still be training."""
    json: Json = False


def report_command(command: ReportCommand) -> int:
    """Write the report of one run or several."""
    from td3.report.across_tasks import read_scales
    from td3.report.groups import read_groups
    from td3.report.render import write_report
    from td3.report.summary import describe_runs, figures
    from td3.report.tables import as_csv, as_latex, write_text

    if not command.runs:
        raise ConfigError("`td3 report` needs a run directory: td3 report runs/HalfCheetah-v5/latest")
    runs, scales = read_groups(command.runs), read_scales(command.normalize)
    alone = len(runs) == 1 and not runs[0].separate
    out = command.out or (runs[0].path / "report.html" if alone and not runs[0].source else Path("report.html"))
    write_report(runs, out, command.margin, scales)
    results = {"report": str(out), **figures(runs, command.margin, scales)}
    written = [f"The report is {out}"]
    for path, table in ((command.csv, as_csv), (command.latex, as_latex)):
        if path is not None:
            write_text(path, table(runs, command.margin, results["tasks"]))
            written.append(f"The table is {path}")
    print(json.dumps(results) if command.json else "\n".join([*describe_runs(results), *written]))
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


COMMANDS: Commands = {
    "report": (ReportCommand, report_command),
    "doctor": (DoctorCommand, doctor_command),
}
