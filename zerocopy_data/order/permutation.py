"""The order of an epoch as a permutation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .splitmix import GOLDEN, mixed

_MASK = (1 << 64) - 1


def epoch_permutation(size: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A uniformly drawn permutation of range(size), the same for the same (seed, epoch) everywhere and for ever.

    Sorts the indices by SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
    2014) of a counter. numpy's own `permutation` may change between its versions, and with it a resumed run.

    Args:
        size: Number of samples.
        seed: Any integer.
        epoch: From 0.

    Returns:
        int64 [size].
    """
    start = _mix_one(_mix_one(seed & _MASK) ^ (epoch & _MASK))
    counter = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(start)
    # The mixing is a bijection, so no two are equal: every sort gives this order, and the fastest will do.
    return np.argsort(mixed(counter)).astype(np.int64, copy=False)


def _mix_one(value: int) -> int:
    return int(mixed(np.array([(value + GOLDEN) & _MASK], np.uint64))[0])
