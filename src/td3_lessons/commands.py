"""`td3 ladder` and `td3 explain`: TD3 explained."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from td3.cli.options import Commands, Trust


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
    from td3_lessons.ladder import report

    figures, text = report.run(**{f.name: getattr(command, f.name) for f in fields(command) if f.name != "json"})
    print(json.dumps(figures) if command.json else text)
    return 0


def explain_command(command: ExplainCommand) -> int:
    """Write the page and open it."""
    from td3_lessons.explain import explain

    page, opened = explain(command.out, command.run, command.seed, command.at, command.open, command.trust)
    if command.json:
        print(json.dumps({"page": str(page), "opened": opened}))
    else:
        print(f"{page}: {'opened in your browser' if opened else 'open it in a browser'}")
    return 0


COMMANDS: Commands = {
    "ladder": (LadderCommand, ladder_command),
    "explain": (ExplainCommand, explain_command),
}
