"""Hostile files and mutated ones, loaded in a process that notes every import, socket and execution of code.

Run as a program: `hostile.py FOLDER MUTATIONS SEED` prints what happened as one JSON object.
"""

import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ROOM = 100 << 20
FORBIDDEN = (
    "exec",  # and not "compile": numpy reads an array's header as a literal, which is parsed and never run
    "import",
    "pickle.find_class",
    "marshal.loads",
    "code.__new__",
    "ctypes.dlopen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.__new__",
    "socket.connect",
    "webbrowser.open",
)


def load_everything(run: Path) -> None:
    """All that reads untrusted run."""
    import td3
    from td3.run.checkpoints import Checkpoints

    found = td3.Run(run)
    found.learning_curve()
    for which in ("best", "last"):
        found.agent(which=which)
    checkpoint, _ = Checkpoints(run).newest()
    if checkpoint is not None:
        try:
            for _ in checkpoint.rows():
                pass
        except ValueError as error:
            raise Refused from error


class Refused(Exception):
    """A damaged checkpoint, which resume passes over."""


def bytes_of(run: Path) -> dict[Path, bytes]:
    seed = run / "seed_0"
    agents = [seed / which / name for which in ("best", "last") for name in ("agent.json", "agent.safetensors")]
    checkpoints = sorted(path for path in (run / "checkpoints").rglob("*") if path.is_file())
    files = [run / "config.json", seed / "evaluations.npz", *agents, *checkpoints]
    return {file: file.read_bytes() for file in files}


