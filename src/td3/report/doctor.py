"""What is wrong with a run, in words: each finding with its number, its threshold and what to try.

A rule measures one number per seed from what the run wrote; the worst seed speaks for all. Thresholds are set so far
out that runs which learn stay silent: `tests/report/test_doctor.py` plants every illness and trains the healthy ones.
Remarks are measured in the same way and are no findings: healthy runs have them too, at least for a time, but the
reader of a plot should know what to make of it.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from td3.policy import Array
from td3.report.records import RunRecords, SeedRecords

SETTLED = 2_000
"""Updates after which a learner can be judged; its critics' values after twice as many."""
RECENT = 3
"""Rows of diagnostics, the newest, whose median is judged: one odd moment is no illness."""
LONG = 5
"""Rows of diagnostics that must all agree where healthy learners pass through the same state on their way."""
NOTHING = float("nan")


class Finding(NamedTuple):
    """One thing that is wrong."""

    name: str
    said: str
    advice: str
    number: float
    threshold: float
    seeds: list[int]


class Rule(NamedTuple):
    """A number of each seed, the threshold that it must not pass, and what to say if it does."""

    name: str
    measure: Callable[[RunRecords, SeedRecords], float]
    threshold: float
    above: bool
    said: str
    advice: str

    def judge(self, records: RunRecords) -> Finding | None:
        """The finding, if a seed is ill; NaN (nothing measured) never is."""
        # Runs that are only shown together were trained apart: each seed is judged by its own run's settings and times.
        numbers = {seed.seed: self.measure(run, seed) for run in records.runs for seed in run.seeds}
        sign = 1 if self.above else -1
        ill = {seed: number for seed, number in numbers.items() if sign * number > sign * self.threshold}
        if not ill:
            return None
        worst = max(ill.values(), key=lambda number: sign * number)
        where = "" if len(ill) == len(numbers) else f" (in {len(ill)} of {len(numbers)} seeds: {_listed(list(ill))})"
        said = self.said.format(number=worst, threshold=self.threshold, percent=100 * worst, limit=100 * self.threshold)
        return Finding(self.name, f"{said[:-1]}{where}{said[-1]}", self.advice, worst, self.threshold, list(ill))


def examine_run(records: RunRecords) -> list[Finding]:
    """Everything that is wrong, the gravest first."""
    return [finding for rule in RULES if (finding := rule.judge(records))]


def remarks_on(records: RunRecords) -> list[Finding]:
    """What is visible in the plots and is not wrong by itself."""
    return [finding for rule in REMARKS if (finding := rule.judge(records))]


def all_clear(records: RunRecords) -> str:
    """What to say where nothing is found."""
    judged = all(_updates(seed) >= 2 * SETTLED for seed in records.seeds)
    waits = f"networks are judged from {SETTLED:,} updates on, overestimation from {2 * SETTLED:,}"
    so_far = "" if judged else f" so far; {waits}"
    return f"nothing wrong{so_far}"


