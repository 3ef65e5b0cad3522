"""Statistics over few seeds: means, their confidence intervals, and what may be said of two runs.

A result is one number per seed. The interquartile mean (IQM) is that of Agarwal et al. 2021, "Deep reinforcement
learning at the edge of the statistical precipice". Their percentile bootstrap over seeds is too narrow for few seeds:
a 95 % interval of normal seeds holds the truth in 75 % of cases at three seeds, 84 % at five, 90 % at ten. So intervals
of one task are Student's t here, of the mean, of the IQM (Tukey and McLaughlin 1963) and of the difference of two means
(Welch 1947). `tests/test_statistics.py` simulates their coverage.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Statistic = Callable[[Array], Array]
Verdict = Literal["equivalent", "better", "worse", "undecided", "too_few_seeds"]

FEWEST_SEEDS = 5
"""Seeds of each run that a verdict needs."""
LAST_SHARE = 0.1
"""The end of a run: its last tenth, in env steps."""
DRAWS = 2_000
"""Resamples of a bootstrap interval: its ends then move by about 2 % of its width from one random seed to the next."""


def at_the_end(steps: Array) -> Array:
    """Which of the evaluations at these increasing env steps lie in the run's last tenth; the final one always does."""
    steps = np.asarray(steps)
    return np.asarray((steps > (1 - LAST_SHARE) * steps[-1]) | (steps == steps[-1]))


def mean(values: Array) -> Array:
    """The mean over the first axis."""
    return np.asarray(np.mean(values, 0))


def interquartile_mean(values: Array) -> Array:
    """The mean over the first axis without the lowest and the highest quarter (rounded down) of the values."""
    values = np.asarray(values, np.float64)
    if np.isnan(values).any():
        # Sorted last, it would count as the best seed.
        raise ValueError("the interquartile mean is of numbers, but a score is NaN: leave that seed out, and say so.")
    cut = len(values) // 4
    return np.asarray(np.sort(values, 0)[cut : len(values) - cut].mean(0))


def mean_interval(values: Array, confidence: float = 0.95) -> tuple[Array, Array]:
    """The t interval of the mean over seeds, `[seed, ...]`; NaN for one seed, which says nothing about others."""
    return _interval([_Side.of(values, 0)], confidence)


