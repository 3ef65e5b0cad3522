"""What the doctor measures: one number per seed from the recorded metrics, diagnostics and times; NaN if unknown."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from td3.policy import Array
from td3.report.records import RunRecords, SeedRecords

Measure = Callable[[RunRecords, SeedRecords], float]

SETTLED = 2_000
"""Updates after which a learner can be judged; its critics' values after twice as many."""
RECENT = 3
"""Newest rows of diagnostics, whose median is judged: a single outlier is no problem."""
LONG = 5
"""Newest rows of diagnostics that must all agree, where healthy runs pass through the same state for a while."""
UNKNOWN = float("nan")
CPU_SECONDS, CPU_RATE = 0.002, 60e9
"""Generous cost of an update on one CPU core: seconds of overhead, and operations per second of the matrix products.
At HalfCheetah's sizes that is 9.4 ms, where docs/performance.md has 197 updates/s, 5.1 ms."""
GPU_SECONDS, GPU_RATE = 0.0004, 10e12
"""The same for all seeds together on one GPU: 0.44 ms with one seed, where docs/performance.md has 0.154 ms."""
PASSES = 12
"""Products of a batch with a network's weights in an update: 414 million operations at HalfCheetah's sizes."""


def recent(column: str, after: int = SETTLED) -> Measure:
    """The median of the newest rows of a column, once so many updates are done."""

    def measure(records: RunRecords, seed: SeedRecords) -> float:
        values = _settled(records, seed, column, after)[-RECENT:]
        return float(np.median(values)) if len(values) else UNKNOWN

    return measure


def collected(measure: Measure) -> Measure:
    """A measure of what a run collects; unknown in offline runs, which play no episodes of training."""

    def of_online_runs(records: RunRecords, seed: SeedRecords) -> float:
        return UNKNOWN if records.config.dataset else measure(records, seed)

    return of_online_runs


def of_critics(measure: Measure) -> Measure:
    """A measure that is judged by what TD3's critics do; unknown where replaced steps do not train them."""

    def where_trained(records: RunRecords, seed: SeedRecords) -> float:
        return measure(records, seed) if records.critics_trained else UNKNOWN

    return where_trained


def lasting(column: str) -> Measure:
    """The lowest of the newest rows: what lasted. A healthy actor may be saturated for a while."""

    def measure(records: RunRecords, seed: SeedRecords) -> float:
        values = _settled(records, seed, column)[-LONG:]
        return float(values.min()) if len(values) == LONG else UNKNOWN

    return measure


def _settled(records: RunRecords, seed: SeedRecords, column: str, after: int = SETTLED) -> Array:
    values = seed.diagnostics[column][_begun(records, seed, after)]
    return np.asarray(values[np.isfinite(values)])


def _begun(records: RunRecords, seed: SeedRecords, after: int) -> Array:
    """Which rows of diagnostics were written after so many updates."""
    settings = records.config.td3
    return np.asarray(seed.diagnostics["env_steps"] >= settings.learning_starts + after / settings.utd_ratio)


def newest(seed: SeedRecords, column: str) -> float:
    """The newest value of a column of metrics."""
    return float(seed.metrics[column][-1]) if len(seed.metrics[column]) else UNKNOWN


def updates(seed: SeedRecords) -> float:
    """Updates so far."""
    return newest(seed, "updates")


def not_finite(records: RunRecords, seed: SeedRecords) -> float:
    """Rows with updates whose values are NaN or infinite."""
    table = seed.metrics
    if len(table["updates"]) == 0:
        return UNKNOWN
    done = np.diff(table["updates"], prepend=0) > 0
    return float(np.sum(~np.isfinite(table["mean_q"][done])))


def no_updates(records: RunRecords, seed: SeedRecords) -> float:
    """Updates of a finished run."""
    return updates(seed) if records.status.get("status") == "finished" else UNKNOWN


def update_ratio(records: RunRecords, seed: SeedRecords) -> float:
    """Updates per env step after the random steps, once there are enough of both."""
    learning = newest(seed, "env_steps") - records.config.td3.learning_starts
    return updates(seed) / learning if learning >= 2_000 and updates(seed) > 0 else UNKNOWN


def updates_per_round(records: RunRecords, seed: SeedRecords) -> float:
    """Updates per round: few per env step are usual with many environments."""
    return update_ratio(records, seed) * records.config.envs