def _listed(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"


def _recent(column: str, after: int = SETTLED) -> Callable[[RunRecords, SeedRecords], float]:
    """The median of the newest rows of a column, once so many updates are done."""

    def measure(records: RunRecords, seed: SeedRecords) -> float:
        values = _flushed(records, seed, column, after)[-RECENT:]
        return float(np.median(values)) if len(values) else NOTHING

    return measure


def _lasting(column: str) -> Callable[[RunRecords, SeedRecords], float]:
    """The lowest of the newest rows: what was so for long. A healthy actor may stand at the ends for a while."""

    def measure(records: RunRecords, seed: SeedRecords) -> float:
        values = _flushed(records, seed, column)[-LONG:]
        return float(values.min()) if len(values) == LONG else NOTHING

    return measure


def _flushed(records: RunRecords, seed: SeedRecords, column: str, after: int = SETTLED) -> Array:
    values = seed.diagnostics[column][_begun(records, seed, after)]
    return np.asarray(values[np.isfinite(values)])


def _begun(records: RunRecords, seed: SeedRecords, after: int) -> Array:
    """Which rows of diagnostics were written after so many updates."""
    settings = records.config.td3
    return np.asarray(seed.diagnostics["env_steps"] >= settings.learning_starts + after / settings.utd_ratio)


def _newest(seed: SeedRecords, column: str) -> float:
    return float(seed.metrics[column][-1]) if len(seed.metrics[column]) else NOTHING


def _updates(seed: SeedRecords) -> float:
    return _newest(seed, "updates")


def _not_finite(records: RunRecords, seed: SeedRecords) -> float:
    """How many of the rows in which updates were done hold no number."""
    table = seed.metrics
    if len(table["updates"]) == 0:
        return NOTHING
    done = np.diff(table["updates"], prepend=0) > 0
    return float(np.sum(~np.isfinite(table["mean_q"][done])))


def _no_updates(records: RunRecords, seed: SeedRecords) -> float:
    """Updates of a run that is over."""
    return _updates(seed) if records.status.get("status") == "finished" else NOTHING


def _update_ratio(records: RunRecords, seed: SeedRecords) -> float:
    """Updates per env step after the random steps, once there are enough of both."""
    learning = _newest(seed, "env_steps") - records.config.td3.learning_starts
    return _updates(seed) / learning if learning >= 2_000 and _updates(seed) > 0 else NOTHING


def _value_gaps(records: RunRecords, seed: SeedRecords, after: int = SETTLED) -> Array:
    """Predicted Q less observed return, as shares of the observed return, once so many updates are done."""
    table, gamma = seed.diagnostics, records.config.td3.gamma
    value, observed, reward = (table[column] for column in ("q_start", "return_start", "reward_scale"))
    known = np.isfinite(value) & np.isfinite(observed) & np.isfinite(reward) & _begun(records, seed, after)
    # A policy that earns about nothing has a return of no size. Then the measure is what rewards of this size add up to
    # by chance, their root mean square times the root of the horizon. Times the horizon itself they would be what a
    # policy can earn at most, which no return exceeds: seen from there, every error is small.
    floor = reward[known] / np.sqrt(max(1 - gamma, 1e-3)) + 1e-9
    return np.asarray((value[known] - observed[known]) / np.maximum(np.abs(observed[known]), floor))


def _overestimation(records: RunRecords, seed: SeedRecords) -> float:
    """The least of the newest gaps: what lasted. Values that grow from 0 to a negative return never pass 1."""
    gaps = _value_gaps(records, seed, 2 * SETTLED)[-LONG:]
    return float(gaps.min()) if len(gaps) == LONG else NOTHING


def _underestimation(records: RunRecords, seed: SeedRecords) -> float:
    # Values grow from zero, and slowly: early on they are below what comes in every healthy run.
    gaps = _value_gaps(records, seed, 2 * SETTLED)[-RECENT:]
    return float(np.median(gaps)) if len(gaps) and _updates(seed) >= 50_000 else NOTHING


def _value_error(records: RunRecords, seed: SeedRecords) -> float:
    gaps = _value_gaps(records, seed)[-RECENT:]
    return float(np.median(np.abs(gaps))) if len(gaps) else NOTHING


def _exploration_setting(records: RunRecords, seed: SeedRecords) -> float:
    return records.config.td3.exploration_noise


def _no_ends(records: RunRecords, seed: SeedRecords) -> float:
    """Env steps that brought not one end of an episode."""
    table = seed.metrics
    if len(table["episodes"]) == 0 or table["episodes"].sum() > 0:
        return NOTHING
    return float(table["env_steps"][-1])


def _cut_short(records: RunRecords, seed: SeedRecords) -> float:
    """The horizon 1 / (1 - gamma) in lengths of the episodes that a time limit cut, where it cuts nearly all."""
    table, gamma = seed.metrics, records.config.td3.gamma
    if not table["episodes"].sum() >= 20 or not table["env_steps"][-1] > 0:
        return NOTHING
    episodes = table["episodes"].sum()
    if not table["timeouts"].sum() >= 0.95 * episodes or gamma >= 1:
        return NOTHING
    return float(episodes / (table["env_steps"][-1] * (1 - gamma)))


def _below_training(records: RunRecords, seed: SeedRecords) -> float:
    """How far even the best of the newest evaluations lies below training's returns, in units of the curve's size."""
    table, curve = seed.metrics, seed.curve
    if len(curve) < 6 or not _updates(seed) >= SETTLED:
        return NOTHING
    since = seed.steps[-RECENT - 1]
    training = table["episode_return"][(table["env_steps"] > since) & np.isfinite(table["episode_return"])]
    if len(training) == 0:
        return NOTHING
    evaluated = float(curve[-RECENT:].max())
    size = max(abs(training.mean()), abs(evaluated), float(np.ptp(curve)), 1e-9)
    return float((training.mean() - evaluated) / size)


CPU_SECONDS, CPU_RATE = 0.002, 60e9
"""What an update costs on one CPU core by `td3 bench scaling` and `td3 bench update`: a fixed part, and products at
about so many operations a second."""
GPU_SECONDS, GPU_RATE = 0.0004, 10e12
"""The same of all seeds together on one GPU (docs/performance.md: 3,249 env steps a second for one seed)."""
PASSES = 12
"""Times that an update multiplies a batch with a network's weights: 414 million operations at HalfCheetah's sizes."""


def _slowness(records: RunRecords, seed: SeedRecords) -> float:
    """How many times longer updates take here than in the benchmark; what environments take is not counted."""
    table, done, config = records.times, _updates(seed), records.config
    # Time went on after a seed was frozen, and its updates did not.
    if not done >= SETTLED or len(table["update"]) == 0 or seed.frozen:
        return NOTHING
    sizes = config.td3.critic_sizes
    products = sum(inputs * outputs for inputs, outputs in pairwise(sizes)) + 24 * sizes[0]
    operations = 2 * PASSES * config.td3.batch_size * products * config.seeds
    if records.device.startswith("cuda"):  # where the next action waits for the update
        spent, expected = table["update"].sum() + table["act"].sum(), GPU_SECONDS + operations / GPU_RATE
    else:
        spent, expected = table["update"].sum(), CPU_SECONDS * config.seeds + operations / CPU_RATE
    return float(spent / done / expected)


def _frozen(records: RunRecords, seed: SeedRecords) -> float:
    return 1.0 if seed.frozen else NOTHING


RULES = (
    Rule(
        "frozen_seed",
        _frozen,
        0.5,
        True,
        "Training of a seed failed and was stopped.",
        "Its reason stands in the report and in status.json: lower both learning rates if it diverged, fix the "
        "environment if that failed.",
    ),
    Rule(
        "diverged",
        _not_finite,
        0.5,
        True,
        "The values are no numbers any more (NaN or infinity) in {number:.0f} rows of metrics.",
        "Look for huge rewards or observations, and lower both learning rates.",
    ),
    Rule(
        "no_updates",
        _no_updates,
        0.5,
        False,
        "Nothing was learned: the run is over and did {number:.0f} updates.",
        "Train for more env steps than --td3.learning-starts, or lower those.",
    ),
    Rule(
        "q_too_high",
        _overestimation,
        1.5,
        True,
        "The critics overestimate: at the start of an episode predicted Q is above the observed return by {number:.1f} "
        "times that return (limit {threshold:g}), in each of the last five evaluations.",
        "Lower --td3.critic-learning-rate or --td3.tau, check that --td3.target-policy-noise is not 0, and that the "
        "environment reports a true end of an episode as terminated.",
    ),
    Rule(
        "q_too_low",
        _underestimation,
        -0.8,
        False,
        "The critics underestimate: at the start of an episode predicted Q differs from the observed return by "
        "{number:.2f} times that return (limit {threshold:g}).",
        "Scale the rewards so that a return is of the order of 100, raise --td3.critic-learning-rate, or train longer.",
    ),
    Rule(
        "saturated_actor",
        _lasting("saturation"),
        0.98,
        True,
        "The actor's tanh is saturated: {percent:.0f} % of its outputs lie at an end (limit {limit:.0f} %).",
        "Lower --td3.actor-learning-rate, bring the observations to a scale of about 1, and see whether the reward "
        "asks for extreme actions.",
    ),
    Rule(
        "stuck_actions",
        _lasting("stuck"),
        0.99,
        True,
        "The actor does the same whatever it sees: {percent:.0f} % of its action dimensions stay at one end "
        "(limit {limit:.0f} %).",
        "It has stopped learning there. Start again with another seed, more --td3.learning-starts or a lower "
        "--td3.actor-learning-rate.",
    ),
    Rule(
        "vanishing_actor_gradient",
        _recent("actor_gradient"),
        1e-8,
        False,
        "The actor's gradient has vanished: {number:.1e} per weight (limit {threshold:.0e}, where Adam's steps begin "
        "to shrink too).",
        "The tanh is saturated, the units are dead, or the critics see no difference between actions: scale the "
        "rewards up, lower the learning rates.",
    ),
    Rule(
        "dead_actor_units",
        _recent("actor_dead"),
        0.8,
        True,
        "{percent:.0f} % of the actor's hidden units are dead (limit {limit:.0f} %): they are 0 in every state.",
        "Lower --td3.actor-learning-rate and bring the observations to a scale of about 1.",
    ),
    Rule(
        "dead_critic_units",
        _recent("critic_dead"),
        0.8,
        True,
        "{percent:.0f} % of the critics' hidden units are dead (limit {limit:.0f} %): they are 0 in every state.",
        "Lower --td3.critic-learning-rate and bring observations and rewards to a scale of about 1.",
    ),
    Rule(
        "no_exploration",
        _exploration_setting,
        0.02,
        False,
        "There is hardly any exploration: exploration_noise is {number:g} of half the action range (limit "
        "{threshold:g}).",
        "Set --td3.exploration-noise to 0.1, the paper's value.",
    ),
    Rule(
        "little_variation",
        _recent("exploration"),
        0.02,
        False,
        "Played actions hardly differ from the actor's own: by {number:.3f} of half the action range (limit "
        "{threshold:g}).",
        "Raise --td3.exploration-noise, and see whether the environment or a wrapper replaces the actions.",
    ),
    Rule(
        "large_observations",
        _recent("observation_scale"),
        1_000.0,
        True,
        "Observations are huge: one dimension has a root mean square of {number:,.0f} (limit {threshold:,.0f}).",
        "Scale them: train with --normalize-observations, or divide by known ranges in the environment.",
    ),
    Rule(
        "small_observations",
        _recent("observation_spread"),
        0.01,
        False,
        "Observations hardly vary: the most variable dimension has a standard deviation of {number:.1e} (limit "
        "{threshold:g}).",
        "Scale them up: train with --normalize-observations, or divide by the usual spread in the environment.",
    ),
    Rule(
        "large_rewards",
        _recent("reward_scale"),
        100.0,
        True,
        "Rewards are large: their root mean square is {number:,.0f} a step (limit {threshold:,.0f}).",
        "Divide them (gymnasium.wrappers.TransformReward): critics of this size learn values of thousands slowly.",
    ),
    Rule(
        "small_rewards",
        _recent("reward_scale"),
        1e-3,
        False,
        "Rewards are tiny: their root mean square is {number:.1e} a step (limit {threshold:g}).",
        "Multiply them, or, if almost all are 0, give a denser reward: TD3 finds a rare one only by luck.",
    ),
    Rule(
        "no_ends",
        _no_ends,
        20_000.0,
        True,
        "No episode has ended in {number:,.0f} env steps (limit {threshold:,.0f}).",
        "Give the environment a time limit: gymnasium.wrappers.TimeLimit, or max_episode_steps when registering.",
    ),
    Rule(
        "short_time_limit",
        _cut_short,
        1 / 0.3,
        True,
        "Nearly all episodes are cut off by a time limit, and the horizon 1 / (1 - gamma) is {number:.1f} times as "
        "long as they are (limit {threshold:.1f}).",
        "Lengthen the time limit, or lower --td3.gamma so that it fits.",
    ),
    Rule(
        "few_updates",
        _update_ratio,
        0.25,
        False,
        "There are few updates: {number:.2f} per env step (limit {threshold:g}).",
        "Set --td3.utd-ratio to 1; with fewer the run is quicker but learns less from each step.",
    ),
    Rule(
        "many_updates",
        _update_ratio,
        4.0,
        True,
        "There are many updates: {number:.1f} per env step (limit {threshold:g}).",
        "Above about 4 TD3's critics overfit the replay buffer: set --td3.utd-ratio to 1.",
    ),
    Rule(
        "evaluation_below_training",
        _below_training,
        0.5,
        True,
        "Evaluations lie far below the returns of training, by {number:.2f} of the curve's size (limit {threshold:g}).",
        "The policy performs well only with exploration noise: train longer, train again with a lower "
        "--td3.exploration-noise, or check that evaluation and training environments are alike.",
    ),
    Rule(
        "slow_updates",
        _slowness,
        6.0,
        True,
        "Updates take {number:.0f} times as long as the benchmark's (limit {threshold:g}).",
        "Another process may hold the cores: try --threads 1, look at `td3 bench update`, or use a GPU.",
    ),
)
REMARKS = (
    Rule(
        "q_not_converged",
        _value_error,
        0.25,
        True,
        "Predicted Q and observed return differ by {percent:.0f} % of the return (remarked above {limit:.0f} %).",
        "Critics start near 0 and approach the return over tens of thousands of updates: train longer while the gap "
        "shrinks. If it grows, lower --td3.critic-learning-rate.",
    ),
    Rule(
        "many_saturated_outputs",
        _recent("saturation"),
        0.5,
        True,
        "{percent:.0f} % of the actor's outputs are saturated (remarked above {limit:.0f} %).",
        "A good policy looks so where full force is best, as in Pendulum. Where it is not, or where returns do not "
        "rise, lower --td3.actor-learning-rate and bring the observations to a scale of about 1.",
    ),
)
