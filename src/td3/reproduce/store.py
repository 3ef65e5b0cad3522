"""Put a finished run into results/: the curves of all seeds, the settings, the versions, and how it was made."""

import csv
import io
import json
import subprocess
from pathlib import Path

from td3.errors import RunError
from td3.files import write_atomically
from td3.reproduce.rows import Row
from td3.run.directory import Run, read_facts


def store(run: Run, row: Row, results: Path, hardware: str, commit: str | None = None) -> Path:
    """Write results/NAME from a finished run of this row's settings."""
    status, versions = read_facts(run.path / "status.json"), read_facts(run.path / "versions.json")
    if status.get("status") != "finished":
        raise RunError(f"{run.path} is not finished: resume it first, `td3 resume {run.path}`.")
    folder = results / row.name
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("seed", "env_steps", "mean_return", "std_return"))
    for seed in run.seeds:
        for steps, returns in zip(*run.evaluations(seed), strict=True):
            writer.writerow((seed, int(steps), f"{returns.mean():.3f}", f"{returns.std():.3f}"))
    made = {
        "command": row.command,
        "commit": commit or _commit(),
        "hardware": hardware,
        "seconds": status.get("seconds"),
    }
    write_atomically(folder / "evaluations.csv", table.getvalue().encode())
    config = {**run.config.to_json(), "out": None}
    for name, values in (("config.json", config), ("versions.json", versions), ("run.json", made)):
        write_atomically(folder / name, (json.dumps(values, indent=2) + "\n").encode())
    return folder


def _commit() -> str:
    """The commit of the checkout that this package runs from; empty where it is installed without one."""
    here = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    return found.stdout.strip()
