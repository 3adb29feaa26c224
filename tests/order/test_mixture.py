"""Mixtures by position: exact proportions at any time, each source's epochs whole, weights that change on the way."""

from __future__ import annotations

import copy
import decimal
import math
import pickle
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocopy_data.errors import ConfigError
from zerocopy_data.order.full import LISTED, FullOrder
from zerocopy_data.order.mixture import Mixture, source_seeds

# Beginnings, where the low half of a position ends, and far out, where it alone does not tell.
FAR = st.one_of(st.integers(0, 10_000), st.integers(2**32 - 300, 2**32 + 300), st.integers(2**59, 2**60))
WEIGHTS = st.lists(st.integers(0, 1000) | st.floats(1e-6, 1e6), min_size=1, max_size=50).filter(any)
LAST = 2**63 - 1


def plain(weights: Sequence[float], size: int = 7, **options: Any) -> Mixture:
    return Mixture(weights, [size] * len(weights), 0, False, **options)


def depth(weights: Sequence[float]) -> int:
    return math.ceil(math.log2(sum(weight > 0 for weight in weights)))


class Walk:
    """The description walked one position after another: nodes that count their arrivals, shares as fractions."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.sources = len(weights)
        self.root = self.tree([(number, Fraction(weight)) for number, weight in enumerate(weights) if weight > 0])

    def tree(self, members: list[tuple[int, Fraction]]) -> Any:
        if len(members) == 1:
            return members[0][0]
        half = -(-len(members) // 2)
        share = sum(weight for _, weight in members[:half]) / sum(weight for _, weight in members)
        parts = min(max(round(share * 2**32), 1), 2**32 - 1)
        return {"parts": parts, "seen": 0, "left": self.tree(members[:half]), "right": self.tree(members[half:])}

    def shares(self) -> list[Fraction]:
        found = [Fraction(0)] * self.sources
        todo = [(self.root, Fraction(1))]
        while todo:
            node, share = todo.pop()
            if isinstance(node, dict):
                left = share * node["parts"] / 2**32
                todo += [(node["left"], left), (node["right"], share - left)]
            else:
                found[node] = share
        return found

    def next(self) -> int:
        node = self.root
        while isinstance(node, dict):
            before, after = (
                math.floor(Fraction(count * node["parts"], 2**32) + Fraction(1, 2))
                for count in (node["seen"], node["seen"] + 1)
            )
            node["seen"] += 1
            node = node["left"] if after > before else node["right"]
        return int(node)


def ranges(start: int, length: int = 200) -> npt.NDArray[np.int64]:
    return start + np.arange(length, dtype=np.int64)


@settings(max_examples=50)
@given(WEIGHTS, st.integers(1, 300))
def test_positions_are_those_of_a_walk_from_the_first(weights: list[float], length: int) -> None:
    source, sample, epoch = plain(weights)(np.arange(length))
    walk = Walk(weights)
    served = [0] * len(weights)
    for position in range(length):
        number = walk.next()
        assert source[position] == number
        assert (epoch[position], sample[position]) == divmod(served[number], 7)
        served[number] += 1


@given(WEIGHTS, FAR)
def test_counts_sum_to_the_position_and_keep_the_proportions(weights: list[float], position: int) -> None:
    mixture = plain(weights)
    counts = mixture.counts(position)
    assert counts.dtype == np.int64
    assert counts.sum() == position
    assert (counts >= 0).all()
    for count, share in zip(counts.tolist(), Walk(weights).shares(), strict=True):
        assert abs(count - position * share) <= Fraction(depth(weights), 2)


@given(WEIGHTS)
def test_shares_are_the_weights_to_within_what_is_promised(weights: list[float]) -> None:
    mixture = plain(weights)
    shares = mixture.shares()
    assert np.allclose(shares, [float(share) for share in Walk(weights).shares()], rtol=1e-12, atol=0)
    expected = np.array(weights, np.float64) / math.fsum(weights)
    assert np.abs(shares - expected).max() <= depth(weights) * 2**-32 + 1e-15
    assert shares.sum() == pytest.approx(1)
    assert ((shares > 0) == (np.array(weights) > 0)).all()


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(0, 2**50))
def test_equal_weights_of_a_power_of_two_are_met_exactly(sources: int, rounds: int) -> None:
    assert plain([0.1] * sources).counts(rounds * sources).tolist() == [rounds] * sources


@given(WEIGHTS, FAR, st.integers(1, 300))
def test_what_stands_in_a_range_is_what_the_counts_grow_by(weights: list[float], start: int, length: int) -> None:
    mixture = plain(weights)
    source, sample, epoch = mixture(ranges(start, length))
    before = mixture.counts(start)
    grown = mixture.counts(start + length) - before
    assert np.array_equal(np.bincount(source, minlength=len(weights)), grown)
    for number in np.unique(source):
        nth = epoch[source == number] * 7 + sample[source == number]
        assert np.array_equal(nth, before[number] + np.arange(grown[number]))


@given(WEIGHTS, st.lists(FAR, max_size=50), st.booleans())
def test_any_positions_at_once_are_those_one_by_one(weights: list[float], positions: list[int], shuffle: bool) -> None:
    mixture = Mixture(
        weights, [5 + number for number in range(len(weights))], 1, shuffle, schedule={999: weights[::-1]}
    )
    at_once = mixture(np.array(positions, np.int64))
    for place, position in enumerate(positions):
        alone = mixture(np.array([position]))
        assert [int(part[place]) for part in at_once] == [int(part[0]) for part in alone]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=6), st.booleans(), st.integers())
def test_each_epoch_of_each_source_has_every_sample_once(
    sources: list[tuple[int, int]], shuffle: bool, seed: int
) -> None:
    weights, sizes = zip(*sources, strict=True)
    source, sample, epoch = Mixture(weights, sizes, seed, shuffle)(np.arange(1500))
    whole = 0
    for number, size in enumerate(sizes):
        ours = source == number
        assert (np.diff(epoch[ours]) >= 0).all()
        for turn in range(int(ours.sum()) // size):
            got = sample[ours & (epoch == turn)]
            assert sorted(got.tolist()) == list(range(size))
            assert shuffle or got.tolist() == list(range(size))
            whole += 1
    assert whole


def test_a_shuffled_source_has_the_full_order_of_its_own_seed_for_each_epoch() -> None:
    mixture = Mixture([1], [1000], 5, True)
    for epoch in (0, 1, 10**6):
        source, sample, epochs = mixture(epoch * 1000 + np.arange(1000))
        assert (source == 0).all()
        assert (epochs == epoch).all()
        assert np.array_equal(sample, FullOrder(1000, source_seeds(5, 1)[0], epoch)(np.arange(1000)))


@pytest.mark.parametrize("size", [1, 2, LISTED, LISTED + 1, 2**62])
def test_sources_of_any_size_are_shuffled(size: int) -> None:
    source, sample, epoch = Mixture([1, 3], [size, 10], 3, True)(np.arange(1000))
    assert ((sample >= 0) & (sample < np.array([size, 10])[source])).all()
    assert epoch[source == 0].max() == 249 // size
    assert epoch[source == 1].max() == 749 // 10
    assert len(np.unique(sample[(source == 0) & (epoch == 0)])) == min(size, 250)


@given(st.data(), WEIGHTS.filter(lambda weights: len(weights) > 1))
def test_a_schedule_carries_the_counts_over(data: st.DataObject, weights: list[float]) -> None:
    rows = st.lists(st.integers(0, 9), min_size=len(weights), max_size=len(weights)).filter(any)
    schedule = data.draw(st.dictionaries(st.integers(1, 10**9) | st.integers(1, 50), rows, min_size=1, max_size=4))
    mixture = plain(weights, schedule=schedule)
    row: Sequence[float] = weights
    expected, begin = np.zeros(len(weights), np.int64), 0
    for boundary in sorted(schedule):
        expected = expected + plain(row).counts(boundary - begin)
        begin, row = boundary, schedule[boundary]
        assert np.array_equal(mixture.counts(boundary), expected)
        assert np.array_equal(mixture.shares(boundary), plain(row).shares())
        until = min((key for key in schedule if key > begin), default=begin + 30)
        source = mixture(ranges(begin, min(30, until - begin)))[0]
        assert (np.array(row)[source] > 0).all()
    start = max(0, begin - 50)
    source, sample, epoch = mixture(ranges(start, 100))
    for number in np.unique(source):
        nth = epoch[source == number] * 7 + sample[source == number]
        assert np.array_equal(nth, mixture.counts(start)[number] + np.arange(len(nth)))


def test_before_a_change_of_weights_nothing_changes() -> None:
    constant, changed = plain([3, 1]), plain([3, 1], schedule={100: [0, 1], 200: [1, 1]})
    for before, after in zip(constant(np.arange(100)), changed(np.arange(100)), strict=True):
        assert np.array_equal(before, after)
    assert changed.counts(200).tolist() == [75, 125]
    assert changed.counts(300).tolist() == [125, 175]
    assert plain([3, 1], schedule={0: [1, 1]}).counts(100).tolist() == [50, 50]


@given(WEIGHTS)
def test_sources_of_weight_zero_are_as_if_they_were_not_there(weights: list[float]) -> None:
    kept = np.flatnonzero(weights)
    source = plain(weights)(np.arange(300))[0]
    assert np.array_equal(source, kept[plain([weights[number] for number in kept])(np.arange(300))[0]])


def test_a_source_of_weight_zero_may_be_empty_until_it_has_a_weight() -> None:
    assert Mixture([1, 0], [5, 0], 0, True)(np.arange(20))[0].max() == 0
    with pytest.raises(ConfigError, match=r"schedule\[10\]\[1\].*no samples"):
        Mixture([1, 0], [5, 0], 0, True, schedule={10: [1, 1]})


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 1 / 0.3, 100.0, math.inf])
def test_temperature_raises_weights_to_its_inverse(temperature: float) -> None:
    weights = np.array([1000.0, 100.0, 10.0, 1.0, 0.0])
    expected = np.where(weights > 0, weights ** (1 / temperature), 0)
    assert np.allclose(plain(weights.tolist(), temperature=temperature).shares(), expected / expected.sum(), atol=1e-9)


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e-3, 1e300])
@pytest.mark.parametrize("weights", [[5e-324, 1.7e308, 1], [1, 2, 3, 4], [1e-300, 1e-200, 1e300]])
def test_no_weight_is_lost_to_extremes(temperature: float, weights: list[float]) -> None:
    shares = plain(weights, temperature=temperature).shares()
    assert (shares > 0).all()
    assert shares.sum() == pytest.approx(1)
    if temperature < 1:
        assert shares.argmax() == np.argmax(weights)
        assert shares.max() > 1 - 1e-6


def test_a_program_that_sets_decimal_otherwise_gets_the_same_shares() -> None:
    expected = plain([5, 3, 1], temperature=3).shares()
    with decimal.localcontext(decimal.Context(prec=2, Emin=-1, Emax=1)):
        assert np.array_equal(plain([5, 3, 1], temperature=3).shares(), expected)


def test_temperature_holds_for_scheduled_weights_too() -> None:
    mixture = plain([1, 1], temperature=2, schedule={10: [9, 1]})
    assert np.allclose(mixture.shares(10), [0.75, 0.25])
    assert np.allclose(mixture.shares(9), [0.5, 0.5])


def test_the_order_stays_what_it_was_when_this_was_written() -> None:
    source, sample, epoch = Mixture([3, 2, 1], [4, 3, 2], 7, True, schedule={8: [1, 1, 1]})(np.arange(12))
    assert source.tolist() == [0, 1, 2, 0, 1, 0, 0, 1, 0, 2, 1, 0]
    assert sample.tolist() == [0, 0, 1, 2, 2, 1, 3, 1, 1, 0, 2, 0]
    assert epoch.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1]


def test_the_largest_position_can_be_asked_for() -> None:
    mixture = Mixture([1, 2, 0.1], [10, 2**62, 10**6], 3, True)
    for number in range(3):
        assert mixture(np.array([LAST]))[0].shape == (1,)
        assert mixture.counts(LAST).sum() == LAST
        assert abs(int(mixture.counts(LAST)[number]) - float(mixture.shares()[number]) * LAST) < 1e4  # float64's grain
    assert [len(part) for part in mixture(np.zeros(0, np.int64))] == [0, 0, 0]


@pytest.mark.parametrize("position", [-1, 2**63])
def test_positions_outside_are_refused(position: int) -> None:
    mixture = plain([1, 2])
    for ask in (mixture.counts, mixture.shares):
        with pytest.raises(IndexError, match=str(position)):
            ask(position)
    with pytest.raises(IndexError, match="-1"):
        mixture(np.array([3, -1]))


def order(mixture: Mixture) -> list[list[int]]:
    return [part.tolist() for part in mixture(np.arange(500))]


def test_same_arguments_give_the_same_order_and_other_seeds_another() -> None:
    first, again, other = (Mixture([2, 1], [50, 50], seed, True) for seed in (4, 4 + 2**64, 5))
    assert order(first) == order(again)
    assert order(first)[0] == order(other)[0]
    assert order(first)[1] != order(other)[1]


def test_sources_of_one_size_are_shuffled_differently() -> None:
    source, sample, epoch = Mixture([1] * 4, [100] * 4, 0, True)(np.arange(800))
    orders = {tuple(sample[(source == number) & (epoch == turn)].tolist()) for number in range(4) for turn in (0, 1)}
    assert len(orders) == 8


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda mixture: pickle.loads(pickle.dumps(mixture))])
@pytest.mark.parametrize("size", [50, LISTED + 1])
def test_copies_go_on_with_the_same_order(clone: Any, size: int) -> None:
    mixture = Mixture([2, 1], [size, 9], 3, True, schedule={100: [1, 1]})
    expected = order(mixture)
    twin = clone(mixture)
    assert order(twin) == expected
    assert twin.fingerprint() == mixture.fingerprint()
    twin(10**9 + np.arange(500))
    assert order(mixture) == expected


def test_few_orders_are_kept() -> None:
    mixture = Mixture([1, 1], [3, 1000], 0, True)
    mixture(np.arange(3000))
    assert {source: len(kept) for source, kept in mixture._orders.items()} == {0: 2, 1: 2}


BASE: dict[str, Any] = {"weights": [2, 1], "sizes": [50, 9], "seed": 3, "shuffle": True, "schedule": {9: [1, 1]}}


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [3, 1]}, {"sizes": [50, 10]}, {"seed": 4}, {"shuffle": False}, {"temperature": 2.0},
        {"schedule": None}, {"schedule": {10: [1, 1]}}, {"schedule": {9: [1, 0]}}, {"schedule": {9: [0, 1]}},
    ],
)  # fmt: skip
def test_another_order_has_another_fingerprint(change: dict[str, Any]) -> None:
    first, other = Mixture(**BASE), Mixture(**{**BASE, **change})
    assert order(first) != order(other)
    assert first.fingerprint() != other.fingerprint()
    assert 0 <= first.fingerprint() < 2**32


def test_weights_in_another_unit_have_the_same_order_and_fingerprint() -> None:
    first, other = Mixture(**BASE), Mixture(**{**BASE, "weights": np.array([0.5, 0.25]), "sizes": np.array([50, 9])})
    assert order(first) == order(other)
    assert first.fingerprint() == other.fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [], "sizes": [], "schedule": None}, "no sources"),
        ({"weights": [1]}, "weights: 1 weights for 2 sources"),
        ({"weights": 3}, "weights=3"),
        ({"weights": [1, -1]}, r"weights\[1\]=-1"),
        ({"weights": [math.nan, 1]}, r"weights\[0\]=nan"),
        ({"weights": [1, math.inf]}, r"weights\[1\]=inf"),
        ({"weights": [1, 10**400]}, r"weights\[1\]=1000"),
        ({"weights": [1, "much"]}, r"weights\[1\]='much'"),
        ({"weights": [0, 0]}, "all 2 weights are 0"),
        ({"sizes": [5, 0]}, r"weights\[1\]=1, but source 1 has no samples"),
        ({"sizes": [5, -1]}, r"sizes\[1\]: -1"),
        ({"sizes": [5, 2.5]}, r"sizes\[1\]: 2.5"),
        ({"sizes": [5, 2**62 + 1]}, r"sizes\[1\]"),
        ({"seed": 0.5}, "seed=0.5"),
        ({"temperature": 0}, "temperature=0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"temperature": None}, "temperature=None"),
        ({"schedule": {-1: [1, 1]}}, "schedule: -1"),
        ({"schedule": {1.5: [1, 1]}}, "schedule: 1.5"),
        ({"schedule": {2**63: [1, 1]}}, "schedule: 9223372036854775808"),
        ({"schedule": {"9": [1, 1]}}, "schedule: '9'"),
        ({"schedule": {9: [1, 1, 1]}}, r"schedule\[9\]: 3 weights for 2 sources"),
        ({"schedule": {9: [0, 0]}}, r"schedule\[9\]: all 2 weights"),
        ({"schedule": {9: [1, -2]}}, r"schedule\[9\]\[1\]=-2"),
    ],
)
def test_what_cannot_be_mixed_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Mixture(**{**BASE, **change})


def test_a_batch_of_256_over_8_sources_is_quick() -> None:
    mixture = Mixture(range(1, 9), [100_000] * 8, 0, True)
    mixture(np.arange(256))
    spent = []
    for batch in range(1, 50):
        begin = time.perf_counter()
        mixture(batch * 256 + np.arange(256))
        spent.append(time.perf_counter() - begin)
    assert min(spent) < 5e-3
