import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td3.statistics import compare, interquartile_mean, interval, mean, probability_of_improvement, resampled

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9)


def test_the_interquartile_mean_leaves_a_quarter_out_on_each_side():
    assert interquartile_mean(np.array([8.0, 1, 2, 100, 4, -50, 3, 5])) == (2 + 3 + 4 + 5) / 4
    assert interquartile_mean(np.array([1.0, 2, 30])) == 11  # three seeds: a quarter of three, rounded down, is none
    # Ten seeds lose two on each side, as scipy's trim_mean(x, 0.25) has it.
    assert interquartile_mean(np.arange(10.0) ** 2) == np.mean([4, 9, 16, 25, 36, 49])


def test_the_interquartile_mean_is_taken_column_by_column():
    scores = np.array([[4.0, 0.0], [1.0, 10.0], [2.0, 20.0], [3.0, 90.0]])
    assert interquartile_mean(scores).tolist() == [2.5, 15.0]


@given(numbers)
def test_the_interquartile_mean_of_shuffled_seeds_is_the_same(values):
    shuffled = np.random.default_rng(0).permutation(values)
    assert interquartile_mean(shuffled) == interquartile_mean(np.array(values))


def test_an_interval_of_two_seeds_by_hand():
    # Resamples of {0, 1}: mean 0 or 1 in a quarter of the draws each, so the 95 % interval reaches both ends.
    assert [float(end) for end in interval(np.array([0.0, 1.0]))] == [0, 1]
    # Within the middle 40 % every resample holds one of each.
    assert [float(end) for end in interval(np.array([0.0, 1.0]), confidence=0.4)] == [0.5, 0.5]


def test_an_interval_of_normal_seeds_is_as_wide_as_theory_says():
    scores = np.random.default_rng(5).normal(100, 15, 400)
    low, high = interval(scores)
    assert high - low == pytest.approx(2 * 1.96 * scores.std() / 20, rel=0.05)
    assert low < scores.mean() < high


def test_the_ends_of_an_interval_hardly_depend_on_the_random_stream():
    scores = np.random.default_rng(6).normal(size=(10, 1))
    ends = [np.quantile(resampled([scores], mean, stream=stream), 0.025) for stream in range(20)]
    low, high = interval(scores)
    assert np.std(ends) < 0.03 * (high - low)[0]


def test_tasks_are_resampled_among_themselves():
    # Within each task all seeds are alike: a stratified resample cannot vary, a pooled one would.
    low, high = interval([np.zeros(5), np.full(5, 10.0)])
    assert (float(low), float(high)) == (5, 5)
    pooled_low, pooled_high = interval(np.repeat([0.0, 10.0], 5))
    assert pooled_low < 5 < pooled_high


def test_one_seed_has_no_interval_to_speak_of():
    assert [end.tolist() for end in interval(np.array([[3.0, 4.0]]), interquartile_mean)] == [[3, 4], [3, 4]]


def test_the_same_scores_give_the_same_interval():
    scores = np.random.default_rng(1).normal(size=(7, 3))
    np.testing.assert_array_equal(interval(scores, interquartile_mean), interval(scores, interquartile_mean))


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


def test_two_seeds_decide_nothing():
    assert compare(np.array([1.0, 1.0]), np.array([1.0, 1.0]), 5.0).verdict == "undecided"
    assert compare(np.array([9.0, 9.0]), np.array([1.0, 1.0]), 5.0).verdict == "undecided"


def test_the_equivalence_test_errs_rarely_where_the_true_difference_is_the_margin():
    random = np.random.default_rng(0)
    wrong = sum(
        compare(random.normal(10, 10, 10), random.normal(0, 10, 10), 10.0).verdict == "equivalent" for _ in range(60)
    )
    assert wrong <= 7  # 5 % of 60 is 3; the bootstrap of ten seeds is a little too sure of itself
