"""The iterator of a DataLoader whose batches are made by threads, in torch's own class tree."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import BatchSampler, _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ..errors import ZcdError
from .copies import CopyIndices
from .position_sampler import PositionBatches, gives_positions
from .read_ahead import ReadAhead, order_is_ours
from .sampler_chain import epoch_shuffle
from .skipped import Skipped

if TYPE_CHECKING:
    from .dataloader import DataLoader
    from .decoding import DecodingEngine
    from .thread_engine import ThreadEngine


class ThreadIterator(_BaseDataLoaderIter):
    """Draws indices as torch's iterators do, and takes batches from a thread engine.

    torch's base class brings what frameworks rely on: the draw of the base seed, the profiler's label, `len`, and
    the warnings. Only `_next_data` and the engine's life are ours.

    Attributes:
        epoch: That is being served.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._rounds = 0
        self._beside: Callable[[], AbstractContextManager[Any]] | None = None
        self._start(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._finalizer()
        self._start(loader)

    def _start(self, loader: DataLoader[Any]) -> None:
        # torch's own checks, at the same place.
        assert loader.num_workers or not self._timeout
        assert loader.prefetch_factor is None or loader.prefetch_factor > 0
        if loader.worker_init_fn is not None and loader.num_workers:
            warnings.warn(
                "worker_init_fn is not called: batches are made by threads, which run no Python per sample and need no "
                "seeding.",
                stacklevel=4,
            )
        depth = 2 * (loader.prefetch_factor or 2)
        dataset = loader.native()
        # Room for what is likely: people write batch_size=10**9 for "everything", and slots grow when it isn't enough.
        room = max(1, min(loader.largest_batch() or 1, len(dataset)))
        self._plan = loader.plan(dataset, room, depth + 2)
        self.epoch = epoch = loader.begin_epoch()
        if loader.seed is None:
            # Persistent: torch draws the base seed once in an iterator's life, the rounds tell its epochs apart.
            self._key = int(self._base_seed), self._rounds
        else:
            self._key = loader.seed % 2**64, epoch % 2**64
        self._rounds += 1
        # Weak: a persistent iterator is held by its loader, and a cycle would keep the threads until it is collected.
        self._to_settle = None if loader.seed is None else weakref.ref(loader)
        batches = self._index_sampler
        if type(batches) is BatchSampler and gives_positions(batches.sampler):
            self._sampler_iter = PositionBatches(batches.sampler, batches.batch_size, batches.drop_last)
        # Samplers are generators, begun at the first draw, by when another iterator may have moved the epoch on.
        shuffle = epoch_shuffle(loader)
        self._shuffle = None if shuffle is None else (shuffle, epoch)
        self._skipped = loader.skipped
        self._served, self._lost = False, 0
        self._last_lost: Skipped | None = None
        self._exhausted = False
        self._sampler_error: Exception | None = None
        self._pid = os.getpid()
        self._engine = loader.engine(self._plan, depth)
        if self._beside is not None:
            self._engine.work_beside(self._beside)
        ours = loader.read_ahead > 0 and order_is_ours(loader.batch_sampler)
        self._ahead = ReadAhead(dataset, loader.read_ahead, self._engine.depth) if ours else None
        # Holds the engine, not the iterator: dropping the iterator (`break`) ends the threads.
        self._finalizer = weakref.finalize(self, _close, self._engine, self._ahead)
        if loader.num_workers:  # as torch's workers, which also draw from the sampler at once
            with self._ending_when_interrupted():
                self._fill()

    @contextlib.contextmanager
    def _ending_when_interrupted(self) -> Iterator[None]:
        """Ends the threads on Ctrl-C: its traceback, which notebooks keep, would hold them as long as it lives."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self._exhausted = True
            self._finalizer()
            raise

    def _next_or_none(self) -> Any:
        if self._shuffle is not None:
            (sampler, epoch), self._shuffle = self._shuffle, None
            with sampler.serving(epoch):
                return self._next_or_none()
        try:
            indices = self._next_index()  # type: ignore[no-untyped-call]
            return indices if isinstance(indices, np.ndarray | CopyIndices) else list(indices)
        except StopIteration:
            return None
        except Exception as error:  # raised when its turn comes, after the batches drawn before it
            self._sampler_error = error
            return None

    def _fill(self) -> None:
        while not self._exhausted and len(self._engine) < self._engine.depth:
            indices = self._next_or_none() if self._ahead is None else self._ahead.next(self._next_or_none)
            if indices is None:
                self._exhausted = True
                break
            self._engine.submit(indices, self._key)
            if self._ahead is not None:
                self._ahead.look_ahead(self._next_or_none)

    def _unserved(self) -> int:
        """Batches drawn that have not been taken from the engine."""
        return len(self._engine) + (0 if self._ahead is None else len(self._ahead))

    def _next_data(self) -> Any:
        if self._pid != os.getpid():
            raise ZcdError(
                f"this iterator's threads live in process {self._pid}, not in its forked child {os.getpid()}. "
                "Call iter() on the loader in the child."
            )
        with self._ending_when_interrupted():
            self._settle_epoch()
            return self._next_batch()

    def ready(self) -> bool:
        """Whether the next batch is made."""
        return self._to_settle is None and self._engine.ready()

    def work_beside(self, stream: Callable[[], AbstractContextManager[Any]]) -> None:
        """Gives the context in which a decoder's work for the device is to be queued."""
        self._beside = stream
        self._engine.work_beside(stream)

    def _settle_epoch(self) -> None:
        """Begins again if the samplers were told another epoch between iter() and the first batch.

        Lightning makes the iterator before it tells the epoch at which a run goes on.
        """
        if self._to_settle is None:
            return
        loader, self._to_settle = self._to_settle(), None
        told = None if loader is None else loader.told_other_than(self.epoch)
        if loader is not None and told is not None:
            self._begin_told(loader, told)
            self._to_settle = None

    def _begin_told(self, loader: DataLoader[Any], epoch: int) -> None:
        self._reset(loader)

    def _next_batch(self) -> Any:
        while True:
            self._fill()
            if not len(self._engine):
                self._finalizer()
                if self._last_lost is not None and not self._served and self._sampler_error is None:
                    self._served = True  # the next call is the end
                    raise ZcdError(
                        f"all {self._lost} samples of this epoch were bad, so it has no batch. The last one: "
                        f"{self._last_lost.error}"
                    )
                try:
                    raise self._sampler_error or StopIteration
                finally:  # no cycle from the error over this frame back to it: it would keep the iterator alive
                    self._sampler_error = None
            batch, skipped = self._engine.take(self._timeout or None)
            self._fill()
            self._skipped.add(skipped)
            if skipped and _is_empty(batch):
                self._lost += len(skipped)
                self._last_lost = skipped[-1]
                continue
            self._served = True
            if self._pin_memory:
                return _utils.pin_memory.pin_memory(batch, self._pin_memory_device)  # type: ignore[no-untyped-call]
            return batch


def _close(engine: ThreadEngine | DecodingEngine, ahead: ReadAhead | None) -> None:
    try:
        engine.close()
    finally:
        if ahead is not None:
            ahead.close()


def _is_empty(batch: Any) -> bool:
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    while isinstance(first, list) and first and not isinstance(first[0], str | bytes):
        first = first[0]
    return len(first) == 0
