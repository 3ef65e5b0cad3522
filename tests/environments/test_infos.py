"""What of an environment's info is kept: the finite numbers, by name."""

import numpy as np

from td3.environments.infos import INFO_BYTES, LONGEST_NAME, MOST_NUMBERS, decoded, encoded, numbers_at, numbers_of


def test_finite_numbers_are_kept_and_everything_else_is_left_out():
    info = {"a": 1, "b": np.float32(0.5), "c": True, "d": np.bool_(False), "e": np.array(3.0), "f": np.int64(-2)}
    odd = {"n": np.nan, "i": np.inf, "s": "1", "l": [1], "v": np.ones(1), "o": None, 7: 1.0, "h": 10**400, "z": 1j}
    assert numbers_of({**info, **odd}) == {"a": 1.0, "b": 0.5, "c": 1.0, "d": 0.0, "e": 3.0, "f": -2.0}
    assert numbers_of(None) == numbers_of([1]) == {}


def test_a_name_that_a_table_or_a_spreadsheet_would_misread_is_escaped():
    info = {"caf\udce9": 1.0, "a\0b": 2.0, "x\ny": 3.0, "=cmd|' /C calc'!A0": 4.0, "-x": 5.0, "\t=1": 6.0, "größe": 7.0}
    kept = numbers_of(info)
    assert [*kept] == [r"caf\udce9", r"a\x00b", r"x\ny", "'=cmd|' /C calc'!A0", "'-x", r"\t=1", "größe"]
    assert [*kept.values()] == [*info.values()]
    assert numbers_of(kept) == kept


def test_an_info_has_a_largest_size():
    assert len(numbers_of({f"name {number}": number for number in range(1_000)})) == MOST_NUMBERS
    assert numbers_of({"x" * (LONGEST_NAME + 1): 1.0}) == {}


def test_infos_pass_through_shared_memory_exactly_as_far_as_there_is_room():
    numbers = {"a": 0.1, "b": 1e-300, "ü": 1.0}
    assert decoded(encoded(numbers)) == numbers
    assert decoded(b"") == decoded(encoded({})) == {}
    large = {f"{number:02}" + "\u20ac" * 62: 0.1 for number in range(MOST_NUMBERS)}
    assert len(encoded(large)) <= INFO_BYTES
    assert decoded(encoded(large)).items() <= large.items()


def test_of_a_vector_environment_only_what_this_environment_has():
    infos = {
        "a": np.array([1.0, 0.0]),
        "_a": np.array([True, False]),
        "b": np.array([0, 5]),
        "_b": np.array([True] * 2),
    }
    infos |= {
        "t": np.array(["x", None], object),
        "_t": np.array([True, False]),
        "n": {"x": 1},
        "_n": np.array([True] * 2),
    }
    assert numbers_at(infos, 0) == {"a": 1.0, "b": 0.0}
    assert numbers_at(infos, 1) == {"b": 5.0}
