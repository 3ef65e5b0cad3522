"""`td3 bench` and `td3 reproduce`: measure speed, and train and store the results."""

import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from td3.cli.options import Commands
from td3_lab.bench.options import BENCHMARKS, AnyBench
from td3_lab.reproduce.rows import OUT

if TYPE_CHECKING:
    from td3.config import TrainConfig
    from td3.run.directory import Run


@dataclass(frozen=True)
class ReproduceCommand:
    """List the stored results, or train a row and compare it with the stored one: `td3 reproduce hopper_v5`.

    What is compared is the mean of each seed's last ten evaluations, by Welch's 95 % interval of the difference; within
    10 % of the stored return they are equivalent. A row of ten seeds takes minutes on a large GPU and hours on a CPU.
    """

    rows: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ROW...")] = ()
    """Rows or whole tables to train; without any, the stored results are listed."""
    seeds: int | None = None
    """Seeds to train instead of the row's own number; a verdict needs at least five."""
    first_seed: int | None = None
    """The first of them, where others of a row are trained at another time or place; --store adds them to the row."""
    steps: int | None = None
    """Env steps of each seed instead of the row's own number; compared as far as it goes."""
    results: Path = Path("results")
    """The folder of stored results, in a checkout of td3."""
    store: str | None = None
    """Store the trained rows in the results folder, with these words for the hardware: --store "2 cores"."""
    interrupted: bool = False
    """With --store: store a run that has not finished as far as it is, without continuing it."""
    out: Path = OUT
    """Folder of the runs; existing ones are resumed."""
    json: bool = False
    """Print the comparisons as one JSON object instead of text."""


def bench_command(options: AnyBench) -> int:
    """Measure and print."""
    from td3_lab.bench import run

    figures, text = run(options)
    print(json.dumps(figures) if options.json else text)
    return 0


def reproduce_command(command: ReproduceCommand) -> int:
    """List stored results, or train rows, compare them with what is stored, and store them."""
    from td3.callbacks.progress import ProgressDisplay, RetryingConsole
    from td3.run.directory import Run, read_facts
    from td3.training import resume_run, train_run
    from td3_lab.reproduce.command import listing, reproduce
    from td3_lab.reproduce.store import CommitNote

    def train(config: "TrainConfig", out: Path) -> "Run":
        if command.interrupted or read_facts(out / "status.json").get("status") == "finished":
            return Run(out)
        display = ProgressDisplay(RetryingConsole(stderr=command.json, highlight=False))
        try:
            resumed = (out / "config.json").exists()
            callbacks = [display, CommitNote()]
            return resume_run(out, None, callbacks) if resumed else train_run(replace(config, out=out), callbacks)
        finally:
            display.close()

    if not command.rows:
        print("\n".join(listing(command.results)))
        return 0
    say = partial(print, file=sys.stderr if command.json else sys.stdout)
    shorter = {
        name: getattr(command, name) for name in ("seeds", "first_seed", "steps") if getattr(command, name) is not None
    }
    try:
        folders = command.results, command.out
        found = reproduce(command.rows, *folders, shorter, command.store, train, say, command.interrupted)
    except KeyboardInterrupt:
        say("Stopped; the same command continues it.")
        return 130
    if command.json:
        print(json.dumps(found))
    return 0


COMMANDS: Commands = {
    "reproduce": (ReproduceCommand, reproduce_command),
    **{f"bench {name}": (kind, bench_command) for name, kind in BENCHMARKS.items()},
}
