"""The iterator of a DataLoader over a ShardDataset, in torch's own class tree."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from .batch import BatchPlan
from .thread_engine import ThreadEngine

if TYPE_CHECKING:
    from .dataloader import DataLoader


class ThreadIterator(_BaseDataLoaderIter):
    """Draws indices as torch's iterators do, and takes batches from a thread engine.

    torch's base class brings what frameworks rely on: the draw of the base seed, the profiler's label, `len`, and
    the warnings. Only `_next_data` and the engine's life are ours.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._start(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._finalizer()
        self._start(loader)

    def _start(self, loader: DataLoader[Any]) -> None:
        depth = 2 * (loader.prefetch_factor or 2)
        size = loader.largest_batch()
        if size is None:  # a batch sampler of somebody's own: the engine learns sizes as they come
            self._first = self._next_or_none()
            size = max(len(self._first or ()), 1)
        else:
            self._first = None
        self._plan = BatchPlan(loader.shards(), size, depth + 2, loader.on_error)
        self._key = loader.next_key(int(self._base_seed))
        self._skipped = loader.skipped
        self._exhausted = False
        self._engine = ThreadEngine(self._plan, loader.num_workers, depth)
        # Holds the engine, not the iterator: dropping the iterator (`break`) ends the threads.
        self._finalizer = weakref.finalize(self, self._engine.close)

    def _next_or_none(self) -> list[int] | None:
        try:
            return list(self._next_index())  # type: ignore[no-untyped-call]
        except StopIteration:
            return None

    def _fill(self) -> None:
        while not self._exhausted and len(self._engine) < self._engine.depth:
            indices = self._first if self._first is not None else self._next_or_none()
            self._first = None
            if indices is None:
                self._exhausted = True
                break
            self._engine.submit(indices, self._key)

    def _next_data(self) -> Any:
        while True:
            self._fill()
            if not len(self._engine):
                self._finalizer()
                raise StopIteration
            batch, skipped = self._engine.take()
            self._fill()
            self._skipped.extend(skipped)
            if skipped and _is_empty(batch):
                continue
            if self._pin_memory:
                return _utils.pin_memory.pin_memory(batch, self._pin_memory_device)  # type: ignore[no-untyped-call]
            return batch


def _is_empty(batch: Any) -> bool:
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    while isinstance(first, list) and first and not isinstance(first[0], str | bytes):
        first = first[0]
    return len(first) == 0
