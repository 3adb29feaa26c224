"""What is written is read back, through row groups and shards, by rows or in columns."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from format_samples import EVERY_FIELD, jpeg, sample

from zerocopy_data import _native
from zerocopy_data.errors import BadSampleError, ConfigError, DatasetChangedError
from zerocopy_data.format.fields import Image, Scalar, Tensor, Text, Tokens
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.writer import DatasetWriter


def assert_same(value: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray | np.generic):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        np.testing.assert_array_equal(value, expected)
    elif isinstance(expected, bytes):
        assert bytes(value) == expected
    else:
        assert value == expected


def test_every_field_comes_back_as_it_was_written(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(40))
    assert reader.num_rows == 40
    assert reader.num_shards > 1
    assert len(reader.shard(0).row_group_starts) > 2
    for row in range(40):
        for name, expected in sample(row).items():
            assert_same(reader.value(name, row), expected)


def test_image_companions_hold_size_and_checksum(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(7))
    for row in range(7):
        shard, local = reader.locate(row)
        numbers = [reader.shard(shard).number(f"image.{name}", local) for name in ("width", "height", "crc32c")]
        assert numbers == [20 + row % 5, 10, _native.crc32c(jpeg(row, 20 + row % 5, 10))]


def test_columns_and_rows_give_the_same_bytes(tmp_path: Path) -> None:
    fields = {"label": Scalar(), "x": Tensor("float32", (16,)), "key": Text(), "tokens": Tokens()}
    count = 3000
    x = np.random.default_rng(0).random((count, 16), np.float32)
    keys = [f"k{row}" for row in range(count)]
    tokens = [np.arange(row % 7, dtype=np.int32) for row in range(count)]
    options = {"row_group_size": 20_000, "shard_size": 90_000}
    with DatasetWriter(tmp_path / "rows", fields, **options) as writer:
        for row in range(count):
            writer.write({"label": row, "x": x[row], "key": keys[row], "tokens": tokens[row]})
    with DatasetWriter(tmp_path / "columns", fields, **options) as writer:
        for part in (slice(0, 10), slice(10, 2000), slice(2000, None)):
            writer.write_columns(
                {"label": np.arange(count)[part], "x": x[part], "key": keys[part], "tokens": tokens[part]}
            )
    files = sorted(path.name for path in (tmp_path / "rows").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "columns").iterdir())
    assert len(files) > 3
    for name in files:
        assert (tmp_path / "rows" / name).read_bytes() == (tmp_path / "columns" / name).read_bytes()


def test_row_groups_and_shards_keep_to_their_sizes(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "d", {"x": Tensor("uint8", (1000,))}, 50_000, 10_000) as writer:
        writer.write_columns({"x": np.zeros((123, 1000), np.uint8)})
    reader = DatasetReader(tmp_path / "d")
    for entry, index in zip(reader.manifest.shards, range(reader.num_shards), strict=True):
        assert entry.bytes < 60_000
        groups = np.diff(reader.shard(index).row_group_starts)
        assert groups.max() <= 10


def test_plain_pyarrow_reads_a_shard(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(5)
    table = pa.ipc.open_file(folder / "shard-00000.arrow").read_all()
    assert table["key"].to_pylist()[:3] == ["é0", "é1", "é2"]
    assert table["image"].to_pylist()[0] == {"bytes": jpeg(0, 20, 10), "path": None}
    assert table["pixels"].type.shape == [4, 5, 3]


def test_values_are_views_that_may_be_written_without_touching_the_file(
    make_dataset: Callable[..., Path],
) -> None:
    folder = make_dataset(3)
    before = (folder / "shard-00000.arrow").read_bytes()
    reader = DatasetReader(folder)
    pixels = reader.value("pixels", 1)
    pixels[:] = 77
    assert reader.value("pixels", 1).max() == 77, "two looks at a row see the same memory"
    assert (folder / "shard-00000.arrow").read_bytes() == before
    with pytest.raises(TypeError):
        reader.value("image", 1)[0] = 0


def test_a_view_outlives_its_reader(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(3))
    image, pixels = reader.value("image", 2), reader.value("pixels", 2)
    del reader
    assert bytes(image) == sample(2)["image"]
    np.testing.assert_array_equal(pixels, sample(2)["pixels"])


def test_a_reader_pickles_small_and_notices_another_dataset(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(30)
    reader = DatasetReader(folder)
    reader.value("key", 29)
    message = pickle.dumps(reader)
    assert len(message) < 400
    assert pickle.loads(message).value("key", 29) == "é29"
    make_dataset(31, overwrite=True)
    with pytest.raises(DatasetChangedError, match="packed again"):
        pickle.loads(message)


def test_threads_may_share_a_reader(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(40))
    failures: list[BaseException] = []

    def walk() -> None:
        try:
            for row in range(40):
                assert reader.value("key", row) == f"é{row}"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=walk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_rows_outside_are_an_index_error(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(3))
    for row in (-1, 3, 10**9):
        with pytest.raises(IndexError):
            reader.locate(row)


def test_an_empty_dataset_has_no_rows(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "d", {"x": Scalar()}) as writer:
        writer.write_columns({"x": np.zeros(0, np.int64)})
    assert DatasetReader(tmp_path / "d").num_rows == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("image", b"", "empty"),
        ("image", b"no image", "no image"),
        ("image", jpeg(0)[:200], "image"),
        ("pixels", np.zeros((5, 4, 3), np.uint8), "shape"),
        ("vector", np.zeros(6, np.float32), "shape"),
        ("ragged", np.zeros((2, 3), np.int16), "shape"),
        ("label", 3, "class 3 of 3"),
        ("label", -1, "class -1"),
        ("label", 1.5, "fit"),
        ("label", None, "numbers"),
        ("label", "ant", "numbers"),
        ("key", b"bytes", "str expected"),
        ("blob", "text", "bytes expected"),
        ("tokens", [70_000], "fit"),
        ("tokens", [-1], "fit"),
        ("notes", {1, 2}, "JSON"),
    ],
)
def test_a_value_that_does_not_fit_names_field_and_row(tmp_path: Path, name: str, value: object, message: str) -> None:
    writer = DatasetWriter(tmp_path / "d", EVERY_FIELD)
    writer.write(sample(0))
    writer.write({**sample(1), name: value})
    with pytest.raises(BadSampleError, match=message) as caught:
        writer.close()
    assert f"field '{name}'" in str(caught.value)
    assert caught.value.row in (1, None)
    assert not (tmp_path / "d" / "dataset.json").exists()


def test_a_row_with_other_fields_is_refused(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "d", {"a": Scalar(), "b": Scalar()}) as writer:
        with pytest.raises(ConfigError, match="missing: \\['b'\\]"):
            writer.write({"a": 1})
        with pytest.raises(ConfigError, match="not a field: \\['c'\\]"):
            writer.write({"a": 1, "b": 2, "c": 3})
        with pytest.raises(ConfigError, match="one length"):
            writer.write_columns({"a": [1], "b": [1, 2]})
        writer.write({"a": 1, "b": 2})
    assert DatasetReader(tmp_path / "d").num_rows == 1


def test_a_raw_image_checksum_covers_its_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8)
    with DatasetWriter(tmp_path / "d", {"image": Image("raw", (4, 5, 3))}) as writer:
        writer.write_columns({"image": pixels})
    shard = DatasetReader(tmp_path / "d").shard(0)
    for row in range(3):
        assert shard.number("image.crc32c", row) == _native.crc32c(pixels[row].tobytes())
