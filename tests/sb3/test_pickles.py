"""Pickles made to do harm: whatever a file holds, no class of the process is other than before."""

import builtins
import collections
import copyreg
import io
import pathlib
import pickle
import pickletools
import random
import sys
import warnings
from collections import OrderedDict, deque

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common import noise, type_aliases, utils
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from td3_sb3 import TD3, buffer, unpickling

BOX = spaces.Box(-1, 1, (2,), np.float32, seed=3)
GOALS = spaces.Dict(observation=BOX, achieved_goal=BOX, desired_goal=BOX)
MODULES = (
    *(builtins, collections, copyreg, pathlib, pickle, gym, spaces, gym.spaces.space, np, np.random, np.dtypes, torch),
    *(noise, type_aliases, utils, buffer, sys.modules["stable_baselines3.common.buffers"]),
    *(sys.modules["stable_baselines3.her.her_replay_buffer"], sys.modules["stable_baselines3.td3.policies"]),
    *(sys.modules["stable_baselines3.her.goal_selection_strategy"], torch.nn, torch.optim, sys.modules[TD3.__module__]),
    *(unpickling, pickletools, sys.modules["td3_sb3.opcodes"], sys.modules["gymnasium.utils.seeding"]),
)


def harmless() -> dict[str, object]:
    """One of everything that files of Stable-Baselines3 hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = ReplayBuffer(4, BOX, BOX)
        several = DictReplayBuffer(4, GOALS, BOX)
    plain.add(np.ones(2), np.ones(2), np.ones(2), np.ones(1), np.zeros(1), [{}])
    stream = np.random.default_rng(5)
    stream.random(3)
    return {
        "buffers": [plain, several],
        "noises": [
            noise.NormalActionNoise(np.zeros(2), np.ones(2)),
            noise.OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2)),
            noise.VectorizedActionNoise(noise.NormalActionNoise(np.zeros(2), np.ones(2)), 2),
        ],
        "spaces": [BOX, GOALS, spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)],
        "streams": [stream, np.random.RandomState(5), np.random.PCG64(np.random.SeedSequence([1, 2], spawn_key=(3,)))],
        "arrays": [
            *(np.arange(6.0).reshape(2, 3), np.zeros((2, 3), order="F"), np.zeros((0, 3), np.float32)),
            *(np.array([None, {"a": 1}, [2]], object), np.array(["ab"]), np.arange(3, dtype=">i4"), np.ones(2, bool)),
        ],
        "scalars": [np.float32(1.5), np.str_("ab"), np.int64(3), np.bool_(True), 1j, 2**80, "\udce9", b"x"],
        "containers": [
            *(deque([{"r": 1.0}], maxlen=3), OrderedDict(b=[1], a=(2,)), {1, 2}, frozenset("ab"), bytearray(b"12")),
            *(slice(1, None, 2), range(3), {(1, "a"): 2}),
        ],
        "settings": [
            *(type_aliases.TrainFreq(1, type_aliases.TrainFrequencyUnit.EPISODE), GoalSelectionStrategy.FUTURE),
            *(torch.device("cpu"), pathlib.Path("/a/b"), pathlib.PureWindowsPath("c:/d"), utils.ConstantSchedule(0.5)),
        ],
        "classes": [ReplayBuffer, HerReplayBuffer, torch.nn.Tanh, torch.optim.Adam, np.float32, spaces.Box],
    }


def same(first: object, second: object) -> bool:
    if isinstance(first, spaces.Space | np.dtype | type | pathlib.PurePath | torch.device):
        return first == second
    if isinstance(first, np.random.Generator | np.random.RandomState):
        return bool((first.random(3) == second.random(3)).all())
    if isinstance(first, np.random.BitGenerator):
        (one,), (other,) = first.seed_seq.spawn(1), second.seed_seq.spawn(1)
        return str(first.state) == str(second.state) and same(one.generate_state(2), other.generate_state(2))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and same(first.tolist(), second.tolist())
    if isinstance(first, list | tuple | deque):
        return type(first) is type(second) and all(map(same, first, second)) and len(first) == len(second)
    if isinstance(first, dict):
        return [*first] == [*second] and same([*first.values()], [*second.values()])
    if hasattr(first, "__dict__"):
        return type(first) is type(second) and same(vars(first), vars(second))
    return type(first) is type(second) and first == second


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("name", harmless())
def test_what_files_of_stable_baselines3_hold_is_read(name, protocol):
    for value in harmless()[name]:
        content = pickle.dumps(value, protocol)
        assert same(pickle.loads(content), unpickling.loads(content)), value


def test_what_is_shared_stays_shared_and_circles_stay_closed():
    shared, circle = [np.ones(2)], {}
    circle["again"] = circle
    first, second, again = unpickling.loads(pickle.dumps([shared, shared, circle]))
    assert first is second
    assert again["again"] is again


def classes() -> set[type]:
    """Every class that can be reached from the modules that a file may name, and from their classes."""
    waiting: list[object] = [value for module in MODULES for value in vars(module).values()]
    found: set[type] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, type) and value not in found:
            found.add(value)
            waiting += [*value.__mro__, type(value), *vars(value).values()]
    return found


def state_of(watched: set[type]) -> list[tuple[object, dict[str, object]]]:
    pickletools.__dict__.setdefault("__warningregistry__", {})  # set by Python where a text has a strange escape
    return [(each, dict(vars(each))) for each in (*watched, *MODULES)]


def changes(before: list[tuple[object, dict[str, object]]]) -> list[object]:
    return [each for each, attributes in before if vars(each) != attributes]


def text(value: str) -> bytes:
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def named(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


NAMES = [
    *(named(made.module, made.name) for made in unpickling.MAKERS),
    *(named("builtins", name) for name in ("object", "type", "getattr", "setattr", "list", "dict", "map", "eval")),
    *(named("gymnasium.spaces.box", "Box"), named("gymnasium.spaces.dict", "Dict"), named("numpy", "ndarray")),
    *(named("stable_baselines3.common.buffers", name) for name in ("ReplayBuffer", "DictReplayBuffer")),
    *(named("stable_baselines3.common.noise", name) for name in ("NormalActionNoise", "VectorizedActionNoise")),
    *(named("numpy.random._pcg64", "PCG64"), named("torch.nn.modules.activation", "Tanh"), named("os", "system")),
    *(named("td3_sb3.opcodes", "Call"), named("numpy", "float32"), named("torch.optim.adam", "Adam")),
]
SLOTS = b"N}" + text("sample") + named("collections", "OrderedDict") + b"s\x86b"
"""A state `(None, {"sample": ...})` for BUILD, which sets attributes of whatever it is given, a class too."""
PIECES = [
    *(b"R", b"\x81", b"b", b"s", b"u", b"e", b"a", b"\x90", b"2", b"0", b"1", b"(", b"t", b"\x85", b"\x86", b"\x87"),
    *(b"}", b"]", b")", b"N", b"\x88", b"K\x03", b"h\x00", b"h\x01", b"h\x02", b"q\x00", b"\x94", b"\x8f", b"\x91"),
    *(SLOTS, b"}" + text("__class__") + b"h\x00sb", b"}" + text("__dict__") + b"}sb", b"o", b"Px\n", b"Q", b"\x93"),
    *(text("sample"), text("builtins"), text("__setstate__"), b"C\x02ab", b"\x8a\x05\x00\x00\x00\x00\x01", b"d", b"l"),
]


def opcodes_of(content: bytes) -> list[bytes]:
    ends = [position for _, _, position in pickletools.genops(content)][1:]
    return [content[start:end] for start, end in zip([0, *ends], [*ends, len(content)], strict=True)]


def test_a_state_for_a_class_is_refused_and_the_class_stays(tmp_path):
    """BUILD on a class that stands before a whole buffer, and on classes in a row."""
    before, whole = state_of(classes()), pickle.dumps(harmless()["buffers"][0], 3)
    for name in NAMES:
        for content in (whole[:2] + name + SLOTS + b"0" + whole[2:], b"\x80\x02" + name + SLOTS + b"."):
            (tmp_path / "buffer.pkl").write_bytes(content)
            with pytest.raises(ValueError, match=r"is not a replay buffer that can be read without executing code"):
                sys.modules["td3_sb3.files"].read_buffer(tmp_path / "buffer.pkl")
    assert changes(before) == []


def hostile(generator: random.Random, whole: list[list[bytes]]) -> bytes:
    """Opcodes of a harmless pickle, with some removed, repeated, exchanged or put between."""
    opcodes = [*generator.choice(whole)]
    for _ in range(generator.randint(1, 6)):
        place = generator.randrange(1, len(opcodes))
        kind = generator.randrange(5)
        if kind == 0:
            del opcodes[place : place + generator.randint(1, 3)]
        elif kind == 1:
            other = generator.choice(whole)
            start = generator.randrange(len(other))
            opcodes[place:place] = other[start : start + generator.randint(1, 12)]
        elif kind == 2:
            opcodes[place:place] = [generator.choice(NAMES), generator.choice(PIECES), generator.choice(PIECES)]
        elif kind == 3:
            opcodes[place:place] = generator.choices([*PIECES, *NAMES], k=generator.randint(1, 5))
        else:
            flipped = bytearray(opcodes[min(place, len(opcodes) - 1)])
            flipped[generator.randrange(len(flipped))] ^= 1 << generator.randrange(8)
            opcodes[min(place, len(opcodes) - 1)] = bytes(flipped)
        if len(opcodes) < 2:
            break
    return b"".join(opcodes)


def fuzz(seed: int, count: int) -> tuple[int, int]:
    """Read so many hostile pickles; how many were read and refused."""
    generator = random.Random(seed)
    values = [value for group in harmless().values() for value in group]
    whole = [opcodes_of(pickle.dumps(value, protocol)) for value in values for protocol in (2, 3, 5)]
    before, answers = state_of(classes()), [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a space with odd bounds warns
        for _ in range(count):
            content = hostile(generator, whole)
            try:
                unpickling.loads(content)
                answers[0] += 1
            except pickle.UnpicklingError:
                answers[1] += 1
            assert changes(before) == [], content
    return answers[0], answers[1]


def test_no_order_of_opcodes_changes_a_class():
    read, refused = fuzz(seed=0, count=1_500)
    assert read > 50  # some changes leave a pickle whole
    assert refused > 500


@pytest.mark.long
def test_no_order_of_opcodes_changes_a_class_in_many_files():
    for seed in range(1, 6):
        fuzz(seed, count=10_000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"I0\n" + b"\x85" * 100_000, "RecursionError"),
        (b"K\x01" + b"q\x00h\x00\x86" * 60 + b"}q\x01h\x00K\x01s", "it has keys that are neither texts nor numbers"),
        (b"\x82\x01", "it has the opcode EXT1"),
        (b"(i" + b"os\nsystem\n", "it has the opcode INST"),
        (b"\x85", "its stack is empty"),
    ],
    ids=["nested deeply", "a key that takes for ever to hash", "an extension", "an instance", "no arguments"],
)
def test_pickles_that_would_take_all_time_or_look_elsewhere_are_refused(content, reason):
    with pytest.raises(pickle.UnpicklingError, match=reason):
        unpickling.loads(b"\x80\x02" + content + b".")


def test_a_random_stream_cannot_be_put_beyond_its_numbers():
    """NumPy reads its 624 numbers at the place that the file gives, without a look at it."""
    for place in (-1, 625, 2**31 - 1):
        state = np.random.RandomState(0).get_state(legacy=False)
        state["state"]["pos"] = place
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, 4)
        pickler.dispatch_table = {
            np.random.RandomState: lambda value, s=state: (*value.__reduce__()[:2], s),
        }
        pickler.dump(np.random.RandomState(0))
        with pytest.raises(pickle.UnpicklingError, match="is not as Stable-Baselines3 writes it"):
            unpickling.loads(stream.getvalue())
