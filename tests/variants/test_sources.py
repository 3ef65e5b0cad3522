"""The user's files that a run imports: recorded by content, and compared when the run is resumed."""

import functools
import importlib
import json
import sys
import warnings
import zlib

import pytest
from scripted import SMALL

import td3
from td3.algorithm.replacing import replacements_of
from td3.cli import main
from td3.errors import RunError
from td3.variants import find_replacements, record_of
from td3.variants.sources import LARGEST_TEXTS, SOURCES, is_own, own_files, record_sources, sources_after

FIELDS = {**SMALL, "device": "cpu", "steps": 60, "eval_every": 0}
STEPS = """import td3
from {name}_helper import loss


@td3.replace_step(11)
def mine(q_values, target_q):
    return loss(q_values - target_q)
"""


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """A folder of modules with names of their own, forgotten afterwards."""
    name = f"p{zlib.crc32(request.node.nodeid.encode())}"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "steps_of.py").write_text(STEPS.format(name=name))
    write_loss(tmp_path, name, "error.square()")
    yield tmp_path, name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def write_loss(folder, name, error):
    (folder / f"{name}_helper.py").write_text(
        f"import {name}_other\n\n\ndef loss(error):\n    return ({error}).mean(-1).sum(0)\n"
    )
    (folder / f"{name}_other.py").write_text("VALUE = 1\n")


def forget(name):
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]
    importlib.invalidate_caches()


def files_of(run):
    return json.loads((run / SOURCES).read_text())


def resumed(run, capsys, steps):
    capsys.readouterr()
    assert main(["resume", str(run), "--steps", str(steps), "--trust"]) == 0
    return " ".join("".join(capsys.readouterr()).split())


def test_an_edited_helper_of_a_step_is_noticed_and_both_versions_are_kept(project, tmp_path, capsys):
    folder, name = project
    run = td3.train("Rail-v0", out=tmp_path / "run", replace_steps=[f"{folder / 'steps_of.py'}:mine"], **FIELDS).path
    (version,) = files_of(run)["versions"]
    assert {*version["files"]} == {"steps_of", f"{name}_helper", f"{name}_other"}
    forget(name)
    assert "changed" not in resumed(run, capsys, 80)
    write_loss(folder, name, "error.abs()  ")
    forget(name)
    said = resumed(run, capsys, 100)
    assert f"{name}_helper.py has changed since the run began: the run continues, but not as it would have" in said
    record = files_of(run)
    assert [one["from_env_step"] for one in record["versions"]] == [0, 80]
    texts = [record["texts"][one["files"][f"{name}_helper"]["sha256"]] for one in record["versions"]]
    assert ["square" in text for text in texts] == [True, False]
    (folder / f"{name}_other.py").write_text("VALUE = 2\n")
    forget(name)
    assert f"{name}_other.py has changed since env step 80" in resumed(run, capsys, 120)


def test_files_of_environments_and_callbacks_are_recorded_and_compared(project, tmp_path, capsys):
    folder, name = project
    text = f"import {name}_other\nfrom scripted import Scripted\nimport td3\n\n\nclass World(Scripted):\n    pass\n\n\n"
    (folder / f"{name}_world.py").write_text(f"{text}class Listener(td3.Callback):\n    pass\n")
    run = td3.train(f"{name}_world:World", out=tmp_path / "named", **FIELDS).path
    assert {f"{name}_world", f"{name}_other", "scripted"} == {*files_of(run)["versions"][0]["files"]}
    module = sys.modules[f"{name}_world"]
    by_class = td3.train(module.World, out=tmp_path / "class", **FIELDS)
    assert f"{name}_other" in files_of(by_class.path)["versions"][0]["files"]
    with_callback = td3.train("Rail-v0", out=tmp_path / "callback", callbacks=[module.Listener()], **FIELDS)
    assert f"{name}_other" in files_of(with_callback.path)["versions"][0]["files"]
    registered = td3.train("Scripted-v0", out=tmp_path / "registered", **FIELDS)
    assert {*files_of(registered.path)["versions"][0]["files"]} == {"scripted"}
    with (folder / f"{name}_world.py").open("a") as file:
        file.write("# edited\n")
    forget(name)
    assert f"{name}_world.py has changed since the run began" in resumed(run, capsys, 80)


