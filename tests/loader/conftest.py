"""Datasets that the loader's tests share; none of them is written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_data import CROP, FIXED, write_columns, write_photos

import zerocopy_data as zcd

SAMPLE = Path(__file__).parents[3] / "shared" / "imagenet-sample"


@pytest.fixture(scope="session")
def photos_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("loader") / "photos")


@pytest.fixture(scope="session")
def columns_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_columns(tmp_path_factory.mktemp("loader") / "columns")


@pytest.fixture
def photos(photos_path: Path) -> zcd.ShardDataset:
    """57 JPEGs with random operations: image float32 [3, 16, 16], label, number, key."""
    return zcd.open(photos_path, CROP)


@pytest.fixture
def numbers(photos_path: Path) -> zcd.ShardDataset:
    """Only each row's own number, for tests of order."""
    return zcd.open(photos_path, columns=["number"])


@pytest.fixture
def fixed(photos_path: Path) -> zcd.ShardDataset:
    """(image uint8 [3, 8, 8], number) without randomness."""
    return zcd.open(photos_path, FIXED).as_tuple("image", "number")


@pytest.fixture
def imagenet() -> Path:
    if not SAMPLE.is_dir():
        pytest.skip(f"{SAMPLE} is absent: real ImageNet photographs are needed")
    return SAMPLE
