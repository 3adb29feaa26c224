"""Pickles a dataset once for all worker processes that do not inherit it (spawn, forkserver)."""

from __future__ import annotations

import io
import pickle
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import get_sharing_strategy


class SharedPickle:
    """Stands for an object while processes are started, and unpickles as that object.

    The first start pickles it; the next ones send the same bytes. Descriptors that the pickle names (shared
    tensors, pipes) are handed to each process anew: the start method numbers them by their place, so the bytes
    stay valid as long as the same ones are handed over at the same place. What is counted for each receiver (see
    `_Pickler`) is pickled anew for each.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._data: bytes | None = None
        self._descriptors: list[int] = []
        self._place = 0

    def __reduce__(self) -> tuple[Any, ...]:
        starting = context.get_spawning_popen()
        handed: list[int] | None = getattr(starting, "_fds", None)
        if handed is None:  # some other way to start processes: nothing is known about its descriptors
            return pickle.loads, (_dumps(self._value)[0],)
        if self._data is not None and (not self._descriptors or self._place == len(handed)):
            handed.extend(self._descriptors)
            return pickle.loads, (self._data,)
        self._place = len(handed)
        data, counted = _dumps(self._value)
        if not counted:
            self._data, self._descriptors = data, handed[self._place :]
        return pickle.loads, (data,)


class _Pickler(ForkingPickler):
    """Notices memory whose users torch counts: its pickle is one user, and takes itself off when it is unpickled.

    That is memory on a device, and with torch's sharing strategy 'file_system' every tensor. Unpickled more often than
    pickled, it would be gone while it is in use.
    """

    counted = False

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.UntypedStorage):
            self.counted |= get_sharing_strategy() != "file_descriptor"  # type: ignore[no-untyped-call]
        elif isinstance(value, torch.Tensor):
            self.counted |= value.device.type not in ("cpu", "meta")
        return NotImplemented


def _dumps(value: Any) -> tuple[bytes, bool]:
    """The pickle, and whether it is for one process only."""
    file = io.BytesIO()
    pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dump(value)
    return file.getvalue(), pickler.counted
