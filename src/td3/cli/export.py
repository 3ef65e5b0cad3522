"""`td3 export`: a trained agent for other programs, and for others to download."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from td3.cli.options import BestSeed, Commands, Json, RunPath, Trust, Which
from td3.errors import ConfigError


@dataclass(frozen=True)
class ExportCommand:
    """Write a trained agent as ONNX and PyTorch files with a model card: `td3 export runs/HalfCheetah-v5/latest`."""

    run: RunPath
    out: Path | None = None
    """The folder to write; by default export in the run directory."""
    seed: BestSeed = None
    which: Which = "best"
    sb3: bool = False
    """Also write sb3.zip for Stable-Baselines3."""
    push: Annotated[str | None, tyro.conf.arg(metavar="OWNER/NAME")] = None
    """Upload the folder to this repository of the Hugging Face hub, which is created if it does not exist."""
    private: bool = False
    """With --push: create the repository as private."""
    trust: Trust = False
    json: Json = False


def export_command(command: ExportCommand) -> int:
    """Export an agent, print how much each file's actions differ from its own, and upload the folder on request."""
    from td3.export import export_run, push, require_hub
    from td3.run.directory import Run

    if command.push is not None:
        require_hub(command.push)
    elif command.private:
        raise ConfigError("--private is of a repository on the hub: add --push OWNER/NAME.")
    export = export_run(Run(command.run), command.out, command.seed, command.which, command.sb3, command.trust)
    address = None if command.push is None else push(export, command.push, command.private)
    if command.json:
        uploaded = {} if address is None else {"address": address}
        print(json.dumps({"export": str(export.path), "difference": export.files, **uploaded}))
        return 0
    print(f"The {command.which} agent: {export.agent}")
    for name, difference in export.files.items():
        print(f"{export.path / name}: differs from the agent by {difference:.1e} of half the action range at most")
    if "sb3.zip" in export.files and export.normalized:
        print(f"{export.path / 'sb3.zip'}: what normalizes observations is in its first layers, its clip at 10 is not")
    print(f"Model card: {export.path / 'README.md'}")
    if address is not None:
        print(f"Uploaded to {address}")
    print(f"Next: python {export.path / 'infer.py'}")
    return 0


COMMANDS: Commands = {"export": (ExportCommand, export_command)}
