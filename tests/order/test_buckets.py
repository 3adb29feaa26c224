"""Batches by cost: each sample once, none over its budget, from one bucket, in an order of (seed, epoch) alone."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocopy_data.errors import ConfigError
from zerocopy_data.order.buckets import (
    BUDGETS,
    Batches,
    BatchRule,
    batch_costs,
    check_rule,
    epoch_batches,
    quantile_edges,
)

LENGTHS = st.lists(st.integers(1, 60), max_size=120).map(lambda numbers: np.array(numbers, np.int64))
SEEDS = st.integers(-(2**70), 2**70)
RULES = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(60, 300),
        "budget": st.sampled_from(BUDGETS),
        "max_batch": st.none() | st.integers(1, 20),
        "buckets": st.integers(1, 10),
        "cost": st.none() | st.just((1.0, 0.01)),
        "together": st.integers(1, 9),
    }
)


def made(lengths: npt.NDArray[np.int64], how: dict[str, Any], seed: int, epoch: int) -> tuple[BatchRule, Batches]:
    given_ = {**how, "edges": quantile_edges(lengths, how["buckets"])}
    del given_["buckets"]
    rule = BatchRule(**given_)
    check_rule(lengths, rule)
    return rule, epoch_batches(lengths, rule, seed, epoch)


def tokens(lengths: npt.NDArray[np.int64], rule: BatchRule) -> int:
    """What a batch of these lengths counts."""
    if rule.budget == "sum":
        return int(lengths.sum())
    if rule.budget == "padded":
        return int(lengths.max()) * len(lengths)
    return next(edge for edge in rule.edges if edge >= lengths.max()) * len(lengths)


@settings(deadline=None)
@given(LENGTHS, RULES, SEEDS, st.integers(0, 9))
def test_every_sample_is_in_one_batch_of_its_bucket_within_the_budget(
    lengths: npt.NDArray[np.int64], how: dict[str, Any], seed: int, epoch: int
) -> None:
    rule, batches = made(lengths, how, seed, epoch)
    assert np.array_equal(np.sort(batches.samples), np.arange(len(lengths)))
    for number in range(len(batches)):
        here = lengths[batches[number]]
        assert 1 <= len(here) <= (rule.max_batch or len(lengths))
        assert tokens(here, rule) <= rule.max_tokens
        assert len(set(np.searchsorted(rule.edges, here).tolist())) == 1


@settings(deadline=None)
@given(LENGTHS, RULES, SEEDS)
def test_batches_are_as_large_as_the_budget_allows(
    lengths: npt.NDArray[np.int64], how: dict[str, Any], seed: int
) -> None:
    """No two batches of a bucket could be one, but for the bucket's last, which takes what is left."""
    rule, batches = made(lengths, how, seed, 0)
    small: dict[int, int] = {}
    for number in range(len(batches)):
        here = lengths[batches[number]]
        bucket = int(np.searchsorted(rule.edges, here[0]))
        longest = rule.edges[bucket]
        if len(here) != rule.max_batch and tokens(np.append(here, longest), rule) <= rule.max_tokens:
            small[bucket] = small.get(bucket, 0) + 1
    assert all(count == 1 for count in small.values())


@settings(deadline=None)
@given(LENGTHS, RULES, SEEDS, st.integers(0, 9))
def test_the_same_seed_and_epoch_give_the_same_batches(
    lengths: npt.NDArray[np.int64], how: dict[str, Any], seed: int, epoch: int
) -> None:
    one, other = (made(lengths, how, seed, epoch)[1] for _ in range(2))
    assert np.array_equal(one.samples, other.samples)
    assert np.array_equal(one.starts, other.starts)


def some_lengths(count: int = 20_000) -> npt.NDArray[np.int64]:
    return np.random.default_rng(2).lognormal(4, 0.8, count).astype(np.int64).clip(1, 2000)


@pytest.mark.parametrize("cost", [None, (1.0, 0.001)])
def test_epochs_and_seeds_have_other_batches_in_another_order(cost: Any) -> None:
    lengths, how = some_lengths(), {"max_tokens": 4000, "budget": "padded", "max_batch": None, "buckets": 16}
    how |= {"cost": cost, "together": 8}
    sets = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        _, batches = made(lengths, how, seed, epoch)
        sets.append({frozenset(batches[number].tolist()) for number in range(len(batches))})
        means = [lengths[batches[number]].mean() for number in range(len(batches))]
        limit = 5 if cost is None else 5 * 8**0.5  # blocks of 8 are drawn as one
        assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < limit / len(means) ** 0.5
    for one, other in itertools.combinations(sets, 2):
        assert len(one & other) < len(one) / 20


