"""N noisy critics of a flat truth, and an actor that picks by critic 1: what the minimum does, and what feeds back.

Every action is worth 0. Critics see it with smooth noise; the actor picks the best action of critic 1, as TD3's does,
and y is the minimum of all N at that action. The page draws the same numbers (`data/extras.js`;
tests/lessons/explain/test_claims.py compares them).
"""

from functools import cache

import numpy as np

from td3.policy import Array

POINTS = 61
DRAWS = 300
GAMMA = 0.9
"""Discount of the loop: what is believed now is 0.9 of what is believed next, plus a fresh error."""
ROUNDS = 10
MOST = 10


def _uniforms(draw: int, which: int, count: int) -> list[float]:
    """The page's generator: 32-bit integers, the same on every machine."""
    mask, state = 0xFFFFFFFF, ((draw + 1) * 0x9E3779B1 ^ (which + 1) * 0x85EBCA6B) & 0xFFFFFFFF
    made = []
    for _ in range(count):
        state = (state + 0x6D2B79F5) & mask
        mixed = (state ^ state >> 15) * (state | 1) & mask
        mixed ^= mixed + ((mixed ^ mixed >> 7) * (mixed | 61) & mask) & mask
        made.append((mixed ^ mixed >> 14) / 4294967296)
    return made


def noise(draw: int, which: int) -> Array:
    """What critic `which` is wrong by, over the actions from -1 to 1."""
    drawn, at = _uniforms(draw, which, 8), np.arange(POINTS) / (POINTS - 1) * np.pi
    waves = zip((1, 2, 3, 5), drawn[::2], drawn[1::2], strict=True)
    return np.asarray(np.sum([(2 * high - 1) * 1.2 * np.cos(k * at + turn * 2 * np.pi) for k, high, turn in waves], 0))


@cache
def errors() -> Array:
    """What is wrongly believed at the actor's pick, by the minimum of 1 to 10 critics: means `[N]` over 300 draws."""
    total = np.zeros(MOST)
    for draw in range(DRAWS):
        critics = np.stack([noise(1000 + draw, which) for which in range(1, MOST + 1)])
        total += np.minimum.accumulate(critics[:, critics[0].argmax()])
    return total / DRAWS


def believed(rounds: int = ROUNDS) -> Array:
    """The same after so many rounds in which y feeds on itself."""
    return np.asarray(errors() * (1 - GAMMA**rounds) / (1 - GAMMA))