def test_runs_of_packages_alone_record_nothing(tmp_path):
    run = td3.train("Rail-v0", out=tmp_path / "run", variant="prioritized", **FIELDS)
    assert not (run.path / SOURCES).exists()


def test_functions_that_a_closure_captured_are_recorded_wherever_they_come_from(project):
    folder, name = project
    loss = importlib.import_module(f"{name}_helper").loss
    (folder / f"{name}_more.py").write_text("def absolute(error):\n    return error.abs().mean(-1).sum(0)\n")
    absolute = importlib.import_module(f"{name}_more").absolute

    def step_with(inner):
        @td3.replace_step(11)
        def mine(q_values, target_q):
            return inner(q_values - target_q)

        return mine

    records = [record_of(replacements_of([step_with(inner)]))[0] for inner in (loss, absolute, functools.partial(loss))]
    assert "error.square()" in records[0]["uses"]
    assert "error.abs()" in records[1]["uses"]
    assert len({one["sha256"] for one in records}) == 2
    assert {f"{name}_helper", f"{name}_other"} <= {*own_files([step_with(functools.partial(loss))])}


def test_a_file_of_steps_is_named_once(project, tmp_path):
    folder, _ = project
    file = folder / "steps_of.py"

    def after(env_step, said=""):
        functions = [one.function for one in find_replacements((), [f"{file}:mine"])]
        record, sentences = sources_after(tmp_path, functions, env_step, said)
        (tmp_path / SOURCES).write_text(json.dumps(record))
        return sentences

    assert after(0) == []
    file.write_text(file.read_text() + "# a remark\n")
    (sentence,) = after(10)
    assert sentence.startswith(f"{file} has changed since the run began")
    file.write_text(file.read_text().replace("loss(q", "2 * loss(q"))
    assert after(20, said="step 11 (mine) has changed since env step 10") == []
    assert [one["from_env_step"] for one in files_of(tmp_path)["versions"]] == [0, 10, 20]
    # From an older checkpoint: what was trained after it is lost.
    assert after(10) != []
    assert [one["from_env_step"] for one in files_of(tmp_path)["versions"]] == [0, 10]


def test_nothing_is_imported_or_executed_to_find_files(project):
    folder, name = project
    (folder / f"{name}_lazy.py").write_text("raise RuntimeError('executed')\n")
    (folder / f"{name}_root.py").write_text(f"def late():\n    import {name}_lazy\n    from . import nothing\n")
    importlib.import_module(f"{name}_root")
    before = {*sys.modules}
    assert {*own_files([f"{name}_root", f"{name}_lazy", "not_imported"])} == {f"{name}_root"}
    assert {*sys.modules} == before


def test_kept_text_is_bounded(project, monkeypatch):
    folder, name = project
    (folder / f"{name}_large.py").write_text(f"TEXT = '{'x' * LARGEST_TEXTS}'\n")
    importlib.import_module(f"{name}_large")
    record = record_sources([f"{name}_large"])
    assert len(record["versions"][0]["files"][f"{name}_large"]["sha256"]) == 64
    assert record["texts"] == {}


def test_own_is_what_is_neither_pythons_nor_td3s_nor_installed(tmp_path):
    assert [is_own(module.__file__) for module in (json, td3, pytest)] == [False] * 3
    assert is_own(__file__)
    assert is_own("<ipython-input-3-abc>")
    assert not is_own("<frozen importlib>")


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"versions": [{"from_env_step": 0, "files": []}], "texts": {}}', '{"versions": 1}']
)
def test_a_damaged_record_is_one_sentence(tmp_path, text):
    (tmp_path / SOURCES).write_text(text)
    with warnings.catch_warnings(), pytest.raises(RunError, match=r"sources\.json is damaged"):
        sources_after(tmp_path, [], 10)
