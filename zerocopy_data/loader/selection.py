"""Which rows a dataset has, and in which order."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


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


@dataclass(frozen=True, eq=False)
class Selection:
    """Row numbers by position: a range, which costs nothing, or an array of int64."""

    chosen: range | npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.chosen)

    def row(self, index: Any) -> int:
        """The row at one position; a negative one counts from the end.

        Raises:
            TypeError: the position is no integer.
            IndexError: it is outside.
        """
        try:
            position = operator.index(index)
        except TypeError:
            kind = type(index).__name__
            raise TypeError(f"a sample's index is an integer or a slice, not {kind}; for many: ds.subset(…)") from None
        size = len(self)
        if not -size <= position < size:
            raise IndexError(f"sample {position} of a dataset with {size} samples")
        return int(self.chosen[position + size if position < 0 else position])

    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rows at many positions; negative ones count from the end.

        Raises:
            IndexError: a position is outside.
        """
        size = len(self)
        if indices.size:
            low, high = int(indices.min()), int(indices.max())
            if low < -size or high >= size:
                raise IndexError(f"sample {low if low < -size else high} of a dataset with {size} samples")
            if low < 0:
                indices = np.where(indices < 0, indices + size, indices)
        if isinstance(self.chosen, range):
            return indices * self.chosen.step + self.chosen.start
        return self.chosen[indices]

    def subset(self, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> Selection:
        """The rows at these positions (integers, a slice, or a boolean mask), in this order.

        Raises:
            IndexError: a position is outside.
            TypeError: the positions are no integers.
        """
        if isinstance(indices, slice):
            indices = range(*indices.indices(len(self)))
        plain = isinstance(indices, range) and indices.step > 0 and (not indices or indices[0] >= 0)
        if isinstance(indices, range) and isinstance(self.chosen, range) and plain:
            if len(indices) and indices[-1] >= len(self):
                raise IndexError(f"subset({indices}) of a dataset with {len(self)} samples")
            return Selection(self.chosen[indices.start : indices.stop : indices.step] if len(indices) else range(0))
        array = np.asarray(indices)
        if array.dtype == np.bool_:
            if array.shape != (len(self),):
                raise IndexError(f"a mask of shape {array.shape} for a dataset with {len(self)} samples")
            array = np.flatnonzero(array)
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"indices are integers or a boolean mask, not {array.dtype}")
        return Selection(self.rows(int64(array.reshape(-1))))

    def same_as(self, other: Selection) -> bool:
        """Whether both have the same rows in the same order."""
        if isinstance(self.chosen, range) and isinstance(other.chosen, range):
            return self.chosen == other.chosen
        return np.array_equal(np.asarray(self.chosen), np.asarray(other.chosen))
