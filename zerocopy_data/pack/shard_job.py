"""Makes one shard out of its samples: the unit of work that processes share."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import BadSampleError
from ..format.columns import MAX_COLUMN_BYTES, arrow_schema
from ..format.fields import Field
from ..format.manifest import ShardEntry
from ..format.probe import BadImageError, image_size
from ..format.shard_writer import ShardWriter
from .names import printable
from .recipe import Recipe, shrink, square
from .row_groups import EncodedGroup, RawGroup, key_arrays, label_arrays

_REPORT_SECONDS = 0.1

# Called with (samples done, source bytes read, samples skipped) since the last call.
Report = Callable[[int, int, int], None]


@dataclass(frozen=True)
class ShardTask:
    """Everything that a worker needs to make one shard.

    Attributes:
        folder: The dataset's folder.
        name: The shard's file name.
        root: Folder that `keys` are relative to.
        labels: int64 [samples] or None.
        threads: Images to transform at the same time. It changes no byte of the shard.
    """

    folder: Path
    name: str
    root: Path
    keys: Sequence[str]
    labels: npt.NDArray[np.int64] | None
    fields: Mapping[str, Field]
    recipe: Recipe
    skip_bad: bool
    row_group_size: int
    threads: int = 1


@dataclass(frozen=True)
class ShardResult:
    """`entry` is None when every sample was skipped: then there is no file."""

    entry: ShardEntry | None
    skipped: tuple[tuple[str, str], ...]


def write_shard(task: ShardTask, report: Report) -> ShardResult:
    """Reads, prepares and writes the samples of one shard.

    Raises:
        BadSampleError: a sample is unusable and `skip_bad` is off.
        PackError: the disk refuses.
    """
    job = _ShardJob(task, report)
    with job.writing():
        if task.recipe.raw is not None:
            job.pack_raw(task.recipe.raw)
        elif task.recipe.unchanged:
            job.pack_unchanged()
        else:
            job.pack_shrunk()
    return ShardResult(job.entry, tuple(job.skipped))


class _ShardJob:
    """The state of one shard in the making.

    A row group is written by a second thread while the next one gathers, so the disk and the readers
    overlap; two buffers alternate.
    """

    def __init__(self, task: ShardTask, report: Report) -> None:
        self.task = task
        self.entry: ShardEntry | None = None
        self.skipped: list[tuple[str, str]] = []
        self._schema = arrow_schema(task.fields)
        self._report = report
        self._unreported = [0, 0, 0]
        self._next_report = time.perf_counter() + _REPORT_SECONDS
        self._shard: ShardWriter | None = None
        self._writing: Future[None] | None = None
        self._thread: ThreadPoolExecutor | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Runs the writing thread; finishes the shard at the end, or removes it when something fails."""
        with ThreadPoolExecutor(1, "zcd-shard-writer") as self._thread:
            try:
                yield
                self._wait()
                if self._shard is not None:
                    self.entry = self._shard.finish()
                self._flush_report()
            except BaseException:
                if self._writing is not None:
                    self._writing.exception()
                if self._shard is not None:
                    self._shard.abandon()
                raise

    def pack_unchanged(self) -> None:
        """Reads each file straight into its place in the row group."""
        groups = (EncodedGroup(self.task.row_group_size), EncodedGroup(self.task.row_group_size))
        group, other = groups
        for row, key in enumerate(self.task.keys):
            try:
                with _open(f"{self.task.root}/{key}") as (descriptor, size):
                    if not group.fits(size):
                        self._write(group)
                        group, other = other, group
                        group.clear()
                    space = group.space(size)
                    _read(descriptor, space)
                width, height = image_size(space)
            except (OSError, BadImageError, MemoryError) as error:
                self._bad(key, error)
                continue
            group.add(row, space, width, height)
            self._done(size)
        self._write(group)

    def pack_shrunk(self) -> None:
        group, other = EncodedGroup(self.task.row_group_size), EncodedGroup(self.task.row_group_size)
        max_side, quality = self.task.recipe.max_side, self.task.recipe.quality
        assert max_side is not None

        def prepare(data: bytearray) -> tuple[Any, int, int]:
            return shrink(data, max_side, quality)

        for row, (data, width, height) in self._prepared(prepare):
            if not group.fits(len(data)):
                self._write(group)
                group, other = other, group
                group.clear()
            space = group.space(len(data))
            space[:] = data
            group.add(row, space, width, height)
        self._write(group)

    def pack_raw(self, side: int) -> None:
        group, other = RawGroup(self.task.row_group_size, side), RawGroup(self.task.row_group_size, side)
        for row, pixels in self._prepared(lambda data: square(data, side)):
            if group.full:
                self._write(group)
                group, other = other, group
                group.clear()
            group.add(row, pixels)
        self._write(group)

    def _prepared(self, prepare: Callable[[bytearray], Any]) -> Iterator[tuple[int, Any]]:
        """Row and prepared image of each usable sample, in order, `threads` of them in the making."""

        def load(key: str) -> tuple[int, Any]:
            with _open(f"{self.task.root}/{key}") as (descriptor, size):
                if size > MAX_COLUMN_BYTES:
                    raise BadImageError(f"the file has {size} bytes; a row holds at most 2^31 - 1")
                data = bytearray(size)
                _read(descriptor, memoryview(data))
            return size, prepare(data)

        waiting: deque[tuple[int, str, Future[tuple[int, Any]]]] = deque()
        keys = enumerate(self.task.keys)
        with ThreadPoolExecutor(self.task.threads, "zcd-prepare") as threads:
            try:
                while True:
                    while len(waiting) < 4 * self.task.threads and (item := next(keys, None)) is not None:
                        waiting.append((*item, threads.submit(load, item[1])))
                    if not waiting:
                        return
                    row, key, future = waiting.popleft()
                    try:
                        size, prepared = future.result()
                    except (OSError, BadImageError, MemoryError) as error:
                        self._bad(key, error)
                        continue
                    yield row, prepared
                    self._done(size)
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    def _write(self, group: EncodedGroup | RawGroup) -> None:
        """Hands a row group to the writing thread, once that has finished the one before."""
        self._wait()
        if not group.rows:
            return
        others: list[pa.Array] = []
        rows = group.rows
        if self.task.labels is not None:
            others += label_arrays(self.task.labels[rows])
        others += key_arrays([self.task.keys[row] for row in rows])
        batch = pa.RecordBatch.from_arrays([*group.arrays(), *others], schema=self._schema)
        if self._shard is None:
            self._shard = ShardWriter(self.task.folder, self.task.name, self._schema)
        assert self._thread is not None
        self._writing = self._thread.submit(self._shard.write, batch)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _bad(self, key: str, error: Exception) -> None:
        reason, key = _reason(error), printable(key)
        if not self.task.skip_bad:
            raise BadSampleError(
                self.task.root,
                None,
                None,
                key,
                reason,
                hint="Repair or remove the file, or leave such files out: pack again with --on-error skip --overwrite "
                "(zcd.pack: on_error='skip', overwrite=True)",
            ) from error
        self.skipped.append((key, reason))
        self._unreported[2] += 1
        self._done(0)

    def _done(self, size: int) -> None:
        self._unreported[0] += 1
        self._unreported[1] += size
        if time.perf_counter() >= self._next_report:
            self._flush_report()

    def _flush_report(self) -> None:
        rows, size, skipped = self._unreported
        self._unreported = [0, 0, 0]
        self._next_report = time.perf_counter() + _REPORT_SECONDS
        self._report(rows, size, skipped)


@contextlib.contextmanager
def _open(path: str) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file."""
    # O_NONBLOCK: opening a named pipe would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadImageError("it is no regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _read(descriptor: int, space: memoryview) -> None:
    while len(space):
        count = os.readv(descriptor, [space])
        if count == 0:
            raise BadImageError("the file became shorter while it was being read")
        space = space[count:]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"the file cannot be read: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "there is too little memory to read it"
    return str(error)
