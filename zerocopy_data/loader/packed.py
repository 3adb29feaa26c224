"""Packed rows as the tensors that a model with variable-length attention takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ..errors import ConfigError
from ..order.packing import PackedRows, pack_rows

_LARGEST = 2**31 - 1  # cu_seqlens is int32 by the kernels' convention


class Documents(Protocol):
    """Token arrays by number: a list of tensors, or anything with `__getitem__` and a length."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class PackedSequences(NamedTuple):
    """Rows of documents. Flattened, tokens and cu_seqlens are what flash_attn_varlen_func takes.

    Attributes:
        tokens: [rows, row_length].
        cu_seqlens: int32 [segments + 1], where each segment of tokens.flatten() begins, and the end. What is padded of
            a row is a segment of its own, so segments cover all tokens and never reach into another row.
        max_seqlen: Tokens of the longest segment, one of padding included, for which a kernel must have room too.
        position_ids: int64 [rows, row_length], from 0 within each segment; 0 in padding.
        segment_ids: int32 [rows, row_length], from 1 within each row; 0 in padding.
    """

    tokens: torch.Tensor
    cu_seqlens: torch.Tensor
    max_seqlen: int
    position_ids: torch.Tensor
    segment_ids: torch.Tensor


def pack_sequences(
    sequences: Documents,
    packing: PackedRows | int,
    *,
    pad_value: float = 0,
    dtype: torch.dtype = torch.int64,
    method: str = "best_fit",
    long: str = "error",
    seed: int = 0,
    epoch: int = 0,
) -> PackedSequences:
    """Puts documents into rows of one length.

    `zcd.pack_sequences(documents, 2048)` packs these documents. For a dataset, decide once an epoch from the lengths
    alone, and make a batch at a time, which asks only for its own documents:

        packing = zcd.pack_rows(lengths, 2048, seed=0, epoch=epoch)
        batch = zcd.pack_sequences(documents, packing.take(range(8)))

    Args:
        sequences: 1-D tensors (on the CPU) or arrays of tokens, by document; or a dataset that has them as its only
            column: zcd.open(…, columns=["tokens"]).
        packing: The rows, from `pack_rows` over the lengths of these sequences; or a row's length, to pack all of them.
        pad_value: What fills the rows' ends.
        dtype: Of the tokens returned, whatever they are stored as.
        method: Where `packing` is a length: see `pack_rows`. So are the following.
        long: What becomes of documents that are longer than a row.
        seed: Any integer.
        epoch: From 0.

    Returns:
        The tensors, in memory of their own.

    Raises:
        ConfigError: an argument makes no sense, a document is longer than a row and nothing is said of it, or one is
            shorter than the packing says, or has tokens that `dtype` can't hold.
    """
    if not isinstance(packing, PackedRows):
        lengths = np.fromiter((len(_tokens(sequences[i], i)) for i in range(len(sequences))), np.int64, len(sequences))
        packing = pack_rows(lengths, packing, method=method, long=long, seed=seed, epoch=epoch)
    elif (method, long, seed, epoch) != ("best_fit", "error", 0, 0):
        raise ConfigError("method, long, seed and epoch have been settled by the packing: give them to pack_rows().")
    rows, width = len(packing), packing.row_length
    if rows * width > _LARGEST:
        raise ConfigError(
            f"{rows} rows of {width} tokens: cu_seqlens counts to {_LARGEST}. Make fewer rows at a time, with "
            "pack_rows(…).take(rows)."
        )
    row_of = np.repeat(np.arange(rows, dtype=np.int64), np.diff(packing.starts))
    before = np.cumsum(packing.lengths) - packing.lengths
    fills = np.bincount(row_of, packing.lengths, rows).astype(np.int64)
    starts = row_of * width + before - (np.cumsum(fills) - fills)[row_of]
    tokens = torch.full((rows, width), pad_value, dtype=dtype)
    _write(tokens.view(-1), sequences, packing, starts)
    padded = np.flatnonzero(fills < width)
    ids = np.arange(1, len(starts) + 1) - packing.starts[row_of]
    begins = np.concatenate([starts, padded * width + fills[padded]])
    order = np.argsort(begins)
    ends = np.append(begins[order], rows * width)
    sizes = np.diff(ends)
    segments = np.repeat(np.concatenate([ids, np.zeros_like(padded)])[order], sizes)
    positions = np.where(segments > 0, np.arange(rows * width) - np.repeat(ends[:-1], sizes), 0)
    return PackedSequences(
        tokens,
        torch.from_numpy(ends.astype(np.int32)),
        int(sizes.max(initial=0)),
        torch.from_numpy(positions.reshape(rows, width)),
        torch.from_numpy(segments.astype(np.int32).reshape(rows, width)),
    )


def _write(out: torch.Tensor, sequences: Documents, packing: PackedRows, starts: np.typing.NDArray[np.int64]) -> None:
    """Copies each piece to its start in the flattened rows."""
    pieces = zip(
        starts.tolist(), packing.documents.tolist(), packing.begins.tolist(), packing.lengths.tolist(), strict=True
    )
    for start, document, begin, length in pieces:
        piece = as_tensor(_tokens(sequences[document], document)[begin : begin + length])
        if piece.shape != (length,):
            raise ConfigError(
                f"document {document} has no tokens {begin} … {begin + length - 1} in one dimension: pack_rows() was "
                "given other lengths. Give it those of these sequences."
            )
        if not holds(out.dtype, piece):
            raise ConfigError(f"document {document} has tokens beyond {out.dtype}: give dtype= one that holds them.")
        out[start : start + length] = piece


def _tokens(sample: Any, document: int) -> Any:
    """The tokens of a sample, where a dataset has them as its only column."""
    if isinstance(sample, Mapping):
        sample = tuple(sample.values())
    if not isinstance(sample, tuple):
        return sample
    if len(sample) != 1:
        raise ConfigError(f"document {document} is a sample of {len(sample)} columns: ds.select() that of the tokens.")
    return sample[0]


def holds(dtype: torch.dtype, values: torch.Tensor) -> bool:
    """Whether integers of a dtype can have these values: of a wider dtype they are looked at."""
    if dtype.is_floating_point or values.dtype.is_floating_point or not values.numel():
        return True
    there, here = torch.iinfo(dtype), torch.iinfo(values.dtype)
    if there.min <= here.min and here.max <= there.max:
        return True
    low, high = torch.aminmax(values.to(torch.int64))
    return there.min <= int(low) and int(high) <= there.max


def as_tensor(values: Any) -> torch.Tensor:
    """A tensor, or an array as one: over its memory where torch takes that, which is contiguous, native, writable."""
    if isinstance(values, torch.Tensor):
        return values
    array = np.ascontiguousarray(values)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array if array.flags.writeable else array.copy())
