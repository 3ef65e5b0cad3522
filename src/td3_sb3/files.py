"""Stable-Baselines3's files: written atomically, and read without executing what they hold."""

import base64
import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.buffers import ReplayBuffer

from td3.errors import RunError
from td3.files import read_regular_file, require_plain, write_atomically
from td3.resources import available_memory, gigabytes
from td3_sb3 import unpickling
from td3_sb3.errors import MissingFileError, ModelFileError

LARGEST = 1 << 36
"""Bytes beyond which a file is not read."""
LARGEST_DATA = 1 << 26
"""Bytes of a model's description: its spaces, its noise and its last observations."""
MOST_ENTRIES = 10_000
UNPACKED = 10
"""How much larger an archive may become when it is unpacked; those of Stable-Baselines3 are not compressed."""
COPIES = 2
"""A file is in memory twice: its bytes and what is made of them."""
NEEDED = ("policy_class", "policy_kwargs", "observation_space", "action_space")
"""Without these there is no model."""


def save_model(path: Any, write: Callable[[Any], None]) -> None:
    """Have a model written to a path, whole or not at all, or into an open binary file."""
    if hasattr(path, "write"):
        write(path)
        return
    target = Path(path) if Path(path).suffix else Path(f"{path}.zip")
    content = io.BytesIO()
    write(content)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, content.getvalue())
    except OSError as error:
        raise RunError(f"{target} cannot be written ({error.strerror}): give another path.") from None


def read_model(
    path: Any, custom_objects: Mapping[str, Any], replaced: Mapping[str, Any]
) -> tuple[io.BytesIO, dict[str, Any]]:
    """A model's file, and its pickled entries as objects, so that whoever loads it need not unpickle them.

    What is replaced is not read. Entries that hold code are refused if a model cannot be made without them, and left
    out with a warning if it can.
    """
    content = _content(path, ".zip", zipfile.is_zipfile)
    try:
        with _archive(content) as archive:
            if "data" not in archive.namelist():
                raise ModelFileError(f"{_name(path)} was not written by Stable-Baselines3 or td3_sb3.")
            if archive.getinfo("data").file_size > LARGEST_DATA:
                raise zipfile.BadZipFile(f"its description has more than {gigabytes(LARGEST_DATA)}")
            for name in archive.namelist():
                if name.endswith(".pth"):
                    _check_tensors(archive.read(name))
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"bad checksum of {damaged}")
            entries = json.loads(archive.read("data"))
            rate = _rate(archive)
        pickled = {key: entry[":serialized:"] for key, entry in entries.items() if _is_pickled(entry)}
    except ModelFileError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise ModelFileError(f"{_name(path)} is damaged or no model: {error}.") from None
    found, code = dict(custom_objects), list[str]()
    for key, text in pickled.items():
        if key in custom_objects:
            continue
        try:
            found[key] = unpickling.loads(base64.b64decode(text))
        except (pickle.UnpicklingError, ValueError) as error:
            if key in NEEDED:
                raise ModelFileError(
                    f"{_name(path)} holds {key} as code, which is not executed ({error}): give it in custom_objects, "
                    "or load the file with trust=True if you trust its author."
                ) from None
            found[key] = None if key != "learning_rate" else rate
            code += [key] if key not in replaced and key != "lr_schedule" else []
    if code:
        kept = f" (the learning rate stays at {rate:g})" if "learning_rate" in code else ""
        warnings.warn(
            f"{', '.join(code)} in {_name(path)} could not be read without executing code, and was left out{kept}: "
            "give it in custom_objects, or load the file with trust=True if you trust its author.",
            stacklevel=3,
        )
    return io.BytesIO(content), found


def read_buffer(path: Any) -> ReplayBuffer:
    """The replay buffer in a file; raises `ModelFileError` for anything else."""
    content = _content(path, ".pkl")
    try:
        found = unpickling.loads(content)
    except pickle.UnpicklingError as error:
        raise ModelFileError(
            f"{_name(path)} is not a replay buffer that can be read without executing code ({error}): give trust=True "
            "if you trust its author."
        ) from None
    if not isinstance(found, ReplayBuffer):
        raise ModelFileError(f"{_name(path)} holds a {type(found).__name__}, which is no replay buffer.")
    return found


def _archive(content: bytes) -> zipfile.ZipFile:
    """An archive that does not become much larger when it is unpacked."""
    if content.count(b"PK\1\2") > MOST_ENTRIES:  # each entry of its table of contents begins so
        raise zipfile.BadZipFile(f"it has more than {MOST_ENTRIES:,} entries")
    archive = zipfile.ZipFile(io.BytesIO(content))
    if {entry.compress_type for entry in archive.infolist()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise zipfile.BadZipFile("its entries are compressed in a way that Stable-Baselines3 does not use")
    size = sum(entry.file_size for entry in archive.infolist())
    if size > UNPACKED * len(content):
        raise zipfile.BadZipFile(f"its {gigabytes(len(content))} become {gigabytes(size)} when they are unpacked")
    return archive


def _check_tensors(content: bytes) -> None:
    """Raise BadZipFile for a file of PyTorch that needs far more memory than it has bytes."""
    with _archive(content) as archive:
        for name in archive.namelist():
            # PyTorch's reader of weights makes a bytearray of any size.
            if name.endswith("data.pkl") and b"bytearray" in archive.read(name):
                raise zipfile.BadZipFile("its weights hold a bytearray")


def _is_pickled(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get(":serialized:"), str)


def _rate(archive: zipfile.ZipFile) -> float:
    """The learning rate at which the model last learned."""
    if "actor.optimizer.pth" not in archive.namelist():
        return 1e-3
    state = torch.load(io.BytesIO(archive.read("actor.optimizer.pth")), map_location="cpu", weights_only=True)
    return float(state["param_groups"][0]["lr"])


def _content(path: Any, suffix: str, is_one: Callable[[Any], bool] = lambda path: True) -> bytes:
    if hasattr(path, "read"):
        return bytes(path.read())
    given = Path(path)
    given = given if given.exists() else Path(f"{path}{suffix}")
    try:
        require_plain(given)
        needed, free = COPIES * given.stat().st_size, available_memory()
        if not is_one(given):
            raise ValueError(f"it is damaged, or no {suffix[1:]} file")
        if free is not None and needed > free:
            raise MemoryError
        return read_regular_file(given, LARGEST)
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {given}.") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{given} cannot be read: {error}.") from None
    except MemoryError:
        raise ModelFileError(
            f"{given} cannot be read: that needs {gigabytes(needed)} of memory, and this process cannot have so much: "
            "end other programs, or read it on a larger machine."
        ) from None


def _name(path: Any) -> str:
    return "the file" if hasattr(path, "read") else str(path)
