"""Small datasets for the tests of the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_samples import EVERY_FIELD, sample

from zerocopy_data.format.writer import DatasetWriter


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows with every field; small row groups and shards, so that several of both exist."""

    def make(rows: int = 40, name: str = "data", **options: Any) -> Path:
        options = {"row_group_size": 6_000, "shard_size": 24_000, **options}
        with DatasetWriter(tmp_path / name, EVERY_FIELD, **options) as writer:
            for number in range(rows):
                writer.write(sample(number))
        return tmp_path / name

    return make
