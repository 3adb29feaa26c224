"""Samples that come more than once in an epoch: which time it is, and random numbers of its own for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..order.splitmix import GOLDEN, mixed

_GOLDEN = np.uint64(GOLDEN)
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


def copy_of(index: Any) -> int:
    """The how many-th time a sample comes."""
    return index.copy if type(index) is CopyIndex else 0


def sample_keys(rows: npt.NDArray[np.int64], copies: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What keys the random numbers of samples: the row itself for its first time, a number below 0 for any other.

    Mixed (`order.splitmix`) once over the copy and once over both. Two of a million samples agree with a probability
    of 5e-8, and would have equal random parameters then.

    Args:
        rows: int64 [n], from 0.
        copies: int64 [n], from 0.

    Returns:
        int64 [n].
    """
    if not copies.any():
        return rows
    further = mixed(mixed(copies.view(np.uint64) * _GOLDEN) + rows.view(np.uint64) * _GOLDEN) | _SIGN
    return np.where(copies == 0, rows, further.view(np.int64))


def sample_key(row: int, copy: int) -> int:
    """The same for one sample, as the 64 bits that the core takes."""
    if not copy:
        return row
    return int(sample_keys(np.array([row], np.int64), np.array([copy], np.int64)).view(np.uint64)[0])
