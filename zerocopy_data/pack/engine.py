"""Runs shard tasks in this process or in several, and leaves none behind."""

from __future__ import annotations

import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import PackError
from .shard_job import Report, ShardMaker, ShardResult, ShardTask
from .worker import start_worker

# Threads that decode in one process. Python's own part in an image is a few percent of its time, so that four of them
# seldom wait for its lock.
_THREADS_PER_PROCESS = 4


def run_tasks(tasks: Sequence[ShardTask], jobs: int, report: Report) -> list[ShardResult]:
    """Makes all shards on about `jobs` cores and returns their results in the order of the tasks.

    A process that stores bytes unchanged keeps two cores busy, one reading and one writing; one that decodes has
    several threads, which rarely need Python's lock. What one process can do is done in this one: starting another
    takes as long as packing some hundred images. Cores that would idle, because fewer shards are left than processes,
    go to the remaining shards as threads.

    Raises:
        ZcdError: the first error of any task; the others are stopped.
        PackError: a worker process died.
    """
    processes = -(-jobs // (2 if tasks[0].recipe.unchanged else _THREADS_PER_PROCESS))
    processes = min(processes, len(tasks))
    if processes == 1:
        with ShardMaker(report) as maker:
            shards = [maker.make(replace(task, threads=jobs)) for task in tasks]
            return [shard.result() for shard in shards]
    with _Workers(processes) as workers:
        return workers.run(tasks, jobs, report)


class _Workers:
    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: dict[Connection, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> _Workers:
        try:
            for _ in range(self._count):
                process, connection = start_worker()
                self._workers[connection] = process
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise PackError(f"a worker process could not be started: {error.strerror}.") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still runs; whoever cares about their temporary files removes them."""
        for process in self._workers.values():
            process.kill()
        for connection, process in self._workers.items():
            process.wait()
            connection.close()

    def run(self, tasks: Sequence[ShardTask], jobs: int, report: Report) -> list[ShardResult]:
        results: dict[int, ShardResult] = {}
        running: dict[Connection, deque[int]] = {connection: deque() for connection in self._workers}
        upcoming = iter(range(len(tasks)))
        left = len(tasks)

        def give_next(connection: Connection) -> None:
            nonlocal left
            number = next(upcoming, None)
            if number is None:
                return
            left -= 1
            running[connection].append(number)
            threads = max(jobs // self._count, jobs // (left + 1))
            self._talk(connection, tasks[number], lambda: connection.send(replace(tasks[number], threads=threads)))

        for connection in self._workers:
            give_next(connection)
        while busy := [connection for connection, numbers in running.items() if numbers]:
            for ready in wait(busy):
                assert isinstance(ready, Connection)
                message = self._talk(ready, tasks[running[ready][0]], ready.recv)
                if message[0] == "progress":
                    report(*message[1:])
                elif message[0] == "error":
                    raise message[1]
                elif message[0] == "free":  # it writes the end of its shard while it reads the next
                    give_next(ready)
                else:
                    results[running[ready].popleft()] = message[1]
        return [results[number] for number in range(len(tasks))]

    def _talk(self, connection: Connection, task: ShardTask, action: Callable[[], Any]) -> Any:
        """Sends or receives; a worker that is gone becomes an error that says how it went."""
        try:
            return action()
        except (EOFError, OSError) as error:
            code = self._workers[connection].wait()
            if code < 0:
                how = f"was killed by {signal.Signals(-code).name}"
                if -code == signal.SIGKILL:
                    how += " (the system does that when memory runs out: try fewer --jobs)"
            else:
                how = f"ended with exit code {code}"
            raise PackError(
                f"a worker process {how} while it made {task.folder / task.name}. "
                "The new dataset was not finished: pack again with --overwrite."
            ) from error
