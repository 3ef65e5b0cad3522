import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from td3.statistics import (
    FEWEST_SEEDS,
    at_the_end,
    bootstrap_interval,
    compare,
    difference_interval,
    differing,
    interquartile_mean,
    iqm_interval,
    mean,
    mean_interval,
    probability_interval,
    probability_of_improvement,
    resampled,
    sample_like,
)

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9)


def test_the_interquartile_mean_leaves_a_quarter_out_on_each_side():
    assert interquartile_mean(np.array([8.0, 1, 2, 100, 4, -50, 3, 5])) == (2 + 3 + 4 + 5) / 4
    assert interquartile_mean(np.array([1.0, 2, 30])) == 11  # three seeds: a quarter of three, rounded down, is none
    # Ten seeds lose two on each side, as scipy's trim_mean(x, 0.25) has it.
    assert interquartile_mean(np.arange(10.0) ** 2) == np.mean([4, 9, 16, 25, 36, 49])


def test_the_interquartile_mean_is_taken_column_by_column():
    q_values = np.array([[4.0, 0.0], [1.0, 10.0], [2.0, 20.0], [3.0, 90.0]])
    assert interquartile_mean(q_values).tolist() == [2.5, 15.0]


@given(numbers)
def test_the_interquartile_mean_of_shuffled_seeds_is_the_same(values):
    shuffled = np.random.default_rng(0).permutation(values)
    assert interquartile_mean(shuffled) == interquartile_mean(np.array(values))


@pytest.mark.parametrize("q_values", [[1.0, np.nan, 3.0], [[1.0, 2.0], [np.nan, 4.0]]])
def test_a_seed_without_a_number_is_no_best_seed(q_values):
    with pytest.raises(ValueError, match="a score is NaN"):
        interquartile_mean(np.array(q_values))


def test_the_end_of_a_run_is_its_last_tenth_in_env_steps():
    assert at_the_end(np.arange(0, 100_001, 5_000)).nonzero()[0].tolist() == [19, 20]
    assert at_the_end(np.array([0, 5_000, 8_000])).tolist() == [False, False, True]
    assert at_the_end(np.array([0])).tolist() == [True]
    assert at_the_end(np.array([0, 9_000, 10_000])).tolist() == [False, False, True]


@pytest.mark.parametrize("seeds", [2, 3, 5, 8, 10, 23])
def test_intervals_are_those_of_scipy(seeds):
    random = np.random.default_rng(seeds)
    ours, theirs = random.normal(3, 1, seeds), random.exponential(2, seeds + 2)
    found = stats.ttest_1samp(ours, 0).confidence_interval(0.95)
    np.testing.assert_allclose(mean_interval(ours), found)
    found = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.9)
    np.testing.assert_allclose(difference_interval(ours, theirs, 0.9), found)
    # SciPy has the trimmed mean in a difference only: here, less a run whose seeds are all 0.
    found = stats.ttest_ind(ours, np.zeros(seeds), equal_var=False, trim=0.25).confidence_interval(0.95)
    np.testing.assert_allclose(iqm_interval(ours), found)


def test_of_several_differences_each_must_be_clearer_than_a_lone_one():
    zero = sample_like(10, 0.0, 1.0)
    clear, weak, none = ((sample_like(10, t * (2 / 10) ** 0.5, 1.0), zero) for t in (10, 2.5, 0))
    assert stats.ttest_ind(*weak).pvalue == pytest.approx(0.0223, abs=1e-4)
    assert [differing([pair]) for pair in (clear, weak, none)] == [[True], [True], [False]]
    assert differing([weak, clear]) == [True, True]  # the weaker one against 5 %
    assert differing([none, weak, clear, none]) == [False, False, True, False]  # against a third of 5 %
    assert differing([]) == []
    assert differing([(zero[:1], zero[:1]), (np.ones(5), np.ones(5))]) == [False, False]  # without a spread


def test_an_interval_of_two_seeds_by_hand_is_wide():
    # Mean 0.5, standard error 0.5, and t has one degree of freedom: 12.706 of them on either side.
    np.testing.assert_allclose(mean_interval(np.array([0.0, 1.0])), (0.5 - 6.353, 0.5 + 6.353), atol=1e-3)


