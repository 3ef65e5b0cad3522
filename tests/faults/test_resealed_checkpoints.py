"""Checkpoints with one wrong field and a right checksum: resume uses an older one or says a sentence, and no more."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from faults.test_resume import Stop, Stopping, stopped
from td3.errors import UserError
from td3.run.checkpoints import Checkpoints, _sealed
from td3.training import resume_run

WRONG: tuple[Any, ...] = (None, -1, 1 << 80, 1.5, float("nan"), "x", "-1", True, [], [[]], {}, {"x": 1}, {"0": None})
NEWEST = "000000000060"


class StopAtOnce(Stopping):
    """Ends a resumed run when everything is restored, before its first env step."""

    def on_training_start(self, trainer: object) -> None:
        raise Stop


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """With checkpoints at 30 and 60, and the tables of one seed."""
    folder = tmp_path_factory.mktemp("sealed") / "run"
    return stopped(folder, 65, steps=90, learning_starts=20, hidden_sizes=(2,), eval_every=50, save_every=30)


@pytest.fixture
def copy(run, tmp_path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def manifest_of(run: Path) -> dict[str, Any]:
    body = json.loads((run / "checkpoints" / NEWEST / "manifest.json").read_text())
    del body["sha256"]
    return body


def reseal(run: Path, body: dict[str, Any]) -> None:
    (run / "checkpoints" / NEWEST / "manifest.json").write_bytes(_sealed(body))


def fields(values: Any, before: tuple = ()) -> Iterator[tuple]:
    """Where every value of nested dictionaries and lists is."""
    named = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in named:
        yield (*before, name)
        yield from fields(value, (*before, name))


def changed(values: Any, where: tuple, value: Any) -> Any:
    values = json.loads(json.dumps(values))
    inner = values
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    return values


def resumed(run: Path) -> str:
    """How it ended; anything but a start and a sentence comes through."""
    observer = StopAtOnce()
    try:
        resume_run(run, callbacks=[observer])
    except Stop:
        return observer.warnings[0] if observer.warnings else "started"
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017  # it is one of two right ends
        return str(error)
    raise AssertionError("it ended")


def of_the_manifest(body: dict[str, Any]) -> list[tuple]:
    """All fields but those of the settings, which `TrainConfig` checks, of which there are a few."""
    return [where for where in fields(body) if where[:2] != ("facts", "config") or len(where) < 3]


@pytest.fixture
def only_choosing(monkeypatch):
    """End a resumed run when its checkpoint is chosen, before anything is written."""

    class Chosen:
        def run(self, callbacks, checkpoint, notices):
            callbacks[0].warnings += notices
            raise Stop

    monkeypatch.setattr("td3.training.api.probe_environment", lambda config, make, first_step: None)
    monkeypatch.setattr("td3.training.api.require_room", lambda *arguments, **options: False)
    monkeypatch.setattr("td3.training.api.write_facts", lambda path, values: None)
    monkeypatch.setattr("td3.training.api._trainer", lambda *arguments: contextlib.nullcontext(Chosen()))
    monkeypatch.setattr("td3.training.api._callbacks", lambda trainer, given: given)
    monkeypatch.setattr("td3.training.api.begin", lambda trainer, rows: None)


def test_every_field_of_a_manifest_may_be_wrong(copy, only_choosing):
    body, started, tried = manifest_of(copy), set(), 0
    for where in of_the_manifest(body):
        for value in WRONG:
            reseal(copy, changed(body, where, value))
            tried += 1
            if not resumed(copy).startswith("checkpoint 60 "):
                started.add((where, repr(value)))
    assert tried > 300
    # Refused in a sentence of its own, or any value of this kind is right.
    free = {"config", "schema", "seconds", "versions", "pending_evaluations", "saving_seconds", "frozen", "callbacks"}
    assert [(where, value) for where, value in started if not free & {*where}] == []


@pytest.mark.parametrize("field", ["added", "positions", "seconds", "versions", "pending_evaluations", "config"])
def test_a_wrong_fact_is_passed_over_for_the_checkpoint_before_it(copy, only_choosing, field):
    body = manifest_of(copy)
    for value in (-1, "x", [1], {"x": {"y": 1}}):
        reseal(copy, changed(body, ("facts", field), value))
        said = resumed(copy)
        assert said.startswith("checkpoint 60 cannot be used (") or "the configuration is damaged" in said


@pytest.mark.long
def test_every_tensor_of_a_state_may_be_wrong(copy):
    spoil_tensors(copy, load_file(copy / "checkpoints" / NEWEST / "state.safetensors"))


def test_a_tensor_of_a_state_may_be_wrong(copy):
    spoil_tensors(copy, ("updates", "collector.lengths"))


def spoil_tensors(copy: Path, names: Iterable[str]) -> None:
    """Resume, to the end of restoring, with shapes, types and numbers that no run has."""
    body, file = manifest_of(copy), copy / "checkpoints" / NEWEST / "state.safetensors"
    tensors = load_file(file)
    for name in names:
        array = tensors[name]
        for wrong in (
            *(None, np.zeros(0, array.dtype), np.zeros((*array.shape, 2), array.dtype), array.astype(np.float16)),
            *((np.full_like(array, -1),) if name in ("updates", "collector.round") else ()),
            *((np.full_like(array, 1 << 40),) if name == "collector.lengths" else ()),
        ):
            changed = {key: value for key, value in tensors.items() if key != name}
            content = save(changed if wrong is None else {**changed, name: wrong})
            file.write_bytes(content)
            reseal(copy, {**body, "state": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}})
            said = resumed(copy)
            # What has no length of its own may be empty, or less exact.
            if not name.startswith(("history.", "unlogged_episodes", "collector.actions")):
                assert "has a checkpoint that does not fit its run (" in said, (name, wrong)


@pytest.mark.parametrize("size", [6 << 30, 1 << 40])
def test_a_manifest_cannot_have_gigabytes_of_zeros_read(copy, size):
    """The file is there, sparse, and as large as the manifest says; it is not opened."""
    body = manifest_of(copy)
    shard = body["shards"][-1]
    for file, where in (
        (copy / "checkpoints" / NEWEST / "state.safetensors", ("state", "bytes")),
        (
            copy / "checkpoints" / "replay_buffer" / f"{shard['first']:012}.safetensors",
            ("shards", len(body["shards"]) - 1, "bytes"),
        ),
    ):
        whole = file.read_bytes()
        os.truncate(file, size)
        reseal(copy, changed(body, where, size))
        checkpoint, refused = Checkpoints(copy).newest()
        assert checkpoint.env_steps == 30
        assert f"should have {size:,} bytes" in refused[0]
        file.write_bytes(whole)


def test_shards_that_overlap_or_are_listed_again_are_refused(copy):
    body = manifest_of(copy)
    for shards in (body["shards"] * 2, body["shards"][::-1] if len(body["shards"]) > 1 else [*body["shards"]] * 3):
        reseal(copy, {**body, "shards": shards})
        assert "the buffer has a gap" in Checkpoints(copy).newest()[1][0]
