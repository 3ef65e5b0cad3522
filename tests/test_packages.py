"""Commands of packages that are built on td3."""

from importlib.metadata import EntryPoint

import pytest

from td3.cli import COMMANDS, main, packages


def test_lessons_bring_their_commands():
    assert COMMANDS["explain"][0].__module__ == COMMANDS["ladder"][0].__module__ == "td3_lessons.commands"
    assert [entry.value for entry in packages.entry_points(group=packages.GROUP)] == ["td3_lessons.commands:COMMANDS"]


@pytest.mark.parametrize("name", ["explain", "ladder"])
def test_without_the_lessons_their_commands_give_one_sentence(monkeypatch, capsys, name):
    gone = EntryPoint("lessons", "no_lessons.commands:COMMANDS", packages.GROUP)
    monkeypatch.setattr(packages, "entry_points", lambda group: [gone])
    assert packages.commands_of_packages() == {}
    monkeypatch.delitem(COMMANDS, name)
    assert main([name, "--help"]) == 2
    said = f"td3: `td3 {name}` comes with td3_lessons, which is not installed here: install td3 again"
    assert capsys.readouterr().err.startswith(said)
