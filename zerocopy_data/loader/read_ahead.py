"""Reading ahead: the kernel is asked for the pages of batches that are still to come, while data is on the disk only.

A thread that reads a mapped file waits for the disk at each page that is not in memory, one after another. The order
is known, so the pages of the next batches can be asked for at once, sorted and joined: the disk has much to do at a
time, and they are there when the batch is made.

While that goes on a page that is touched all the same comes alone: by itself the kernel reads all around it, 128 KiB
as a rule and megabytes on some machines, most of which a shuffled order does not need.

While everything is in memory nothing is asked, but for the first batches of an epoch, and there is no thread. Whether
data is cold is seen by two things: major faults of this process, and blocks that the asking itself has brought from a
disk.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch.utils.data import BatchSampler

from .copies import Indices
from .native import JoinedColumns, NativeDataset
from .position_sampler import gives_positions
from .thread_engine import end_executor

if TYPE_CHECKING:
    from .. import _native

# Batches drawn ahead at most, and batches without a sign of cold data after which no more is asked.
BATCHES = 64
# How many of an epoch's first batches are asked for to find out whether data is cold.
FIRST = 4
# Bytes between two values that are read along with them: four pages more cost less than a second request.
GAP = 16 << 10


@runtime_checkable
class Locatable(Protocol):
    """A native column that knows where in mapped files its rows lie."""

    def extents(self, rows: npt.NDArray[np.int64], gap: int) -> list[_native.Extents]:
        """The pages of these rows, with no more than `gap` bytes between them joined. By source, of a mix."""

    def read_at_random(self, random: bool) -> None:
        """Whether a page that is touched all the same comes alone, without what lies around it on the disk."""


def order_is_ours(batch_sampler: Any) -> bool:
    """Whether batches may be drawn far ahead: of a PositionSampler, whose order depends on (seed, epoch) alone.

    A sampler of somebody else's may have a state that its owner reads, or use up random numbers.
    """
    return type(batch_sampler) is BatchSampler and gives_positions(batch_sampler.sampler)


@dataclass(eq=False)
class _Batch:
    """One whose pages are to be asked for.

    Attributes:
        number: In the iterator's order.
        indices: Positions in the dataset.
        extents: Its pages, by column; None until they have been looked up.
        asked: Bytes that the kernel has been asked for before the batch began.
    """

    number: int
    indices: Indices
    extents: list[_native.Extents] | None = None
    asked: int = 0


class ReadAhead:
    """Draws batches ahead for one iterator, and asks for their pages in a thread of its own.

    All methods are for the iterator's thread, but for `close`. An error in a batch that is looked up (a shard that is
    missing, an index out of range) is not told here: it comes in its turn, when the batch is made.

    Args:
        dataset: What is read. Columns that are not mapped (compiled folders of files) are passed over.
        budget: Bytes that may have been asked for on behalf of batches that have not begun.
        depth: Batches in the making at a time. Those are asked for too if there was no time before.

    Attributes:
        asked: Bytes that have been asked for so far.
    """

    def __init__(self, dataset: NativeDataset, budget: int, depth: int) -> None:
        self._dataset = dataset
        self._budget = budget
        self._depth = depth
        self.asked = 0
        self._drawn: deque[_Batch] = deque()
        self._ended = False
        # Reentrant, since the garbage collector may call `close` anywhere.
        self._lock = threading.RLock()
        self._waiting: deque[_Batch] = deque()  # of those drawn, those that nothing has been asked for
        self._outstanding = 0  # bytes asked for, of batches that have not begun
        self._begun = 0  # batches
        self._working = self._closed = self._useless = self._at_random = self._resting = False
        self._columns: list[Locatable] | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._faults = major_faults()
        self._brought = False  # since the last look: whether asking has brought blocks
        self._left = FIRST

    def __len__(self) -> int:
        """Batches drawn that have not begun."""
        return len(self._drawn)

    def next(self, draw: Callable[[], Any]) -> Any:
        """The indices of the batch that begins now; None at the end.

        Args:
            draw: Gives the next batch's indices, None at the end.
        """
        if not self._drawn:
            indices = None if self._ended else draw()
            if indices is not None:
                if self._left:  # late, but it takes time until all of it has been read
                    self._waiting.append(_Batch(self._begun, indices))
                self._begun += 1
            return indices
        batch = self._drawn.popleft()
        with self._lock:
            self._begun += 1
            self._outstanding -= batch.asked
        return batch.indices

    def look_ahead(self, draw: Callable[[], Any]) -> None:
        """Draws ahead and asks, if data is cold. To be called whenever a batch has begun."""
        if not self._cold():
            return
        while not self._ended and len(self._drawn) < self._left:
            indices = draw()
            if indices is None:
                self._ended = True
                break
            batch = _Batch(self._begun + len(self._drawn), indices)
            self._drawn.append(batch)
            self._waiting.append(batch)
        with self._lock:
            if self._working or self._closed or not self._waiting:
                return
            self._working = True
        self._run(self._work)

    def _run(self, task: Callable[[], None]) -> None:
        if self._executor is not None and self._resting:
            end_executor(self._executor)
            self._executor, self._resting = None, False
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="zcd-ahead")
        self._executor.submit(task)

    def _cold(self) -> bool:
        faults = major_faults()
        if faults != self._faults or self._brought:
            self._faults, self._brought = faults, False
            self._left = BATCHES
        elif self._left:
            self._left -= 1
            if not self._left and self._executor is not None:
                self._run(self._rest)  # should data become cold again, nobody will have asked for the first pages
                self._executor.shutdown(wait=False)  # the thread ends when it has done that
                self._resting = True
        return self._left > 0 and not self._useless

    def _work(self) -> None:
        """Asks for the pages of waiting batches, until the budget is used up or there is none."""
        before = blocks_read()
        while (batch := self._first_waiting()) is not None:
            if batch.extents is None:
                batch.extents = self._locate(batch.indices)
            with self._lock:
                if self._closed:
                    return
                begun = batch.number < self._begun
                room = self._budget if begun else self._budget - self._outstanding
                needed = sum(extents.bytes for extents in batch.extents)
                if needed > room and self._outstanding and not begun:
                    self._working = False  # to be taken up when another batch has begun
                    return
                self._waiting.popleft()
            asked = 0
            for extents in batch.extents:
                if not self._closed:
                    asked += extents.ask(room - asked)
            batch.extents = None
            after = blocks_read()
            with self._lock:
                self.asked += asked
                self._brought |= after != before
                if batch.number >= self._begun:
                    batch.asked = asked
                    self._outstanding += asked
            before = after

    def _rest(self) -> None:
        """Pages that are touched come with their neighbours again."""
        self._at_random = False
        for column in self._columns or ():
            column.read_at_random(False)

    def _first_waiting(self) -> _Batch | None:
        with self._lock:
            while self._waiting and self._waiting[0].number < self._begun - self._depth:
                self._waiting.popleft()  # made in the meantime
            if self._waiting and not self._closed:
                return self._waiting[0]
            self._working = False
            return None

    def _locate(self, indices: Indices) -> list[_native.Extents]:
        try:
            if self._columns is None:
                self._columns = _locatable(self._dataset)
                self._useless = not self._columns
            if not self._at_random:
                self._at_random = True
                for column in self._columns:
                    column.read_at_random(True)
            rows, _ = self._dataset.picks(indices)
            return [extents for column in self._columns for extents in column.extents(rows, GAP)]
        except Exception:  # the batch itself meets it again, and raises it in its turn
            return []

    def close(self) -> None:
        """Ends the thread, and returns when it has ended. May be called again, and from anywhere."""
        if os.getpid() != self._pid:
            return  # a forked child: the thread is not here
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._drawn.clear()
        if self._executor is not None:
            end_executor(self._executor)
            self._rest()


def major_faults() -> int:
    """Pages that this process has waited for the disk for."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def blocks_read() -> int:
    """Blocks that this thread has had brought from disks; stays 0 where the kernel does not count them."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def _locatable(dataset: NativeDataset) -> list[Locatable]:
    found: list[Locatable] = []
    for name in dataset.columns:
        column = dataset.native_column(name)
        if isinstance(column, JoinedColumns) and name != column.names[0]:
            continue  # read with the first of them
        if isinstance(column, Locatable):
            found.append(column)
    return found
