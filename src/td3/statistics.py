"""Few seeds, honest numbers: interquartile means, bootstrap intervals over seeds, and what two runs may be said to be.

The definitions are those of Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice": scores are a table per task, one row a seed; a resample draws seeds anew within each task (stratified).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Statistic = Callable[[Array], Array]
Verdict = Literal["equivalent", "better", "worse", "undecided"]

DRAWS = 2_000
"""Resamples of an interval: its ends then move by about 2 % of its width from one random seed to the next."""


def mean(scores: Array) -> Array:
    """The mean over the first axis."""
    return np.asarray(np.mean(scores, 0))


def interquartile_mean(scores: Array) -> Array:
    """The mean over the first axis without the lowest and the highest quarter (rounded down) of the values."""
    cut = len(scores) // 4
    return np.asarray(np.sort(scores, 0)[cut : len(scores) - cut].mean(0))


def interval(
    tasks: Array | Sequence[Array],
    statistic: Statistic = mean,
    confidence: float = 0.95,
    draws: int = DRAWS,
) -> tuple[Array, Array]:
    """The stratified percentile-bootstrap interval of a statistic of all scores.

    `tasks` is one array `[seed, ...]`, or one for each task; the seeds of each are resampled among themselves. With one
    seed the interval is that seed's value: nothing is known about others.
    """
    low, high = np.quantile(
        resampled(_as_tasks(tasks), statistic, draws), ((1 - confidence) / 2, (1 + confidence) / 2), 0
    )
    return np.asarray(low), np.asarray(high)


def resampled(tasks: Sequence[Array], statistic: Statistic, draws: int = DRAWS, stream: int = 0) -> Array:
    """The statistic of so many resamples `[draw, ...]`, always the same ones for the same sizes and stream."""
    random = np.random.default_rng(stream)
    # [seed, draw, ...]: a statistic reduces the first axis, here of all resamples at once.
    picked = [
        np.moveaxis(np.asarray(scores)[random.integers(len(scores), size=(draws, len(scores)))], 0, 1)
        for scores in tasks
    ]
    return statistic(np.concatenate(picked))


def probability_of_improvement(ours: Array, theirs: Array) -> float:
    """How often a seed of ours beats a seed of theirs, drawn at random; a tie counts half."""
    return float(_wins(np.asarray(ours)[None], np.asarray(theirs)[None])[0])


def _wins(ours: Array, theirs: Array) -> Array:
    """The share of pairs that ours win, for each row of `[draw, seed]`."""
    difference = ours[:, :, None] - theirs[:, None, :]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean((1, 2)))


class Comparison(NamedTuple):
    """What may be said of two runs of one task, from their seeds' scores."""

    difference: float
    """Interquartile mean of ours less that of theirs."""
    low: float
    high: float
    """The 90 % bootstrap interval of the difference: two one-sided tests at 5 %."""
    margin: float
    """Differences up to this are called none."""
    probability: float
    probability_low: float
    probability_high: float
    """Probability of improvement and its 95 % bootstrap interval."""
    verdict: Verdict


def compare(ours: Array, theirs: Array, margin: float) -> Comparison:
    """Two one-sided tests on the bootstrap: equivalent only where the whole 90 % interval lies within the margin.

    Better or worse where it lies on one side of 0 and reaches past the margin. Otherwise the seeds do not decide it,
    which is no evidence for sameness. Fewer than three seeds a side never decide: their resamples hardly vary.
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    sides = (ours, theirs)
    draws = [resampled([scores], interquartile_mean, stream=stream) for stream, scores in enumerate(sides)]
    low, high = np.quantile(draws[0] - draws[1], (0.05, 0.95))
    picked = [
        scores[np.random.default_rng(2 + side).integers(len(scores), size=(DRAWS, len(scores)))]
        for side, scores in enumerate(sides)
    ]
    chance_low, chance_high = np.quantile(_wins(*picked), (0.025, 0.975))
    return Comparison(
        difference=float(interquartile_mean(ours) - interquartile_mean(theirs)),
        low=float(low),
        high=float(high),
        margin=margin,
        probability=probability_of_improvement(ours, theirs),
        probability_low=float(chance_low),
        probability_high=float(chance_high),
        verdict=_verdict(float(low), float(high), margin) if min(map(len, sides)) >= 3 else "undecided",
    )


def _verdict(low: float, high: float, margin: float) -> Verdict:
    if -margin < low and high < margin:
        return "equivalent"
    if low > 0:
        return "better"
    return "worse" if high < 0 else "undecided"


def _as_tasks(tasks: Array | Sequence[Array]) -> Sequence[Array]:
    return [tasks] if isinstance(tasks, np.ndarray) else tasks
