"""The median's interval."""

import random

import pytest

from zerocopy_data.tuning.statistics import estimate


def test_five_samples_give_the_smallest_and_the_largest() -> None:
    result = estimate([3.0, 9.0, 1.0, 4.0, 5.0])
    assert (result.low, result.median, result.high) == (1.0, 4.0, 9.0)


# Ranks from the tables of the binomial distribution: the interval for n = 10 is the 2nd to the 9th value
# (97.9 %), for n = 20 the 6th to the 15th (95.9 %).
@pytest.mark.parametrize(("count", "low", "high"), [(1, 1, 1), (6, 1, 6), (10, 2, 9), (20, 6, 15), (21, 6, 16)])
def test_ranks_are_those_of_the_binomial_tables(count: int, low: int, high: int) -> None:
    samples = [float(value) for value in range(1, count + 1)]
    random.Random(0).shuffle(samples)
    result = estimate(samples)
    assert (result.low, result.high) == (low, high)


def test_interval_encloses_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(1)
    enclosed = 0
    for _ in range(2000):
        result = estimate([rng.expovariate(1.0) for _ in range(10)])
        enclosed += result.low <= 0.6931471805599453 <= result.high
    assert 0.96 < enclosed / 2000 < 0.99  # 97.9 % by the tables


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        estimate([])
