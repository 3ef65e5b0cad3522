"""Diagnosis of a run: each finding with its number, its threshold and what to try.

A rule measures one number per seed from the records of the run, and the worst seed decides. Thresholds are so far out
that runs which learn have no findings: `tests/report/test_doctor.py` plants every problem and trains healthy runs.
Remarks are measured in the same way, but healthy runs have them too, at least for a time; they explain the plots.
"""

from typing import NamedTuple

from td3.report import measures
from td3.report.measures import SETTLED, Measure
from td3.report.records import RunRecords
from td3.scales import LARGE_OBSERVATION, LARGE_REWARD, SMALL_REWARD, SMALL_SPREAD


class Finding(NamedTuple):
    """One problem that was found."""

    name: str
    said: str
    advice: str
    number: float
    threshold: float
    seeds: list[int]


class Rule(NamedTuple):
    """A number of each seed, its threshold, and the text if a seed exceeds it."""

    name: str
    measure: Measure
    threshold: float
    above: bool
    said: str
    advice: str

    def judge(self, records: RunRecords) -> Finding | None:
        """The finding, if a seed exceeds the threshold; NaN (unknown) never does."""
        # Runs that are shown together were trained separately: each seed has its own run's settings and times.
        numbers = {seed.seed: self.measure(run, seed) for run in records.runs for seed in run.seeds}
        sign = 1 if self.above else -1
        over = {seed: value for seed, value in numbers.items() if sign * value > sign * self.threshold}
        if not over:
            return None
        worst = max(over.values(), key=lambda value: sign * value)
        where = "" if len(over) == len(numbers) else f" (in {len(over)} of {len(numbers)} seeds: {_listed(list(over))})"
        text = self.said.format(number=worst, threshold=self.threshold, percent=100 * worst, limit=100 * self.threshold)
        return Finding(self.name, f"{text[:-1]}{where}{text[-1]}", self.advice, worst, self.threshold, list(over))


def examine_run(records: RunRecords) -> list[Finding]:
    """All findings, the gravest first."""
    return [finding for rule in RULES if (finding := rule.judge(records))]


def remarks_on(records: RunRecords) -> list[Finding]:
    """Remarks: visible in the plots, but no problem by themselves."""
    return [finding for rule in REMARKS if (finding := rule.judge(records))]


def all_clear(records: RunRecords) -> str:
    """The text if there are no findings."""
    judged = all(measures.updates(seed) >= 2 * SETTLED for seed in records.seeds)
    waits = f"networks are judged from {SETTLED:,} updates on, overestimation from {2 * SETTLED:,}"
    so_far = "" if judged else f" so far; {waits}"
    return f"nothing wrong{so_far}"