def test_seeds_that_are_all_alike_have_an_interval_without_width():
    alike = np.full((5, 2), 1_000.0)
    for ends in (mean_interval(alike), iqm_interval(alike)):
        np.testing.assert_array_equal(ends, np.full((2, 2), 1_000.0))
    assert [float(end) for end in difference_interval(alike[:, 0], alike[:, 0] - 1)] == [1, 1]


def test_one_seed_has_no_interval():
    assert np.isnan(mean_interval(np.array([[3.0, 4.0]]))).all()
    assert np.isnan(iqm_interval(np.array([3.0]))).all()
    assert np.isnan(difference_interval(np.array([3.0]), np.array([1.0, 2.0]))).all()


SEED_COUNTS = (3, 5, 10)


def coverage(seeds: int, trials: int) -> dict[str, float]:
    """How often each 95 % interval holds the truth, for normal seeds; identical runs, so the true difference is 0."""
    random = np.random.default_rng(seeds)
    ours, theirs = random.normal(size=(2, seeds, trials))
    held = {}
    for name, (low, high) in {
        "mean": mean_interval(ours),
        "iqm": iqm_interval(ours),
        "difference": difference_interval(ours, theirs),
        "unequal spread": difference_interval(ours, 3 * theirs),
        "unequal count": difference_interval(ours, random.normal(size=(2 * seeds, trials))),
    }.items():
        held[name] = float(((low <= 0) & (high >= 0)).mean())
    found = probability_of_improvement(ours, theirs)
    ends = {value: probability_interval(value, seeds, seeds) for value in {*found.tolist()}}
    held["probability"] = float(np.mean([ends[value][0] <= 0.5 <= ends[value][1] for value in found.tolist()]))
    return held


@pytest.mark.parametrize("seeds", SEED_COUNTS)
def test_nominal_95_percent_intervals_hold_the_truth_in_about_95_percent(seeds):
    held = coverage(seeds, trials=10_000)
    # 10,000 trials: a standard error of 0.2 %. The mean's is exact; the others are approximations.
    assert held.pop("mean") == pytest.approx(0.95, abs=0.01)
    lowest = 0.88 if seeds == 3 else 0.93  # three against three: a probability has ten possible values only
    assert held.pop("probability") >= lowest
    assert all(0.93 <= share <= 0.98 for share in held.values()), held


def test_a_percentile_bootstrap_of_few_seeds_is_too_narrow():
    seeds = np.random.default_rng(0).normal(size=(3, 1_000))
    low, high = bootstrap_interval(seeds, draws=200)
    assert ((low <= 0) & (high >= 0)).mean() < 0.8


def verdicts(ours, theirs, margin: float) -> list[str]:
    return [compare(a, b, margin).verdict for a, b in zip(ours.T, theirs.T, strict=True)]


@pytest.mark.parametrize("seeds", SEED_COUNTS)
def test_identical_runs_are_called_better_or_worse_at_most_as_often_as_said(seeds):
    random = np.random.default_rng(seeds)
    said = verdicts(*random.normal(size=(2, seeds, 1_000)), margin=0.1)
    false = np.mean([verdict in ("better", "worse") for verdict in said])
    if seeds < FEWEST_SEEDS:
        assert {*said} == {"too_few_seeds"}
    assert false <= 0.05 + 3 * 0.007  # 5 %, and three standard errors of 1,000 trials


@pytest.mark.long
@pytest.mark.parametrize("seeds", SEED_COUNTS)
@pytest.mark.parametrize("shape", ["normal", "heavy tails", "some fail"])
def test_the_whole_simulation_of_coverage_and_verdicts(seeds, shape):
    trials = 100_000
    assert all(share >= (0.88 if seeds == 3 else 0.93) for share in coverage(seeds, trials).values())
    random = np.random.default_rng(seeds)
    sides = {
        "normal": lambda: random.normal(size=(seeds, trials)),
        "heavy tails": lambda: random.standard_t(3, size=(seeds, trials)),
        "some fail": lambda: random.normal(size=(seeds, trials)) - 10 * (random.random((seeds, trials)) < 0.1),
    }
    ours, theirs = sides[shape](), sides[shape]()
    low, high = difference_interval(ours, theirs)
    assert ((low > 0) | (high < 0)).mean() <= 0.053
    # Where the true difference is the margin, "equivalent" is false.
    low, high = difference_interval(ours + 1, theirs)
    assert ((low > -1) & (high < 1)).mean() <= 0.053


