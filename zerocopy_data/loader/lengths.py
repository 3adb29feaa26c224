"""How long each sample is, from what a shard stores about its values rather than from the values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..format.shard import Chunk
from .dataset import ShardDataset


def lengths(dataset: ShardDataset, column: str) -> npt.NDArray[np.int64]:
    """The length of a column's value in each sample, for `BucketBatchSampler` and `pack_rows`.

    Reads the offsets that are stored beside the values, 4 bytes a row; no page of the values is touched.

    Args:
        dataset: Its samples, in its order: of a subset those of the subset.
        column: A column whose values vary in length, whether it is selected or not.

    Returns:
        int64 [samples]: tokens of Tokens, elements of ragged Tensors, bytes of Text (in UTF-8), Json, Bytes and encoded
        images.

    Raises:
        ConfigError: there is no such column, or its values are all of one size.
        ShardDamagedError: a shard is missing or not what was written.
    """
    reader = dataset.reader
    if column not in reader.fields:
        raise ConfigError(f"{reader.path} has no column {column!r}. Its columns: {', '.join(reader.fields)}.")
    parts = [
        _chunk_lengths(chunk, dataset, column)
        for index in range(reader.num_shards)
        for chunk in reader.shard(index).chunks(column)
    ]
    stored = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return stored[np.asarray(dataset.selection.chosen, np.int64)]


def _chunk_lengths(chunk: Chunk, dataset: ShardDataset, column: str) -> npt.NDArray[np.int64]:
    if chunk.offsets is None:
        raise ConfigError(
            f"column {column!r} of {dataset.path} is {dataset.reader.fields[column]}: its values are all of one size."
        )
    offsets = np.frombuffer(chunk.offsets, np.int64 if chunk.large else np.int32, chunk.rows + 1)
    return np.diff(offsets).astype(np.int64)
