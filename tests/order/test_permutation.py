"""An epoch's order: a permutation, uniform, and the same for ever."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocopy_data.order.permutation import epoch_permutation

SEEDS = st.integers(-(2**70), 2**70)


@given(st.integers(0, 3000), SEEDS, st.integers(0, 2**40))
def test_every_sample_comes_exactly_once(size: int, seed: int, epoch: int) -> None:
    order = epoch_permutation(size, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [1, 2, 2**16, 10**6 + 3])
def test_large_sizes_are_permutations_too(size: int) -> None:
    assert np.array_equal(np.bincount(epoch_permutation(size, 1, 2), minlength=size), np.ones(size, np.int64))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ((0, 0), [0, 7, 8, 11, 2, 5, 9, 4, 10, 6, 3, 1]),
        ((0, 1), [9, 0, 10, 11, 6, 7, 4, 3, 2, 1, 8, 5]),
        ((42, 7), [0, 1, 9, 4, 7, 2, 5, 8, 10, 3, 6, 11]),
        ((-1, 0), [6, 11, 1, 8, 7, 9, 3, 2, 10, 5, 4, 0]),
    ],
)
def test_the_order_is_the_same_in_every_version(key: tuple[int, int], expected: list[int]) -> None:
    """A change here would make resumed runs see other samples than the stopped run left over."""
    assert epoch_permutation(12, *key).tolist() == expected


@given(SEEDS, st.integers(0, 10**6))
def test_other_seeds_and_epochs_give_other_orders(seed: int, epoch: int) -> None:
    order = epoch_permutation(64, seed, epoch)
    assert not np.array_equal(order, epoch_permutation(64, seed, epoch + 1))
    assert not np.array_equal(order, epoch_permutation(64, seed + 1, epoch))
    assert not np.array_equal(order, epoch_permutation(64, seed + 1, epoch - 1))


def test_seed_and_epoch_are_not_added_up() -> None:
    orders = {tuple(epoch_permutation(16, seed, epoch)) for seed in range(30) for epoch in range(30)}
    assert len(orders) == 900


def chi_square(counts: np.ndarray) -> float:
    expected = counts.mean()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("vary", ["seed", "epoch"])
def test_every_sample_is_equally_likely_at_every_place(vary: str) -> None:
    size, draws = 10, 4000
    counts = np.zeros((size, size), np.int64)  # [place, sample]
    for draw in range(draws):
        key = (draw, 0) if vary == "seed" else (5, draw)
        counts[np.arange(size), epoch_permutation(size, *key)] += 1
    # (size - 1)² degrees of freedom: mean 81, deviation 12.7. Five deviations: never by chance, always for a bias.
    assert abs(chi_square(counts) - 81) < 64


def test_neighbours_are_as_independent_as_in_a_random_order() -> None:
    pairs = np.zeros((6, 6), np.int64)
    for seed in range(3000):
        order = epoch_permutation(6, seed, 3)
        pairs[order[:-1], order[1:]] += 1
    off = pairs[~np.eye(6, dtype=bool)]
    assert np.diag(pairs).sum() == 0
    assert chi_square(off) < 29 + 5 * (2 * 29) ** 0.5


def test_consecutive_epochs_are_uncorrelated() -> None:
    size = 50_000
    ranks = [np.argsort(epoch_permutation(size, 9, epoch)) for epoch in range(4)]
    for one, other in pairwise(ranks):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / size**0.5


def test_importing_the_order_needs_no_torch() -> None:
    code = "import sys, zerocopy_data.order.permutation; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
