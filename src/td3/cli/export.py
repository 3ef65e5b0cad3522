"""`td3 export` and `td3 push`: a trained agent for other programs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from td3.cli.options import Commands, RunPath, Trust


@dataclass(frozen=True)
class ExportCommand:
    """Write a trained agent as ONNX and PyTorch files with a model card: `td3 export runs/HalfCheetah-v5/latest`."""

    run: RunPath
    """The run directory."""
    out: Path | None = None
    """The folder to write; by default export in the run directory."""
    seed: int | None = None
    """Which seed's agent; by default the one with the highest evaluation."""
    which: Literal["best", "last"] = "best"
    """The agent with the highest evaluation of its seed, or the one at the end of training."""
    sb3: bool = False
    """Also write sb3.zip for Stable-Baselines3."""
    trust: Trust = False
    json: bool = False
    """Print the results as one JSON object instead of text."""


@dataclass(frozen=True)
class PushCommand:
    """Export and upload to the Hugging Face hub: `td3 push runs/HalfCheetah-v5/latest --repo-id anna/td3-cheetah`."""

    run: RunPath
    """The run directory."""
    repo_id: str
    """owner/name on the hub; created if it does not exist."""
    private: bool = False
    """Create the repository as private."""
    seed: int | None = None
    """Which seed's agent; by default the one with the highest evaluation."""
    which: Literal["best", "last"] = "best"
    """The agent with the highest evaluation of its seed, or the one at the end of training."""
    sb3: bool = False
    """Also write sb3.zip for Stable-Baselines3."""
    trust: Trust = False
    json: bool = False
    """Print the results as one JSON object instead of text."""


def export_command(command: ExportCommand) -> int:
    """Export an agent and print how much each file's actions differ from its own."""
    from td3.export import export_run
    from td3.run.directory import Run

    export = export_run(Run(command.run), command.out, command.seed, command.which, command.sb3, command.trust)
    if command.json:
        print(json.dumps({"export": str(export.path), "difference": export.files}))
        return 0
    print(f"The {command.which} agent: {export.agent}")
    for name, difference in export.files.items():
        print(f"{export.path / name}: differs from the agent by {difference:.1e} of half the action range at most")
    if "sb3.zip" in export.files and export.normalized:
        print(f"{export.path / 'sb3.zip'}: what normalizes observations is in its first layers, its clip at 10 is not")
    print(f"Model card: {export.path / 'README.md'}")
    print(f"Next: python {export.path / 'infer.py'}")
    return 0


def push_command(command: PushCommand) -> int:
    """Export and upload."""
    from td3.export import push_run
    from td3.run.directory import Run

    run = Run(command.run)
    address, export = push_run(
        run, command.repo_id, command.private, command.seed, command.which, command.sb3, command.trust
    )
    print(json.dumps({"address": address, "export": str(export.path)}) if command.json else f"Uploaded to {address}")
    return 0


COMMANDS: Commands = {"export": (ExportCommand, export_command), "push": (PushCommand, push_command)}
