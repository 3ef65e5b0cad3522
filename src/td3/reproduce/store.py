"""Put a finished run into results/: curves of all seeds, settings, versions, and how it was made."""

import csv
import io
import json
import math
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from td3.errors import RunError
from td3.files import read_regular_file, write_atomically
from td3.reproduce.figures import LARGEST
from td3.reproduce.rows import Row
from td3.run.directory import Run, read_facts

SAME = (
    *("env", "env_kwargs", "envs", "steps", "preset", "variant", "replace_steps", "normalize_observations"),
    *("init_from", "pixels", "action_repeat", "precision", "eval_every", "eval_episodes", "td3"),
)
"""Settings that a run must share with its row."""


def store(
    run: Run, row: Row, results: Path, hardware: str, interrupted: bool = False, commit: str | None = None
) -> Path:
    """Write results/NAME from a run of this row's settings, which is finished unless `interrupted`."""
    status, versions = read_facts(run.path / "status.json"), read_facts(run.path / "versions.json")
    finished = status.get("status") == "finished"
    if not finished and not interrupted:
        raise RunError(f"{run.path} is not finished: resume it, or store it as far as it is by --interrupted.")
    wanted = row.config()
    if row.dataset:  # the buffer is as large as the dataset
        wanted = replace(wanted, td3=replace(wanted.td3, buffer_size=run.config.td3.buffer_size))
    differing = [name for name in SAME if getattr(run.config, name) != getattr(wanted, name)]
    if differing:
        raise RunError(f"{run.path} differs from {row.name} in {', '.join(differing)}: `{row.command}` trains it.")
    if not set(run.seeds) <= set(wanted.member_seeds):
        raise RunError(f"{run.path} has seeds that {row.name} does not have: `{row.command}` trains it.")
    folder = results / row.name
    head: tuple[str, ...] = ("seed", "env_steps", "mean_return", "std_return", "success_rate")
    evaluations: list[tuple[Any, ...]] = [
        (seed, line["env_steps"], *(f"{float(line[name]):.3f}" for name in head[2:]))
        for seed in run.active_seeds
        for line in _lines(run.folder(seed) / "evaluations.csv")
    ]
    if all(line[-1] == "nan" for line in evaluations):  # the environment does not say whether an episode succeeded
        head, evaluations = head[:-1], [line[:-1] for line in evaluations]
    values: list[tuple[Any, ...]] = [
        (seed, *line) for seed in run.active_seeds for line in _values(run.folder(seed) / "diagnostics.csv")
    ]
    made: dict[str, Any] = {
        "commit": commit or _commit(),
        "hardware": hardware,
        "engine": status.get("engine", "-"),
        "seconds": status.get("seconds"),
    }
    if not finished:
        evaluated = [{int(str(line[1])) for line in evaluations if line[0] == seed} for seed in run.active_seeds]
        made["env_steps"] = max(set.intersection(*evaluated))
    valued = "seed", "env_steps", "q_value", "discounted_return"
    if run.seeds != wanted.member_seeds:
        made, kept = _with_stored(folder, {"seeds": list(run.seeds), **made})
        if kept and read_facts(folder / "versions.json") != versions:
            raise RunError(f"{folder} and {run.path} are of different versions of packages: train them with the same.")
        evaluations = _sorted(evaluations, folder / "evaluations.csv", head, kept)
        values = _sorted(values, folder / "values.csv", valued, kept)
    config = {**run.config.to_json(), "out": None, "seed": wanted.seed, "seeds": wanted.seeds}
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "evaluations.csv", head, evaluations)
    _write_csv(folder / "values.csv", valued, values)
    facts = {"config.json": config, "versions.json": versions, "run.json": {"command": row.command, **made}}
    for name, content in facts.items():
        write_atomically(folder / name, (json.dumps(content, indent=2) + "\n").encode())
    return folder


def _with_stored(folder: Path, part: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """How all runs of a row's seeds were made, this one and the stored ones, and the stored seeds that are kept."""
    stored = read_facts(folder / "run.json")
    if stored and "parts" not in stored:
        raise RunError(f"{folder} holds one run of all seeds: remove the folder to store some of its seeds anew.")
    others = [one for one in stored.get("parts", []) if not set(one["seeds"]) <= set(part["seeds"])]
    if any(set(one["seeds"]) & set(part["seeds"]) for one in others):
        raise RunError(f"{folder} holds a run of some of these seeds and of others: store one of all of its seeds.")
    parts = sorted([part, *others], key=lambda one: one["seeds"])
    made = {name: "; ".join(dict.fromkeys(one[name] for one in parts)) for name in ("commit", "hardware", "engine")}
    ends = [one["env_steps"] for one in parts if "env_steps" in one]
    counted = {"seconds": sum(one["seconds"] for one in parts), **({"env_steps": min(ends)} if ends else {})}
    return {**made, **counted, "parts": parts}, {str(seed) for one in others for seed in one["seeds"]}


def _sorted(lines: list[tuple[Any, ...]], stored: Path, head: Sequence[str], kept: set[str]) -> list[tuple[Any, ...]]:
    """New lines and those of a stored table that are kept, by seed."""
    before = [tuple(line[name] for name in head) for line in _lines(stored) if line["seed"] in kept] if kept else []
    return sorted([*lines, *before], key=lambda line: int(line[0]))


def _lines(table: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(read_regular_file(table, LARGEST).decode())))
    except (OSError, ValueError) as error:
        raise RunError(f"{table} cannot be read ({error}).") from None


def _values(diagnostics: Path) -> list[tuple[int, str, str]]:
    """Env steps, the critics' value of the first state and action of episodes, and the discounted return after them."""
    try:
        lines = _lines(diagnostics)
        found = [(int(line["env_steps"]), float(line["q_start"]), float(line["return_start"])) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{diagnostics} cannot be read ({error}).") from None
    return [(steps, f"{q:.3f}", f"{came:.3f}") for steps, q, came in found if not math.isnan(q + came)]


def _write_csv(path: Path, head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([head, *lines])
    write_atomically(path, table.getvalue().encode())


def _commit() -> str:
    """The commit of the checkout that this package runs from; empty where it is installed without one."""
    here = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    return found.stdout.strip()
