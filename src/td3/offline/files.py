"""Columns of transitions from .npz and HDF5 files: nothing is unpickled, and sizes are checked before reading."""

import lzma
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from td3.errors import missing_extra
from td3.files import require_plain
from td3.offline.transitions import DatasetError, wanted
from td3.policy import Array
from td3.resources import available_memory, gigabytes

DAMAGED = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(SyntaxError, tokenize.TokenError),
)
"""What reading a damaged .npz file raises."""


def read_npz(path: Path) -> dict[str, Array]:
    """The columns that are wanted, by name."""
    try:
        require_plain(path)
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy") and wanted(name[:-4])]
            _require_memory(path, sum(archive.getinfo(name).file_size for name in names))
            return {name[:-4]: _read_array(archive, name) for name in names}
    except DAMAGED as error:
        raise DatasetError(f"{path} cannot be read as .npz ({error}).") from None


def _read_array(archive: zipfile.ZipFile, name: str) -> Array:
    info = archive.getinfo(name)
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"{name} has version {version} of the format")
        shape, by_columns, dtype = read_header[version](file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds pickled objects, which are never loaded: save plain arrays of numbers")
        size = math.prod(shape) * dtype.itemsize
        if size != info.file_size - file.tell():
            raise ValueError(f"{name} has another size than its header says")
        return np.frombuffer(file.read(size), dtype).reshape(shape, order="F" if by_columns else "C")


def read_hdf5(path: Path) -> dict[str, Array]:
    """The columns that are wanted, by name."""
    try:
        import h5py
    except ImportError:
        raise missing_extra(f"reading {path}", "hdf5") from None
    try:
        require_plain(path)
        with h5py.File(path, "r") as file:
            # Links into other files are not followed: a dataset is one file.
            local: list[Any] = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
            found = {name: file[name] for name in local if wanted(name) and isinstance(file[name], h5py.Dataset)}
            if stored_elsewhere := [name for name, column in found.items() if column.external or column.is_virtual]:
                raise ValueError(f"{stored_elsewhere[0]} is stored in another file")
            _require_memory(path, sum(column.nbytes for column in found.values()))
            return {name: np.asarray(column[()]) for name, column in found.items()}
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} cannot be read as HDF5 ({error}).") from None


def _require_memory(path: Path, size: int) -> None:
    free = available_memory()
    if free is not None and size > 0.4 * free:  # the columns, and the rows made of them
        raise DatasetError(f"{path} holds {gigabytes(size)}, and this machine has {gigabytes(free)} free: use a part.")
