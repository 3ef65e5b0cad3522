"""A buffer of images hands out what it was given, keeps each frame once, and lets go in time."""

import numpy as np
import pytest
import torch

from td3.pixels.frame_buffer import FrameReplayBuffer, frame_buffer_bytes, frames_kept

SIZE, FRAMES = 5, 3


class Player:
    """One environment that shows random frames, stacked as Gymnasium's wrapper does."""

    def __init__(self, generator, lengths, still=0.0):
        self.generator, self.lengths, self.still = generator, lengths, still
        self.frames = 0
        self.begin()

    def frame(self):
        self.frames += 1
        return self.generator.integers(0, 256, SIZE)

    def begin(self):
        self.stack, self.left = [self.frame()] * FRAMES, self.generator.choice(self.lengths)

    def row(self):
        moves = self.generator.random() >= self.still
        after = [*self.stack[1:], self.frame() if moves else self.stack[-1]]
        self.left -= 1
        action, reward = self.generator.standard_normal(2)
        row = np.concatenate((*self.stack, [action], *after, [reward, self.left == 0]))
        self.stack = after
        if self.left == 0:
            self.begin()
        return row.astype(np.float32)


def played(buffer, players, rounds, stored=None):
    """What was stored: `[member][row]`; after every round all that can be drawn is looked at."""
    stored = [[] for _ in players] if stored is None else stored
    for _ in range(rounds):
        rows = np.stack([[player.row() for player in own] for own in players])
        buffer.add_(torch.from_numpy(rows))
        for kept, new in zip(stored, rows, strict=True):
            kept += list(new)
        check_all(buffer, stored)
    return stored


def check_all(buffer, stored):
    for member, rows in enumerate(stored):
        own = buffer.member(member)
        count = len(own)
        assert int(own.filled) == count
        batch = own.gather(torch.arange(count)[None])
        assert batch.state.dtype == torch.uint8
        columns = (batch.state, batch.action, batch.next_state, batch.reward[..., None], batch.terminated[..., None])
        found = torch.cat([column.float() for column in columns], -1)[0].numpy()
        np.testing.assert_array_equal(found, np.stack(rows[len(rows) - count :]))


