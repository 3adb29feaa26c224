"""Hugging Face `datasets` reads a shard and shows images as images, labels by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from format_samples import sample

from zerocopy_data.format.fields import Bytes, Image, Json, Scalar, Tensor, Text, Tokens
from zerocopy_data.format.writer import DatasetWriter

FIELDS = {
    "image": Image(),
    "label": Scalar("int64", ("ant", "bee", "cat")),
    "ragged": Tensor("int16", (None, 2)),
    "key": Text(),
    "blob": Bytes(),
    "tokens": Tokens("uint16"),
    "notes": Json(),
}


def test_datasets_shows_images_and_class_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    with DatasetWriter(tmp_path / "d", FIELDS) as writer:
        for number in range(5):
            row = sample(number)
            writer.write({name: row[name] for name in FIELDS})
    shards = [str(path) for path in sorted((tmp_path / "d").glob("*.arrow"))]
    loaded = datasets.load_dataset("arrow", data_files=shards, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.features["label"].names == ["ant", "bee", "cat"]
    assert loaded[3]["image"].size == (23, 10)
    assert loaded[4]["key"] == "é4"
    assert loaded[4]["tokens"] == [0, 1, 2, 3]


def test_the_features_cover_every_column(tmp_path: Path) -> None:
    """`datasets` ignores all features of a file when one of its columns is missing among them."""
    from format_samples import EVERY_FIELD

    from zerocopy_data.format.columns import arrow_schema
    from zerocopy_data.format.huggingface import features_of

    assert list(features_of(EVERY_FIELD)) == arrow_schema(EVERY_FIELD).names
