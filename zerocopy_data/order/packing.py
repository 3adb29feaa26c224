"""Documents of many lengths in rows of one length: which piece of which document stands in which row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .fitting import METHODS, fit
from .full import FullOrder
from .seed import seed_number

LONG = ("error", "split", "truncate", "drop")
_ROWS = 0x726F7773  # keeps the seed of the rows' order apart from that of the documents'

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows of pieces of documents. Row i has the pieces starts[i] … starts[i + 1] - 1, one behind the other.

    Attributes:
        row_length: Tokens of a row; what its pieces leave over is padding.
        starts: int64 [rows + 1].
        documents: int64 [pieces], numbers of documents.
        begins: int64 [pieces], the piece's first token within its document.
        lengths: int64 [pieces], tokens, from 1 to row_length.
        left_out: Tokens of the documents that are in no row: of what was truncated or dropped.
    """

    row_length: int
    starts: Numbers
    documents: Numbers
    begins: Numbers
    lengths: Numbers
    left_out: int

    def __len__(self) -> int:
        """Rows."""
        return len(self.starts) - 1

    @property
    def padding(self) -> float:
        """Share of the rows' tokens that are padding, from 0 to 1."""
        room = len(self) * self.row_length
        return 1.0 - int(self.lengths.sum()) / room if room else 0.0

    def take(self, rows: npt.ArrayLike) -> PackedRows:
        """Some of the rows, in this order; one may come more than once. `left_out` remains that of all.

        Args:
            rows: Integers [n], from 0 to the number of rows - 1.

        Raises:
            IndexError: a row is outside.
            TypeError: rows are no integers.
        """
        asked = np.asarray(rows)
        if asked.size and asked.dtype.kind not in "iu":
            raise TypeError(f"rows are integers, not {asked.dtype}")
        chosen = asked.astype(np.int64, copy=False).reshape(-1)
        if chosen.size and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(self):
            raise IndexError(f"rows {int(chosen.min())} … {int(chosen.max())} of {len(self)} packed rows")
        sizes = self.starts[chosen + 1] - self.starts[chosen]
        starts = _starts(sizes)
        pieces = np.arange(starts[-1], dtype=np.int64) + np.repeat(self.starts[chosen] - starts[:-1], sizes)
        return PackedRows(
            self.row_length,
            starts,
            self.documents[pieces],
            self.begins[pieces],
            self.lengths[pieces],
            self.left_out,
        )


def pack_rows(
    lengths: npt.ArrayLike,
    row_length: int,
    *,
    method: str = "best_fit",
    long: str = "error",
    seed: int = 0,
    epoch: int = 0,
) -> PackedRows:
    """Packs documents into rows of one length. Which of equally long ones goes where is drawn by (seed, epoch).

    The rows' order and that of the pieces in a row are drawn too, so rows can be served as they come. A million
    lengths take well under a second (benchmarks/padding.py).

    Args:
        lengths: Integers [documents], tokens of each. Empty documents are in no row.
        row_length: Tokens of a row, at least 1.
        method: 'best_fit' (best-fit-decreasing) leaves the least padding; 'histogram' (shortest-pack-first, Krell et
            al. 2021) has rows of more equal numbers of documents. See `order.fitting`.
        long: What becomes of a document that is longer than a row: 'split' cuts it into pieces of a row's length and a
            rest, 'truncate' keeps its beginning, 'drop' leaves it out, 'error' refuses it.
        seed: Any integer.
        epoch: From 0.

    Returns:
        The rows, the same on every machine. Memory is 24 bytes a piece and 8 a row.

    Raises:
        ConfigError: an argument makes no sense, or a document is longer than a row with long='error'.
    """
    if method not in METHODS:
        raise ConfigError(f"method={method!r}: one of {', '.join(map(repr, METHODS))}.")
    if long not in LONG:
        raise ConfigError(f"long={long!r}: one of {', '.join(map(repr, LONG))}.")
    if row_length < 1:
        raise ConfigError(f"row_length={row_length}: tokens of a row, at least 1.")
    tokens = lengths_array(lengths)
    documents, begins, sizes = _pieces(tokens, row_length, long)
    seed = seed_number(seed)
    drawn = FullOrder(len(sizes), seed, epoch)(np.arange(len(sizes), dtype=np.int64))
    longest_first = drawn[np.argsort(-sizes[drawn], kind="stable")]
    placed = fit(np.bincount(sizes), row_length, method)
    count = int(placed.max()) + 1 if placed.size else 0
    row_of = np.empty(len(sizes), np.int64)
    row_of[longest_first] = FullOrder(count, seed ^ _ROWS, epoch)(placed)
    # Stable, so the pieces of a row stay in the order drawn.
    order = drawn[np.argsort(row_of[drawn], kind="stable")]
    return PackedRows(
        row_length,
        _starts(np.bincount(row_of, minlength=count)),
        documents[order],
        begins[order],
        sizes[order],
        int(tokens.sum()) - int(sizes.sum()),
    )


def lengths_array(lengths: npt.ArrayLike) -> Numbers:
    """Lengths as int64 [n].

    Raises:
        ConfigError: they are no such numbers, or one is negative.
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ConfigError(f"lengths of shape {array.shape} and dtype {array.dtype}: give one integer a sample.")
    array = array.astype(np.int64)
    if array.size and int(array.min()) < 0:
        raise ConfigError(f"sample {int(array.argmin())} has length {int(array.min())}: lengths count from 0.")
    return array


def _pieces(tokens: Numbers, row_length: int, long: str) -> tuple[Numbers, Numbers, Numbers]:
    """(Document, begin, length) of all that is to be placed, none longer than a row."""
    documents = np.arange(len(tokens), dtype=np.int64)
    if long == "split":
        parts = -(-tokens // row_length)
        documents = np.repeat(documents, parts)
        starts = _starts(parts)
        begins = (np.arange(starts[-1], dtype=np.int64) - np.repeat(starts[:-1], parts)) * row_length
        return documents, begins, np.minimum(tokens[documents] - begins, row_length)
    if long == "error" and tokens.size and int(tokens.max()) > row_length:
        raise ConfigError(
            f"document {int(tokens.argmax())} has {int(tokens.max())} tokens, a row {row_length}: say what becomes of "
            "such documents, with long='split', 'truncate' or 'drop', or use longer rows."
        )
    kept = tokens > 0 if long != "drop" else (tokens > 0) & (tokens <= row_length)
    documents = documents[kept]
    return documents, np.zeros(len(documents), np.int64), np.minimum(tokens[documents], row_length)


def _starts(sizes: Numbers) -> Numbers:
    """Where each of consecutive runs begins, and where the last ends: int64 [n + 1]."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
