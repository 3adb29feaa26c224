"""SplitMix64: a bijection of 64 bits that leaves no pattern of what was put in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GOLDEN = 0x9E3779B97F4A7C15  # odd: multiples of it are all different

Words = npt.NDArray[np.uint64]


def mixed(words: Words) -> Words:
    """The finalizer of SplitMix64.

    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: shifts and multipliers are that
    paper's.

    Args:
        words: uint64 [n].

    Returns:
        uint64 [n]: no two are equal where no two were.
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
