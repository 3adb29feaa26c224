"""torch's iterator over worker processes, with batches that travel through slots.

Dispatch, order, errors, time-outs, seeds and persistence are torch's. How torch starts its workers is known here and in
`process_context` alone; `why_not_supported` says where it is not as we know it.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import _utils
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ..device.accelerator import accelerator_for
from ..memory.pinning import Pinner
from .process_context import SHUTDOWN_SECONDS, Worker, WorkerContext
from .transport.reader import Reader
from .worker_state import WorkerHook

if TYPE_CHECKING:
    from .dataloader import DataLoader


# The parameters of torch's worker loop that we rely on; what follows them is passed on as it is.
_LOOP = (("dataset_kind",), ("dataset", "dataset_holder"), ("index_queue",), ("data_queue",), ("done_event",))


def why_not_supported() -> str | None:
    """Why the installed torch, or this system, can't carry our transport; None where it can."""
    if not hasattr(os, "memfd_create"):
        return "it needs Linux (memfd_create)"
    names = list(inspect.signature(_utils.worker._worker_loop).parameters)
    if len(names) < len(_LOOP) or any(name not in known for name, known in zip(names, _LOOP, strict=False)):
        return f"torch {torch.__version__} starts its workers in a way that is not known yet"
    return None


def _pinner(loader: DataLoader[Any]) -> Pinner | None:
    """What page-locks the slots of a loader that pins its batches; None where torch shall do as it does."""
    return accelerator_for("cuda") if loader.pin_memory and torch.cuda.is_available() else None


class _LoaderView:
    """A loader as torch's iterator shall see it: with our context."""

    def __init__(self, loader: DataLoader[Any], context: WorkerContext) -> None:
        self._loader = loader
        self.multiprocessing_context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class ProcessIterator(_MultiProcessingDataLoaderIter):
    """torch's multiprocessing iterator over a transport of our own."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._pid = os.getpid()
        this = weakref.ref(self)  # the reader must not keep the iterator, whose end shuts the workers down

        def expects(worker: int) -> bool:
            iterator = this()
            return iterator is not None and not iterator._shutdown and bool(iterator._workers_status[worker])

        def hook(worker: int) -> WorkerHook | None:
            iterator = this()
            return None if iterator is None else iterator._worker_hook(worker)

        self._stall_after: float | None = loader.stall_after
        self._stalls_at: float | None = None
        self._pins = False
        self._reader = Reader(expects, _pinner(loader))
        context: Any = loader.multiprocessing_context or torch.multiprocessing
        view = _LoaderView(loader, WorkerContext(context, self._reader, self._stall_after is not None, hook))
        try:
            super().__init__(view)
        except BaseException:
            self._reader.close()
            raise
        # Profilers and their users look for torch's name.
        self._profile_name = f"enumerate(DataLoader)#{_MultiProcessingDataLoaderIter.__name__}.__next__"

    @property
    def _pin_memory(self) -> bool:
        """Whether torch shall start its thread that copies every batch into pinned memory."""
        return self._pins and self._reader.pinner is None

    @_pin_memory.setter
    def _pin_memory(self, value: bool) -> None:
        self._pins = value

    def _process_data(self, data: Any, *worker: int) -> Any:  # torch 2.6 does not say whose data it is
        data = super()._process_data(data, *worker)  # type: ignore[no-untyped-call]
        if self._pins and self._reader.pinner is not None:
            # Slots are pinned already and pass through; what is small, or came another way, is copied.
            return _utils.pin_memory.pin_memory(data, self._pin_memory_device)  # type: ignore[no-untyped-call]
        return data

    def ready(self) -> bool:
        """Whether the next batch is here, or about to be."""
        # torch's own notes: by number of the batch, its worker and, once it has come out of turn, the batch.
        task = self._task_info.get(self._rcvd_idx)
        return task is not None and (len(task) > 1 or self._reader.waiting(task[0]))

    def _worker_hook(self, worker: int) -> WorkerHook | None:
        """What keeps the state of the dataset in a worker; None where nobody asks for it."""
        return None

    def _try_get_data(self, timeout: float = _utils.MP_STATUS_CHECK_INTERVAL) -> Any:
        if self._stall_after is None:
            return super()._try_get_data(timeout)  # type: ignore[no-untyped-call]
        end = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if self._stalls_at is None:
                self._stalls_at = now + self._stall_after
            success, data = super()._try_get_data(max(0.0, min(end, self._stalls_at) - now))  # type: ignore[no-untyped-call]
            if success:
                self._stalls_at = None
                return success, data
            if time.monotonic() >= self._stalls_at:
                self._report_stall(self._stall_after)
                self._stalls_at = None
            if time.monotonic() >= end:
                return success, data

    def _report_stall(self, seconds: float) -> None:
        """Has each live worker print its stacks on stderr; nothing is ended."""
        alive = [worker for worker in self._workers if worker.is_alive()]
        pids = ", ".join(str(worker.pid) for worker in alive)
        print(
            f"zerocopy_data: no batch for {seconds:g} seconds. "
            f"The stacks of the DataLoader workers (pids {pids}) follow.",
            file=sys.stderr,
            flush=True,
        )
        for worker in alive:
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGUSR1)

    def _shutdown_workers(self) -> None:
        if os.getpid() != self._pid:  # a forked child: the workers, and the event that ends them, are its parent's
            self._shutdown = True
            return
        ending = not getattr(self, "_shutdown", True) and _utils.python_exit_status is False
        if ending:
            deadline = time.monotonic() + SHUTDOWN_SECONDS
            for worker in self._workers:
                assert isinstance(worker, Worker)
                worker.share_deadline(deadline)
            self._workers_done_event.set()
            self._reader.close()  # a worker that is waiting to send goes on, and sees that it is over
        super()._shutdown_workers()
        if ending:
            for worker in self._workers:  # torch 2.6 does not wait for those that it had to terminate
                assert isinstance(worker, Worker)
                worker.join_terminated()
