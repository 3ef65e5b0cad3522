"""Checkpoints of a whole run, for bit-exact resume after being killed at any moment.

checkpoints/
  000000050000/  manifest.json  state.safetensors      one checkpoint; the newest two are kept
  replay_buffer/ 000000000000.safetensors  ...         transitions, each written once, shared by all checkpoints

A checkpoint is written under a temporary name, synced and renamed, so it is whole or not there. The manifest carries a
checksum of every file and of itself. The replay buffer is a ring that only its newest rows change: a shard holds rows
that are new since the last checkpoint, and is removed when the ring has left it behind. When there are many shards,
neighbors are written again as one. Nothing is ever unpickled.
"""

import contextlib
import errno
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from td3.errors import RunError
from td3.files import (
    FileDigest,
    outside,
    read_regular_file,
    read_verified,
    remove_files,
    remove_folder,
    sync_folder,
    write_atomically,
)
from td3.policy import Array
from td3.resources import available_memory

if TYPE_CHECKING:
    from td3.algorithm.agent import Agent
    from td3.algorithm.step_01_replay_buffer import ReplayBuffer
    from td3.config import TrainConfig

SCHEMA = 1
KEPT = 2
"""Checkpoints that are kept: if the newest is damaged, there is one before it."""
SHARD_BYTES = 8 << 20
"""Rows are written in pieces of this size, so that saving a large buffer needs little more of it."""
MOST_SHARDS = 1_000
"""With more of them, small ones are merged: a manifest lists all, and each is a file."""
LARGEST_MANIFEST = 16 << 20
LARGEST_STATE, LARGEST_ROW = 256 << 20, 16 << 20
"""Bytes of one seed: of its state besides hidden weights and unfinished episodes, and of a transition."""


class Shard(NamedTuple):
    """A file of transitions, numbered since the beginning of the run: those from `first` up to, without, `end`."""

    first: int
    end: int
    bytes: int
    sha256: str
    merged: bool = False

    @property
    def name(self) -> str:
        """Its file; a merged one takes no name of the files that it replaces, which the checkpoint before it needs."""
        return f"{self.first:012}{f'-{self.end:012}' * self.merged}.safetensors"


