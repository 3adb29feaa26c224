"""Damaged and hostile shards: always an error of ours, never a crash, and `verify_dataset` finds them all."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from format_samples import EVERY_FIELD, jpeg, sample

import zerocopy_data as zcd
from zerocopy_data import _native
from zerocopy_data.errors import BadSampleError, ShardDamagedError
from zerocopy_data.format.columns import arrow_schema, image_array, text_arrays
from zerocopy_data.format.fields import Image, Scalar, Text
from zerocopy_data.format.manifest import Manifest, ShardEntry, read_manifest, write_manifest
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.shard_writer import ShardWriter
from zerocopy_data.format.verify import verify_dataset
from zerocopy_data.format.writer import DatasetWriter
from zerocopy_data.loader.samples import plain_value


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def place_of(folder: Path, needle: bytes) -> int:
    data = (folder / "shard-00000.arrow").read_bytes()
    assert data.count(needle) == 1
    return data.index(needle)


def test_a_sound_dataset_has_no_problems(make_dataset: Callable[..., Path]) -> None:
    reader = DatasetReader(make_dataset(40))
    seen: list[tuple[int, int, int, int]] = []
    assert verify_dataset(reader, progress=lambda *state: seen.append(state)) == []
    assert seen[-1][0] == seen[-1][1] == 40
    assert verify_dataset(reader, quick=True) == []


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_shard_cut_short_is_named_with_both_sizes(make_dataset: Callable[..., Path], keep: int) -> None:
    folder = make_dataset(5)
    path = folder / "shard-00000.arrow"
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    with pytest.raises(ShardDamagedError, match=rf"manifest says {len(whole)}") as caught:
        DatasetReader(folder).shard(0)
    assert "shard-00000.arrow" in str(caught.value)
    (problem,) = verify_dataset(DatasetReader(folder))
    assert problem.shard == "shard-00000.arrow"


def test_a_missing_shard_is_named_and_the_others_still_serve(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(40)
    (folder / "shard-00000.arrow").unlink()
    reader = DatasetReader(folder)
    with pytest.raises(ShardDamagedError, match="missing"):
        reader.value("key", 0)
    assert reader.value("key", 39) == "é39"
    assert [problem.shard for problem in verify_dataset(reader)] == ["shard-00000.arrow"]


def test_a_flipped_bit_in_an_image_names_row_and_key(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(5)
    place = place_of(folder, sample(3)["image"])
    flip(folder / "shard-00000.arrow", place + 300, 3)
    problems = verify_dataset(DatasetReader(folder))
    rows = [problem for problem in problems if problem.row is not None]
    assert [(problem.row, problem.key) for problem in rows] == [(3, "é3")]
    assert "checksum" in rows[0].reason
    assert any("hash" in problem.reason for problem in problems)


def value_place(folder: Path, name: str, row: int) -> int:
    """Where in the first shard's file a value lies."""
    shard = DatasetReader(folder).shard(0)
    group, local = shard.locate(row)
    data = np.frombuffer(shard.chunks(name)[group].slice(local), np.uint8)
    return int(data.ctypes.data) - shard._address


@pytest.mark.parametrize("name", EVERY_FIELD)
def test_a_flipped_bit_in_any_field_names_row_and_key(make_dataset: Callable[..., Path], name: str) -> None:
    folder = make_dataset(5)
    row = 3
    flip(folder / "shard-00000.arrow", value_place(folder, name, row))
    reader = DatasetReader(folder)
    rows = [problem for problem in verify_dataset(reader) if problem.row is not None]
    assert [problem.row for problem in rows] == [row]
    assert f"field {name!r}: checksum mismatch" in rows[0].reason
    assert name == "key" or rows[0].key == "é3"
    assert "checksum" in str(reader.checksum_problem(name, row))
    assert reader.checksum_problem(name, row - 1) is None


