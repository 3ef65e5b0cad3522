"""Commands of packages that are built on td3, found by the entry points that they declare."""

from importlib.metadata import entry_points
from importlib.util import find_spec

from td3.cli.options import Commands

GROUP = "td3.commands"
"""The entry points: each names a dictionary of commands, as `COMMANDS` of the files beside this one."""
LESSONS = "comes with td3_lessons, which is not installed here: install td3 again, in a checkout by  make train"
ABSENT = {"explain": LESSONS, "ladder": LESSONS}
"""What is said of a command whose package is not there."""


def commands_of_packages() -> Commands:
    """The commands of all installed packages."""
    commands: Commands = {}
    for entry in sorted(entry_points(group=GROUP)):
        if find_spec(entry.module.partition(".")[0]) is not None:
            commands |= entry.load()
    return commands
