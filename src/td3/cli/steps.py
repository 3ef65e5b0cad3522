"""`td3 steps`: the fifteen steps, and what a run has in their place."""

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from td3.cli.options import Commands
from td3.errors import ConfigError


@dataclass(frozen=True)
class StepsCommand:
    """List the fifteen steps; `td3 steps diff RUN` shows those that a run replaced."""

    diff: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="diff RUN")] = ()
    """The word diff and a run directory; without them, the steps and the variants are listed."""
    json: bool = False
    """Print the list, or the replaced steps, as one JSON object instead of text."""


def steps_command(command: StepsCommand) -> int:
    """Print signatures and files, or the differences of a run's steps from the originals."""
    from td3.run.directory import Run
    from td3.variants import listing, read_record

    if command.diff:
        word, *paths = command.diff
        if word != "diff" or len(paths) != 1:
            raise ConfigError(f"`td3 steps {' '.join(command.diff)}` is not known: use `td3 steps diff RUN`.")
        replaced = read_record(Run(paths[0]).path)
        print(json.dumps(replaced) if command.json else listing.differences(replaced))
        return 0
    print(json.dumps(listing.steps()) if command.json else listing.overview())
    return 0


COMMANDS: Commands = {"steps": (StepsCommand, steps_command)}
