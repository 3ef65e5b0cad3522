"""Small or sparse files that would take gigabytes: each is refused in one sentence, and the process stays small."""

import io
import json
import subprocess
import sys
import zipfile

import pytest
import torch
from scripted import Scripted

from td3_sb3 import TD3

MEGABYTE = 1 << 20
PROGRAM = """
import json, resource, sys
from td3_sb3 import files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
answers = {}
for path in sys.argv[1:]:
    try:
        files.read_buffer(path) if path.endswith(".pkl") else files.read_model(path, {}, {})
    except files.ModelFileError as refusal:
        answers[path] = str(refusal)
print(json.dumps([answers, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10]))
"""


def archive(compression=zipfile.ZIP_DEFLATED, **entries):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as written:
        for name, content in entries.items():
            written.writestr(name.replace("_pth", ".pth").replace("data_pkl", "archive/data.pkl"), content)
    return stream.getvalue()


def weights(pickled):
    stream = io.BytesIO()
    torch.save({"weight": torch.zeros(1)}, stream)
    changed = io.BytesIO()
    with zipfile.ZipFile(stream) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            target.writestr(name, pickled if name.endswith("data.pkl") else source.read(name))
    return changed.getvalue()


def called(module, name, *arguments):
    """A pickle that calls a function with numbers."""
    numbers = b"".join(b"\x8a\x05" + number.to_bytes(5, "little") for number in arguments)
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"(" + numbers + b"tR."


ENTRIES = json.dumps({}).encode()
HUGE = 4 << 30
FILES = {
    "a zip that unpacks": (
        lambda: archive(data=b" " * (300 * MEGABYTE)),
        "zip",
        "become 0.3 GB when they are unpacked",
    ),
    "another compression": (lambda: archive(zipfile.ZIP_BZIP2, data=ENTRIES), "zip", "compressed in a way"),
    "a description too long": (
        lambda: archive(zipfile.ZIP_STORED, data=b" " * (65 * MEGABYTE)),
        "zip",
        "its description has more than 67.1 MB",
    ),
    "weights that unpack": (
        lambda: archive(zipfile.ZIP_STORED, data=ENTRIES, policy_pth=archive(weights=b"\0" * (300 * MEGABYTE))),
        "zip",
        "become 0.3 GB when they are unpacked",
    ),
    "weights with a bytearray": (
        lambda: archive(data=ENTRIES, policy_pth=weights(called("builtins", "bytearray", HUGE))),
        "zip",
        "its weights hold a bytearray",
    ),
    "many entries": (lambda: b"PK\1\2" * 20_000 + archive(data=ENTRIES), "zip", "more than 10,000 entries"),
    "a bytearray": (lambda: called("builtins", "bytearray", HUGE), "pkl", "its bytearray is not as"),
    "a range": (lambda: called("builtins", "range", HUGE), "pkl", "its range is not as"),
    "an array": (
        lambda: (
            b"\x80\x02cnumpy._core.numeric\n_frombuffer\n(C\x08aaaaaaaacnumpy\ndtype\nX\x02\0\0\0u1\x85R"
            + b"\x8a\x05\0\0\0\0\x01\x85X\1\0\0\0CtR."
        ),
        "pkl",
        "its _frombuffer is not as",
    ),
    "one text many times": (
        lambda: (
            b"\x80\x02B\x60\xea\0\0"
            + b"a" * 60_000
            + b"q\0"
            + b"0]("
            + b"cbuiltins\nbytearray\nh\0\x85R" * 3_000
            + b"e."
        ),
        "pkl",
        "far more memory than the file has bytes",
    ),
    "a far place in the memo": (lambda: b"\x80\x02Nr\xff\xff\xff\x7f.", "pkl", "holds a NoneType"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """The sentence for each file, and the megabytes by which the process that read all of them grew."""
    folder = tmp_path_factory.mktemp("bombs")
    paths = {name: folder / f"{name}.{ending}" for name, (_, ending, _) in FILES.items()}
    for name, path in paths.items():
        path.write_bytes(FILES[name][0]())
    for ending in ("zip", "pkl"):
        paths[f"sparse {ending}"] = folder / f"sparse.{ending}"
        with paths[f"sparse {ending}"].open("wb") as file:
            file.truncate(60 << 30)
    command = [sys.executable, "-c", PROGRAM, *map(str, paths.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sentences, megabytes = json.loads(done.stdout)
    return {name: sentences[str(path)] for name, path in paths.items()}, megabytes


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_needs_far_more_memory_than_it_has_bytes_is_refused(name, answers):
    assert FILES[name][2] in answers[0][name]


@pytest.mark.parametrize(("ending", "reason"), [("zip", "or no zip file"), ("pkl", "that needs 128.8 GB of memory")])
def test_a_sparse_file_is_refused_before_it_is_read(ending, reason, answers):
    assert reason in answers[0][f"sparse {ending}"]


def test_the_largest_of_them_has_68_megabytes_and_the_process_stays_small(answers):
    assert answers[1] < 300


def test_a_model_that_was_compressed_by_hand_is_read(tmp_path):
    model = TD3("MlpPolicy", Scripted(), buffer_size=10, policy_kwargs={"net_arch": [64, 64]})
    model.save(tmp_path / "model.zip")
    with (
        zipfile.ZipFile(tmp_path / "model.zip") as source,
        zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert (tmp_path / "packed.zip").stat().st_size < (tmp_path / "model.zip").stat().st_size
    assert TD3.load(tmp_path / "packed.zip").policy.net_arch == [64, 64]
