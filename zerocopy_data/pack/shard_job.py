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
# Images that a thread prepares before it hands them on: waking another thread costs as much as reading a file.
_IMAGES_PER_TURN = 4

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


class ShardMaker:
    """Makes shards one after the other: while the end of one is written, the next is being read.

    A second thread writes a row group while the next one gathers, so that the disk and the readers overlap. Two
    buffers alternate, over all shards: fresh pages cost more than the copy into them.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._writer = ThreadPoolExecutor(1, "zcd-shard-writer")
        self._latest: Future[Any] | None = None
        self._groups: list[_Group] = []

    def __enter__(self) -> ShardMaker:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for what is being written: a shard whose samples have all been read becomes whole."""
        self._writer.shutdown(wait=True)

    def make(self, task: ShardTask) -> Future[ShardResult]:
        """Reads and prepares the samples of one shard. The future is done when the shard has been written.

        All tasks of a maker have the same recipe and row group size.

        Raises:
            BadSampleError: a sample is unusable and `skip_bad` is off.
            PackError: the disk refuses, now or at the shard before; the future raises it, too.
        """
        if not self._groups:
            self._groups = [_new_group(task), _new_group(task)]
        job = _ShardJob(task, self)
        try:
            job.gather()
        except BaseException:
            self._writer.submit(job.abandon).result()
            raise
        self._latest = result = self._writer.submit(job.finish)
        return result

    @property
    def group(self) -> Any:  # _Group, but the job knows which kind it has
        """The row group to gather into."""
        return self._groups[0]

    def write(self, action: Callable[[], None]) -> None:
        """Has the writing thread write the row group, once it has finished what came before; `group` is the other."""
        if self._latest is not None:
            latest, self._latest = self._latest, None
            latest.result()
        self._latest = self._writer.submit(action)
        self._groups.reverse()
        self.group.clear()


_Group = EncodedGroup | RawGroup


def _new_group(task: ShardTask) -> _Group:
    raw = task.recipe.raw
    return EncodedGroup(task.row_group_size) if raw is None else RawGroup(task.row_group_size, raw)


class _ShardJob:
    """The state of one shard in the making."""

    def __init__(self, task: ShardTask, maker: ShardMaker) -> None:
        self.task = task
        self.skipped: list[tuple[str, str]] = []
        self._maker = maker
        self._schema = arrow_schema(task.fields)
        self._unreported = [0, 0, 0]
        self._next_report = time.perf_counter() + _REPORT_SECONDS
        self._shard: ShardWriter | None = None
        self._write_error: BaseException | None = None

    def gather(self) -> None:
        """Reads and prepares all samples; what is still to be written is with the writing thread."""
        self._maker.group.clear()
        if self.task.recipe.raw is not None:
            self._pack_raw(self.task.recipe.raw)
        elif self.task.recipe.unchanged:
            self._pack_unchanged()
        else:
            self._pack_shrunk()
        self._flush_report()

    def finish(self) -> ShardResult:
        """In the writing thread: completes the file, or removes it when something fails."""
        try:
            if self._write_error is not None:
                raise self._write_error
            entry = None if self._shard is None else self._shard.finish()
        except BaseException:
            self.abandon()
            raise
        return ShardResult(entry, tuple(self.skipped))

    def abandon(self) -> None:
        """In the writing thread: removes the unfinished file."""
        if self._shard is not None:
            self._shard.abandon()

    def _pack_unchanged(self) -> None:
        """Reads each file straight into its place in the row group."""
        group = self._maker.group
        for row, key in enumerate(self.task.keys):
            try:
                with _open(f"{self.task.root}/{key}") as (descriptor, size):
                    if not group.fits(size):
                        group = self._write(group)
                    space = group.space(size)
                    _read(descriptor, space)
                width, height = image_size(space)
            except (OSError, BadImageError, MemoryError) as error:
                self._bad(key, error)
                continue
            group.add(row, space, width, height)
            self._done(size)
        self._write(group)

    def _pack_shrunk(self) -> None:
        group = self._maker.group
        max_side, quality = self.task.recipe.max_side, self.task.recipe.quality
        assert max_side is not None

        def prepare(data: bytearray) -> tuple[Any, int, int]:
            return shrink(data, max_side, quality)

        for row, (data, width, height) in self._prepared(prepare):
            if not group.fits(len(data)):
                group = self._write(group)
            space = group.space(len(data))
            space[:] = data
            group.add(row, space, width, height)
        self._write(group)

    def _pack_raw(self, side: int) -> None:
        group = self._maker.group
        for row, pixels in self._prepared(lambda data: square(data, side)):
            if group.full:
                group = self._write(group)
            group.add(row, pixels)
        self._write(group)

    def _prepared(self, prepare: Callable[[bytearray], Any]) -> Iterator[tuple[int, Any]]:
        """Row and prepared image of each usable sample, in order, several by each of `threads` in the making."""
        root, keys, threads = self.task.root, self.task.keys, self.task.threads

        def load(first: int) -> list[tuple[int, Any] | Exception]:
            return [_load(f"{root}/{key}", prepare) for key in keys[first : first + _IMAGES_PER_TURN]]

        waiting: deque[Future[list[tuple[int, Any] | Exception]]] = deque()
        turns = iter(range(0, len(keys), _IMAGES_PER_TURN))
        row = 0
        with ThreadPoolExecutor(threads, "zcd-prepare") as pool:
            try:
                while True:
                    while len(waiting) < 2 * threads and (first := next(turns, None)) is not None:
                        waiting.append(pool.submit(load, first))
                    if not waiting:
                        return
                    for loaded in waiting.popleft().result():
                        if isinstance(loaded, Exception):
                            self._bad(keys[row], loaded)
                        else:
                            size, prepared = loaded
                            yield row, prepared
                            self._done(size)
                        row += 1
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _write(self, group: EncodedGroup | RawGroup) -> Any:
        """Hands a row group to the writing thread; returns the one to gather into next."""
        if not group.rows:
            return group
        others: list[pa.Array] = []
        rows = group.rows
        if self.task.labels is not None:
            others += label_arrays(self.task.labels[rows])
        others += key_arrays([self.task.keys[row] for row in rows])
        batch = pa.RecordBatch.from_arrays([*group.arrays(), *others], schema=self._schema)
        self._maker.write(lambda: self._write_batch(batch))
        return self._maker.group

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        try:
            if self._shard is None:
                self._shard = ShardWriter(self.task.folder, self.task.name, self._schema)
            self._shard.write(batch)
        except BaseException as error:
            self._write_error = error
            raise

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
        self._maker.report(rows, size, skipped)


def _load(path: str, prepare: Callable[[bytearray], Any]) -> tuple[int, Any] | Exception:
    """The file's size and what `prepare` makes of its bytes; or why the file is unusable."""
    try:
        with _open(path) as (descriptor, size):
            if size > MAX_COLUMN_BYTES:
                raise BadImageError(f"the file has {size} bytes; a row holds at most 2^31 - 1")
            data = bytearray(size)
            _read(descriptor, memoryview(data))
        return size, prepare(data)
    except (OSError, BadImageError, MemoryError) as error:
        return error


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
