"""Put a run into results/: curves of its seeds, settings, versions, and how it was made."""

import csv
import io
import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import td3
from td3.callbacks.callback import Callback
from td3.config import TrainConfig
from td3.errors import RunError
from td3.files import read_regular_file, remove_folder, write_atomically
from td3.run.directory import Run, named_seeds, read_facts
from td3.run.lock import locked
from td3_lab.reproduce.figures import LARGEST
from td3_lab.reproduce.rows import Row

if TYPE_CHECKING:
    from td3.training import Trainer

SAME = (
    *("env", "env_kwargs", "envs", "steps", "preset", "variant", "replace_steps", "normalize_observations"),
    *("init_from", "pixels", "action_repeat", "precision", "eval_every", "eval_episodes", "td3"),
)
"""Settings that a run must share with its row."""
EVALUATIONS = ("seed", "env_steps", "mean_return", "std_return", "success_rate")
VALUES = ("seed", "env_steps", "q_value", "discounted_return")
COMMITS = "commits.txt"
"""In the folder of a run: the commits that trained it, one after another."""
Line = Mapping[str, str]


class CommitNote(Callback):
    """Notes in the folder of a run which commit trains or resumes it."""

    def on_training_start(self, trainer: "Trainer") -> None:
        """Add this commit."""
        known, commit = trained_by(trainer.path), commit_here()
        if trainer.resumed and not known:
            known = ["unknown"]  # it was begun by another command
        if commit and commit not in known[-1:]:
            write_atomically(trainer.path / COMMITS, "\n".join([*known, commit]).encode())


def store(run: Run, row: Row, results: Path, hardware: str, interrupted: bool = False) -> Path:
    """Write results/NAME from a run of this row's settings, which is finished unless `interrupted`."""
    status, versions = read_facts(run.path / "status.json"), read_facts(run.path / "versions.json")
    frozen = run.frozen
    seeds = [seed for seed in run.seeds if seed not in frozen]
    finished = status.get("status") == "finished" or not seeds  # nothing is left to train
    if not finished and not interrupted:
        raise RunError(f"{run.path} is not finished: resume it, or store it as far as it is by --interrupted.")
    require_same_settings(run, row)
    evaluations = [line for seed in seeds for line in _evaluations(run, seed)]
    values = [line for seed in seeds for line in _values(run, seed)]
    steps = [{int(line["env_steps"]) for line in evaluations if line["seed"] == str(seed)} for seed in seeds]
    if not (evaluated := set.intersection(*steps) if steps else {row.steps}):
        raise RunError(f"{run.path} has no env step at which all of its seeds were evaluated: resume it.")
    made: dict[str, Any] = {
        "commit": "; ".join(trained_by(run.path)),
        "hardware": hardware,
        "engine": status.get("engine", "-"),
        "seconds": status.get("seconds") or 0,
        **({} if finished else {"env_steps": max(evaluated)}),
        **({"frozen": sorted(frozen)} if frozen else {}),
    }
    folder, wanted = results / row.name, row.config()
    results.mkdir(parents=True, exist_ok=True)
    with locked(results, wait=True):  # other seeds of the row may be stored now
        _recover(folder)
        require_storable(row, run.seeds, folder, versions)
        before = _lines(folder / "evaluations.csv") if (folder / "evaluations.csv").exists() else []
        longer = max((int(line["env_steps"]) for line in before if int(line["seed"]) in run.seeds), default=0)
        if longer > max(evaluated):
            raise RunError(
                f"{folder} has evaluations of these seeds up to env step {longer:,}, and {run.path} to "
                f"{max(evaluated):,}: resume it first."
            )
        if run.seeds != wanted.member_seeds:
            made, kept = _with_others(folder, {"seeds": list(run.seeds), **made})
            if kept:
                evaluations += [line for line in before if line["seed"] in kept]
                values += [line for line in _lines(folder / "values.csv") if line["seed"] in kept]
        if not evaluations:
            raise RunError(
                f"every seed of {run.path} diverged, and {folder} has no others: there is no curve to store."
            )
        rated = any(line.get("success_rate", "nan") != "nan" for line in evaluations)  # the environment tells success
        config = {**run.config.to_json(), "out": None, "seed": wanted.seed, "seeds": wanted.seeds}
        part, earlier = _beside(folder)
        part.mkdir()
        _write_csv(part / "evaluations.csv", EVALUATIONS if rated else EVALUATIONS[:-1], evaluations)
        _write_csv(part / "values.csv", VALUES, values)
        facts = {"config.json": config, "versions.json": versions, "run.json": {"command": row.command, **made}}
        for name, content in facts.items():
            write_atomically(part / name, (json.dumps(content, indent=2) + "\n").encode())
        # All files in one move: what ends in between leaves the row as it was, or where `_recover` finds it.
        if folder.exists():
            folder.replace(earlier)
        part.replace(folder)
        remove_folder(earlier)
    return folder


def _beside(folder: Path) -> tuple[Path, Path]:
    """Where a row is written, and where what was stored before is kept meanwhile."""
    return folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.earlier")


def _recover(folder: Path) -> None:
    """Put back what a store that was killed had moved away, and remove what it had begun."""
    part, earlier = _beside(folder)
    if earlier.is_dir() and not folder.exists():
        earlier.replace(folder)
    for left in (part, earlier):
        if left.is_dir():
            remove_folder(left)


