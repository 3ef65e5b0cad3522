"""`td3 reproduce ROW --store` that is killed: nothing stored is lost, and the same command ends as if undisturbed."""

import json
import os
import shutil
import signal
import sys
from dataclasses import replace

import pytest
from faults.killing import CONTEXT, preload
from faults.operations import Crash, watched
from td3_lab.reproduce.command import listing
from td3_lab.reproduce.figures import read_curve
from td3_lab.reproduce.rows import Row
from td3_lab.reproduce.store import store

from td3.run import lock
from td3.training import train_run

SMALL = {"hidden_sizes": (8, 8), "batch_size": 8, "learning_starts": 20}
ROW = Row("rail", "table1", "Rail-v0", 400, 2, settings=SMALL, eval_every=100)


@pytest.fixture(autouse=True)
def row(monkeypatch):
    for module in ("rows", "command"):
        monkeypatch.setattr(f"td3_lab.reproduce.{module}.ROWS", (ROW,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Both seeds together, and each of them alone."""
    out = tmp_path_factory.mktemp("runs")
    config = replace(ROW.config(), device="cpu", save_every=0)
    together = train_run(replace(config, out=out / "together"))
    alone = [train_run(replace(config, seed=seed, seeds=1, out=out / f"seed_{seed}")) for seed in (0, 1)]
    return {"both": together, "first": alone[0], "second": alone[1]}


def stored(folder):
    """What is stored, without how long it took."""
    files = {path.name: path.read_text() for path in folder.iterdir()}
    facts = json.loads(files.pop("run.json"))
    for part in (facts, *facts.get("parts", ())):
        part.pop("seconds")
    return files, facts


LONG = [((), "first"), (("first", "second"), "second"), (("both",), "both")]


@pytest.mark.parametrize(
    ("before", "storing"),
    [((), "both"), (("first",), "second"), *(pytest.param(*each, marks=pytest.mark.long) for each in LONG)],
)
def test_storing_that_ends_at_any_moment_is_done_or_not_and_can_be_repeated(runs, tmp_path, before, storing):
    results, folder = tmp_path / "results", tmp_path / "results" / "rail"
    results.mkdir()
    for name in before:
        store(runs[name], ROW, results, "two cores")
    earlier = stored(folder) if before else None
    shutil.copytree(results, tmp_path / "earlier")
    with watched() as operations:
        store(runs[storing], ROW, results, "two cores")
    whole = stored(folder)
    for operation in range(len(operations)):
        shutil.rmtree(results)
        shutil.copytree(tmp_path / "earlier", results)
        with pytest.raises(Crash), watched(operation, "crash"):
            store(runs[storing], ROW, results, "two cores")
        lock._close_all()  # as the end of a process does
        assert len(listing(results)) > 1
        assert read_curve(folder) is None or stored(folder) in (earlier, whole), operations[operation]
        store(runs[storing], ROW, results, "two cores")
        assert stored(folder) == whole, operations[operation]
        assert [path.name for path in results.iterdir() if path.name != ".lock"] == ["rail"]


def reproduce_row(folder, rounds):
    """The command, in a process that is killed after so many rounds of training."""
    from td3_lab.reproduce import command, rows

    from td3.callbacks.checkpoints import CheckpointCallback
    from td3.cli import main
    from td3.training.trainer import Trainer

    rows.ROWS = command.ROWS = (ROW,)
    CheckpointCallback._is_due = lambda self, trainer: trainer.is_due(80)
    train, counted = Trainer._round, []

    def watched_round(self):
        train(self)
        counted.append(1)
        if len(counted) == rounds:
            os.kill(os.getpid(), signal.SIGKILL)

    Trainer._round = watched_round
    words = ["--results", str(folder / "results"), "--out", str(folder / "runs"), "--store", "two cores"]
    sys.exit(main(["reproduce", "rail", *words]))


def test_a_row_whose_training_is_killed_is_stored_as_if_undisturbed(tmp_path):
    preload()
    codes = {}
    for name, kills in (("whole", [0]), ("killed", [190, 0])):
        (tmp_path / name / "results").mkdir(parents=True)
        codes[name] = []
        for rounds in kills:
            process = CONTEXT.Process(target=reproduce_row, args=(tmp_path / name, rounds))
            process.start()
            process.join()
            codes[name].append(process.exitcode)
    assert codes == {"whole": [0], "killed": [-signal.SIGKILL, 0]}
    whole, killed = (stored(tmp_path / name / "results" / "rail") for name in ("whole", "killed"))
    assert killed == whole
