"""Which runs a comparison is of: names, patterns, and runs that differ only in their seeds as one."""

import glob
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from td3.errors import ConfigError, RunError
from td3.files import read_json
from td3.report.logs import UNKNOWN_TASK, is_log, read_log, records_of
from td3.report.records import RunRecords, combine, read_run
from td3.run.directory import LARGEST_JSON

SEEDS = ("seed", "seeds", "out")
"""Settings in which runs of one group may differ: each run has its own random numbers and folder."""


class Member(NamedTuple):
    """One run, the name of its group if it was given one, and what runs of an unnamed group share."""

    name: str
    records: RunRecords
    shared: str | None
    """None for a run that is never grouped without a name."""
    numbered: bool = True
    """Whether its seed is known."""


def read_groups(words: Sequence[str | Path | tuple[str, str]]) -> list[RunRecords]:
    """The runs of these paths or patterns, such as jobs/a_*, one for each group and task.

    A word may begin with the name of a group, NAME=jobs/a_*, or be a pair of the name and the rest.
    Runs without a name are one group where their settings differ only in seed. A run that occurs twice counts once.
    """
    members = _with_tasks([_read(name, path) for name, path in _paths(words)])
    groups: dict[Any, list[Member]] = {}
    for index, member in enumerate(members):
        env = member.records.config.env
        if member.name:
            groups.setdefault((env, member.name), []).append(member)
            continue
        key: Any = (env, None, index)
        for other, found in groups.items():
            shared = other[:2] == (env, None) and found[0].shared == member.shared is not None
            if shared and not _seeds_of(found) & _seeds_of([member]):
                key = other
        groups.setdefault(key, []).append(member)
    return [_one(name, found) for (_, name, *_), found in groups.items()]


def _paths(words: Sequence[str | Path | tuple[str, str]]) -> list[tuple[str, Path]]:
    """Every run once, whatever leads to it, with the name of its group."""
    found: dict[Path, tuple[str, Path]] = {}
    for word in words:
        name, pattern = word if isinstance(word, tuple) else _named(str(word))
        paths = _expanded(pattern)
        for path in paths:
            before = found.setdefault(path.resolve(), (name, path))
            if name and before[0] and name != before[0]:
                raise ConfigError(f"{path} is in both {before[0]} and {name}: give a run to one group.")
            if name and not before[0]:
                found[path.resolve()] = (name, path)
    return list(found.values())


def _named(word: str) -> tuple[str, str]:
    """The name of a group, if there is one, and the rest; a path may have an equals sign."""
    name, equals, pattern = word.partition("=")
    return (name, pattern) if equals and name and "/" not in name and not _matches(word) else ("", word)


def _expanded(pattern: str) -> list[Path]:
    matches = _matches(pattern)
    if matches == [Path(pattern)] or not glob.has_magic(pattern):
        return [Path(pattern)]
    runs = [path for path in matches if (path / "config.json").is_file() or (path.is_dir() and is_log(path))]
    if not runs:
        what = "nothing" if not matches else f"{len(matches)} files or folders, none of them a run"
        raise RunError(f"{pattern} matches {what}: give a pattern of run directories, such as 'runs/Hopper-v5/*'.")
    # Links last: `latest` is the run that it points to, under that one's own name.
    return sorted(runs, key=lambda path: (path.is_symlink(), _natural(str(path))))


def _matches(pattern: str) -> list[Path]:
    """The path itself, if there is one of that name, or those that match."""
    if Path(pattern).exists():
        return [Path(pattern)]
    return [Path(match) for match in glob.glob(pattern, recursive=True)]  # noqa: PTH207  # relative or absolute


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part or 0), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", text)]


def _read(name: str, path: Path) -> Member:
    if not (path / "config.json").is_file() and path.is_dir() and is_log(path):
        log = read_log(path)
        shared = json.dumps([log.source, log.experiment]) if log.experiment else None
        records = records_of(path, log, log.seed or 0, log.env or UNKNOWN_TASK)
        return Member(name, records, shared, log.seed is not None)
    records = read_run(path)
    settings = {key: value for key, value in records.config.to_json().items() if key not in SEEDS}
    return Member(name, records, json.dumps([settings, source_of_steps(records)], sort_keys=True))


def source_of_steps(records: RunRecords) -> str:
    """The code of replaced steps that the run kept; empty without any."""
    try:
        return json.dumps(read_json(records.path / "steps.json", LARGEST_JSON), sort_keys=True)
    except (OSError, ValueError):
        return ""


def _with_tasks(members: list[Member]) -> list[Member]:
    """The same, where a log that does not name its task has that of the others."""
    tasks = dict.fromkeys(m.records.config.env for m in members if m.records.config.env != UNKNOWN_TASK)
    nameless = [m.records.path for m in members if m.records.config.env == UNKNOWN_TASK]
    if nameless and len(tasks) > 1:
        raise ConfigError(
            f"{nameless[0]} does not say its task, and the other runs have {len(tasks)} ({', '.join(tasks)}): compare "
            "it with runs of its task alone."
        )
    if not tasks:
        return members
    task = next(iter(tasks))
    return [
        m._replace(records=replace(m.records, config=replace(m.records.config, env=task)))
        if m.records.config.env == UNKNOWN_TASK
        else m
        for m in members
    ]


def _seeds_of(members: Sequence[Member]) -> set[int]:
    return {seed.seed for member in members for seed in member.records.seeds}


def _one(name: str | None, members: list[Member]) -> RunRecords:
    """The runs of one group and task as one."""
    if len(members) == 1:
        return replace(members[0].records, label=name) if name else members[0].records
    members = _with_seeds(members)
    seen: dict[int, Path] = {}
    for member in members:
        for seed in member.records.seeds:
            if (other := seen.setdefault(seed.seed, member.records.path)) != member.records.path:
                raise ConfigError(
                    f"{name} has seed {seed.seed} of {member.records.config.env} twice, in {other} and in "
                    f"{member.records.path}: the same seed is no second sample, so leave one of them out."
                )
    runs = [member.records for member in members]
    paths = [str(run.path) for run in runs]
    together = Path(os.path.commonpath([run.path.absolute() for run in runs]))
    return combine(together, runs, name or f"{os.path.commonprefix(paths)}*")  # noqa: RUF071  # names, not folders


def _with_seeds(members: list[Member]) -> list[Member]:
    """The same, where logs that do not say their seed have the lowest numbers that are free."""
    taken = _seeds_of([member for member in members if member.numbered])
    free = (seed for seed in range(len(members) + len(taken)) if seed not in taken)
    return [member if member.numbered else _numbered(member, next(free)) for member in members]


def _numbered(member: Member, seed: int) -> Member:
    records = member.records
    config, seeds = replace(records.config, seed=seed), (replace(records.seeds[0], seed=seed),)
    return member._replace(records=replace(records, config=config, seeds=seeds))
