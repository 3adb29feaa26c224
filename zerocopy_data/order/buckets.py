"""Batches of samples of similar length, within a budget of tokens."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .full import FullOrder

BUDGETS = ("padded", "sum", "bucket")
_BATCHES, _BLOCKS, _SHORT = 0x62617463, 0x626C6F63, 0x73686F72  # keep the seeds of the orders apart

Numbers = npt.NDArray[np.int64]


def quantile_edges(lengths: Numbers, buckets: int) -> tuple[int, ...]:
    """The upper edges of buckets that hold about as many tokens each.

    Quantiles of tokens rather than of samples: where lengths have a long tail, the few long samples cause the padding.

    Args:
        lengths: int64 [samples], at least 1 each.
        buckets: At least 1; fewer where so many lengths are the same.

    Returns:
        Ascending, the last one the greatest length; nothing where there are no samples.
    """
    if not lengths.size:
        return ()
    ordered = np.sort(lengths)
    tokens = np.cumsum(ordered)
    shares = np.arange(1, buckets + 1) * (float(tokens[-1]) / buckets)
    places = np.minimum(np.searchsorted(tokens, shares), len(ordered) - 1)
    return tuple(np.unique(np.append(ordered[places], ordered[-1])).tolist())


@dataclass(frozen=True)
class BatchRule:
    """How large a batch may be, and which samples may be in one.

    Attributes:
        max_tokens: Tokens of a batch, by `budget`.
        budget: 'padded': the batch's greatest length times its samples; 'bucket': its bucket's edge times its samples;
            'sum': the sum of lengths.
        max_batch: Samples of a batch; None for as many as the tokens allow.
        edges: Upper edges of the buckets, ascending, the last one at least the greatest length.
        cost: (a, b) where a sample of L tokens costs a·L + b·L², to have batches of similar cost follow each other.
        together: How many of them, with `cost`.
    """

    max_tokens: int
    budget: str
    max_batch: int | None
    edges: tuple[int, ...]
    cost: tuple[float, float] | None = None
    together: int = 64

    def fingerprint(self, lengths: Numbers, seed: int) -> int:
        """32 bits that differ where another rule, seed or other lengths would give other batches."""
        return zlib.crc32(lengths.tobytes(), zlib.crc32(repr((self, seed)).encode()))


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of an epoch. Batch i has the samples starts[i] … starts[i + 1] - 1.

    Attributes:
        starts: int64 [batches + 1].
        samples: int64 [samples].
    """

    starts: Numbers
    samples: Numbers

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Numbers:
        if not 0 <= number < len(self):
            raise IndexError(f"batch {number} of {len(self)}")
        return self.samples[self.starts[number] : self.starts[number + 1]]


def epoch_batches(lengths: Numbers, rule: BatchRule, seed: int, epoch: int) -> Batches:
    """The batches of an epoch: every sample in one of them, in an order drawn by (seed, epoch).

    In each bucket samples are shuffled, and a batch takes as many of the next ones as its budget allows. Then batches
    are shuffled.

    Args:
        lengths: int64 [samples], from 1 to the budget each.
        rule: What a batch is.
        seed: Any integer.
        epoch: From 0.

    Returns:
        The batches, the same on every machine and for any number of ranks.
    """
    drawn = FullOrder(len(lengths), seed, epoch)(np.arange(len(lengths), dtype=np.int64))
    buckets = np.searchsorted(np.array(rule.edges, np.int64), lengths[drawn])
    samples = drawn[np.argsort(buckets, kind="stable")]
    bounds = np.cumsum(np.bincount(buckets, minlength=len(rule.edges))).tolist()
    starts, begin = [0], 0
    for edge, end in zip(rule.edges, bounds, strict=True):
        starts += (begin + cut for cut in _cuts(lengths[samples[begin:end]], edge, rule))
        begin = end
    places = np.array(starts, np.int64)
    if rule.cost is None:
        order = FullOrder(len(starts) - 1, seed ^ _BATCHES, epoch)(np.arange(len(starts) - 1, dtype=np.int64))
    else:
        order = _by_cost(batch_costs(lengths[samples], places, rule), rule.together, seed, epoch)
    sizes = np.diff(places)[order]
    shuffled = np.zeros(len(places), np.int64)
    np.cumsum(sizes, out=shuffled[1:])
    chosen = np.arange(len(samples), dtype=np.int64) + np.repeat(places[:-1][order] - shuffled[:-1], sizes)
    return Batches(shuffled, samples[chosen])


