"""DatasetWriter: makes a dataset out of samples that a program has, row by row or in columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import BadSampleError, ConfigError, PackError
from .columns import BadValueError, arrow_schema, encode
from .fields import Field, check_fields
from .manifest import Manifest, ShardEntry, write_manifest
from .output import OutputFolder
from .shard_writer import ShardWriter, shard_name

SHARD_SIZE = 256 << 20
ROW_GROUP_SIZE = 32 << 20

# Rows given one by one are encoded together once there are this many, or this many bytes.
_PENDING_ROWS = 4096


class DatasetWriter:
    """Writes a dataset: shards as they fill, the manifest last, when the context ends without an error.

        fields = {"x": zcd.Tensor("float32", (16,)), "label": zcd.Scalar("int64")}
        with zcd.DatasetWriter("numbers.zcd", fields) as w:
            w.write({"x": x, "label": 3})
            w.write_columns({"x": xs, "label": labels})   # many rows at once: much faster

    Until then the folder is an unfinished pack, and says so when opened.

    Args:
        path: Folder to make. It must not exist, or be empty.
        fields: Logical columns by name.
        shard_size: Bytes after which a shard ends.
        row_group_size: Bytes after which a row group ends.
        provenance: Where the rows come from, for `zcd info`; JSON without times or absolute paths.
        overwrite: Replace a dataset or an unfinished pack at `path`.

    Raises:
        OutputExistsError: `path` is taken.
        BadSampleError: a value does not fit its field.
        PackError: the disk refuses.
    """

    def __init__(
        self,
        path: str | Path,
        fields: Mapping[str, Field],
        shard_size: int = SHARD_SIZE,
        row_group_size: int = ROW_GROUP_SIZE,
        provenance: Mapping[str, Any] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        if row_group_size < 1 or shard_size < 1:
            raise ConfigError("shard_size and row_group_size must be at least 1 byte.")
        self.path = Path(path)
        self.fields = check_fields(fields)
        self._schema = arrow_schema(self.fields)
        self._shard_size = shard_size
        self._row_group_size = min(row_group_size, shard_size)
        self._provenance = dict(provenance or {"source": "DatasetWriter"})
        self._entries: list[ShardEntry] = []
        self._rows: list[Mapping[str, Any]] = []
        self._rows_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._batches_bytes = 0
        self._rows_taken = 0
        self._shard: ShardWriter | None = None
        self._output: OutputFolder | None = OutputFolder(self.path, overwrite=overwrite)
        self._output.claim()
        self._failed = False

    def write(self, sample: Mapping[str, Any]) -> None:
        """Adds one row."""
        self._check_names(sample)
        self._rows.append(dict(sample))
        self._rows_bytes += sum(_rough_bytes(value) for value in sample.values())
        if len(self._rows) >= _PENDING_ROWS or self._rows_bytes >= self._row_group_size:
            self._encode_rows()

    def write_columns(self, columns: Mapping[str, Any]) -> None:
        """Adds many rows: for every field an array or a sequence, all of the same length."""
        self._check_names(columns)
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ConfigError(f"write_columns needs columns of one length, not {lengths}.")
        self._encode_rows()
        self._encode(columns, next(iter(lengths.values())))

    def close(self) -> Manifest:
        """Finishes the last shard and writes the manifest. Leaving the context calls it."""
        output = self._open()
        try:
            self._encode_rows()
            self._cut(last=True)
            self._end_shard()
            manifest = Manifest(self.fields, tuple(self._entries), self._provenance)
            try:
                write_manifest(self.path, manifest)
            except OSError as error:
                raise PackError(f"{self.path} could not be finished: {error.strerror or error}.") from error
        except BaseException:
            self._abandon()
            raise
        self._output = None
        output.release(finished=True)
        return manifest

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._output is None:
            return
        if kind is None and not self._failed:
            self.close()
        else:
            self._abandon()

    def _open(self) -> OutputFolder:
        if self._output is None:
            raise PackError(f"the writer of {self.path} is already closed.")
        return self._output

    def _check_names(self, sample: Mapping[str, Any]) -> None:
        self._open()
        if sample.keys() != self.fields.keys():
            missing = [name for name in self.fields if name not in sample]
            extra = [name for name in sample if name not in self.fields]
            raise ConfigError(
                f"a row of {self.path} needs exactly the fields {list(self.fields)}; "
                f"missing: {missing}, not a field: {extra}."
            )

    def _encode_rows(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._rows_bytes = self._rows, [], 0
        self._encode({name: [row[name] for row in rows] for name in self.fields}, len(rows))

    def _encode(self, columns: Mapping[str, Any], count: int) -> None:
        """Encodes rows and writes whole row groups out of what has gathered."""
        arrays: list[pa.Array] = []
        for name, field in self.fields.items():
            try:
                arrays += encode(name, field, columns[name])
            except BadValueError as problem:
                self._failed = True
                row = None if problem.index is None else self._rows_taken + problem.index
                raise BadSampleError(self.path, None, row, None, f"field {name!r}: {problem}") from problem
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._rows_taken += count
        if count:
            self._batches.append(batch)
            self._batches_bytes += int(row_bytes(batch).sum())
        if self._batches_bytes >= self._row_group_size:
            self._cut(last=False)

    def _cut(self, last: bool) -> None:
        """Writes gathered rows as row groups of at most `row_group_size`, keeping the rest unless `last`."""
        if not self._batches:
            return
        batch = join_batches(self._batches)
        sizes = row_bytes(batch)
        ends = np.cumsum(sizes)
        start, done = 0, 0
        while start < len(sizes):
            stop = max(start + 1, int(np.searchsorted(ends, done + self._row_group_size, "right")))
            if stop == len(sizes) and not last:
                break
            # Joined with no rows, a slice is copied: Arrow writes a slice's text padded with what follows
            # it, and the file would depend on how its rows were handed in.
            group = join_batches([batch.slice(start, stop - start), batch.slice(0, 0)])
            self._write_group(group, int(ends[stop - 1] - done))
            start, done = stop, int(ends[stop - 1])
        self._batches = [batch.slice(start)] if start < len(sizes) else []
        self._batches_bytes = int(sizes[start:].sum())

    def _write_group(self, group: pa.RecordBatch, size: int) -> None:
        if self._shard is not None and self._shard.bytes + size > self._shard_size:
            self._end_shard()
        if self._shard is None:
            self._shard = ShardWriter(self.path, shard_name(len(self._entries)), self._schema)
        try:
            self._shard.write(group)
        except BaseException:
            self._failed = True
            raise

    def _end_shard(self) -> None:
        if self._shard is not None:
            self._entries.append(self._shard.finish())
            self._shard = None

    def _abandon(self) -> None:
        if self._shard is not None:
            self._shard.abandon()
            self._shard = None
        if self._output is not None:
            self._output.release(finished=False)
            self._output = None


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Payload bytes of each row of a record batch, all columns together."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        kind = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
        if pa.types.is_struct(kind):
            column, kind = column.field(0), kind.field(0).type  # of an image the bytes: paths are null
        if pa.types.is_fixed_size_list(kind):
            total += kind.list_size * kind.value_type.bit_width // 8
        elif pa.types.is_primitive(kind):
            total += kind.bit_width // 8
        else:
            width = kind.value_type.bit_width // 8 if pa.types.is_list(kind) else 1
            start = column.offset
            offsets = np.frombuffer(column.buffers()[1], np.int32)[start : start + len(column) + 1]
            total += np.diff(offsets).astype(np.int64) * width + offsets.itemsize
    return total


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One record batch with the rows of all, in order."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _rough_bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    return len(value) if isinstance(value, bytes | bytearray | str | list | tuple) else 8
