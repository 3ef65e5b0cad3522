"""What `td3 steps` prints: the fifteen steps with their signatures, and what a run replaced."""

import difflib
import inspect
from pathlib import Path
from typing import Any

import td3.algorithm.update  # noqa: F401  # imports every step, which registers it
from td3.algorithm.registry import STEPS
from td3.variant_settings import VARIANTS
from td3.variants import FUNCTIONS, source_of


def steps() -> list[dict[str, Any]]:
    """Number, title, name, arguments and file of every step."""
    found = []
    for number in sorted(STEPS):
        function = inspect.unwrap(STEPS[number].function)
        code = function.__code__
        arguments = list(inspect.signature(function).parameters)
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        names = {"number": number, "title": STEPS[number].title, "function": function.__name__}
        found.append({**names, "arguments": arguments, "file": place})
    return found


def overview() -> str:
    """The steps and the variants as text."""
    lines = []
    for one in steps():
        lines.append(f"{one['number']:>2}  {one['title']}")
        lines.append(f"      {one['function']}({', '.join(one['arguments'])})   {one['file']}")
    lines.append("Replace one of 4 to 15:  td3 train ENV --replace-steps FILE.py:NAME   (docs/modify.md)")
    lines.append("Variants:  td3 train ENV --variant NAME")
    for name, functions in FUNCTIONS.items():
        changed = [f"{key} = {value}" for key, value in VARIANTS[name].items()]
        changed += [f"step {function.__td3_replacement__.number}" for function in functions]  # type: ignore[attr-defined]  # marked
        lines.append(f"  {name:<16} {', '.join(changed) or 'what is stored in the replay buffer'}")
    return "\n".join(lines)


def differences(replaced: list[dict[str, Any]]) -> str:
    """Each replaced step against the original, as a unified diff, and again from where it changed."""
    if not replaced:
        return "The run replaces no step."
    parts: list[str] = []
    shown: dict[int, str] = {}
    for one in replaced:
        if shown.get(one["number"]) == one["sha256"]:  # recorded again because another changed
            continue
        shown[one["number"]] = one["sha256"]
        original = source_of(STEPS[one["number"]].function)
        since = f", from env step {one['from_env_step']:,} on" if one["from_env_step"] else ""
        names = f"step {one['number']} {one['step']}", f"{one['function']}{since}"
        both = original.splitlines(), "\n\n".join(filter(None, (one["uses"], one["source"]))).splitlines()
        parts.append("\n".join(difflib.unified_diff(*both, *names, lineterm="")))
    return "\n".join(parts)
