"""The thread engine: batches in flight on a few Python threads, pixels on the native pool, no worker processes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any

from .. import _native
from .batch import BatchPlan, CancelledError
from .copies import Indices
from .skipped import Skipped

Made = tuple[Any, list[Skipped]]


class ThreadEngine:
    """Keeps up to `depth` batches in the making and hands them out in order.

    A Python thread per batch in flight waits for the pool without the GIL; it works itself only where Pillow must
    help. Two batches at least are in flight, so that the pool's threads have the next batch's images when the last
    images of one are being finished.

    Args:
        plan: How batches are made.
        threads: Decoding threads; 0 makes each batch in the caller's thread when it is asked for.
        depth: Batches in flight.
    """

    def __init__(self, plan: BatchPlan, threads: int, depth: int) -> None:
        self._plan = plan
        self.depth = depth if threads else 1
        self._cancel = _native.Cancel()
        self._pid = os.getpid()
        self._queue: deque[Future[Made] | tuple[Indices, tuple[int, int]]] = deque()
        self._threads: _native.Threads | None = None
        self._makers: ThreadPoolExecutor | None = None
        self._helpers: ThreadPoolExecutor | None = None
        if threads:
            self._threads = _native.Threads(threads)
            self._makers = ThreadPoolExecutor(depth, thread_name_prefix="zcd-batch")
            self._helpers = ThreadPoolExecutor(threads, thread_name_prefix="zcd-pillow")

    def __len__(self) -> int:
        """Batches submitted and not yet taken."""
        return len(self._queue)

    def work_beside(self, stream: Callable[[], AbstractContextManager[Any]]) -> None:
        """Nothing is queued on a device here."""

    def submit(self, indices: Indices, key: tuple[int, int]) -> None:
        """Starts the next batch."""
        if self._makers is None:
            self._queue.append((indices, key))
        else:
            self._queue.append(self._makers.submit(self._plan.make, indices, key, True, self._cancel, self._helpers))

    def ready(self) -> bool:
        """Whether `take` returns at once."""
        first = self._queue[0] if self._queue else None
        return isinstance(first, Future) and first.done()

    def take(self, timeout: float | None = None) -> Made:
        """Waits for the oldest batch. Its error, if it has one, is raised here; the next call goes on after it.

        Raises:
            RuntimeError: the batch is not there after `timeout` seconds; it can still be taken later.
        """
        if isinstance(self._queue[0], Future) and not wait([self._queue[0]], timeout).done:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        first = self._queue.popleft()
        if isinstance(first, Future):
            try:
                return first.result()
            finally:
                # An error's traceback holds this frame, and the future the error: with the future here they would keep
                # each other, and the iterator and its threads, alive until the garbage collector comes by.
                del first
        indices, key = first
        return self._plan.make(indices, key, pooled=False)

    def close(self) -> None:
        """Ends all work and returns when no thread of this engine is left. May be called again, and from anywhere."""
        if os.getpid() != self._pid:
            return  # a forked child: the threads are not here, and a lock that one of them held stays locked
        self._cancel.set()
        for future in self._queue:
            if isinstance(future, Future):
                future.cancel()
        for executor in (self._makers, self._helpers):
            if executor is not None:
                end_executor(executor)
        if self._threads is not None:
            self._threads.release()
        self._queue.clear()


def end_executor(executor: ThreadPoolExecutor) -> None:
    """Ends an executor and its threads, but for the one that this is called in."""
    executor.shutdown(wait=False, cancel_futures=True)
    # Not shutdown(wait=True): the garbage collector may end an iterator in one of its own threads, which can't join
    # itself. That thread ends as soon as it returns from here.
    for thread in list(executor._threads):
        if thread is not threading.current_thread():
            thread.join()


__all__ = ["CancelledError", "ThreadEngine"]
