"""`td3 steps`: the fifteen steps, or what a run has in their place."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from td3.cli.options import Commands, Json


@dataclass(frozen=True)
class StepsCommand:
    """List the fifteen steps, or those that a run replaced: `td3 steps runs/Pendulum-v1/latest`."""

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]")] = None
    """A run directory, to show its replaced steps; without it, the steps and the variants are listed."""
    json: Json = False


def steps_command(command: StepsCommand) -> int:
    """Print signatures and files, or the differences of a run's steps from the originals."""
    from td3.run.directory import Run
    from td3.variants import listing, read_record

    if command.run is not None:
        replaced = read_record(Run(command.run).path)
        print(json.dumps(replaced) if command.json else listing.differences(replaced))
        return 0
    print(json.dumps(listing.steps()) if command.json else listing.overview())
    return 0


COMMANDS: Commands = {"steps": (StepsCommand, steps_command)}