def _value_gaps(records: RunRecords, seed: SeedRecords, after: int = SETTLED) -> Array:
    """Predicted Q less observed return, as shares of the observed return, once so many updates are done."""
    table, gamma = seed.diagnostics, records.config.td3.gamma
    value, observed, reward = (table[column] for column in ("q_start", "return_start", "reward_scale"))
    usable = np.isfinite(value) & np.isfinite(observed) & np.isfinite(reward) & _begun(records, seed, after)
    # The return of a policy may be near 0. Then errors are relative to what rewards of this size add up to by chance:
    # their root mean square times the square root of the horizon. Times the horizon itself would be the largest
    # possible return, relative to which every error is small.
    floor = reward[usable] / np.sqrt(max(1 - gamma, 1e-3)) + 1e-9
    return np.asarray((value[usable] - observed[usable]) / np.maximum(np.abs(observed[usable]), floor))


def overestimation(records: RunRecords, seed: SeedRecords) -> float:
    """The least of the newest gaps: what lasted. Values that grow from 0 to a negative return never pass 1."""
    gaps = _value_gaps(records, seed, 2 * SETTLED)[-LONG:]
    return float(gaps.min()) if len(gaps) == LONG else UNKNOWN


def underestimation(records: RunRecords, seed: SeedRecords) -> float:
    """The median of the newest gaps of a run that has trained long enough."""
    # Values grow from zero, and slowly: early on they are below the observed return in every healthy run.
    gaps = _value_gaps(records, seed, 2 * SETTLED)[-RECENT:]
    return float(np.median(gaps)) if len(gaps) and updates(seed) >= 50_000 else UNKNOWN


def value_error(records: RunRecords, seed: SeedRecords) -> float:
    """The median of the newest gaps, without sign."""
    gaps = _value_gaps(records, seed)[-RECENT:]
    return float(np.median(np.abs(gaps))) if len(gaps) else UNKNOWN


def exploration_setting(records: RunRecords, seed: SeedRecords) -> float:
    """Standard deviation of the exploration noise."""
    return records.config.td3.exploration_noise


def no_ends(records: RunRecords, seed: SeedRecords) -> float:
    """Env steps of each environment in a run in which no episode has ended."""
    table = seed.metrics
    if len(table["episodes"]) == 0 or table["episodes"].sum() > 0:
        return UNKNOWN
    return float(table["env_steps"][-1]) / records.config.envs


def cut_short(records: RunRecords, seed: SeedRecords) -> float:
    """The horizon 1 / (1 - gamma) in lengths of the episodes that a time limit cut, where it cuts nearly all."""
    table, gamma = seed.metrics, records.config.td3.gamma
    if not table["episodes"].sum() >= 20 or not table["env_steps"][-1] > 0:
        return UNKNOWN
    episodes = table["episodes"].sum()
    if not table["timeouts"].sum() >= 0.95 * episodes or gamma >= 1:
        return UNKNOWN
    return float(episodes / (table["env_steps"][-1] * (1 - gamma)))


def below_training(records: RunRecords, seed: SeedRecords) -> float:
    """How far the best of the newest evaluations lies below the training returns, in units of the curve's size."""
    table, curve = seed.metrics, seed.curve
    if len(curve) < 6 or not updates(seed) >= SETTLED:
        return UNKNOWN
    since = seed.steps[-RECENT - 1]
    training = table["episode_return"][(table["env_steps"] > since) & np.isfinite(table["episode_return"])]
    if len(training) == 0:
        return UNKNOWN
    evaluated = float(curve[-RECENT:].max())
    size = max(abs(training.mean()), abs(evaluated), float(np.ptp(curve)), 1e-9)
    return float((training.mean() - evaluated) / size)


def slowness(records: RunRecords, seed: SeedRecords) -> float:
    """How many times longer updates take than in the benchmark; environments are not counted."""
    table, done, config = records.times, updates(seed), records.config
    # After a seed is frozen, time is recorded and updates are not.
    if not done >= SETTLED or len(table["update"]) == 0 or seed.frozen:
        return UNKNOWN
    sizes = config.td3.critic_sizes
    products = sum(inputs * outputs for inputs, outputs in pairwise(sizes)) + 24 * sizes[0]
    operations = 2 * PASSES * config.td3.batch_size * products * config.seeds
    if records.device.startswith("cuda"):  # where the next action waits for the update
        spent, expected = table["update"].sum() + table["act"].sum(), GPU_SECONDS + operations / GPU_RATE
    else:
        spent, expected = table["update"].sum(), CPU_SECONDS * config.seeds + operations / CPU_RATE
    return float(spent / done / expected)


def frozen(records: RunRecords, seed: SeedRecords) -> float:
    """1 for a frozen seed."""
    return 1.0 if seed.frozen else UNKNOWN
