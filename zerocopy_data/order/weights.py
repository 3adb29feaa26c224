"""The weights of several sources: checked, tempered, and made exact shares."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

from ..errors import ConfigError

_LARGEST = 1 << 62
_LAST = (1 << 63) - 1
# Powers of floats differ between C libraries in the last bit, and an order must not. These are correctly rounded.
_EXACT = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999, clamp=0, traps=[])


def tempered(weights: Sequence[float], temperature: float) -> list[tuple[int, Decimal]]:
    """Weights that are not 0, raised to 1 / temperature, relative to the greatest.

    Args:
        weights: One for each source, finite, none negative, not all 0.
        temperature: Above 0; may be infinite.

    Returns:
        (number of the source, weight above 0 and up to 1), by number: 40 digits, the same on every machine.
    """
    with localcontext(_EXACT):
        greatest, heat = Decimal(max(weights)), Decimal(temperature)
        ratios = [(source, Decimal(weight) / greatest) for source, weight in enumerate(weights) if weight > 0]
        if heat != 1:
            ratios = [(source, (ratio.ln() / heat).exp()) for source, ratio in ratios]
        # A low temperature leaves zeros, which have no share of each other. None so small is told from another.
        return [(source, max(ratio, Decimal("1e-999"))) for source, ratio in ratios]


def left_share(left: Sequence[Decimal], right: Sequence[Decimal], parts: int) -> int:
    """What the left has of the weights of both, in whole parts: rounded to the nearest, at least one for each side."""
    with localcontext(_EXACT):
        part = sum(left, Decimal(0))
        share = int((part / sum(right, part) * parts).to_integral_value())
    return min(max(share, 1), parts - 1)


def checked_weights(weights: Sequence[float], sizes: Sequence[int], name: str) -> tuple[float, ...]:
    """Weights as floats.

    Args:
        weights: One for each source.
        sizes: Samples of each source.
        name: What messages call them.

    Raises:
        ConfigError: another number of them than of sizes, one is no number, negative or not finite, all are 0, or a
            source without samples has one.
    """
    try:
        given = list(weights)
    except TypeError:
        raise ConfigError(f"{name}={weights!r}: a list of weights, one for each source.") from None
    if len(given) != len(sizes):
        raise ConfigError(f"{name}: {len(given)} weights for {len(sizes)} sources. Give each source one, 0 to omit it.")
    floats: list[float] = []
    for source, (weight, size) in enumerate(zip(given, sizes, strict=True)):
        try:
            floats.append(float(weight))
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{name}[{source}]={weight!r}: a weight is a number that a float can hold.") from None
        if not 0 <= floats[-1] < math.inf:
            raise ConfigError(f"{name}[{source}]={weight!r}: a weight is finite and not negative; 0 omits the source.")
        if floats[-1] > 0 and not size:
            raise ConfigError(
                f"{name}[{source}]={weight!r}, but source {source} has no samples. Leave it out or give it weight 0."
            )
    if not any(floats):
        raise ConfigError(f"{name}: all {len(floats)} weights are 0. At least one source must be served.")
    return tuple(floats)


def checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Samples of each source as Python ints.

    Raises:
        ConfigError: there are no sources, or a size is no integer from 0 to 2**62.
    """
    if not len(sizes):
        raise ConfigError("a mixture of no sources: give at least one.")
    return tuple(_integer(size, f"sizes[{source}]", _LARGEST, "2**62") for source, size in enumerate(sizes))


def checked_schedule(
    schedule: Mapping[int, Sequence[float]], sizes: Sequence[int]
) -> list[tuple[int, tuple[float, ...]]]:
    """(position, weights from there on), by position.

    Raises:
        ConfigError: a position is no integer from 0 to 2**63 - 1, or its weights are none for these sources.
    """
    rows = [
        (
            _integer(key, "a position in the schedule", _LAST, "2**63 - 1"),
            checked_weights(row, sizes, f"schedule[{key}]"),
        )
        for key, row in schedule.items()
    ]
    return sorted(rows)


def checked_temperature(temperature: float) -> float:
    """A temperature as a float.

    Raises:
        ConfigError: it is no number above 0.
    """
    try:
        heat = float(temperature)
    except (TypeError, ValueError, OverflowError):
        heat = math.nan
    if not heat > 0:
        raise ConfigError(
            f"temperature={temperature!r}: a number above 0. 1 takes weights as they are, math.inf makes them equal."
        )
    return heat


def _integer(value: int, name: str, greatest: int, shown: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= greatest:
        raise ConfigError(f"{name}: {value!r} is no integer from 0 to {shown}, as it must be.")
    return number
