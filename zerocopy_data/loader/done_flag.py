"""A flag that one process sets and others read, without a lock that a killed process could take with it."""

from __future__ import annotations

import multiprocessing.reduction
import os
from typing import Any

from .. import _native

_BYTES = 4096


class DoneFlag:
    """As multiprocessing.Event, but only `set` and `is_set`.

    multiprocessing's event holds a lock while it is read: a worker killed at that moment leaves it locked, and
    everybody who sets the event waits for ever.
    """

    def __init__(self) -> None:
        descriptor = os.memfd_create("zcd-done", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, _BYTES)
            self._adopt(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def _adopt(self, descriptor: int) -> None:
        self._byte = memoryview(_native.Lease(_native.Mapping(descriptor, _BYTES), _nothing))
        self._descriptor = descriptor

    def set(self) -> None:
        """Sets the flag for good."""
        self._byte[0] = 1

    def is_set(self) -> bool:
        """Whether it has been set."""
        return self._byte[0] != 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (multiprocessing.reduction.DupFd(self._descriptor),)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _nothing() -> None:
    pass


def _rebuild(handle: Any) -> DoneFlag:
    flag = DoneFlag.__new__(DoneFlag)
    flag._adopt(handle.detach())
    return flag
