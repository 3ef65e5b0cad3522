"""`td3 ladder`, `td3 explain` and `td3 steps`: TD3 explained."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from td3.cli.options import Commands, Trust
from td3.errors import ConfigError


@dataclass(frozen=True)
class LadderCommand:
    """Climb from Q-learning to TD3 in six rungs: `td3 ladder` lists them, `td3 ladder 3` runs one, `... all` all."""

    rung: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUNG")] = "list"
    """1 to 6, or all; without it, the rungs are listed."""
    env: str = "Rail-v0"
    """Environment of one rung; CartPole-v1 suits rung 2, FrozenLake-v1 rungs 1 and 2."""
    seed: int = 0
    """The first seed."""
    seeds: int = 10
    """Seeds of each rung, for `all`."""
    steps: int | None = None
    """Env steps of each run; by default as many as the rung needs on Rail."""
    reward_noise: float = 0.0
    """Standard deviation of noise on Rail's rewards, for one rung."""
    out: Path | None = None
    """The plot (.png or .svg) of one rung, or the page (.html) of all; by default under runs/ladder."""
    plot: Path | None = None
    """With `all`: also the curves and the overestimation as one plot (.png or .svg)."""
    json: bool = False
    """Print the results as one JSON object instead of text."""


@dataclass(frozen=True)
class ExplainCommand:
    """Write and open an interactive page that explains the fifteen steps: `td3 explain`."""

    out: Path = Path("runs/explain/fifteen_steps.html")
    """The page, one self-contained HTML file."""
    run: Path | None = None
    """Use the networks of this run directory, and its replaced steps, instead of the lesson's cart on a rail."""
    seed: int | None = None
    """With --run: which seed's networks; by default the best one."""
    at: str = ""
    """View to open, as in the page's address after the #, such as "step=9&row=2"."""
    open: bool = True
    """Open the page in a browser if there is a display."""
    trust: Trust = False
    json: bool = False
    """Print the page's path as one JSON object instead of text."""


def ladder_command(command: LadderCommand) -> int:
    """List the rungs, run one, or run all and write the page."""
    from td3.ladder import report

    figures, text = report.run(**{f.name: getattr(command, f.name) for f in fields(command) if f.name != "json"})
    print(json.dumps(figures) if command.json else text)
    return 0


def explain_command(command: ExplainCommand) -> int:
    """Write the page and open it."""
    from td3.explain import explain

    page, opened = explain(command.out, command.run, command.seed, command.at, command.open, command.trust)
    if command.json:
        print(json.dumps({"page": str(page), "opened": opened}))
    else:
        print(f"{page}: {'opened in your browser' if opened else 'open it in a browser'}")
    return 0


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


COMMANDS: Commands = {
    "ladder": (LadderCommand, ladder_command),
    "explain": (ExplainCommand, explain_command),
    "steps": (StepsCommand, steps_command),
}
