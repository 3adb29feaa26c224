"""What runs in a worker process: torch's worker loop, whose result queue puts batches into slots."""

from __future__ import annotations

import faulthandler
import gc
import queue
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import collate as torch_collate

from ..memory.slots import SlotPool
from . import batch_memory
from .transport.channel import Sender
from .worker_state import WorkerHook

# With nothing to do for one of torch's status intervals (5 s), slots beyond those of the last few batches go back.
_IDLE_BATCHES = 4
_WAKE_SECONDS = 0.5


class ResultQueue:
    """The queue that torch's worker loop puts (number, batch) into.

    Before the worker starts it is only the worker's end of the socket; inside, `open` makes the sender.

    Args:
        connection: The worker's end.
        worker: The worker's number.
        stacks: Whether SIGUSR1 prints the stacks of this process.
    """

    def __init__(self, connection: socket.socket, worker: int, stacks: bool) -> None:
        self._connection = connection
        self._worker = worker
        self._stacks = stacks
        self._sender: Sender | None = None

    def open(self) -> Sender:
        """Called in the worker, once."""
        self._sender = Sender(self._connection)
        if self._stacks:
            faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
        return self._sender

    def put(self, item: tuple[Any, Any]) -> None:
        """Sends one of torch's messages. What cannot be pickled arrives as an error in place of the batch."""
        assert self._sender is not None
        try:
            self._sender.send(item)
        except Exception:
            failure = ExceptionWrapper(where=f"in DataLoader worker process {self._worker}")  # type: ignore[no-untyped-call]
            self._sender.send((item[0], failure))

    def close(self) -> None:
        """Closes the socket."""
        self._connection.close()

    def cancel_join_thread(self) -> None:
        """There is no thread: torch asks queues for this."""


class IndexQueue:
    """torch's index queue, which gives memory back when there is nothing to do.

    It also says that it is over when the flag says so: an iterator that ends in a garbage cycle may lose torch's own
    last message, and the worker would sleep out its interval.
    """

    def __init__(self, inner: Any, sender: Sender, done: Any) -> None:
        self._inner = inner
        self._sender = sender
        self._done = done

    def get(self, timeout: float) -> Any:
        """The next task; None when it is over."""
        end = time.monotonic() + timeout
        while True:
            try:
                return self._inner.get(timeout=max(0.0, min(_WAKE_SECONDS, end - time.monotonic())))
            except queue.Empty:
                if self._done.is_set():
                    return None
                if self._sender.is_alone():
                    raise SystemExit(0) from None  # its process died before torch's watchdog knew its pid
                if time.monotonic() >= end:
                    self._sender.pool.trim(_IDLE_BATCHES)
                    raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def run_worker(loop: Callable[..., None], arguments: Sequence[Any], hook: WorkerHook | None = None) -> None:
    """Body of a worker: `loop` is torch's, with its arguments; `hook` keeps the dataset's state."""
    # The garbage collector writes to every object that it looks at, and each such page would be copied. What the
    # parent process made is none of its business here.
    gc.freeze()
    arguments = list(arguments)
    place = next(i for i, value in enumerate(arguments) if isinstance(value, ResultQueue))
    results: ResultQueue = arguments[place]
    sender = results.open()
    arguments[place - 1] = IndexQueue(arguments[place - 1], sender, arguments[place + 1])
    if hook is not None:
        arguments[place] = hook.install(results)
    _collate_into_slots(sender.pool)
    loop(*arguments)


def _collate_into_slots(pool: SlotPool) -> None:
    """Has default collation stack tensors straight into slots, unless the user replaced torch's function for them."""
    batch_memory.use_slots(pool)
    table = torch_collate.default_collate_fn_map
    theirs = torch_collate.collate_tensor_fn
    if table.get(torch.Tensor) is not theirs:
        return

    def collate_tensor(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        # torch's function fails on lazily conjugated samples.
        batch = [tensor.resolve_conj().resolve_neg() if _is_lazy(tensor) else tensor for tensor in batch]
        first = batch[0]
        if type(first) is torch.Tensor and not any(_needs_torch(tensor, first) for tensor in batch):
            # As in torch's workers the batch is contiguous; without `out` it would take on its samples' strides.
            return torch.stack(batch, 0, out=batch_memory.empty((len(batch), *first.shape), first.dtype))
        return theirs(batch, collate_fn_map=collate_fn_map)

    table[torch.Tensor] = collate_tensor


def _is_lazy(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and not tensor.requires_grad and (tensor.is_conj() or tensor.is_neg())


def _needs_torch(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    return (
        tensor.layout is not torch.strided
        or tensor.device.type != "cpu"
        or tensor.requires_grad
        or tensor.is_quantized
        or tensor.is_nested
        or tensor.dtype is not first.dtype
        or tensor.shape != first.shape
        or type(tensor) is not torch.Tensor
    )