def iqm_interval(values: Array, confidence: float = 0.95) -> tuple[Array, Array]:
    """The t interval of the interquartile mean over seeds, `[seed, ...]`; NaN for one seed."""
    return _interval([_Side.of(values, len(values) // 4)], confidence)


def difference_interval(ours: Array, theirs: Array, confidence: float = 0.95) -> tuple[Array, Array]:
    """Welch's t interval of our mean less theirs, `[seed, ...]`; NaN where a side has one seed.

    Neither the spread of the seeds nor their number need be alike. Of the means: the same of two IQMs
    (`interquartile_sample`) is wrong in up to 8 % of cases at five seeds, where the spreads differ, and sees less.
    """
    return _interval([_Side.of(values, 0) for values in (ours, theirs)], confidence)


def welch_p(ours: Array, theirs: Array) -> float:
    """The two-sided p-value of Welch's test that two means are equal; NaN where nothing varies, or of one seed."""
    from scipy.special import stdtr

    center, variance, freedom = _welch([_Side.of(values, 0) for values in (ours, theirs)])
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(2 * stdtr(freedom, -np.abs(center) / np.sqrt(variance)))


def holm(p_values: Sequence[float]) -> Array:
    """The p-values of several tests, corrected for their number (Holm 1979); one that is NaN counts and stays NaN.

    Where no two means differ in truth, any of these is at most 0.05 in at most 5 % of cases.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return corrected


def differing(pairs: Sequence[tuple[Array, Array]], level: float = 0.05) -> list[bool]:
    """Whose means differ, of several pairs of runs: Welch's test with Holm's correction for their number."""
    return [bool(p_value <= level) for p_value in holm([welch_p(*pair) for pair in pairs])]


def interquartile_sample(values: Array) -> Array:
    """Numbers of which Welch's interval is Yuen's of the IQM of these seeds (1974): as many as the IQM keeps."""
    side = _Side.of(values, len(values) // 4)
    kept = side.freedom + 1
    return sample_like(kept, float(side.mean), float(np.sqrt(side.variance * kept)))


def sample_like(count: int, mean: float, std: float) -> Array:
    """Numbers with this mean and standard deviation (n - 1), for seeds of which no more is known."""
    steps = np.arange(count) - (count - 1) / 2
    return np.asarray(mean + (std * steps / steps.std(ddof=1) if count > 1 else steps))


class _Side(NamedTuple):
    """A trimmed mean of seeds, the variance of that mean, and its degrees of freedom."""

    mean: Array
    variance: Array
    freedom: int

    @classmethod
    def of(cls, values: Array, cut: int) -> "_Side":
        ordered, count = np.sort(np.asarray(values, np.float64), 0), len(values)
        kept = count - 2 * cut
        # Winsorized: what is left out is moved to the nearest value that is kept, so that the tails still count.
        winsorized = np.clip(ordered, ordered[cut], ordered[count - 1 - cut])
        squares = np.square(winsorized - winsorized.mean(0)).sum(0)
        variance = squares / (kept * (kept - 1)) if kept > 1 else np.full_like(squares, np.nan)
        return cls(ordered[cut : count - cut].mean(0), np.asarray(variance), kept - 1)


def _interval(sides: Sequence[_Side], confidence: float) -> tuple[Array, Array]:
    """Of one mean, or of the first less the second."""
    from scipy.special import stdtrit  # here: most commands need none of it

    center, variance, freedom = _welch(sides)
    with np.errstate(invalid="ignore"):  # seeds that are all alike have no variance, and no width
        half = np.where(variance == 0, 0.0, stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))
    return np.asarray(center - half), np.asarray(center + half)


def _welch(sides: Sequence[_Side]) -> tuple[Array, Array, Array]:
    """A mean, or the first less the second, its variance, and the degrees of freedom; NaN where nothing varies."""
    variance = np.asarray(sum(side.variance for side in sides))
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = variance**2 / sum(side.variance**2 / side.freedom for side in sides if side.freedom)
    return np.asarray(sides[0].mean - sum(side.mean for side in sides[1:])), variance, np.asarray(freedom)


def bootstrap_interval(
    tasks: Array | Sequence[Array],
    statistic: Statistic = mean,
    confidence: float = 0.95,
    draws: int = DRAWS,
) -> tuple[Array, Array]:
    """The stratified percentile-bootstrap interval of a statistic of all scores: of several tasks, or of many seeds.

    `tasks` is one array `[seed, ...]`, or one for each task; the seeds of each are resampled among themselves. Of one
    task it is too narrow unless there are some twenty seeds.
    """
    low, high = np.quantile(
        resampled(_as_tasks(tasks), statistic, draws), ((1 - confidence) / 2, (1 + confidence) / 2), 0
    )
    return np.asarray(low), np.asarray(high)


def resampled(tasks: Sequence[Array], statistic: Statistic, draws: int = DRAWS, stream: int = 0) -> Array:
    """The statistic of so many resamples `[draw, ...]`, always the same ones for the same sizes and stream."""
    return statistic(np.concatenate(_resamples(tasks, draws, stream)))


def _resamples(tasks: Sequence[Array], draws: int = DRAWS, stream: int = 0) -> list[Array]:
    """Of each task `[seed, draw, ...]`: a statistic reduces the first axis, here of all resamples at once."""
    random = np.random.default_rng(stream)
    return [
        np.moveaxis(np.asarray(values)[random.integers(len(values), size=(draws, len(values)))], 0, 1)
        for values in tasks
    ]


def mean_of_tasks(tasks: Sequence[Array]) -> Array:
    """The mean over tasks of the mean over the seeds `[seed, ...]` of each."""
    return np.asarray(np.mean([task.mean(0) for task in tasks], 0))


def median_of_tasks(tasks: Sequence[Array]) -> Array:
    """The median over tasks of the mean over the seeds of each."""
    return np.asarray(np.median([task.mean(0) for task in tasks], 0))


def iqm_of_tasks(tasks: Sequence[Array]) -> Array:
    """The interquartile mean of the scores of all seeds and tasks."""
    return interquartile_mean(np.concatenate(tasks))


def improvement_over_tasks(ours: Sequence[Array], theirs: Sequence[Array]) -> Array:
    """The mean over tasks of the probability of improvement."""
    return np.asarray(np.mean([probability_of_improvement(*pair) for pair in zip(ours, theirs, strict=True)], 0))


def over_tasks(aggregate: Callable[..., Array], *sides: Sequence[Array]) -> tuple[float, float, float]:
    """An aggregate over tasks with its 95 % interval: the bootstrap of rliable, stratified by task.

    `sides` are the scores of one group of runs, or of two. With few seeds it is too narrow, by a tenth or more with
    five.
    """
    draws = [_resamples(tasks, stream=stream) for stream, tasks in enumerate(sides)]
    low, high = np.quantile(aggregate(*draws), (0.025, 0.975))
    return float(aggregate(*sides)), float(low), float(high)


def probability_of_improvement(ours: Array, theirs: Array) -> Array:
    """How often a seed of ours beats a seed of theirs, drawn at random, `[seed, ...]`; a tie counts half."""
    difference = np.asarray(ours)[:, None] - np.asarray(theirs)[None]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean((0, 1)))


def probability_interval(probability: float, ours: int, theirs: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a probability of improvement of so many seeds: Newcombe 2006, method 5.

    All probabilities that the one found does not contradict. Where every seed of ours beats every seed of theirs it
    does not shrink to a point, as a bootstrap does.
    """
    from scipy.special import ndtri

    possible = np.linspace(0, 1, 2_001)
    more = (ours + theirs) / 2 - 1
    variance = possible * (1 - possible) / (ours * theirs)
    variance *= 1 + more * (1 - possible) / (2 - possible) + more * possible / (1 + possible)
    inside = possible[np.abs(possible - probability) <= ndtri((1 + confidence) / 2) * np.sqrt(variance) + 1e-12]
    return float(inside[0]), float(inside[-1])


class Comparison(NamedTuple):
    """What may be said of two runs of one task, from their seeds' scores."""

    difference: float
    """Mean of ours less that of theirs."""
    low: float
    high: float
    """The 95 % interval of the difference; NaN where a side has one seed."""
    margin: float
    """Differences up to this are called none."""
    probability: float
    probability_low: float
    probability_high: float
    """Probability of improvement and its 95 % interval."""
    seeds: tuple[int, int]
    """Seeds of ours and of theirs."""
    verdict: Verdict


def compare(ours: Array, theirs: Array, margin: float) -> Comparison:
    """Equivalent only where the whole 95 % interval of the difference lies within the margin.

    Better or worse where it lies on one side of 0 and reaches past the margin. Otherwise the seeds do not decide it,
    which is no evidence for sameness. Fewer than five seeds a side get no verdict.
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    seeds = len(ours), len(theirs)
    low, high = (float(end) for end in difference_interval(ours, theirs))
    probability = float(probability_of_improvement(ours, theirs))
    chance_low, chance_high = probability_interval(probability, *seeds)
    return Comparison(
        difference=float(ours.mean() - theirs.mean()),
        low=low,
        high=high,
        margin=margin,
        probability=probability,
        probability_low=chance_low,
        probability_high=chance_high,
        seeds=seeds,
        verdict=_verdict(low, high, margin) if min(seeds) >= FEWEST_SEEDS else "too_few_seeds",
    )


def _verdict(low: float, high: float, margin: float) -> Verdict:
    if -margin < low and high < margin:
        return "equivalent"
    if low > 0:
        return "better"
    return "worse" if high < 0 else "undecided"


def _as_tasks(tasks: Array | Sequence[Array]) -> Sequence[Array]:
    return [tasks] if isinstance(tasks, np.ndarray) else tasks
