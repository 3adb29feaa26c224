"""An epoch whose batches lie on the device: the host's iterator, and the stager that its batches go through."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..device.request import Staging
from ..device.staging import Stager


class DeviceIterator(Iterator[Any]):
    """Hands out batches on the device, in the order of the host's.

    Copies of the next batches are queued before they are asked for, as far as the host has them ready: this never
    waits for a batch while another one is there.

    Args:
        host: An iterator of a DataLoader. Where it says whether a batch is `ready`, batches are taken ahead; where it
            counts what is returned (`handed_out`), it is told when a batch reaches the caller. Where it makes tensors
            on the device itself (`work_beside`), it does so on the stager's stream.
        stager: For this iterator's use alone, until `close`.
        begin: Gives what is asked of the stager, once the first batch is there.
    """

    def __init__(self, host: Any, stager: Stager, begin: Callable[[], Staging] | None = None) -> None:
        self._host = host
        self._stager = stager
        self._begin = begin
        self._ended: BaseException | None = None
        work_beside = getattr(host, "work_beside", None)
        if work_beside is not None:  # what it makes on the device is ready for the copies, and for nobody else
            work_beside(stager.beside)
        self._finalizer = weakref.finalize(self, _drain, stager)
        self._finalizer.atexit = False

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> DeviceIterator:
        return self

    def __next__(self) -> Any:
        stager = self._stager
        if self.closed:
            raise StopIteration
        stager.refuse_capture()
        stager.release()
        if not len(stager):
            self._raise_if_ended()
            try:
                host = next(self._host)
            except StopIteration:
                self._end()
                raise
            if self._begin is not None:
                stager.staging, self._begin = self._begin(), None
            stager.put(host)
        batch = stager.get()
        self._take_ahead()
        self._handed_out()  # last: what Ctrl-C takes from the caller before has not been returned
        return batch

    def serves(self, host: Any) -> bool:
        """Whether batches come from this iterator."""
        return self._host is host

    @property
    def closed(self) -> bool:
        """Whether the stager is free again."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Ends the iterator; the device keeps nothing of the host's memory."""
        self._finalizer()

    def _take_ahead(self) -> None:
        ready = getattr(self._host, "ready", None)
        while self._ended is None and ready is not None and self._stager.room > 0 and ready():
            try:
                self._stager.put(next(self._host))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # raised when its turn comes, after the batches before it
                self._ended = error.with_traceback(None)

    def _raise_if_ended(self) -> None:
        error, self._ended = self._ended, None
        if error is None:
            return
        if isinstance(error, StopIteration):
            self._end()
        raise error

    def _end(self) -> None:
        """The epoch is over. What was handed out last stays valid until the memory serves another epoch."""
        self._handed_out()
        self.close()

    def _handed_out(self) -> None:
        tell = getattr(self._host, "handed_out", None)
        if tell is not None:
            tell()


def _drain(stager: Stager) -> None:
    with contextlib.suppress(Exception):  # the device may be on its way out
        stager.drain()
