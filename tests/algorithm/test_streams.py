"""A member's random numbers depend on its seed, the purpose and the number of the update, and on nothing else."""

import pytest
import torch

from td3.algorithm.streams import BLOCK, MemberStreams, RandomStreams, derive_seed

FILLED = torch.tensor(1_000)


def numbers(streams):
    return streams.rows(FILLED, 8), streams.normal(8, 2)


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("position", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_seeking_gives_the_same_numbers_as_going_there(position):
    walked, sought, born_there = MemberStreams((3, 4)), MemberStreams((3, 4)), MemberStreams((3, 4), position=position)
    for _ in range(position):
        numbers(walked)
    sought.seek(position)
    for _ in range(BLOCK + 2):
        expected = numbers(walked)
        assert equal(numbers(sought), expected)
        assert equal(numbers(born_there), expected)


def test_one_can_go_back():
    streams = MemberStreams((0,))
    first = [numbers(streams) for _ in range(BLOCK + 3)]
    streams.seek(0)
    assert all(equal(numbers(streams), expected) for expected in first)


def test_one_purpose_does_not_shift_the_other():
    both, rows_only = MemberStreams((0,)), MemberStreams((0,))
    for _ in range(BLOCK + 3):
        assert torch.equal(numbers(both)[0], rows_only.rows(FILLED, 8))


def test_a_member_draws_the_same_in_any_company():
    company, alone = MemberStreams((2, 3, 4)), MemberStreams((3,))
    for _ in range(BLOCK + 3):
        for many, one in zip(numbers(company), numbers(alone), strict=True):
            assert torch.equal(many[1:2], one)


def test_different_seeds_differ():
    rows, normal = numbers(MemberStreams((0, 1)))
    assert not torch.equal(rows[0], rows[1])
    assert not torch.any(normal[0] == normal[1])


def test_different_updates_differ():
    streams = MemberStreams((0,))
    drawn = [numbers(streams) for _ in range(2 * BLOCK)]
    assert len({tuple(rows.flatten().tolist()) for rows, _ in drawn}) == 2 * BLOCK
    assert len({tuple(normal.flatten().tolist()) for _, normal in drawn}) == 2 * BLOCK


def test_seeds_of_different_purpose_member_or_index_differ():
    derived = {
        derive_seed(seed, purpose, index)
        for seed in (0, 1, 2**31, 2**40)
        for purpose in ("actor", "critics", "sampling", "smoothing", "exploration", "evaluation")
        for index in range(20)
    }
    assert len(derived) == 4 * 6 * 20
    assert all(0 <= seed < 2**63 for seed in derived)


def test_a_derived_seed_never_changes():
    # Runs of the past are repeated by these numbers.
    assert derive_seed(0, "actor") == 8_954_217_841_423_245_380
    assert derive_seed(7, "critics", 1) == 8_330_211_398_666_916_588


def test_rows_are_uniform_within_the_filled_part():
    streams = MemberStreams((0,))
    rows = torch.cat([streams.rows(torch.tensor(10), 100) for _ in range(200)], 1)
    counts = torch.bincount(rows[0])
    # 2,000 are expected of each, with a standard deviation of 42.
    assert len(counts) == 10
    assert bool((counts - 2_000).abs().max() < 5 * 42)


def test_a_single_row_can_be_drawn():
    assert MemberStreams((0,)).rows(torch.tensor(1), 5).tolist() == [[0] * 5]


def test_normal_numbers_are_standard_normal():
    streams = MemberStreams((0,))
    drawn = torch.cat([streams.normal(100, 2) for _ in range(200)], 1)[0]
    # 20,000 numbers of each dimension: the mean is known to 0.007, the standard deviation to 0.005.
    assert bool((drawn.mean(0).abs() < 0.03).all())
    assert bool(((drawn.std(0) - 1).abs() < 0.03).all())
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_come_in_the_type_that_was_asked_for(dtype):
    rows, normal = numbers(MemberStreams((0, 1), dtype=dtype))
    assert rows.dtype == torch.int64
    assert rows.shape == (2, 8)
    assert normal.dtype == dtype
    assert normal.shape == (2, 8, 2)


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = numbers(MemberStreams((0,)))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert equal(numbers(MemberStreams((0,))), first)


def test_member_streams_are_what_the_steps_ask_for():
    assert isinstance(MemberStreams((0,)), RandomStreams)


def test_blocks_are_made_on_the_device_of_the_stream(monkeypatch):
    """Made in the host's memory, 176 MB of nothing were uploaded with a block of batches of 32,768 rows."""
    streams, devices = MemberStreams([0, 1]), []
    streams.device = torch.device("meta")
    monkeypatch.setattr(streams, "draw_member_", lambda *given: devices.append(given[-1].device.type))
    streams.rows(torch.tensor(10), 3)
    streams.normal(3, 2)
    streams.shifts(3, 4)
    assert devices == ["meta"] * 6