def _listed(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"


RULES = (
    Rule(
        "frozen_seed",
        measures.frozen,
        0.5,
        True,
        "Training of a seed failed and was stopped.",
        "The reason is in the report and in status.json: lower both learning rates if it diverged, fix the "
        "environment if that failed.",
    ),
    Rule(
        "diverged",
        measures.not_finite,
        0.5,
        True,
        "Q-values are NaN or infinite in {number:.0f} rows of metrics.",
        "Look for huge rewards or observations, and lower both learning rates.",
    ),
    Rule(
        "no_updates",
        measures.no_updates,
        0.5,
        False,
        "Nothing was learned: the finished run made {number:.0f} updates.",
        "Train for more env steps than --td3.learning-starts, or lower that option.",
    ),
    Rule(
        "q_too_high",
        measures.overestimation,
        1.5,
        True,
        "The critics overestimate: at the start of an episode predicted Q is above the observed return by {number:.1f} "
        "times that return (limit {threshold:g}), in each of the last five evaluations.",
        "Lower --td3.critic-learning-rate or --td3.tau, check that --td3.target-policy-noise is not 0, and that the "
        "environment reports a true end of an episode as terminated.",
    ),
    Rule(
        "q_too_low",
        measures.underestimation,
        -0.8,
        False,
        "The critics underestimate: at the start of an episode predicted Q differs from the observed return by "
        "{number:.2f} times that return (limit {threshold:g}).",
        "Scale the rewards so that a return is of the order of 100, raise --td3.critic-learning-rate, or train longer.",
    ),
    Rule(
        "saturated_actor",
        measures.lasting("saturation"),
        0.98,
        True,
        "The actor's tanh is saturated: {percent:.0f} % of its outputs lie at an end (limit {limit:.0f} %).",
        "Lower --td3.actor-learning-rate, bring the observations to a scale of about 1, and see whether the reward "
        "asks for extreme actions.",
    ),
    Rule(
        "stuck_actions",
        measures.lasting("stuck"),
        0.99,
        True,
        "The actor does the same whatever it sees: {percent:.0f} % of its action dimensions stay at one end "
        "(limit {limit:.0f} %).",
        "It has stopped learning there. Start again with another seed, more --td3.learning-starts or a lower "
        "--td3.actor-learning-rate.",
    ),
    Rule(
        "vanishing_actor_gradient",
        measures.recent("actor_gradient"),
        1e-8,
        False,
        "The actor's gradient has vanished: {number:.1e} per weight (limit {threshold:.0e}, where Adam's steps begin "
        "to shrink too).",
        "The tanh is saturated, the units are dead, or the critics see no difference between actions: scale the "
        "rewards up, lower the learning rates.",
    ),
    Rule(
        "dead_actor_units",
        measures.recent("actor_dead"),
        0.8,
        True,
        "{percent:.0f} % of the actor's hidden units are dead (limit {limit:.0f} %): they are 0 in every state.",
        "Lower --td3.actor-learning-rate and bring the observations to a scale of about 1.",
    ),
    Rule(
        "dead_critic_units",
        measures.recent("critic_dead"),
        0.8,
        True,
        "{percent:.0f} % of the critics' hidden units are dead (limit {limit:.0f} %): they are 0 in every state.",
        "Lower --td3.critic-learning-rate and bring observations and rewards to a scale of about 1.",
    ),
    Rule(
        "no_exploration",
        measures.collected(measures.exploration_setting),
        0.02,
        False,
        "There is hardly any exploration: exploration_noise is {number:g} of half the action range (limit "
        "{threshold:g}).",
        "Set --td3.exploration-noise to 0.1, the paper's value.",
    ),
    Rule(
        "little_variation",
        measures.collected(measures.recent("exploration")),
        0.02,
        False,
        "Played actions hardly differ from the actor's own: by {number:.3f} of half the action range (limit "
        "{threshold:g}).",
        "Raise --td3.exploration-noise, and see whether the environment or a wrapper replaces the actions.",
    ),
    Rule(
        "large_observations",
        measures.recent("observation_scale"),
        LARGE_OBSERVATION,
        True,
        "Observations are huge: one dimension has a root mean square of {number:,.0f} (limit {threshold:,.0f}).",
        "Scale them: train with --normalize-observations, or divide by known ranges in the environment.",
    ),
    Rule(
        "small_observations",
        measures.recent("observation_spread"),
        SMALL_SPREAD,
        False,
        "Observations hardly vary: the most variable dimension has a standard deviation of {number:.1e} (limit "
        "{threshold:g}).",
        "Scale them up: train with --normalize-observations, or divide by the usual spread in the environment.",
    ),
    Rule(
        "large_rewards",
        measures.recent("reward_scale"),
        LARGE_REWARD,
        True,
        "Rewards are large: their root mean square is {number:,.0f} a step (limit {threshold:,.0f}).",
        "Divide them (gymnasium.wrappers.TransformReward): critics of this size learn values of thousands slowly.",
    ),
    Rule(
        "small_rewards",
        measures.recent("reward_scale"),
        SMALL_REWARD,
        False,
        "Rewards are tiny: their root mean square is {number:.1e} a step (limit {threshold:g}).",
        "Multiply them, or, if almost all are 0, give a denser reward: TD3 finds a rare one only by luck.",
    ),
    Rule(
        "no_ends",
        measures.collected(measures.no_ends),
        20_000.0,
        True,
        "No episode has ended in {number:,.0f} env steps of an environment (limit {threshold:,.0f}).",
        "Give the environment a time limit: gymnasium.wrappers.TimeLimit, or max_episode_steps when registering.",
    ),
    Rule(
        "short_time_limit",
        measures.cut_short,
        1 / 0.3,
        True,
        "Nearly all episodes are cut off by a time limit, and the horizon 1 / (1 - gamma) is {number:.1f} times as "
        "long as they are (limit {threshold:.1f}).",
        "Lengthen the time limit, or lower --td3.gamma so that it fits.",
    ),
    Rule(
        "few_updates",
        measures.updates_per_round,
        0.25,
        False,
        "There are few updates: {number:.2f} per round of the environments (limit {threshold:g}).",
        "Raise --td3.utd-ratio; with fewer the run is quicker but learns less from each step.",
    ),
    Rule(
        "many_updates",
        measures.of_critics(measures.update_ratio),
        4.0,
        True,
        "There are many updates: {number:.1f} per env step (limit {threshold:g}).",
        "Updates take time, and TD3's results are from 1: set --td3.utd-ratio to 1, or compare several seeds of both.",
    ),
    Rule(
        "evaluation_below_training",
        measures.below_training,
        0.5,
        True,
        "Evaluations lie far below the returns of training, by {number:.2f} of the curve's size (limit {threshold:g}).",
        "The policy performs well only with exploration noise: train longer, train again with a lower "
        "--td3.exploration-noise, or check that evaluation and training environments are alike.",
    ),
    Rule(
        "slow_updates",
        measures.slowness,
        6.0,
        True,
        "Updates take {number:.0f} times as long as the benchmark's (limit {threshold:g}).",
        "Another process may hold the cores: try --threads 1, look at `td3 bench update`, or use a GPU.",
    ),
)
REMARKS = (
    Rule(
        "q_not_converged",
        measures.value_error,
        0.25,
        True,
        "Predicted Q and observed return differ by {percent:.0f} % of the return (remarked above {limit:.0f} %).",
        "Critics start near 0 and approach the return over tens of thousands of updates: train longer while the gap "
        "shrinks. If it grows, lower --td3.critic-learning-rate.",
    ),
    Rule(
        "many_saturated_outputs",
        measures.recent("saturation"),
        0.5,
        True,
        "{percent:.0f} % of the actor's outputs are saturated (remarked above {limit:.0f} %).",
        "A good policy looks so where full force is best, as in Pendulum. Where it is not, or where returns do not "
        "rise, lower --td3.actor-learning-rate and bring the observations to a scale of about 1.",
    ),
)