class Checkpoint(NamedTuple):
    """A checkpoint with valid manifest and state; the buffer is read shard by shard."""

    env_steps: int
    facts: dict[str, Any]
    tensors: dict[str, Array]
    shards: tuple[Shard, ...]
    folder: Path

    def named(self, beginning: str) -> dict[str, Array]:
        """The arrays whose names begin so, by the rest of their names."""
        return {name[len(beginning) :]: array for name, array in self.tensors.items() if name.startswith(beginning)}

    def rows(self) -> Iterator[tuple[int, Array]]:
        """All kept transitions `[member, count, row]`, each with the number of its first; raises ValueError."""
        for first, chunk in self.chunks():
            yield first, chunk["rows"]

    def chunks(self) -> Iterator[tuple[int, dict[str, Array]]]:
        """The same with the additional arrays of an image buffer."""
        for shard in self.shards:
            if outside(self.folder / "replay_buffer" / shard.name, self.folder.parent):
                raise ValueError(f"{shard.name} is a link out of the run")
            content = read_verified(self.folder / "replay_buffer" / shard.name, FileDigest(shard.bytes, shard.sha256))
            chunk = _tensors(content)
            rows = chunk.get("rows", np.empty(0))
            if rows.dtype != np.float32 or rows.ndim != 3 or rows.shape[1] != shard.end - shard.first:
                raise ValueError(f"{shard.name} has other rows than its manifest says")
            yield shard.first, chunk


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "checkpoints"
        self._shards: tuple[Shard, ...] = ()

    def save(
        self, env_steps: int, facts: Mapping[str, Any], tensors: Mapping[str, Array], buffer: "ReplayBuffer"
    ) -> None:
        """Write a checkpoint; on an OSError the earlier ones are unchanged."""
        for folder in (self.folder, self.folder / "replay_buffer"):
            folder.mkdir(exist_ok=True)  # without parents: a run that was moved away is not begun again
        self._write_new_rows(buffer)
        unfinished = self.folder / ".part"
        remove_folder(unfinished)  # left by a killed save
        unfinished.mkdir()
        state = write_atomically(unfinished / "state.safetensors", save_tensors(_contiguous(tensors)))
        body = {
            "schema": SCHEMA,
            "env_steps": env_steps,
            "facts": dict(facts),
            "state": state._asdict(),
            "shards": [shard._asdict() for shard in self._shards],
        }
        _check_readable(manifest := _sealed(body), state, self._shards, facts, env_steps)
        write_atomically(unfinished / "manifest.json", manifest)
        finished = self.folder / f"{env_steps:012}"
        remove_folder(finished)  # only a damaged one can be there
        unfinished.replace(finished)
        sync_folder(self.folder)
        self._remove_what_is_over()

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint with valid manifest and state, and a message about each newer one that is damaged."""
        return self._first_whole(self._names())

    def has(self, env_steps: int) -> bool:
        """Whether there is a checkpoint of this env step."""
        return (self.folder / f"{env_steps:012}" / "manifest.json").is_file()

    def before(self, checkpoint: Checkpoint) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint older than this one, whose buffer turned out to be damaged."""
        return self._first_whole([name for name in self._names() if int(name) < checkpoint.env_steps])

    def continue_from(self, checkpoint: Checkpoint) -> None:
        """Continue after this checkpoint; newer ones, which were refused, are removed."""
        self._shards = checkpoint.shards
        for name in self._names():
            if int(name) > checkpoint.env_steps:
                remove_folder(self.folder / name)

    def start_new(self) -> None:
        """Remove all checkpoints."""
        for name in self._names():
            remove_folder(self.folder / name)
        remove_folder(self.folder / "replay_buffer")

    def _names(self) -> list[str]:
        """Every checkpoint's folder, the newest first."""
        with contextlib.suppress(OSError):
            names = (folder.name for folder in self.folder.iterdir())
            return sorted((name for name in names if name.isdecimal() and len(name) == 12), reverse=True)
        return []

    def _first_whole(self, names: list[str]) -> tuple[Checkpoint | None, list[str]]:
        refused: list[str] = []
        for name in names:
            try:
                return self._read(name), refused
            except ValueError as error:
                refused.append(f"checkpoint {int(name):,} is damaged ({error})")
        return None, refused

    def _read(self, name: str) -> Checkpoint:
        folder = self.folder / name
        if any(outside(folder / file, self.folder.parent) for file in ("manifest.json", "state.safetensors")):
            raise ValueError("a file of it is a link out of the run")
        body = _unsealed(folder / "manifest.json")
        try:
            state, shards = FileDigest(**body["state"]), tuple(Shard(**shard) for shard in body["shards"])
            facts, env_steps = body["facts"], body["env_steps"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"manifest.json is incomplete: {error}") from None
        if not isinstance(facts, dict) or type(env_steps) is not int or env_steps != int(name):
            raise ValueError("manifest.json belongs to another checkpoint")
        _check_sizes(state, shards, facts, env_steps, available_memory() or 1 << 62)
        tensors = _tensors(read_verified(folder / "state.safetensors", state))
        return Checkpoint(env_steps, facts, tensors, shards, self.folder)

    def _write_new_rows(self, buffer: "ReplayBuffer") -> None:
        oldest = buffer.oldest
        kept = [shard for shard in self._shards if shard.end > oldest]
        first = max(oldest, kept[-1].end if kept else 0)
        while first < buffer.added:
            end = min(self._longest_end(buffer, first), buffer.added)
            kept.append(self._write_shard(buffer, Shard(first, end, 0, "")))
            first = end
        self._shards = tuple(kept)
        if len(kept) > MOST_SHARDS:
            with contextlib.suppress(OSError):  # they are all there, if there is no room for merged ones
                self._shards = tuple(self._merged(buffer, kept))

    def _longest_end(self, buffer: "ReplayBuffer", first: int) -> int:
        """Where a shard that begins here ends at the latest: after `SHARD_BYTES`, or with the ring."""
        members, capacity, _ = buffer.rows.shape
        at_once = max(1, SHARD_BYTES // (members * buffer.row_bytes))
        return min(first + at_once, first - first % capacity + capacity)

    def _write_shard(self, buffer: "ReplayBuffer", shard: Shard) -> Shard:
        chunk = {name: rows.contiguous().cpu().numpy() for name, rows in buffer.chunk(shard.first, shard.end).items()}
        written = write_atomically(self.folder / "replay_buffer" / shard.name, save_tensors(chunk))
        return shard._replace(**written._asdict())

    def _merged(self, buffer: "ReplayBuffer", shards: Sequence[Shard]) -> list[Shard]:
        """As few shards as there can be; those that stay alone are not written again."""
        groups: list[list[Shard]] = []
        for shard in shards:
            first = max(buffer.oldest, groups[-1][0].first) if groups else 0
            if groups and shard.end <= self._longest_end(buffer, first):
                groups[-1].append(shard)
            else:
                groups.append([shard])
        return [
            group[0]
            if len(group) == 1
            else self._write_shard(buffer, Shard(max(buffer.oldest, group[0].first), group[-1].end, 0, "", True))
            for group in groups
        ]

    def _remove_what_is_over(self) -> None:
        """Old checkpoints, and shards that none of the kept ones needs; an error is ignored."""
        for name in self._names()[KEPT:]:
            remove_folder(self.folder / name)  # its manifest first: a checkpoint without it is none
        needed = {shard.name for shard in self._shards}
        for name in self._names()[1:KEPT]:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                needed |= {Shard(**shard).name for shard in _unsealed(self.folder / name / "manifest.json")["shards"]}
        with contextlib.suppress(OSError):
            remove_files(self.folder / "replay_buffer", keep=needed)


def fill_buffer(buffer: "ReplayBuffer", checkpoint: Checkpoint, added: int) -> None:
    """Load a checkpoint's transitions into the ring buffer; raises ValueError if any is missing or damaged."""
    import torch

    buffer.set_cursor_(added, checkpoint.named("buffer."))
    expected = buffer.oldest
    for first, chunk in checkpoint.chunks():
        if first > expected:
            raise ValueError("the buffer has a gap")
        buffer.load_chunk_(
            first, {name: torch.from_numpy(array) for name, array in chunk.items()}, max(0, expected - first)
        )
        expected = max(expected, first + chunk["rows"].shape[1])
    if expected != added:
        raise ValueError("the buffer's newest rows are missing")


def load_agent_(agent: "Agent", saved: Mapping[str, Array]) -> None:
    """Put saved arrays of these names into an agent, in place."""
    import torch

    for name, tensor in agent.tensors().items():
        if name in saved:
            tensor.copy_(torch.from_numpy(saved[name]))


def check_facts(checkpoint: Checkpoint, config: "TrainConfig", tables: Sequence[str]) -> None:
    """Raise ValueError if what a manifest says of its run, whose settings and tables these are, is of a wrong kind."""
    facts, end = checkpoint.facts, checkpoint.shards[-1].end if checkpoint.shards else 0
    seeds = {str(seed) for seed in config.member_seeds}
    pending, positions, seconds = facts["pending_evaluations"], facts["positions"], facts["seconds"]
    frozen, saving = facts.get("frozen", {}), facts.get("saving_seconds", 0.0)
    right = {
        "versions": _are(facts.get("versions", {}), str),
        "added": type(facts["added"]) is int and facts["added"] == end,
        "positions": isinstance(positions, dict)
        and {*positions} == seeds
        and all(_are(each, int) and {*each} == {*tables} and min(each.values()) >= 0 for each in positions.values()),
        "seconds": type(seconds) in (int, float) and 0 <= seconds < 1e12,
        "pending_evaluations": _are(pending, list)
        and all(name.isdecimal() and len(name) < 19 and len(rows) == len(seeds) for name, rows in pending.items())
        and all(row is None or _are(row, int, float, str) for rows in pending.values() for row in rows),
        "frozen": _are(frozen, dict)
        and {*frozen} <= seeds
        and all(type(each.get("env_steps")) is int and type(each.get("reason")) is str for each in frozen.values()),
        "saving_seconds": type(saving) in (int, float) and 0 <= saving < 1e12,
        "callbacks": _are(facts.get("callbacks", {}), dict),
    }
    if wrong := [name for name, is_right in right.items() if not is_right]:
        raise ValueError(f"{wrong[0]} in its manifest is not what a run writes there")


def _are(values: Any, *kinds: type) -> bool:
    """Whether these are values of one of some kinds, by name."""
    return isinstance(values, dict) and all(type(value) in kinds for value in values.values())


def _check_readable(
    manifest: bytes, state: FileDigest, shards: Sequence[Shard], facts: Mapping[str, Any], env_steps: int
) -> None:
    """Raise OSError for a checkpoint that no resume would read."""
    try:
        if len(manifest) > LARGEST_MANIFEST:
            raise ValueError(f"manifest.json would have {len(manifest):,} bytes, and {LARGEST_MANIFEST:,} are read")
        _check_sizes(state, shards, facts, env_steps, free=1 << 62)
    except ValueError as error:
        raise OSError(errno.EFBIG, str(error)) from None


def _check_sizes(
    state: FileDigest, shards: Sequence[Shard], facts: Mapping[str, Any], env_steps: int, free: int
) -> None:
    """Raise ValueError for sizes that no run with these settings has, before a byte is read or an array made."""
    if any(type(shard.merged) is not bool for shard in shards):
        raise ValueError("manifest.json has a shard that is none")
    numbers = [state.bytes, *(count for shard in shards for count in (shard.first, shard.end, shard.bytes))]
    if not all(type(count) is int and 0 <= count < 1 << 62 for count in numbers):
        raise ValueError("manifest.json has a size that is none")
    if any(b.first != a.end for a, b in pairwise(shards)) or any(shard.first >= shard.end for shard in shards):
        raise ValueError("the buffer has a gap")
    config = facts.get("config")
    if not isinstance(config, dict):
        config = {}
    td3, seeds = config.get("td3"), config.get("seeds", 1)
    layers: list[Any] = [[]]
    if isinstance(td3, dict):
        layers = [td3.get("hidden_sizes"), *(td3.get(f"{net}_hidden_sizes") or [] for net in ("actor", "critic"))]
    if not all(
        isinstance(sizes, list | tuple) and all(type(size) is int for size in (seeds, *sizes)) for sizes in layers
    ):
        raise ValueError("the configuration is damaged")
    # Of every weight there are the network, its target and two moments of the optimizer, for the actor and two
    # critics, and as many again in evaluations under way; an unfinished episode keeps its actions, 64 numbers at most.
    hidden = 64 * 4 * sum(first * second for sizes in layers for first, second in pairwise(sizes))
    most_state, most_shard = seeds * (LARGEST_STATE + hidden + 256 * env_steps), seeds * LARGEST_ROW + 4 * SHARD_BYTES
    for name, size, most in (
        ("state.safetensors", state.bytes, most_state),
        *((shard.name, shard.bytes, most_shard) for shard in shards),
    ):
        if size > min(most, free // 2):
            raise ValueError(
                f"{name} should have {size:,} bytes, more than a run like this has or this machine can hold"
            )


def _contiguous(tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(array, order="C") for name, array in tensors.items()}


def _tensors(content: bytes) -> dict[str, Array]:
    try:
        tensors: dict[str, Array] = load_tensors(content)
    except (SafetensorError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"it is not in the safetensors format: {error}") from None
    return tensors


def _sealed(body: Mapping[str, Any]) -> bytes:
    """JSON that carries a checksum of itself."""
    plain = json.dumps(body, indent=1, sort_keys=True).encode()
    return json.dumps({**body, "sha256": hashlib.sha256(plain).hexdigest()}, indent=1, sort_keys=True).encode()


def _unsealed(path: Path) -> dict[str, Any]:
    """What `_sealed` wrote; raises ValueError for anything else, whichever byte of it differs."""
    try:
        content = read_regular_file(path, LARGEST_MANIFEST)
        body = json.loads(content.decode())
        del body["sha256"]
        sealed = _sealed(body)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, RecursionError):
        raise ValueError(f"{path.name} is not a manifest") from None
    if sealed != content:
        raise ValueError(f"{path.name} is not as it was written")
    if body.get("schema") != SCHEMA:
        raise RunError(
            f"{path} was written in version {body.get('schema')!r} of the checkpoint format, and this td3 reads "
            f"{SCHEMA}: resume it with the td3 that wrote it."
        )
    return dict(body)
