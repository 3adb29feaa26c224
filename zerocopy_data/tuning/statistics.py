"""The median of a few measurements, with an interval that says how sure it is."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A median and its interval."""

    median: float
    low: float
    high: float


def estimate(samples: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The median, and the order statistics that enclose the true median.

    The k-th smallest and k-th largest of n independent samples enclose the median of what they were drawn
    from with probability 1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution (David and Nagaraja, Order
    Statistics, 7.1). The interval is the narrowest that reaches `confidence`. Fewer than six samples cannot
    reach 95 %: then it is the smallest and the largest, which for five enclose the median with 93.8 %.

    Raises:
        ValueError: No samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    count = len(ordered)
    rank = 1
    below = 1.0  # 2^n P(fewer than `rank` samples lie below the median)
    while rank < (count + 1) // 2:
        below += math.comb(count, rank)
        if 1 - 2 * below / 2**count < confidence:
            break
        rank += 1
    return Estimate(statistics.median(ordered), ordered[rank - 1], ordered[count - rank])
