"""Lengths of stored values, read without the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy_data as zcd

ROWS = 300


@pytest.fixture
def texts(tmp_path: Path) -> zcd.ShardDataset:
    """Tokens, a ragged tensor, text and bytes of row i, in several shards; a number of fixed size."""
    fields = {
        "tokens": zcd.Tokens("uint16"),
        "ragged": zcd.Tensor("float32", (None, 3)),
        "text": zcd.Text(),
        "bytes": zcd.Bytes(),
        "number": zcd.Scalar("int64"),
    }
    with zcd.DatasetWriter(tmp_path / "texts", fields, shard_size=8192, row_group_size=2048) as writer:
        for row in range(ROWS):
            writer.write(sample(row))
    return zcd.open(tmp_path / "texts")


def sample(row: int) -> dict[str, Any]:
    length = row * 37 % 50
    return {
        "tokens": np.arange(length, dtype=np.uint16),
        "ragged": np.zeros((length % 7, 3), np.float32),
        "text": "é" * (length % 11),
        "bytes": b"x" * (length % 13),
        "number": row,
    }


EXPECTED = {
    "tokens": lambda row: row * 37 % 50,
    "ragged": lambda row: row * 37 % 50 % 7 * 3,
    "text": lambda row: row * 37 % 50 % 11 * 2,
    "bytes": lambda row: row * 37 % 50 % 13,
}


@pytest.mark.parametrize("column", EXPECTED)
def test_lengths_are_those_of_the_values_in_the_datasets_order(texts: zcd.ShardDataset, column: str) -> None:
    assert texts.reader.num_shards > 1
    found = zcd.lengths(texts, column)
    assert found.dtype == np.int64
    assert found.tolist() == [EXPECTED[column](row) for row in range(ROWS)]
    rows = [250, 3, 3, 71]
    assert zcd.lengths(texts.subset(rows).select(["number"]), column).tolist() == [
        EXPECTED[column](row) for row in rows
    ]
    assert zcd.lengths(texts.subset(range(0, ROWS, 7)), column).tolist() == found[::7].tolist()


def test_columns_of_one_size_and_unknown_ones_are_refused(texts: zcd.ShardDataset) -> None:
    with pytest.raises(zcd.ConfigError, match="all of one size"):
        zcd.lengths(texts, "number")
    with pytest.raises(zcd.ConfigError, match=r"no column 'token'.*tokens"):
        zcd.lengths(texts, "token")
