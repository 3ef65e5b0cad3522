"""Commands of packages that are built on td3."""

import sys
from importlib.metadata import EntryPoint

import pytest

from td3.cli import COMMANDS, main, packages, parse

CLI = sys.modules["td3.cli.main"]
HOMES = {name: kind.__module__ for name, (kind, _) in COMMANDS.items()}


@pytest.fixture
def as_found(monkeypatch):
    """The commands as they are found again after a change."""

    def find():
        monkeypatch.setattr(CLI, "COMMANDS", {**CLI.OWN, **packages.commands_of_packages()})

    return find


def test_lessons_bring_their_commands_by_entry_points():
    assert HOMES["explain"] == HOMES["ladder"] == "td3_lessons.commands"
    assert [entry.value for entry in packages.entry_points(group=packages.GROUP)] == ["td3_lessons.commands:COMMANDS"]


def test_a_checkout_has_the_commands_of_the_lab():
    assert HOMES["reproduce"] == "td3_lab.commands"
    assert HOMES["bench loop"] == "td3_lab.bench.options"


@pytest.mark.parametrize("name", ["explain", "ladder"])
def test_without_the_lessons_their_commands_give_one_sentence(monkeypatch, capsys, as_found, name):
    gone = EntryPoint("lessons", "no_lessons.commands:COMMANDS", packages.GROUP)
    monkeypatch.setattr(packages, "entry_points", lambda group: [gone])
    as_found()
    assert main([name, "--help"]) == 2
    said = f"td3: `td3 {name}` comes with td3_lessons, which is not installed here: install td3 again"
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("words", [["bench"], ["bench", "loop"], ["bench", "-h"], ["reproduce", "-h"]], ids=" ".join)
def test_without_a_checkout_its_commands_give_one_sentence(monkeypatch, capsys, as_found, tmp_path, words):
    monkeypatch.setattr(packages, "LAB", tmp_path)
    as_found()
    assert main(words) == 2
    said = "is for maintainers and needs a checkout of td3: in its folder,  pip install --editable ."
    assert capsys.readouterr().err == f"td3: `td3 {words[0]}` {said}\n"
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "td3 explain" in shown
    assert f"td3 {words[0]}" not in shown
    assert parse(["envs"])
