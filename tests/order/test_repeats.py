"""Orders in which samples come more than once: shares, classes, copies; the same at any position."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocopy_data.errors import ConfigError
from zerocopy_data.order.balanced import BalancedOrder
from zerocopy_data.order.repeated import RepeatedOrder
from zerocopy_data.order.weighted import DrawnOrder, weights_array, without_replacement


def test_samples_are_drawn_as_often_as_their_weights_say() -> None:
    weights = weights_array([1, 0, 3, 0, 0, 6, 0])
    samples, copies = DrawnOrder(weights, 5, 1).picks(np.arange(100_000))
    counts = np.bincount(samples, minlength=7)
    assert counts[[1, 3, 4, 6]].sum() == 0
    expected = np.array([10_000, 30_000, 60_000])
    assert (((counts[[0, 2, 5]] - expected) ** 2) / expected).sum() < 20  # chi-square, 2 degrees: p = 5e-5
    assert len(set(copies.tolist())) == 100_000


def test_draws_without_replacement_follow_the_weights_and_never_repeat() -> None:
    """First of three with weights 1, 2, 7; and second after the heaviest: 1/3, 2/3."""
    drawn = np.array([without_replacement(weights_array([1, 2, 0, 7]), 2, 3, epoch) for epoch in range(5000)])
    firsts = np.bincount(drawn[:, 0], minlength=4)
    assert abs(firsts / 5000 - [0.1, 0.2, 0, 0.7]).max() < 0.02
    seconds = np.bincount(drawn[drawn[:, 0] == 3, 1], minlength=4)
    assert abs(seconds / seconds.sum() - [1 / 3, 2 / 3, 0, 0]).max() < 0.03
    assert (drawn[:, 0] != drawn[:, 1]).all()


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(0, 2**64), st.integers(0, 9))
def test_every_class_has_one_sample_a_round(labels: list[int], seed: int, epoch: int) -> None:
    array = np.array(labels, np.int64)
    classes = len(set(labels))
    order = BalancedOrder(array, seed, epoch)
    samples, copies = order.picks(np.arange(classes * 12))
    for begin in range(0, len(samples), classes):
        assert sorted(array[samples[begin : begin + classes]].tolist()) == sorted(set(labels))
    pairs = list(zip(samples.tolist(), copies.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)  # each copy once, numbered from 0 on
    for sample, times in Counter(samples.tolist()).items():
        assert {copy for one, copy in pairs if one == sample} == set(range(times))
        same_class = [samples.tolist().count(other) for other in np.flatnonzero(array == array[sample])]
        assert max(same_class) - min(same_class) <= 1
    anywhere = np.array([5, 0, 7, 5]) % len(samples)
    again = order.picks(anywhere)
    assert again[0].tolist() == samples[anywhere].tolist()
    assert again[1].tolist() == copies[anywhere].tolist()


def test_rounds_and_epochs_have_orders_of_their_own() -> None:
    labels = np.arange(20)
    rounds = BalancedOrder(labels, 1, 0).picks(np.arange(60))[0].reshape(3, 20).tolist()
    other = BalancedOrder(labels, 1, 1).picks(np.arange(20))[0].tolist()
    assert len({tuple(one) for one in [*rounds, other]}) == 4


@given(st.integers(1, 50), st.integers(1, 5), st.integers(0, 9))
def test_each_sample_is_repeated_in_a_row(size: int, repeats: int, epoch: int) -> None:
    samples, copies = RepeatedOrder(size, repeats, 3, epoch).picks(np.arange(size * repeats))
    assert sorted(samples.tolist()) == sorted(list(range(size)) * repeats)
    assert copies.tolist() == list(range(repeats)) * size
    assert (samples.reshape(size, repeats) == samples[::repeats, None]).all()


@pytest.mark.parametrize("wrong", [[], [[1.0]], [1, -1], [1, float("nan")], [float("inf")], [0, 0], ["a"], 3, [1, [2]]])
def test_senseless_weights_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="weight"):
        weights_array(wrong)  # type: ignore[arg-type]


def test_huge_and_tiny_weights_are_taken_as_they_are() -> None:
    samples, _ = DrawnOrder(weights_array([1e308, 1e308, 1e-320]), 0, 0).picks(np.arange(1000))
    assert 400 < np.bincount(samples)[0] < 600
