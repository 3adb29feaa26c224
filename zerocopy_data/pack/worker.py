"""The worker process of a pack: makes shards for the parent until the parent goes away.

A plain subprocess rather than multiprocessing: it does not import the caller's main module, so packing
works from any script, notebook or REPL without a `__main__` guard.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection, Pipe

from ..errors import PackError, ZcdError
from .shard_job import ShardMaker, ShardResult, ShardTask

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

_COMMAND = "import sys; sys.path[:] = {path!r}; from zerocopy_data.pack.worker import main; main({fd}, {parent})"


def start_worker() -> tuple[subprocess.Popen[bytes], Connection]:
    """Starts a worker and returns it with the connection that takes ShardTasks and gives messages.

    Messages are ('progress', rows, bytes, skipped), ('free',) when it can take the next task, ('done', ShardResult) in
    the order of the tasks, and ('error', ZcdError).
    """
    ours, theirs = Pipe()
    command = _COMMAND.format(path=sys.path, fd=theirs.fileno(), parent=os.getpid())
    # Blocked signals are inherited: Ctrl-C at the terminal is for the parent, which ends its workers.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", command], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
    except BaseException:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        theirs.close()
    return process, ours


def main(descriptor: int, parent: int) -> None:
    """Body of the worker process."""
    _die_with_parent(parent)
    connection = Connection(descriptor)
    sending = threading.Lock()

    def send(*message: object) -> None:
        with sending:
            connection.send(message)

    def failed(task: ShardTask, error: BaseException) -> None:
        if not isinstance(error, ZcdError):
            error = PackError(f"{task.folder / task.name} could not be made: {error!r}.")
        send("error", _picklable(error))

    def written(task: ShardTask, shard: Future[ShardResult]) -> None:  # in the maker's writing thread
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            error = shard.exception()
            if error is None:
                send("done", shard.result())
            else:
                failed(task, error)

    def report(rows: int, size: int, skipped: int) -> None:
        send("progress", rows, size, skipped)

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), ShardMaker(report) as maker:
        while True:
            task = connection.recv()
            assert isinstance(task, ShardTask)
            try:
                maker.make(task).add_done_callback(partial(written, task))
            except (ZcdError, MemoryError, OSError) as error:
                failed(task, error)
            else:
                send("free")


def _die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, even by SIGKILL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request was made
        os._exit(1)


def _picklable(error: ZcdError) -> ZcdError:
    error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return PackError(str(error))
    return error
