"""Pickles a dataset once for all worker processes that do not inherit it (spawn, forkserver)."""

from __future__ import annotations

import io
import pickle
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any


class SharedPickle:
    """Stands for an object while processes are started, and unpickles as that object.

    The first start pickles it; the next ones send the same bytes. Descriptors that the pickle names (shared
    tensors, pipes) are handed to each process anew: the start method numbers them by their place, so the bytes
    stay valid as long as the same ones are handed over at the same place.
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
            return pickle.loads, (_dumps(self._value),)
        if self._data is not None and (not self._descriptors or self._place == len(handed)):
            handed.extend(self._descriptors)
        else:
            self._place = len(handed)
            self._data = _dumps(self._value)
            self._descriptors = handed[self._place :]
        return pickle.loads, (self._data,)


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    ForkingPickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()
