"""Checks a whole dataset: sizes, hashes, structure, checksums, and that every image decodes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import xxhash

from .. import _native
from ..errors import ShardDamagedError
from .fields import Field, Image, Json, Scalar, Tensor, Text
from .integrity import utf8_problem
from .probe import BadImageError, decoded_size
from .reader import DatasetReader
from .shard import Shard

_HASH_STRETCH = 4 << 20
_ROWS_PER_TASK = 64

# Called with rows done, rows in all, bytes hashed or decoded, bytes in all.
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True)
class Problem:
    """Something that is not as it was written. `row` counts within the dataset, None is the whole shard."""

    shard: str
    row: int | None
    key: str | None
    reason: str

    def __str__(self) -> str:
        place = [f"shard {self.shard}"]
        if self.row is not None:
            place.append(f"row {self.row}")
        if self.key is not None:
            place.append(f"key {self.key!r}")
        return f"{', '.join(place)}: {self.reason}"


def verify_dataset(
    reader: DatasetReader,
    *,
    quick: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Problem]:
    """Finds everything in a dataset that is not what was written. Never raises for damage.

    Args:
        quick: Only sizes and hashes of the shards.
        threads: Values checked at the same time (hashing and decoding run without the GIL).

    Returns:
        The problems in row order, empty when all is sound.
    """
    tally = _Tally(reader, quick, progress)
    problems: list[Problem] = []
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), "zcd-verify") as pool:
        try:
            for index in range(reader.num_shards):
                problems += _verify_shard(reader, index, quick, pool, tally)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return problems


class _Tally:
    """Counts what is done; called from all threads."""

    def __init__(self, reader: DatasetReader, quick: bool, progress: Progress | None) -> None:
        # A full check passes over the bytes twice: once to hash, once value by value.
        self._total = reader.manifest.bytes * (1 if quick else 2)
        self._total_rows = reader.num_rows
        self._progress = progress
        self._rows = self._bytes = 0
        self._lock = threading.Lock()

    def add(self, rows: int, size: int) -> None:
        with self._lock:
            self._rows += rows
            self._bytes += size
            if self._progress is not None:
                self._progress(self._rows, self._total_rows, self._bytes, self._total)


def _verify_shard(
    reader: DatasetReader, index: int, quick: bool, pool: ThreadPoolExecutor, tally: _Tally
) -> list[Problem]:
    entry = reader.manifest.shards[index]
    path = reader.path / entry.file
    try:
        size = path.stat().st_size
    except OSError as error:
        return [Problem(entry.file, None, None, f"it cannot be opened ({error.strerror})")]
    if size != entry.bytes:
        return [Problem(entry.file, None, None, f"it has {size} bytes, the manifest says {entry.bytes}")]
    hashed = pool.submit(_hash, str(path), tally)
    problems: list[Problem] = []
    if not quick:
        try:
            shard = reader.shard(index)
            problems += _verify_values(reader, index, shard, pool, tally)
        except ShardDamagedError as error:
            problems.append(Problem(entry.file, None, None, error.reason))
    try:
        digest = hashed.result()
    except OSError as error:
        return [*problems, Problem(entry.file, None, None, f"it cannot be read ({error.strerror})")]
    if quick:
        tally.add(entry.rows, 0)
    if digest != entry.xxh3_128:
        reason = f"its hash is {digest}, the manifest says {entry.xxh3_128}"
        problems.insert(0, Problem(entry.file, None, None, reason))
    return problems


def _hash(path: str, tally: _Tally) -> str:
    hasher = xxhash.xxh3_128()
    buffer = bytearray(_HASH_STRETCH)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            hasher.update(memoryview(buffer)[:count])
            tally.add(0, count)
    return hasher.hexdigest()


def _verify_values(
    reader: DatasetReader, index: int, shard: Shard, pool: ThreadPoolExecutor, tally: _Tally
) -> Iterator[Problem]:
    """Checks every value of a shard, a few rows a task, in row order."""
    sound = {}
    for name, field in shard.fields.items():
        try:
            for column in shard.columns:
                if column == name or column.startswith(f"{name}."):
                    shard.chunks(column)
            sound[name] = field
        except ShardDamagedError as error:
            yield Problem(shard.path.name, None, None, error.reason)
    first_row = int(reader.shard_starts[index])

    def check(rows: range) -> list[Problem]:
        problems, size = [], 0
        for row in rows:
            for name, field in sound.items():
                group, local = shard.locate(row)
                data = shard.chunks(name)[group].slice(local)
                size += len(data)
                reason = _value_problem(shard, name, field, row, data)
                if reason is not None:
                    key = _key(shard, row) if isinstance(sound.get("key"), Text) else None
                    problems.append(Problem(shard.path.name, first_row + row, key, f"field {name!r}: {reason}"))
        tally.add(len(rows), size)
        return problems

    tasks = [
        range(start, min(start + _ROWS_PER_TASK, shard.num_rows)) for start in range(0, shard.num_rows, _ROWS_PER_TASK)
    ]
    for found in pool.map(check, tasks):
        yield from found


def _key(shard: Shard, row: int) -> str | None:
    try:
        return str(shard.value("key", row))
    except ShardDamagedError:
        return None


def _value_problem(shard: Shard, name: str, field: Field, row: int, data: memoryview) -> str | None:
    mismatch = shard.checksum_problem(name, row)
    if mismatch is not None:
        return mismatch
    match field:
        case Image(encoding="encoded"):
            size = (shard.number(f"{name}.width", row), shard.number(f"{name}.height", row))
            return _image_problem(data, size)
        case Scalar(classes=classes) if classes is not None:
            label = int(shard.value(name, row))
            if not 0 <= label < len(classes):
                return f"class {label} of {len(classes)} classes"
        case Text():
            return utf8_problem(data)
        case Json() | Tensor(ragged=True):
            try:
                shard.value(name, row)
            except ShardDamagedError as error:
                return error.reason
        case _:
            return None
    return None


def _image_problem(data: Any, size: tuple[int, int]) -> str | None:
    try:
        pixels = _native.jpeg_decode(data)
        actual = (pixels.shape[1], pixels.shape[0])
    except _native.UnsupportedImage:
        try:
            actual = decoded_size(data)
        except BadImageError as problem:
            return str(problem)
    except _native.ImageError as error:
        return f"it cannot be decoded: {error}"
    if actual != size:
        return f"it is {actual[0]} x {actual[1]}, {size[0]} x {size[1]} was written"
    return None