def test_a_bootstrap_interval_of_two_seeds_by_hand():
    # Resamples of {0, 1}: mean 0 or 1 in a quarter of the draws each, so the 95 % interval reaches both ends.
    assert [float(end) for end in bootstrap_interval(np.array([0.0, 1.0]))] == [0, 1]
    # Within the middle 40 % every resample holds one of each.
    assert [float(end) for end in bootstrap_interval(np.array([0.0, 1.0]), confidence=0.4)] == [0.5, 0.5]


def test_a_bootstrap_interval_of_many_seeds_is_as_wide_as_theory_says():
    q_values = np.random.default_rng(5).normal(100, 15, 400)
    low, high = bootstrap_interval(q_values)
    assert high - low == pytest.approx(2 * 1.96 * q_values.std() / 20, rel=0.05)
    assert low < q_values.mean() < high


def test_the_ends_of_an_interval_hardly_depend_on_the_random_stream():
    q_values = np.random.default_rng(6).normal(size=(10, 1))
    ends = [np.quantile(resampled([q_values], mean, stream=stream), 0.025) for stream in range(20)]
    low, high = bootstrap_interval(q_values)
    assert np.std(ends) < 0.03 * (high - low)[0]


def test_tasks_are_resampled_among_themselves():
    # Within each task all seeds are alike: a stratified resample cannot vary, a pooled one would.
    low, high = bootstrap_interval([np.zeros(5), np.full(5, 10.0)])
    assert (float(low), float(high)) == (5, 5)
    pooled_low, pooled_high = bootstrap_interval(np.repeat([0.0, 10.0], 5))
    assert pooled_low < 5 < pooled_high


def test_the_same_scores_give_the_same_interval():
    q_values = np.random.default_rng(1).normal(size=(7, 3))
    first, second = (bootstrap_interval(q_values, interquartile_mean) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_probability_of_improvement_counts_pairs_and_half_of_the_ties():
    # 3 beats 1 and 2; 2 beats 1 and ties with 2; 0 beats none: 3.5 of 6 pairs.
    assert probability_of_improvement(np.array([3, 2, 0]), np.array([1, 2])) == pytest.approx(3.5 / 6)


@given(numbers, numbers)
def test_both_sides_probabilities_are_one_together(ours, theirs):
    forward, back = (probability_of_improvement(np.array(a), np.array(b)) for a, b in ((ours, theirs), (theirs, ours)))
    assert forward + back == pytest.approx(1)


SEEDS = np.linspace(-10, 10, 10)


@pytest.mark.parametrize(
    ("shift", "spread", "margin", "verdict"),
    [
        (0.0, 1.0, 20.0, "equivalent"),
        (0.0, 20.0, 20.0, "undecided"),
        (100.0, 1.0, 20.0, "better"),
        (-100.0, 1.0, 20.0, "worse"),
        (5.0, 1.0, 0.0, "undecided"),
        (12.0, 0.1, 20.0, "equivalent"),  # a sure difference, but within the margin
    ],
)
def test_equivalence_must_be_shown_and_a_margin_is_part_of_it(shift, spread, margin, verdict):
    compared = compare(1_000 + shift + spread * SEEDS, 1_000 + spread * SEEDS, margin)
    assert compared.verdict == verdict
    assert compared.difference == pytest.approx(shift)
    assert compared.low <= compared.difference <= compared.high
    assert compared.probability_low <= compared.probability <= compared.probability_high


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (2, 9), (4, 4), (9, 4)])
def test_fewer_than_five_seeds_a_side_get_no_verdict(ours, theirs):
    for shift in (0.0, 1_000.0):
        compared = compare(np.arange(ours) + shift, np.arange(theirs, dtype=float), 5.0)
        assert compared.verdict == "too_few_seeds"
        assert compared.seeds == (ours, theirs)


def test_a_clean_sweep_of_few_seeds_is_no_certainty():
    low, high = probability_interval(1.0, 5, 5)
    assert high == 1
    assert 0.5 < low < 0.9
    assert probability_interval(0.0, 5, 5) == pytest.approx((0, 1 - low))


def test_the_equivalence_test_errs_rarely_where_the_true_difference_is_the_margin():
    random = np.random.default_rng(0)
    said = verdicts(random.normal(10, 10, (10, 300)), random.normal(0, 10, (10, 300)), 10.0)
    assert said.count("equivalent") <= 15  # at most 5 %
