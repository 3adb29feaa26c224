"""Positions mixed among their neighbours: blocks keep their own, and ranks meet what an even pattern keeps apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from zerocopy_data.order.mixture import Mixture
from zerocopy_data.order.stirred import BLOCK, StirredOrder


@given(st.integers(0, 2**64), st.integers(0, 2**40), st.integers(1, 5))
def test_each_block_has_its_own_positions(seed: int, first: int, blocks: int) -> None:
    positions = np.arange(first * BLOCK, (first + blocks) * BLOCK)
    order = StirredOrder(seed)
    out = order(positions)
    assert (np.sort(out.reshape(blocks, BLOCK), axis=1).ravel() == positions).all()
    some = positions[:: max(1, 3 * blocks)]
    assert (order(some) == out[some - first * BLOCK]).all()


def test_blocks_and_seeds_have_orders_of_their_own() -> None:
    positions = np.arange(3 * BLOCK)
    out = StirredOrder(1)(positions).reshape(3, BLOCK) % BLOCK
    assert len({tuple(row) for row in [*out.tolist(), StirredOrder(2)(positions[:BLOCK]).tolist()]}) == 4


def test_every_rank_meets_every_source_of_an_even_mixture() -> None:
    mixture, order = Mixture([1, 1, 1, 1], [10**6] * 4, 3, True), StirredOrder(3)
    source = mixture(order(np.arange(8 * BLOCK)))[0]
    assert (np.bincount(source) == 2 * BLOCK).all()
    for rank in range(4):
        counts = np.bincount(source[rank::4], minlength=4)
        assert counts.min() > 0.8 * counts.mean()
