"""The window shuffle: each sample once, never more than a window in use, read in blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zerocopy_data.errors import ConfigError
from zerocopy_data.order.window import BLOCKS, LARGEST, WindowOrder

SEEDS = st.integers(-(2**70), 2**70)
EPOCHS = st.integers(0, 2**40)


def whole(order: WindowOrder) -> npt.NDArray[np.int64]:
    return order(np.arange(len(order), dtype=np.int64))


@given(st.integers(0, 2000), st.integers(1, 300), st.integers(1, 300), SEEDS, EPOCHS)
def test_every_sample_comes_exactly_once(size: int, window: int, block: int, seed: int, epoch: int) -> None:
    assume(block <= window)
    assert np.array_equal(np.sort(whole(WindowOrder(size, window, seed, epoch, block))), np.arange(size))
    assert np.array_equal(np.sort(whole(WindowOrder(size, window, seed, epoch))), np.arange(size))


@given(st.integers(1, 2000), st.integers(1, 300), SEEDS, EPOCHS, st.data())
def test_any_positions_give_what_the_whole_order_has_there(
    size: int, window: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    order = WindowOrder(size, window, seed, epoch)
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=20)), np.int64)
    assert np.array_equal(order(positions), whole(WindowOrder(size, window, seed, epoch))[positions])


@given(st.integers(1, 3000), st.integers(1, 200), SEEDS, EPOCHS)
def test_a_window_is_at_most_what_was_asked_for_and_made_of_whole_blocks(
    size: int, window: int, seed: int, epoch: int
) -> None:
    order = WindowOrder(size, window, seed, epoch)
    samples = whole(order)
    assert order.window <= window
    for start in range(0, size, order.window):
        here = np.sort(samples[start : start + order.window])
        # Runs of neighbours, round the end of the dataset: no more than there are blocks in a window.
        runs = int((np.diff(here) != 1).sum()) + 1
        assert runs <= -(-len(here) // order.block) + 2


def test_windows_of_an_epoch_are_about_equal() -> None:
    order = WindowOrder(1_000_000, 65_000, 0, 0)
    assert order.block == LARGEST
    assert WindowOrder(1_000_000, 5_000, 0, 0).block == 5_000 // BLOCKS
    last = 1_000_000 % order.window or order.window
    assert last > order.window // 2


def test_within_a_window_each_place_is_equally_likely() -> None:
    counts = np.zeros((20, 20), np.int64)
    for seed in range(4000):
        samples = whole(WindowOrder(100, 20, seed, 0, 5))[:20]
        ranks = np.argsort(np.argsort(samples))
        counts[np.arange(20), ranks] += 1
    deviation = ((counts - 200) ** 2 / 200).sum()
    assert abs(deviation - 19**2) < 5 * (2 * 19**2) ** 0.5


def test_each_sample_is_as_likely_in_each_part_of_the_epoch() -> None:
    """The short last block would otherwise always hold the same samples, and come last."""
    size, counts = 97, np.zeros((97, 5), np.int64)
    for epoch in range(4000):
        samples = whole(WindowOrder(size, 20, 1, epoch, 10))
        counts[samples, np.arange(size) * 5 // size] += 1
    assert np.abs(counts / counts.sum(axis=1, keepdims=True) - counts.sum(axis=0) / counts.sum()).max() < 0.045


def test_epochs_part_neighbours_at_other_places() -> None:
    cuts = set()
    for epoch in range(30):
        samples = whole(WindowOrder(1000, 100, 3, epoch, 50))
        cuts.add(tuple(np.flatnonzero(np.diff(np.sort(samples[:50])) > 1).tolist()))
    assert len(cuts) > 20


@pytest.mark.parametrize(("window", "block"), [(0, None), (-5, None), (10, 0), (10, 11)])
def test_senseless_windows_are_refused(window: int, block: int | None) -> None:
    with pytest.raises(ConfigError, match="1 <= block <= window"):
        WindowOrder(100, window, 0, 0, block)


@pytest.mark.parametrize("bad", [-1, 100])
def test_positions_outside_are_refused(bad: int) -> None:
    with pytest.raises(IndexError, match="100 samples"):
        WindowOrder(100, 10, 0, 0)(np.array([5, bad]))


def test_the_order_is_the_same_in_every_version() -> None:
    assert whole(WindowOrder(12, 6, 42, 7, 2)).tolist() == [1, 2, 8, 3, 0, 9, 7, 6, 4, 10, 5, 11]
