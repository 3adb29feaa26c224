"""Runs shard tasks in this process or in several, and leaves none behind."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import PackError
from .shard_job import Report, ShardResult, ShardTask, write_shard
from .worker import start_worker


def run_tasks(tasks: Sequence[ShardTask], jobs: int, report: Report) -> list[ShardResult]:
    """Makes all shards on about `jobs` cores and returns their results in the order of the tasks.

    A process that stores bytes unchanged keeps two cores busy, one reading and one writing: half as many are
    started. What one process can do is done in this one. Cores that would idle, because fewer shards are left
    than processes, go to the remaining shards as threads.

    Raises:
        ZcdError: the first error of any task; the others are stopped.
        PackError: a worker process died.
    """
    processes = (jobs + 1) // 2 if tasks[0].recipe.unchanged else jobs
    processes = min(processes, len(tasks))
    if processes == 1:
        return [write_shard(replace(task, threads=jobs), report) for task in tasks]
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
        running: dict[Connection, int] = {}
        upcoming = iter(range(len(tasks)))
        left = len(tasks)

        def give_next(connection: Connection) -> None:
            nonlocal left
            number = next(upcoming, None)
            if number is None:
                return
            left -= 1
            running[connection] = number
            self._talk(
                connection,
                tasks[number],
                lambda: connection.send(replace(tasks[number], threads=max(1, jobs // (left + 1)))),
            )

        for connection in self._workers:
            give_next(connection)
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                number = running[ready]
                message = self._talk(ready, tasks[number], ready.recv)
                if message[0] == "progress":
                    report(*message[1:])
                elif message[0] == "error":
                    raise message[1]
                else:
                    results[number] = message[1]
                    del running[ready]
                    give_next(ready)
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
