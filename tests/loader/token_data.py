"""Token streams for the tests of windows, and what plain slicing makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import zerocopy_data as zcd

Pair = tuple[list[int], list[int]]


def tokens_of(count: int, dtype: str = "uint16", seed: int = 0) -> npt.NDArray[Any]:
    """Random tokens of the whole range of a type."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, count, dtype, endpoint=True)


def write_documents(path: Path, lengths: list[int], dtype: str = "uint16") -> list[npt.NDArray[Any]]:
    """A dataset of documents in many row groups and shards; returns the documents."""
    tokens = tokens_of(sum(lengths), dtype)
    documents = np.split(tokens, np.cumsum(lengths)[:-1])
    with zcd.DatasetWriter(path, {"tokens": zcd.Tokens(dtype)}, shard_size=6000, row_group_size=2000) as writer:
        for document in documents:
            writer.write({"tokens": document})
    return documents


def pairs(document: npt.NDArray[Any], length: int, stride: int) -> list[Pair]:
    """All windows of one document with their targets, by slicing."""
    return [
        (document[at : at + length].tolist(), document[at + 1 : at + 1 + length].tolist())
        for at in range(0, len(document) - length, stride)
    ]


def as_pairs(batch: Any) -> list[Pair]:
    """A batch, or the sample of an index, as lists."""
    x, y = batch.values() if isinstance(batch, dict) else batch
    return [(x.tolist(), y.tolist())] if x.ndim == 1 else list(zip(x.tolist(), y.tolist(), strict=True))
