"""A multiprocessing context that gives torch's iterator our result queue and starts its workers with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .done_flag import DoneFlag
from .process_worker import ResultQueue, run_worker
from .shared_pickle import SharedPickle
from .transport import channel
from .transport.reader import Reader
from .worker_state import WorkerHook

# All workers of an iterator together have this long to end by themselves; torch gives it to each of them.
SHUTDOWN_SECONDS = 5.0
_GRACE_SECONDS = 0.5  # from SIGTERM to SIGKILL


class Worker:
    """A worker process, with the socket that it is given when it starts.

    Everything else is the process's own: torch and its users see `pid`, `is_alive`, `exitcode`, ….
    """

    def __init__(
        self, process: Any, results: ResultQueue, started: Callable[[Any], None], abandoned: Callable[[], None]
    ):
        self.__dict__.update(
            _process=process,
            _results=results,
            _started=started,
            _abandoned=abandoned,
            _deadline=None,
            _terminated=False,
        )

    def start(self) -> None:
        """Starts the process and leaves it the only holder of its end of the socket."""
        try:
            self._process.start()
        except BaseException:
            self._abandoned()
            raise
        finally:
            self._results.close()
        self._started(self._process)

    def share_deadline(self, deadline: float) -> None:
        """Makes joins end at a common time."""
        self.__dict__["_deadline"] = deadline

    def join(self, timeout: float | None = None) -> None:
        """Waits for the process. One that ignores SIGTERM is killed."""
        if self._terminated:
            self._process.join(_GRACE_SECONDS)
            if self._process.is_alive():
                self._process.kill()
        if self._deadline is not None and timeout is not None:
            timeout = min(timeout, max(0.1, self._deadline - time.monotonic()))
        self._process.join(timeout)

    def terminate(self) -> None:
        """Sends SIGTERM. The process has not wasted the common time if it is slow to die of this."""
        self.__dict__.update(_deadline=None, _terminated=True)
        self._process.terminate()

    def join_terminated(self) -> None:
        """Waits for a process that got SIGTERM from here, so that none is left as a zombie."""
        if self._terminated:
            self.join(SHUTDOWN_SECONDS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._process, name, value)


class WorkerContext:
    """Wraps the context (or module) that torch would use.

    Args:
        context: torch.multiprocessing or a context.
        reader: What torch takes for the result queue.
        stacks: Whether workers print their stacks on SIGUSR1.
        hook: Gives by a worker's number what `run_worker` installs there, or None.
    """

    def __init__(
        self, context: Any, reader: Reader, stacks: bool, hook: Callable[[int], WorkerHook | None] = lambda _: None
    ) -> None:
        self._hook = hook
        self._context = context
        self._reader = reader
        self._queues = 0
        self._stacks = stacks
        self._forks = context.get_start_method() == "fork"
        self._shared: SharedPickle | None = None

    def Queue(self) -> Any:  # noqa: N802 (multiprocessing's name)
        """The reader first, as torch asks for its result queue first; then queues for indices."""
        self._queues += 1
        return self._reader if self._queues == 1 else self._context.Queue()

    def Event(self) -> DoneFlag:  # noqa: N802
        """The flag that says that it is over."""
        return DoneFlag()

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> Worker:  # noqa: N802
        """A worker that runs torch's loop over our result queue."""
        ours, theirs = channel.pair()
        self._reader.starting(ours)
        arguments = list(args)
        place = next(i for i, value in enumerate(arguments) if value is self._reader)
        number = self._queues - 2
        arguments[place] = results = ResultQueue(theirs, number, self._stacks)
        if not self._forks:
            # The dataset is the second argument; since torch 2.14 in a list that the worker empties.
            held = arguments[1]
            inside = isinstance(held, list) and len(held) == 1
            if self._shared is None:
                self._shared = SharedPickle(held[0] if inside else held)
            arguments[1] = [self._shared] if inside else self._shared
        process = self._context.Process(target=run_worker, args=(target, arguments, self._hook(number)))
        return Worker(process, results, lambda started: self._reader.add(number, ours, started), ours.close)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