@pytest.mark.parametrize(
    ("envs", "lengths", "capacity", "still"),
    [
        (1, (30, 40), 50, 0.0),
        (3, (2, 9, 31), 60, 0.0),
        (2, (1,), 40, 0.0),
        (4, (1, 2, 3), 8, 0.3),
        (1, (7,), 10, 0.6),
        (5, (3, 50), 3, 0.2),
    ],
)
def test_it_hands_out_exactly_what_it_was_given(envs, lengths, capacity, still):
    generator = np.random.default_rng(0)
    buffer = FrameReplayBuffer(2, capacity, FRAMES, SIZE, 1)
    players = [[Player(generator, lengths, still) for _ in range(envs)] for _ in range(2)]
    played(buffer, players, 3 * capacity // envs + 20)
    if min(lengths) >= 30:
        assert len(buffer) == capacity


def test_short_episodes_fill_it_with_frames_before_it_is_full_of_transitions():
    buffer = FrameReplayBuffer(1, 100, FRAMES, SIZE, 1)
    played(buffer, [[Player(np.random.default_rng(0), (1,))]], 250)
    assert len(buffer) == frames_kept(100, FRAMES) // 2 < 100


def test_each_frame_is_kept_once():
    buffer, player = FrameReplayBuffer(1, 1_000, FRAMES, SIZE, 1), Player(np.random.default_rng(0), (20, 30))
    played(buffer, [[player]], 200)
    begun_but_not_stored = 1 if player.left in player.lengths and len(set(map(id, player.stack))) == 1 else 0
    assert buffer.state()["frames_added"] == player.frames - begun_but_not_stored


def test_a_memory_that_forgets_to_let_go_is_noticed(monkeypatch):
    class Greedy(FrameReplayBuffer):
        def _kept(self, *arguments):
            before = self._oldest.copy()
            kept = super()._kept(*arguments)
            self._oldest[:] = before
            return kept

    with pytest.raises(AssertionError):
        played(Greedy(1, 100, FRAMES, SIZE, 1), [[Player(np.random.default_rng(0), (1, 2))]], 250)


@pytest.mark.parametrize("actions", [1, 6, 17])
def test_a_transition_of_three_84_by_84_frames_takes_at_most_7500_bytes(actions):
    assert frame_buffer_bytes(100_000, 3, 84 * 84, actions) / 100_000 <= 7_500


def test_the_bytes_are_counted_rightly():
    buffer = FrameReplayBuffer(1, 500, 3, 84 * 84, 2)
    arrays = (buffer.rows, buffer.images, buffer.numbers, buffer._shown_by)
    assert sum(array.nbytes for array in arrays) == frame_buffer_bytes(500, 3, 84 * 84, 2)


@pytest.mark.parametrize("lengths", [(1, 2), (30, 40)])
def test_it_is_put_together_again_from_pieces_that_were_written_as_it_grew(lengths):
    players = [[Player(np.random.default_rng(seed), lengths) for _ in range(2)] for seed in (1, 2)]
    buffer, chunks, written, stored = FrameReplayBuffer(2, 60, FRAMES, SIZE, 1), [], 0, [[], []]
    for _ in range(9):
        played(buffer, players, 7, stored)
        while written < buffer.added:
            end = min(written + 11, buffer.added, written - written % 60 + 60)
            chunk = {name: part.clone() for name, part in buffer.chunk(written, end).items()}
            chunks.append((written, end, chunk))
            written = end
    again = FrameReplayBuffer(2, 60, FRAMES, SIZE, 1)
    again.set_cursor_(buffer.added, {name: array.copy() for name, array in buffer.state().items()})
    for first, end, chunk in chunks:
        if end > again.oldest:
            again.load_chunk_(first, chunk, max(0, again.oldest - first))
    assert [len(again.member(m)) for m in (0, 1)] == [len(buffer.member(m)) for m in (0, 1)]
    check_all(again, stored)
    rows = torch.from_numpy(np.stack([[player.row() for player in own] for own in players]))
    for one in (buffer, again):
        one.add_(rows)
    assert {n: a.tolist() for n, a in buffer.state().items()} == {n: a.tolist() for n, a in again.state().items()}


def test_a_piece_of_another_memory_is_refused():
    buffer, player = FrameReplayBuffer(1, 60, FRAMES, SIZE, 1), Player(np.random.default_rng(0), (9,))
    played(buffer, [[player]], 20)
    chunk = buffer.chunk(0, 20)
    for other in (
        FrameReplayBuffer(1, 60, FRAMES, SIZE, 2),
        FrameReplayBuffer(1, 60, 2, SIZE, 1),
        FrameReplayBuffer(1, 60, 3, 7, 1),
    ):
        with pytest.raises(ValueError, match=r"another (shape|size)"):
            other.load_chunk_(0, chunk, 0)
    with pytest.raises(ValueError, match="oldest transitions are missing"):
        buffer.set_cursor_(20, {"frames_added": np.array([30]), "oldest": np.array([21])})


def test_a_frozen_member_keeps_its_images_when_the_ring_wraps():
    buffer = FrameReplayBuffer(2, 20, FRAMES, SIZE, 1)
    players = [[Player(np.random.default_rng(seed), (3, 5, 8))] for seed in (0, 1)]
    stored = played(buffer, players, 30)
    buffer.frozen = {1: "a test"}
    before = [part.copy() for part in (buffer.rows[1].numpy(), buffer.images[1].numpy(), buffer.numbers[1])]
    for _ in range(25):
        row = players[0][0].row()
        buffer.add_(torch.from_numpy(np.stack([row, np.zeros_like(row)])[:, None]))
        stored[0].append(row)
    for part, kept in zip((buffer.rows[1].numpy(), buffer.images[1].numpy(), buffer.numbers[1]), before, strict=True):
        np.testing.assert_array_equal(part, kept)
    assert len(buffer) == 20
    check_all(buffer, stored[:1])
