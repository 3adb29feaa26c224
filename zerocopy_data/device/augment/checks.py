"""Checks that several operations make of their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError
from .batch import Spec

NUMBER = (int, float, np.integer, np.floating)


def probability(p: Any, op: str) -> float:
    """p as a float.

    Raises:
        ConfigError: it is no number from 0 to 1.
    """
    if not isinstance(p, NUMBER) or not 0.0 <= p <= 1.0:
        raise ConfigError(f"{op}(p={p!r}): a probability lies between 0 and 1.")
    return float(p)


def limits(value: Any, least: float, most: float, what: str) -> tuple[float, float]:
    """Two numbers, the smaller first.

    Raises:
        ConfigError: they are not, or reach beyond `least` to `most`.
    """
    pair = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    finite = len(pair) == 2 and all(isinstance(n, NUMBER) and math.isfinite(n) for n in pair)
    if not finite or not least <= pair[0] <= pair[1] <= most:
        raise ConfigError(f"{what}={value!r}: two numbers from {least:g} to {most:g}, the smaller first.")
    return float(pair[0]), float(pair[1])


def numbers(value: Any, what: str) -> tuple[float, ...]:
    """One number, or one a channel, as a tuple.

    Raises:
        ConfigError: there is something else.
    """
    values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if len(values) not in (1, 3) or not all(isinstance(n, NUMBER) and math.isfinite(n) for n in values):
        raise ConfigError(f"{what}={value!r}: a number, or three, one a channel.")
    return tuple(float(n) for n in values)


def colour(values: tuple[float, ...], spec: Spec, what: str) -> tuple[float, ...]:
    """One number a channel of a batch, each a value that its dtype can have.

    Raises:
        ConfigError: their number or a value does not suit the images.
    """
    if len(values) not in (1, spec.channels):
        raise ConfigError(f"{what}={values}: images have {spec.channels} channel(s); give one number or as many.")
    if not spec.is_float and not all(n.is_integer() and 0 <= n <= 255 for n in values):
        raise ConfigError(f"{what}={values}: images are uint8; whole numbers from 0 to 255 are needed.")
    return values * (spec.channels // len(values))
