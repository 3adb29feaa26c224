"""Windows of a fixed length over token streams: which token each begins at, by number. Pure arithmetic, no tokens."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class WindowPlaces(Protocol):
    """Where windows begin: of a stream, or within documents."""

    def __len__(self) -> int: ...
    def starts(self, windows: Integers) -> Integers:
        """The first token of each of these windows, counted from the beginning of all tokens.

        Args:
            windows: int64 [n], each from 0 to len - 1.

        Returns:
            int64 [n].
        """


class StreamWindows:
    """Windows over one stream, without regard to documents: window i begins at token i · stride.

    Args:
        tokens: Of the stream.
        reach: Tokens that each window needs, the one after its last included where there are targets.
        stride: Tokens from the beginning of one window to that of the next.
    """

    def __init__(self, tokens: int, reach: int, stride: int) -> None:
        self._count = (tokens - reach) // stride + 1 if tokens >= reach else 0
        self._stride = stride if self._count > 1 else 0  # a lone window may have a stride beyond int64

    def __len__(self) -> int:
        return self._count

    def starts(self, windows: Integers) -> Integers:
        """See `WindowPlaces`."""
        return windows * self._stride


class DocumentWindows:
    """Windows that lie within one document each, document by document; shorter rests are left out.

    Sixteen bytes are kept for every document that has a window.

    Args:
        firsts: int64 [documents], each one's first token.
        lengths: int64 [documents], their tokens.
        reach: As `StreamWindows`.
        stride: As `StreamWindows`.
    """

    def __init__(self, firsts: Integers, lengths: Integers, reach: int, stride: int) -> None:
        stride = min(stride, max(int(lengths.max(initial=0)), 1))  # beyond the longest it makes no difference
        counts = np.where(lengths >= reach, (lengths - reach) // stride + 1, 0)
        kept = counts > 0
        counts = counts[kept]
        self._ends: Integers = np.cumsum(counts)
        self._bases: Integers = firsts[kept] - (self._ends - counts) * stride
        self._stride = stride

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._ends.size else 0

    def starts(self, windows: Integers) -> Integers:
        """See `WindowPlaces`."""
        return self._bases[np.searchsorted(self._ends, windows, side="right")] + windows * self._stride
