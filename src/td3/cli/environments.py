"""`td3 envs`: which environments can be trained here."""

import json
from dataclasses import dataclass

from td3.cli.options import Commands


@dataclass(frozen=True)
class EnvsCommand:
    """List the environments, and the missing extra of those that are not installed: `td3 envs`."""

    json: bool = False
    """Print the list as one JSON object instead of text."""


def envs_command(command: EnvsCommand) -> int:
    """List the families of environments."""
    from td3.environments import families, note_on

    found = families()
    if command.json:
        listed = {
            family.title: {"available": ready, "extra": family.extra, "environments": family.examples}
            for family, ready in found
        }
        print(json.dumps(listed))
        return 0
    for family, ready in found:
        state = "ready" if ready else f"missing: pip install 'td3[{family.extra}]'"
        state += f"; {note}" if not ready and (note := note_on(family)) else ""
        print(f"{family.title} ({state})")
        print("  " + "  ".join(family.examples))
    print("This project's own (ready)\n  Rail-v0")
    print("Any other Gymnasium environment with continuous actions: td3 train your_module:YourEnv-v0, or :YourClass")
    return 0


COMMANDS: Commands = {"envs": (EnvsCommand, envs_command)}
