"""What a seed may be."""

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