def batch_costs(lengths: Numbers, starts: Numbers, rule: BatchRule) -> npt.NDArray[np.float64]:
    """What each batch costs: all its samples at the length that they are padded to, or at their own with 'sum'.

    Args:
        lengths: int64 [samples], in the batches' order.
        starts: int64 [batches + 1]; no batch is empty.
        rule: Has a cost.
    """
    assert rule.cost is not None
    linear, quadratic = rule.cost
    if not lengths.size:
        return np.zeros(0)
    if rule.budget == "sum":
        each = linear * lengths + quadratic * lengths.astype(np.float64) ** 2
        return np.asarray(np.add.reduceat(each, starts[:-1]))
    longest = np.maximum.reduceat(lengths, starts[:-1])
    if rule.budget == "bucket":
        edges = np.array(rule.edges, np.int64)
        longest = edges[np.searchsorted(edges, longest)]
    return np.diff(starts) * (linear * longest + quadratic * longest.astype(np.float64) ** 2)


def _cuts(lengths: Numbers, edge: int, rule: BatchRule) -> Iterator[int]:
    """Where the batches of a bucket end."""
    count = len(lengths)
    most = count if rule.max_batch is None else rule.max_batch
    if not count:
        return
    if rule.budget == "bucket":
        most = min(most, rule.max_tokens // edge)
        yield from range(most, count, most)
        yield count
        return
    sums = np.cumsum(lengths)
    shortest = int(lengths.min())
    begin = 0
    while begin < count:
        end = min(count, begin + most)
        if rule.budget == "sum":
            before = int(sums[begin - 1]) if begin else 0
            end = min(end, int(np.searchsorted(sums, before + rule.max_tokens, "right")))
        else:
            end = min(end, begin + rule.max_tokens // shortest)
            longest = np.maximum.accumulate(lengths[begin:end])
            # Grows with every sample, so it can be searched.
            padded = longest * np.arange(1, end - begin + 1)
            end = begin + int(np.searchsorted(padded, rule.max_tokens, "right"))
        yield end
        begin = end


def _by_cost(costs: npt.NDArray[np.float64], together: int, seed: int, epoch: int) -> Numbers:
    """Batches in blocks of so many neighbours in cost; blocks are shuffled, and batches within their block.

    So ranks that take one batch each of those that follow each other wait little for each other, and the order does not
    depend on how many ranks there are. The block that is short comes last; which costs it has is drawn. The fewer the
    blocks, the more a block's costs differ.
    """
    count = len(costs)
    drawn = FullOrder(count, seed ^ _BATCHES, epoch)(np.arange(count, dtype=np.int64))
    ascending = drawn[np.argsort(costs[drawn], kind="stable")]
    whole, rest = divmod(count, together)
    cut = int(FullOrder(whole + 1, seed ^ _SHORT, epoch)(np.zeros(1, np.int64))[0]) * together
    blocks = np.concatenate([ascending[:cut], ascending[cut + rest :]]).reshape(whole, together)
    blocks = blocks[FullOrder(whole, seed ^ _BLOCKS, epoch)(np.arange(whole, dtype=np.int64))]
    ranked = np.concatenate([blocks.ravel(), ascending[cut : cut + rest]])
    # Shuffled within blocks: by the block, then by the place that was drawn for each batch.
    places = np.empty(count, np.int64)
    places[drawn] = np.arange(count)
    return ranked[np.lexsort((places[ranked], np.arange(count) // together))]


def check_rule(lengths: Numbers, rule: BatchRule) -> None:
    """Refuses what cannot be followed.

    Args:
        lengths: int64 [samples], what each counts for.
        rule: The rule.

    Raises:
        ConfigError: a number is out of range, or a sample alone is over the budget.
    """
    if rule.budget not in BUDGETS:
        raise ConfigError(f"budget={rule.budget!r}: one of {', '.join(map(repr, BUDGETS))}.")
    if rule.max_batch is not None and rule.max_batch < 1:
        raise ConfigError(f"max_batch={rule.max_batch}: samples of a batch, at least 1, or None.")
    if rule.together < 1:
        raise ConfigError(f"together={rule.together}: batches of similar cost that follow each other, at least 1.")
    if rule.cost is not None and not (min(rule.cost) >= 0 and max(rule.cost) > 0 and np.isfinite(rule.cost).all()):
        raise ConfigError(f"cost={rule.cost}: (a, b) of a·L + b·L², neither negative and not both 0.")
    if any(low >= high for low, high in pairwise((0, *rule.edges))):
        raise ConfigError(f"edges {rule.edges} of buckets: ascending lengths, from 1.")
    longest = int(lengths.max(initial=0))
    if longest > rule.max_tokens:
        raise ConfigError(
            f"sample {int(lengths.argmax())} counts for {longest} tokens, max_tokens={rule.max_tokens}: it fits into "
            "no batch. Truncate or leave out such samples, or allow larger batches."
        )
    if rule.budget == "bucket" and rule.edges and rule.edges[-1] > rule.max_tokens:
        raise ConfigError(
            f"edge {rule.edges[-1]} of a bucket, max_tokens={rule.max_tokens}: not one sample padded to the edge fits "
            "into a batch. Use lower edges, or allow larger batches."
        )