@pytest.mark.parametrize("budget", BUDGETS)
def test_ranks_wait_less_for_each_other_when_costs_are_balanced(budget: str) -> None:
    """A step costs what its slowest rank does; beside the mean of the ranks, that is how much longer it takes."""
    lengths, waits = some_lengths(), {}
    for cost in (None, (1.0, 0.01)):
        how = {"max_tokens": 4000, "budget": budget, "max_batch": None, "buckets": 16, "cost": cost, "together": 8}
        rule, batches = made(lengths, how, 0, 0)
        priced = BatchRule(**{**rule.__dict__, "cost": (1.0, 0.01)})
        costs = batch_costs(lengths[batches.samples], batches.starts, priced)
        by_hand = [
            sum(1.0 * length + 0.01 * length**2 for length in of)
            for of in (
                lengths[batches[n]]
                if budget == "sum"
                else [tokens(lengths[batches[n]], rule) / len(batches[n])] * len(batches[n])
                if budget == "bucket"
                else [lengths[batches[n]].max()] * len(batches[n])
                for n in range(20)
            )
        ]
        assert costs[:20].tolist() == pytest.approx(by_hand)
        steps = costs[: len(costs) // 8 * 8].reshape(-1, 8)
        waits[cost] = float(steps.max(axis=1).sum() / steps.mean(axis=1).sum())
    assert waits[1.0, 0.01] < 1.1
    assert waits[None] > 1.4


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 20))
def test_quantile_edges_ascend_to_the_greatest_length(lengths: npt.NDArray[np.int64], buckets: int) -> None:
    edges = quantile_edges(lengths, buckets)
    assert len(edges) <= buckets
    assert list(edges) == sorted(set(edges))
    assert edges[-1:] == ((int(lengths.max()),) if len(lengths) else ())


def test_buckets_hold_about_as_many_tokens_each() -> None:
    lengths = some_lengths(100_000)
    edges = quantile_edges(lengths, 8)
    held = np.bincount(np.searchsorted(edges, lengths), lengths, 8) / lengths.sum()
    assert np.abs(held - 1 / 8).max() < 0.02


def test_batches_are_the_same_in_every_version() -> None:
    lengths = np.array([3, 9, 4, 1, 7, 8, 2, 5], np.int64)
    plain = epoch_batches(lengths, BatchRule(16, "padded", None, (4, 9)), 42, 7)
    assert [plain[number].tolist() for number in range(len(plain))] == [[1], [0, 2, 3, 6], [5], [4, 7]]
    balanced = epoch_batches(lengths, BatchRule(16, "sum", 2, (4, 9), (1.0, 0.5), 2), 42, 7)
    assert [balanced[number].tolist() for number in range(len(balanced))] == [[3, 6], [0, 2], [7, 5], [1, 4]]
    for number in (-1, 4):
        with pytest.raises(IndexError, match="of 4"):
            plain[number]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": "max"}, "'padded'"),
        ({"max_batch": 0}, "max_batch=0"),
        ({"together": 0}, "together=0"),
        ({"cost": (0.0, 0.0)}, "cost"),
        ({"cost": (-1.0, 1.0)}, "cost"),
        ({"cost": (float("nan"), 1.0)}, "cost"),
        ({"edges": (0, 9)}, "from 1"),
        ({"edges": (9, 9)}, "ascending"),
        ({"max_tokens": 8}, "sample 1 counts for 9 tokens, max_tokens=8"),
        ({"budget": "bucket", "edges": (9, 30)}, "edge 30"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(change: dict[str, Any], message: str) -> None:
    rule = {"max_tokens": 20, "budget": "padded", "max_batch": None, "edges": (9,), **change}
    with pytest.raises(ConfigError, match=message):
        check_rule(np.array([3, 9, 2], np.int64), BatchRule(**rule))


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_epoch_of_a_million_samples_is_laid_out_within_two_seconds(budget: str) -> None:
    """The processor's time of this process; 0.15 s on a busy core."""
    lengths = some_lengths(10**6)
    rule = BatchRule(16_384, budget, None, quantile_edges(lengths, 32))
    took = []
    for epoch in range(2):
        begin = time.process_time()
        epoch_batches(lengths, rule, 0, epoch)
        took.append(time.process_time() - begin)
    assert min(took) < 2