def test_a_flipped_bit_in_the_shape_of_a_ragged_tensor_is_found(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(5)
    flip(folder / "shard-00000.arrow", value_place(folder, "ragged.shape", 3))
    rows = [problem for problem in verify_dataset(DatasetReader(folder)) if problem.row is not None]
    assert [problem.row for problem in rows] == [3]


def test_a_flipped_bit_in_a_label_is_a_bad_sample(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    with DatasetWriter(folder, {"label": Scalar(), "key": Text()}) as writer:
        writer.write_columns({"label": np.arange(5), "key": [f"k{row}" for row in range(5)]})
    flip(folder / "shard-00000.arrow", value_place(folder, "label", 3), 6)
    with pytest.raises(BadSampleError, match="checksum mismatch") as caught:
        plain_value(DatasetReader(folder), "label", 3, verify=True)
    assert (caught.value.row, caught.value.key) == (3, "k3")
    assert plain_value(DatasetReader(folder), "label", 2, verify=True) == 2
    dataset = zcd.open(folder)
    assert dataset[2] == {"label": 2, "key": "k2"}
    with pytest.raises(BadSampleError, match="row 3"):
        dataset[3]


def test_quick_finds_the_shard_by_its_hash(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(5)
    flip(folder / "shard-00000.arrow", place_of(folder, sample(3)["image"]) + 300)
    (problem,) = verify_dataset(DatasetReader(folder), quick=True)
    assert problem.row is None
    assert "hash" in problem.reason


def test_an_image_that_never_decoded_is_found_behind_a_right_checksum(tmp_path: Path) -> None:
    """As if its pixels had been bad already when it was packed: the probe then saw only its header."""
    fields = {"image": Image(), "key": Text()}
    images = [jpeg(0), b"\xff\xd8 but no JPEG \xff\xd9"]
    offsets = np.cumsum([0, *map(len, images)]).astype(np.int32)
    numbers = [pa.array([20, 20], pa.int32()), pa.array([10, 10], pa.int32())]
    checksums = pa.array([_native.crc32c(image) for image in images], pa.uint32())
    columns = [image_array(b"".join(images), offsets), *numbers, checksums, *text_arrays(["good", "broken"])]
    (tmp_path / "d").mkdir()
    with ShardWriter(tmp_path / "d", "shard-00000.arrow", arrow_schema(fields)) as writer:
        writer.write(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(fields)))
        entry = writer.finish()
    write_manifest(tmp_path / "d", Manifest(fields, (entry,)))
    problems = verify_dataset(DatasetReader(tmp_path / "d"))
    assert [(problem.row, problem.key) for problem in problems] == [(1, "broken")]


READ_EVERYTHING = """
import sys
from zerocopy_data.errors import ZcdError
from zerocopy_data.format.reader import DatasetReader
from zerocopy_data.format.shard_writer import ShardWriter
from zerocopy_data.format.verify import verify_dataset
path, size = sys.argv[1], int(sys.argv[2])
shard = path + "/shard-00000.arrow"
missed = []
for line in sys.stdin:
    position, bit = map(int, line.split())
    with open(shard, "r+b") as file:
        file.seek(position); byte = file.read(1)[0]
        file.seek(position); file.write(bytes([byte ^ (1 << bit)]))
    reader = DatasetReader(path)
    for name in reader.fields:
        for row in range(reader.num_rows):
            try:
                value = reader.value(name, row)
                bytes(value) if isinstance(value, memoryview) else repr(value)
            except ZcdError:
                pass
    if not verify_dataset(DatasetReader(path), threads=1):
        missed.append((position, bit))
    with open(shard, "r+b") as file:
        file.seek(position); file.write(bytes([byte]))
assert not missed, missed
print("survived")
"""


def test_any_flipped_bit_is_reported_and_none_crashes(make_dataset: Callable[..., Path]) -> None:
    """Header, schema, batch metadata, offsets, payload, footer: in a process of its own, should it crash."""
    folder = make_dataset(4, row_group_size=1 << 20, shard_size=1 << 20)
    size = (folder / "shard-00000.arrow").stat().st_size
    rng = random.Random(0)
    places = [rng.randrange(size) for _ in range(150)]
    places += [size - 1 - rng.randrange(4000) for _ in range(150)]  # the footer, which steers the rest
    text = "".join(f"{place} {rng.randrange(8)}\n" for place in places)
    result = subprocess.run(
        [sys.executable, "-c", READ_EVERYTHING, str(folder), str(size)],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip() == "survived"


@pytest.mark.parametrize(
    "offsets", [[0, 2, 2**31 - 1], [0, -5, 4], [-4, 0, 4], [0, 4, 2], [0, 3, 5], [3, 2, 4]], ids=str
)
def test_hostile_offsets_are_refused_before_any_view(tmp_path: Path, offsets: list[int]) -> None:
    """A shard whose sizes and hashes are right, made by somebody who wants us to read beyond it."""
    with DatasetWriter(tmp_path / "d", {"key": Text(), "label": Scalar()}) as writer:
        for label in range(2):
            writer.write({"key": "ab", "label": label})
    path = tmp_path / "d" / "shard-00000.arrow"
    data = path.read_bytes()
    written = np.array([0, 2, 4], np.int32).tobytes() + b"\0" * 4
    assert data.count(written) == 1
    data = data.replace(written, np.array(offsets, np.int32).tobytes() + b"\0" * 4)
    path.write_bytes(data)
    manifest = read_manifest(tmp_path / "d")
    entry = ShardEntry(path.name, 2, len(data), xxhash.xxh3_128_hexdigest(data))
    write_manifest(tmp_path / "d", Manifest(manifest.fields, (entry,)))
    reader = DatasetReader(tmp_path / "d")
    with pytest.raises(ShardDamagedError, match="'key'"):
        reader.value("key", 0)
    assert reader.value("label", 1) == 1
    assert any("'key'" in problem.reason for problem in verify_dataset(reader))


def test_a_shard_with_other_columns_is_refused(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(3)
    path = folder / "shard-00000.arrow"
    table = pa.table({"x": [1, 2, 3]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    entry = ShardEntry(path.name, 3, path.stat().st_size, "0" * 32)
    write_manifest(folder, Manifest(EVERY_FIELD, (entry,)))
    with pytest.raises(ShardDamagedError, match="columns"):
        DatasetReader(folder).shard(0)


def test_a_shard_with_another_number_of_rows_is_refused(make_dataset: Callable[..., Path]) -> None:
    folder = make_dataset(3)
    (entry,) = read_manifest(folder).shards
    lying = ShardEntry(entry.file, 4, entry.bytes, entry.xxh3_128)
    write_manifest(folder, Manifest(EVERY_FIELD, (lying,)))
    with pytest.raises(ShardDamagedError, match="3 rows, the manifest says 4"):
        DatasetReader(folder).shard(0)


def test_a_shard_with_nulls_is_refused(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "d", {"label": Scalar()}) as writer:
        writer.write({"label": 1})
    path = tmp_path / "d" / "shard-00000.arrow"
    schema = pa.ipc.open_file(path).schema
    with pa.ipc.new_file(path, schema) as file:
        file.write_batch(pa.record_batch([pa.array([None], pa.int64()), pa.array([0], pa.uint32())], schema=schema))
    entry = ShardEntry(path.name, 1, path.stat().st_size, "0" * 32)
    write_manifest(tmp_path / "d", Manifest({"label": Scalar()}, (entry,)))
    with pytest.raises(ShardDamagedError, match="empty values"):
        DatasetReader(tmp_path / "d").value("label", 0)
