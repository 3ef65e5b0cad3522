"""Whatever a run's tables and small files hold: `td3 report` and `td3 doctor` answer, or refuse in one sentence."""

import csv
import io
import json
import os
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

from report.made import make_run
from td3.cli import main
from td3.errors import UserError
from td3.report.doctor import examine_run
from td3.report.records import read_run
from td3.report.render import page
from td3.report.summary import describe_runs, figures
from td3.run.directory import PARTS
from td3.run.tables import DIAGNOSTICS, METRICS

TABLES = {
    "seed_0/metrics.csv": METRICS,
    "seed_0/diagnostics.csv": DIAGNOSTICS,
    "seed_0/evaluations.csv": ("env_steps", "success_rate"),
    "times.csv": ("env_steps", *PARTS, "device"),
}
TEXTS = ("policy_actions", "played_actions", "device")
NEVER_A_NUMBER = ("", "x", "1" * 5_000, "-" + "9" * 400, "1e400", "[1]", "{}", "true", "null", "1;2", "\x00", "--1")
STRANGE = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "0.5",
    "1e308",
    "-1e308",
    "1e-320",
    "9" * 16,
    "1_0",
    " 7 ",
    "\u0661",
    "1e16",
)
JSON_VALUES = (
    *(None, True, [], {}, [1], {"a": 1}, "x", "", -1, 0.5, 10**400, -(10**400), 10**4_000, 2**53 + 2, 1e300),
    *(float("nan"), float("inf"), "a" * 10_000, "\x1b[31mred", [[[[]]]], "\u2028", "<script>", 0),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", seeds=1, evaluations=6, every=1_000)


def answered(folder: Path, drawn: bool = True) -> str:
    """What it was refused with, or nothing: all that report and doctor do, but for writing (or drawing) the page."""
    refused, records = "", None
    try:
        records = read_run(folder)
    except UserError as refusal:
        refused = str(refusal)
    if records is None:
        assert refused.isprintable()
        assert len(refused) < len(str(folder)) + 500
        return refused
    found = figures([records])
    json.dumps(found, allow_nan=False)
    describe_runs(found)
    examine_run(records)
    text = page([records]) if drawn else ""
    assert "nan" not in text.partition("</style>")[2].replace(", on nan.", "")  # a device may be called so
    return ""


@pytest.fixture(autouse=True)
def quickly():
    """Without the shape checks, as users run it, and in a third of the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def with_cell(text: str, row: int, column: str, value: str) -> str:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    rows[row][rows[0].index(column)] = value
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()


@pytest.mark.parametrize(("name", "column"), [(name, column) for name, columns in TABLES.items() for column in columns])
def test_any_cell_of_a_table_is_read_or_refused_by_row_and_column(run, name, column):
    path = run / name
    before = path.read_text()
    random = np.random.default_rng(len(name) + len(column))
    try:
        together = before  # the page is drawn once, with every value that is accepted
        for value in NEVER_A_NUMBER + STRANGE:
            row = int(random.integers(1, before.count("\n")))
            path.write_text(with_cell(before, row, column, value), newline="")
            refused = answered(run, drawn=False)
            together = together if refused else with_cell(together, row, column, value)
            assert refused == "" or refused.startswith(f"{path}, row {row + 1}, column {column}: ")
            if value in NEVER_A_NUMBER and column not in TEXTS:
                assert refused, value
            if value in ("-1", "1e308", "-1e308", "1e16") and column in ("env_steps", "updates", "episodes", *PARTS):
                assert refused or value == "1e16", value
        path.write_text(together, newline="")
        assert answered(run) == ""
    finally:
        path.write_text(before, newline="")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("\n", ",5\n", 2).replace(",5\n", "\n", 1), "row 2: it has"),
        (lambda text: text.replace("\n", "\n\n", 1), "row 2: it has 0 cells"),
        (lambda text: text.replace("env_steps", "steps"), "row 1: "),
        (lambda text: "env_steps,env_steps\n1,2\n", "row 1: "),
        (lambda text: 'env_steps,x\n1,"', ""),  # a row that is being written
        (lambda text: 'env_steps,x\n1,"a"b\n', "is not CSV"),
        (lambda text: f"env_steps,x\n1,{'a' * 200_000}\n", "is not CSV"),
        (lambda text: "", ""),
        (lambda text: text.partition("\n")[0], ""),
        (lambda text: text.partition("\n")[0] + "\n", ""),
        (lambda text: "env_steps\n0\n7\n", ""),  # an earlier version, which wrote no other column
        (lambda text: text[: len(text) // 2], ""),
    ],
)
def test_a_table_of_another_shape_is_read_or_refused(run, name, change, said):
    path = run / name
    before = path.read_text()
    try:
        path.write_text(change(before.replace("\r\n", "\n")), newline="")
        refused = answered(run)
    finally:
        path.write_text(before, newline="")
    assert (said in refused) if said else refused == ""


def test_bytes_that_are_no_text_are_refused(run):
    path = run / "times.csv"
    before = path.read_bytes()
    try:
        path.write_bytes(bytes(range(128, 256)) + b"\n")
        assert "times.csv is damaged" in answered(run)
    finally:
        path.write_bytes(before)


FIELDS = ("status", "env_steps", "reason", "seconds", "saving_seconds", "frozen", "frozen.0", "frozen.0.env_steps")


@pytest.mark.parametrize("field", [*FIELDS, "frozen.0.reason", "frozen.9"])
def test_any_value_in_status_is_read_or_refused_by_field(run, field):
    path = run / "status.json"
    before = path.read_text()
    try:
        for value in JSON_VALUES:
            status = json.loads(before)
            *parents, last = field.split(".")
            place = status
            if parents:
                status["frozen"] = {"0": {"env_steps": 10, "reason": "its loss was NaN"}}
                for parent in parents:
                    place = place[parent]
            place[last] = value
            path.write_text(json.dumps(status))
            refused = answered(run, drawn=isinstance(value, str))
            assert refused == "" or f"{path}, field {field.partition('.')[0]}" in refused or "is not JSON" in refused
            if field in ("env_steps", "seconds", "frozen.0.env_steps") and not isinstance(value, int | float):
                assert refused, value
            if field == "status" and not isinstance(value, str):
                assert refused, value
    finally:
        path.write_text(before)
    assert answered(run) == ""


def test_any_value_in_versions_is_read_or_refused_by_field(run):
    path = run / "versions.json"
    before = path.read_text()
    try:
        for value in (*JSON_VALUES, "1" * 5_000, "\u00b2.\u00b2", "3.x", "..", "1" * 1_999):
            path.write_text(json.dumps({"python": "3.11", "mujoco": value}))
            refused = answered(run)
            assert refused == "" or f"{path}, field mujoco" in refused
            assert bool(refused) == (not isinstance(value, str) or len(value) > 2_000)
        for value in (*JSON_VALUES, "1" * 5_000):
            path.write_text(json.dumps(value))
            assert answered(run) == "" if value in ({}, {"a": "1"}) else answered(run)
    finally:
        path.write_text(before)


@pytest.mark.parametrize("name", ["status.json", "versions.json"])
@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"a":' * 100_000, '{"env_steps": ' + "9" * 5_000 + "}", "\xff"]
)
def test_what_is_not_json_is_refused(run, name, text):
    path = run / name
    before = path.read_bytes()
    try:
        path.write_bytes(text.encode("latin-1"))
        assert f"{path} is damaged" in answered(run)
    finally:
        path.write_bytes(before)


SPECIAL = [*TABLES, "status.json", "versions.json", "config.json", "seed_0/evaluations.npz"]


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize("command", ["report", "doctor"])
def test_only_regular_files_are_read(tmp_path, capsys, name, kind, command):
    folder = make_run(tmp_path / "run", seeds=1, evaluations=3)
    path = folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    assert main([command, str(folder)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("td3: ")
    assert errors.count("\n") == 1
    assert path.name in errors


@pytest.mark.parametrize("command", ["report", "doctor"])
def test_a_wrong_cell_ends_with_one_sentence_and_exit_code_2(tmp_path, capsys, command):
    folder = make_run(tmp_path / "run", seeds=1, evaluations=3)
    path = folder / "seed_0" / "metrics.csv"
    path.write_text(with_cell(path.read_text(), 2, "updates", "1" * 5_000), newline="")
    assert main([command, str(folder)]) == 2
    said = f"td3: {path}, row 3, column updates: '{'1' * 40}...' is not a whole number from 0 to "
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.startswith(said)


@pytest.mark.parametrize(
    ("steps", "returns"),
    [
        *(([0, 0], [[1.0], [2.0]]), ([5, 3], [[1.0], [2.0]]), ([-1, 3], [[1.0], [2.0]]), ([0, 1], [[np.nan], [2.0]])),
        *(([0, 1], [[np.inf], [2.0]]), ([0, 1], [[1e300], [2.0]]), ([0.0, np.nan], [[1.0], [2.0]])),
    ],
)
def test_evaluations_that_no_run_writes_are_refused(tmp_path, steps, returns):
    folder = make_run(tmp_path / "run", seeds=1, evaluations=3)
    own = folder / "seed_0" / "evaluations.npz"
    np.savez(own, timesteps=np.array(steps), results=np.array(returns), ep_lengths=np.array(returns))
    assert f"{own} has env steps that do not increase, or returns" in answered(folder)


def test_seeds_without_a_shared_evaluation_are_refused(tmp_path):
    folder = make_run(tmp_path / "run", seeds=2, evaluations=3)
    returns = np.ones((2, 1))
    np.savez(folder / "seed_0" / "evaluations.npz", timesteps=np.array([1, 2]), results=returns, ep_lengths=returns)
    assert "has seeds without one evaluation at the same env step" in answered(folder)