def hostile_files(whole: dict[Path, bytes]) -> Iterator[tuple[str, Path, Callable[[Path], None]]]:
    """A name, a file of the run, and what is done to it."""
    deep = b"[" * 100_000
    header = struct.pack("<Q", 1 << 62) + b"{}"
    contents = {
        "empty": b"",
        "zeros": b"\0" * 4096,
        "text": b"hello\n" * 100,
        "deeply nested": deep,
        "deeply nested objects": b'{"a":' * 50_000,
        "null": b"null",
        "list": b"[1, 2]",
        "number": b"1e999",
        "large number": b"9" * 5_000,
        "invalid unicode": b"\xff\xfe\xfa" * 50,
        "lone surrogate": b'{"format": "\\ud800"}',
        "oversized header": header,
        "header beyond the end": struct.pack("<Q", 1000) + b"{}",
        "overlapping tensors": _safetensors({"a": ("F32", [4], [0, 16]), "b": ("F32", [4], [8, 24])}, b"\0" * 24),
        "gigantic shape": _safetensors({"actor.0.weight": ("F32", [1 << 40, 1 << 20], [0, 16])}, b"\0" * 16),
        "negative offsets": _safetensors({"a": ("F32", [4], [-16, 0])}, b"\0" * 16),
        "unknown type": _safetensors({"a": ("PICKLE", [4], [0, 16])}, b"\0" * 16),
        "pickle": b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
        "zip of a pickle": _npz({"timesteps": b"\x80\x04cos\nsystem\n(S'id'\ntR."}),
        "array of objects": _npz({"timesteps": _npy("|O", "(3,)", b"\0" * 24), "results": _npy("|O", "(3,)", b"")}),
        "array of 10 TB": _npz({"timesteps": _npy("<f8", "(1250000000000,)", b""), "results": b""}),
        "array with code in its header": _npz({"timesteps": _npy("<f8", "(__import__('os').system('id'),)", b"")}),
        "zip bomb": _npz({"timesteps": b"\0" * (200 << 20), "results": b"\0" * 100}),
        "path traversal": _npz({"../../timesteps": b"x", "/etc/passwd": b"x"}),
        "json of NaN": b'{"format": NaN, "version": Infinity}',
        "prototype": b'{"__class__": "os.system", "format": "td3-agent", "version": 1}',
    }
    for file, content in whole.items():
        for name, hostile in contents.items():
            yield name, file, lambda target, hostile=hostile: _put(target, hostile)
        yield "a folder", file, lambda target: target.mkdir()
        yield "a pipe", file, lambda target: os.mkfifo(target)
        yield "a link out", file, lambda target: target.symlink_to("/etc/hostname")
        yield "a link to zeros", file, lambda target: target.symlink_to("/dev/zero")
        yield "a link to itself", file, lambda target: target.symlink_to(target.name)
        yield "half", file, lambda target, content=content: _put(target, content[: len(content) // 2])
        yield "twice", file, lambda target, content=content: _put(target, content * 2)
        yield "sparse, 50 GB", file, lambda target, content=content: _sparse(target, content)


def hostile_values(whole: dict[Path, bytes]) -> Iterator[tuple[str, Path, Callable[[Path], None]]]:
    """JSON that parses, with values that nobody wrote, under a name and a checksum that are right."""
    values = [
        None,
        True,
        -1,
        0,
        1 << 80,
        1e308,
        float("nan"),
        "",
        "x" * 10_000,
        [],
        [[]],
        {},
        {"a": 1},
        "../../etc/passwd",
    ]
    for file, content in whole.items():
        if file.suffix == ".json" and file.name != "manifest.json":
            known = json.loads(content)
            for key in known:
                for value in values:
                    changed = json.dumps({**known, key: value}).encode()
                    yield f"{key} = {value!r:.20}", file, lambda target, changed=changed: _put(target, changed)


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _sparse(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    os.truncate(path, 50 << 30)


def _safetensors(header: dict, data: bytes) -> bytes:
    described = {name: {"dtype": d, "shape": s, "data_offsets": o} for name, (d, s, o) in header.items()}
    text = json.dumps(described).encode()
    return struct.pack("<Q", len(text)) + text + data


def _npy(dtype: str, shape: str, data: bytes) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _npz(arrays: dict[str, bytes]) -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


class Watch:
    """What a load did: its outcome, whether it ran anything, how long it took."""

    def __init__(self) -> None:
        self.listening, self.heard, self.outcomes, self.untyped = False, [], Counter(), []
        self.slowest = 0.0
        sys.addaudithook(self._on_mujoco_warning)

    def _on_mujoco_warning(self, event: str, arguments: tuple) -> None:
        if self.listening and event in FORBIDDEN and not (event == "import" and arguments[0] in sys.modules):
            self.heard.append(f"{event} {arguments!r:.100}")

    def load(self, name: str, run: Path) -> None:
        from td3.errors import UserError

        signal.alarm(20)  # only for what hangs
        begun = time.perf_counter()
        self.listening = True
        try:
            load_everything(run)
            outcome = "loaded"
        except (UserError, Refused) as error:
            outcome = type(error).__name__
        except BaseException as error:  # this is what must not happen
            outcome = "untyped"
            self.untyped.append(f"{name}: {type(error).__name__}: {error}"[:300])
        self.listening = False
        self.slowest = max(self.slowest, time.perf_counter() - begun)
        signal.alarm(0)
        self.outcomes[outcome] += 1


def main(folder: Path, mutations: int, seed: int) -> None:
    run = folder / "run"
    whole = bytes_of(run)
    attacks = [*hostile_files(whole), *hostile_values(whole)]
    watch = Watch()
    load_everything(run)  # everything that is imported late is imported now
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = _resident("VmRSS")
    limit = _address_space() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name, file, spoil in attacks:
        file.unlink()
        spoil(file)
        watch.load(f"{file.relative_to(run)} as {name}", run)
        shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
        file.write_bytes(whole[file])
    hostile = dict(watch.outcomes)
    generator = random.Random(seed)
    choices = list(whole)
    for number in range(mutations):
        file = generator.choice(choices)
        content = bytearray(whole[file])
        for _ in range(generator.choice((1, 1, 2, 8))):
            place = generator.randrange(len(content))
            content[place] = generator.choice(
                (0, 255, content[place] ^ 1 << generator.randrange(8), generator.randrange(256))
            )
        file.write_bytes(content)
        watch.load(f"{file.relative_to(run)}, mutation {number}", run)
        file.write_bytes(whole[file])
    print(
        json.dumps(
            {
                "files": len(attacks),
                "mutations": mutations,
                "hostile": hostile,
                "outcomes": dict(watch.outcomes),
                "untyped": watch.untyped[:20],
                "heard": watch.heard[:20],
                "slowest": round(watch.slowest, 3),
                "extra_mb": (_resident("VmHWM") - before) / 1024,
            }
        )
    )


def _resident(which: str) -> int:
    return int(
        next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which)).split()[1]
    )


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
