"""Ranks share an epoch: each sample once, or as the rule for the last round says, even when their number changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from zerocopy_data.errors import ConfigError
from zerocopy_data.order.ranks import RankShare

SIZES = st.integers(0, 300)
WORLDS = st.integers(1, 9)


def taken(share: RankShare) -> list[int]:
    return share.positions(0, len(share)).tolist()


@given(SIZES, WORLDS)
def test_uneven_ranks_serve_each_position_once(size: int, world: int) -> None:
    shares = [taken(RankShare(size, rank, world, "uneven")) for rank in range(world)]
    assert sorted(itertools.chain(*shares)) == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(1, 300), WORLDS, st.booleans())
def test_pad_and_drop_are_those_of_torchs_distributed_sampler(size: int, world: int, drop: bool) -> None:
    if drop and size < world:
        return  # torch's own class repeats an empty list there
    data = torch.utils.data.TensorDataset(torch.arange(size))
    for rank in range(world):
        torchs = DistributedSampler(data, world, rank, shuffle=False, drop_last=drop)
        ours = RankShare(size, rank, world, "drop" if drop else "pad")
        assert taken(ours) == list(torchs)
        assert len(ours) == len(torchs)


@given(SIZES, st.lists(st.tuples(WORLDS, st.integers(0, 40)), max_size=4), WORLDS)
def test_ranks_that_change_in_number_serve_each_position_once(
    size: int, stops: list[tuple[int, int]], last: int
) -> None:
    served, start = [], 0
    for world, count in stops:
        shares = [RankShare(size, rank, world, "uneven", start) for rank in range(world)]
        for share in shares:
            served += share.positions(0, count).tolist()
        start = shares[0].served(count)
    for rank in range(last):
        served += taken(RankShare(size, rank, last, "uneven", start))
    assert sorted(served) == list(range(size))


@given(st.integers(1, 300), WORLDS, st.integers(0, 350), st.sampled_from(["drop", "pad"]))
def test_all_ranks_get_as_many(size: int, world: int, start: int, uneven: str) -> None:
    shares = [RankShare(size, rank, world, uneven, start) for rank in range(world)]
    assert len(set(map(len, shares))) == 1
    positions = list(itertools.chain(*map(taken, shares)))
    left = set(range(start, size))
    if uneven == "pad":
        assert left <= set(positions)
        assert len(positions) - len(left) < world
    else:
        assert set(positions) <= left
        assert len(left) - len(positions) < world
    assert len(set(positions)) == len(positions) or uneven == "pad"


@given(SIZES, WORLDS, st.integers(0, 310), st.integers(0, 310))
def test_a_part_is_the_part_of_the_whole(size: int, world: int, begin: int, end: int) -> None:
    share = RankShare(size, world - 1, world)
    assert share.positions(begin, end).tolist() == taken(share)[begin:end]
    assert share.positions(begin, end).dtype == np.int64


@pytest.mark.parametrize(
    "wrong", [{"rank": 2, "world": 2}, {"rank": -1}, {"world": 0}, {"uneven": "maybe"}, {"start": -1}, {"size": -3}]
)
def test_senseless_shares_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        RankShare(**{"size": 10, **wrong})  # type: ignore[arg-type]
