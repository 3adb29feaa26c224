"""Samples that come more than once in an epoch: which time it is, and random numbers of its own for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SIGN = np.uint64(1 << 63)


class CopyIndex(int):
    """A sample's index, which any dataset takes as the integer that it is.

    Attributes:
        copy: The how many-th time the sample comes in its epoch, from 0. A dataset of this library draws other random
            parameters for each.
    """

    copy: int

    def __new__(cls, index: int, copy: int) -> CopyIndex:
        made = super().__new__(cls, index)
        made.copy = copy
        return made

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.copy


@dataclass(frozen=True, eq=False)
class CopyIndices:
    """Many of them.

    Attributes:
        indices: int64 [n].
        copies: int64 [n].
    """

    indices: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def tolist(self) -> list[int]:
        """As torch's fetchers and datasets of any kind take them."""
        pairs = zip(self.indices.tolist(), self.copies.tolist(), strict=True)
        return [CopyIndex(index, copy) if copy else index for index, copy in pairs]


Indices: TypeAlias = list[int] | npt.NDArray[np.int64] | CopyIndices


def parted(indices: Indices) -> tuple[list[int] | npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
    """Indices alone, and int64 copies of the same length; None where every sample comes for the first time."""
    if isinstance(indices, CopyIndices):
        return indices.indices, indices.copies
    if isinstance(indices, list) and any(type(index) is CopyIndex for index in indices):
        return indices, np.array([copy_of(index) for index in indices], np.int64)
    return indices, None


def integers(indices: list[int] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """A batch's indices as int64.

    Raises:
        TypeError: they are no flat list of integers.
        IndexError: one is beyond int64.
    """
    array = np.asarray(indices)
    if array.size and array.dtype.kind not in "iub":  # `ds[i]` takes what has __index__; numpy would cut 1.5 to 1
        raise TypeError(f"a sample's index is an integer, not {array.dtype}: {indices[0]!r}")
    if array.ndim != 1:
        raise TypeError(f"a batch's indices are a flat list of integers, not {array.ndim}-dimensional")
    return int64(array)


def int64(indices: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Integers as int64.

    Raises:
        IndexError: one is beyond it, where numpy would wrap it to a negative position.
    """
    if indices.dtype.kind == "u" and indices.size and int(indices.max()) > np.iinfo(np.int64).max:
        raise IndexError(f"sample {int(indices.max())}: no dataset is that large")
    return indices.astype(np.int64, copy=False)


def copy_of(index: Any) -> int:
    """The how many-th time a sample comes."""
    return index.copy if type(index) is CopyIndex else 0


def sample_keys(rows: npt.NDArray[np.int64], copies: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    """What keys the random numbers of samples: the row itself for its first time, a number below 0 for any other.

    The finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014),
    once over the copy and once over both. Two of a million samples agree with a probability of 5e-8, and would have
    equal random parameters then.

    Args:
        rows: int64 [n], from 0.
        copies: int64 [n], from 0.

    Returns:
        int64 [n].
    """
    if copies is None or not copies.any():
        return rows
    mixed = _finalized(_finalized(copies.view(np.uint64) * _GOLDEN) + rows.view(np.uint64) * _GOLDEN) | _SIGN
    return np.where(copies == 0, rows, mixed.view(np.int64))


def sample_key(row: int, copy: int) -> int:
    """The same for one sample, as the 64 bits that the core takes."""
    if not copy:
        return row
    return int(sample_keys(np.array([row], np.int64), np.array([copy], np.int64)).view(np.uint64)[0])


def _finalized(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return bits ^ (bits >> np.uint64(31))
