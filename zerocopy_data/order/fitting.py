"""Which row each piece goes to, when rows hold so many tokens: by counts of lengths, not piece by piece.

Both methods go through the lengths from the longest to the shortest, and differ in the row that a piece is put into.
Rows that have as much space left are a few ranges of row numbers, and pieces of one length are put into a range at a
time. So the work is in the number of different lengths and ranges; the number of pieces counts only where the result
is written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

# (Pieces of one length, first row, pieces to a row): so many pieces fill rows from the first on.
Placement = tuple[int, int, int]


class OpenRows:
    """Rows with space left, as ranges of row numbers by their space.

    Args:
        row_length: Space of a row that is empty.

    Attributes:
        spaces: Those that rows have, ascending, without 0.
        count: Rows that hold something.
    """

    def __init__(self, row_length: int) -> None:
        self.row_length = row_length
        self.spaces: list[int] = []
        self.count = 0
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def put(self, space: int, length: int, pieces: int, most: int) -> Placement:
        """Puts pieces of a length into the latest range of rows with this much space, as many as it takes.

        Args:
            space: One of `spaces`; or `row_length`, which begins new rows.
            length: Of each piece, at most the space.
            pieces: At least one.
            most: Pieces that go into a row at most.

        Returns:
            How many of the pieces went where.
        """
        each = min(most, space // length)
        if space == self.row_length:
            first, rows = self.count, -(-pieces // each)
            self.count += rows
        else:
            first, rows = self._take(space, -(-pieces // each))
        placed = min(pieces, rows * each)
        full, rest = divmod(placed, each)
        if full:
            self._add(space - each * length, first, full)
        if rest:
            self._add(space - rest * length, first + full, 1)
        return placed, first, each

    def _take(self, space: int, wanted: int) -> tuple[int, int]:
        ranges = self._ranges[space]
        first, rows = ranges.pop()
        if rows > wanted:
            ranges.append((first + wanted, rows - wanted))
        elif not ranges:
            del self.spaces[bisect_left(self.spaces, space)]
            del self._ranges[space]
        return first, min(rows, wanted)

    def _add(self, space: int, first: int, rows: int) -> None:
        if space == 0:
            return
        if space in self._ranges:
            self._ranges[space].append((first, rows))
        else:
            self._ranges[space] = [(first, rows)]
            insort(self.spaces, space)


def best_fit(open_rows: OpenRows, length: int, pieces: int) -> Placement:
    """Into the row with the least space that takes the piece: best-fit-decreasing.

    D. S. Johnson, "Near-optimal bin packing algorithms", MIT 1973: at most 11/9 of the fewest possible rows, and 4.

    The row that was chosen has less space than before, so it is the choice again as long as the length fits.
    """
    spaces = open_rows.spaces
    place = bisect_left(spaces, length)
    space = spaces[place] if place < len(spaces) else open_rows.row_length
    return open_rows.put(space, length, pieces, pieces)


def shortest_row_first(open_rows: OpenRows, length: int, pieces: int) -> Placement:
    """Into the row with the most space: shortest-pack-first histogram packing.

    M. M. Krell, M. Kosec, S. P. Perez, A. Fitzgibbon, "Efficient sequence packing without cross-contamination",
    arXiv:2107.02027, 2021, where it is called SPFHP; here without a limit to the pieces of a row. There all pieces of a
    length that find no row get one each; here a second goes into the row that the first began, if it fits, or short
    documents alone would fill no row.
    """
    space = open_rows.spaces[-1] if open_rows.spaces else 0
    if space >= length:
        return open_rows.put(space, length, pieces, 1)
    return open_rows.put(open_rows.row_length, length, pieces, pieces)


METHODS: dict[str, Callable[[OpenRows, int, int], Placement]] = {
    "best_fit": best_fit,
    "histogram": shortest_row_first,
}


def fit(counts: npt.NDArray[np.int64], row_length: int, method: str) -> npt.NDArray[np.int64]:
    """The row of each piece, the longest first.

    Args:
        counts: int64 [longest + 1], how many pieces there are of each length, at most row_length; none of length 0.
        row_length: Tokens of a row.
        method: A name of `METHODS`.

    Returns:
        int64 [pieces], from 0 to the number of rows - 1, each of which occurs.
    """
    choose = METHODS[method]
    open_rows = OpenRows(row_length)
    placements: list[Placement] = []
    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            placements.append(choose(open_rows, length, left))
            left -= placements[-1][0]
    table = np.array(placements, np.int64).reshape(-1, 3)
    sizes = table[:, 0]
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    within = np.arange(len(begins), dtype=np.int64) - begins
    rows: npt.NDArray[np.int64] = np.repeat(table[:, 1], sizes) + within // np.repeat(table[:, 2], sizes)
    return rows
