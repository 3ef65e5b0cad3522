"""Commands of packages that are built on td3: by the entry points that they declare, and the lab of a checkout."""

import sys
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from td3.cli.options import Commands

GROUP = "td3.commands"
"""The entry points: each names a dictionary of commands, as `COMMANDS` of the files beside this one."""
LAB = Path(__file__).parents[3] / "lab"
"""Maintainers' measurements, beside src in a checkout; an installed wheel has none."""
LESSONS = "comes with td3_lessons, which is not installed here: install td3 again, in a checkout by  make train"
CHECKOUT = "is for maintainers and needs a checkout of td3: in its folder,  pip install --editable ."
ABSENT = {"explain": LESSONS, "ladder": LESSONS, "bench": CHECKOUT, "reproduce": CHECKOUT}
"""What is said of a command whose package is not there."""


def commands_of_packages() -> Commands:
    """The commands of all installed packages, and of the lab."""
    commands: Commands = {}
    for entry in sorted(entry_points(group=GROUP)):
        if find_spec(entry.module.partition(".")[0]) is not None:
            commands |= entry.load()
    return commands | _commands_of_lab()


def _commands_of_lab() -> Commands:
    if not (LAB / "td3_lab").is_dir():
        return {}
    if str(LAB) not in sys.path:
        sys.path.append(str(LAB))
    commands: Commands = import_module("td3_lab.commands").COMMANDS
    return commands
