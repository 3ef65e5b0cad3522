"""A model in one zip file: `model.json` and `tensors.safetensors`. Reading one executes nothing: no pickle in it."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from td3.errors import AgentFileError, RunError
from td3.files import read_regular_file, write_atomically
from td3.policy import Array
from td3.run.agent_file import LARGEST_JSON

FORMAT, VERSION = "td3-sb3-model", 1
FACTS, TENSORS = "model.json", "tensors.safetensors"
LARGEST_MODEL = 1 << 30
"""Bytes beyond which a file is not read: with the optimizer, layers of 3,000 units are smaller."""


def with_suffix(path: Any, suffix: str) -> Path:
    """As Stable-Baselines3 does: a path without a suffix gets one."""
    given = Path(path)
    return given if given.suffix else given.with_suffix(suffix)


def write_model(path: Any, facts: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Write to a path, or into an open binary file."""
    content = save_tensors(dict(tensors))
    described = {"format": FORMAT, "version": VERSION, "sha256": hashlib.sha256(content).hexdigest(), **facts}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(FACTS, json.dumps(described, indent=2))
        archive.writestr(TENSORS, content)
    if hasattr(path, "write"):
        path.write(made.getvalue())
        return
    target = with_suffix(path, ".zip")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, made.getvalue())
    except OSError as error:
        raise RunError(f"{target} cannot be written ({error.strerror}): give another path.") from None


def read_model(path: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `write_model` wrote; raises `AgentFileError` for anything else."""
    source = path if hasattr(path, "read") else with_suffix(path, ".zip")
    try:
        content = source.read() if hasattr(source, "read") else read_regular_file(source, LARGEST_MODEL)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            if FACTS not in names or TENSORS not in names:
                theirs = " by Stable-Baselines3, whose files are pickled" if "policy.pth" in names else ""
                raise AgentFileError(
                    f"{source} was not written by td3.sb3{'' if not theirs else ', but' + theirs}: load it with what "
                    "wrote it."
                )
            infos = [archive.getinfo(name) for name in (FACTS, TENSORS)]
            if infos[0].file_size > LARGEST_JSON or any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise AgentFileError(f"{source} is not as td3.sb3 writes it.")
            facts, content = json.loads(archive.read(FACTS)), archive.read(TENSORS)
    except FileNotFoundError:
        raise AgentFileError(f"there is no file {source}.") from None
    except (OSError, EOFError, ValueError, RecursionError, NotImplementedError, zipfile.BadZipFile) as error:
        raise AgentFileError(f"{source} is damaged or no model: {error}.") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise AgentFileError(f"{source} was not written by this version of td3.sb3.")
    if hashlib.sha256(content).hexdigest() != facts.get("sha256"):
        raise AgentFileError(f"{source} is damaged: its tensors are not those that it describes.")
    try:
        return facts, load_tensors(content)
    except SafetensorError as error:
        raise AgentFileError(f"{source} is damaged: {error}.") from None