def differing_settings(config: TrainConfig, row: Row) -> list[str]:
    """The settings in which a run's configuration is not that of a row; its seeds do not count."""
    wanted = row.config()
    if row.dataset:  # the buffer is as large as the dataset
        wanted = replace(wanted, td3=replace(wanted.td3, buffer_size=config.td3.buffer_size))
    return [name for name in SAME if getattr(config, name) != getattr(wanted, name)]


def require_same_settings(run: Run, row: Row) -> None:
    """Refuse a run that is not one of a row's settings."""
    if differing := differing_settings(run.config, row):
        raise RunError(
            f"{run.path} differs from {row.name} in {', '.join(differing)}: `td3 reproduce {row.name}` trains it."
        )


def require_storable(row: Row, seeds: Sequence[int], folder: Path, versions: Mapping[str, Any]) -> None:
    """Refuse seeds that cannot be stored as those of a row, or beside those that are stored already."""
    own, stored = row.config().member_seeds, read_facts(folder / "run.json")
    if not set(seeds) <= set(own):
        raise RunError(
            f"{row.name} has {named_seeds(own)}, and {named_seeds(seeds)} cannot be stored among them: give another "
            "--first-seed, or fewer --seeds."
        )
    if tuple(seeds) == own or not stored:
        return
    if "parts" not in stored:
        raise RunError(f"{folder} holds one run of all seeds: remove the folder to store some of its seeds anew.")
    others = _others(stored, seeds)
    if any(set(one["seeds"]) & set(seeds) for one in others):
        raise RunError(f"{folder} holds a run of some of these seeds and of others: store one of all of its seeds.")
    before = read_facts(folder / "versions.json") if others else {}
    # A package that only one of them has is not what the task needs.
    changed = [name for name in before if name in versions and before[name] != versions[name]]
    if changed:
        were = ", ".join(f"{name} {before[name]} instead of {versions[name]}" for name in changed)
        raise RunError(f"{folder} has seeds that were trained with {were}: train these with the same.")


def _others(stored: Mapping[str, Any], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The stored runs of a row's seeds that stay when one of these seeds is stored."""
    return [one for one in stored.get("parts", []) if not set(one["seeds"]) <= set(seeds)]


def _with_others(folder: Path, part: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """How all runs of a row's seeds were made, this one and the stored ones, and the stored seeds that are kept."""
    others = _others(read_facts(folder / "run.json"), part["seeds"])
    parts = sorted([part, *others], key=lambda one: one["seeds"])
    made: dict[str, Any] = {
        name: "; ".join(dict.fromkeys(word for one in parts for word in one[name].split("; ") if word))
        for name in ("commit", "hardware", "engine")
    }
    made["seconds"] = sum(one["seconds"] or 0 for one in parts)
    if ends := [one["env_steps"] for one in parts if "env_steps" in one]:
        made["env_steps"] = min(ends)
    if frozen := [seed for one in parts for seed in one.get("frozen", ())]:
        made["frozen"] = frozen
    return {**made, "parts": parts}, {str(seed) for one in others for seed in one["seeds"]}


def _lines(table: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(read_regular_file(table, LARGEST).decode())))
    except (OSError, ValueError) as error:
        raise RunError(f"{table} cannot be read ({error}).") from None


def _evaluations(run: Run, seed: int) -> list[Line]:
    """Mean and deviation of the returns of each evaluation, and how many episodes succeeded."""
    table = run.folder(seed) / "evaluations.csv"
    try:
        return [
            {**line, "seed": str(seed), **{name: f"{float(line[name]):.3f}" for name in EVALUATIONS[2:]}}
            for line in _lines(table)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{table} cannot be read ({error}).") from None


def _values(run: Run, seed: int) -> list[Line]:
    """Critic 1's value of the first state and action of evaluation episodes, and the discounted return after them."""
    table = run.folder(seed) / "diagnostics.csv"
    try:
        found = [
            (int(each["env_steps"]), float(each["q_start"]), float(each["return_start"])) for each in _lines(table)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{table} cannot be read ({error}).") from None
    return [
        dict(zip(VALUES, (str(seed), str(steps), f"{q:.3f}", f"{came:.3f}"), strict=True))
        for steps, q, came in found
        if not math.isnan(q + came)
    ]


def _write_csv(path: Path, head: Sequence[str], lines: Sequence[Line]) -> None:
    """A table, by seed."""
    text = io.StringIO()
    table = csv.DictWriter(text, head, restval="nan", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(sorted(lines, key=lambda line: int(line["seed"])))
    write_atomically(path, text.getvalue().encode())


def trained_by(path: Path) -> list[str]:
    """The commits that trained a run, one after another; none where `td3 reproduce` did not train it."""
    try:
        return read_regular_file(path / COMMITS, LARGEST).decode().split()
    except OSError:
        return []


def commit_here() -> str:
    """The commit of the checkout that td3 runs from, and whether it was changed; empty without a checkout."""
    here = Path(td3.__file__)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here.parent, capture_output=True, text=True, check=True).stdout

    try:
        git("ls-files", "--error-unmatch", here.name)  # not the checkout of something else around it
        return git("rev-parse", "--short", "HEAD").strip() + "-changed" * bool(
            git("status", "--porcelain", "..", "../../lab")
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
