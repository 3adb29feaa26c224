"""What a seed, and any other number that counts, may be."""

from __future__ import annotations

import operator
from typing import Any

from ..errors import ConfigError


def seed_number(seed: Any) -> int:
    """A seed as a Python int, from any integer (numpy's and torch's included).

    Raises:
        ConfigError: it is no integer.
    """
    try:
        return operator.index(seed)
    except TypeError:
        raise ConfigError(f"seed={seed!r}: a seed is an integer.") from None


def whole_number(value: Any, name: str, least: int, most: int = 1 << 62) -> int:
    """An argument that counts something, as a Python int.

    Raises:
        ConfigError: it is no integer, or outside.
    """
    try:
        number = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise ConfigError(f"{name}={value!r}: an integer from {least} to {most}.")
    return number
