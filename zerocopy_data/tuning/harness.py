"""Measures loaders side by side: each in a process of its own, taking turns, round after round.

What drifts on a machine (clock rate, a neighbour's load, the page cache) then strikes all of them alike.
Starting up is never counted: a process is built once and told to run, and each measurement begins with an
epoch that is thrown away.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ..errors import ConfigError, ZcdError
from .processes import PeakMemory, cpu_seconds
from .statistics import Estimate, estimate

# Spawned, not forked: an arm starts as a program of its own would.
SPAWN = multiprocessing.get_context("spawn")


class BenchError(ZcdError):
    """An arm of a benchmark failed."""


def check_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names that a benchmark does not know.

    Raises:
        ConfigError: there is one; the message lists those that exist.
    """
    there = list(known)
    for name in names:
        if name not in there:
            raise ConfigError(f"there is no {kind} {name!r}; there are {', '.join(there)}")


class Runner(Protocol):
    """A loader that is ready to run."""

    def epoch(self) -> int:
        """Runs one epoch and lets go of every batch.

        Returns:
            How many items it delivered.
        """


@dataclass(frozen=True)
class Arm:
    """One loader on one workload; `build` runs in the arm's own process and must be importable there."""

    loader: str
    workload: str
    build: Callable[..., Runner]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        repeats: Rounds; each gives one sample per arm.
        min_seconds: Whole epochs are counted until this much time has passed.
        cores: Bind each arm, with all its threads and processes, to this many cores; None leaves it free.
    """

    repeats: int = 5
    min_seconds: float = 2.0
    cores: int | None = None


@dataclass
class Sample:
    """One measurement."""

    items: int
    seconds: float
    cpu_seconds: float


@dataclass
class Result:
    """All measurements of one arm."""

    arm: Arm
    samples: list[Sample] = field(default_factory=list)
    peak_pss_bytes: int = 0

    @property
    def rates(self) -> list[float]:
        """Items per second, one per round."""
        return [sample.items / sample.seconds for sample in self.samples]

    def as_json(self) -> dict[str, Any]:
        """The form that every `zcd bench` has."""
        rate = estimate(self.rates)
        cpu = estimate([sample.cpu_seconds / sample.items for sample in self.samples])
        return {
            "loader": self.arm.loader,
            "workload": self.arm.workload,
            "items_per_s": round(rate.median, 1),
            "low": round(rate.low, 1),
            "high": round(rate.high, 1),
            "cpu_s_per_item": cpu.median,
            "peak_pss_mb": round(self.peak_pss_bytes / 1e6, 1),
            "repeats": len(self.samples),
            "samples": [round(one, 1) for one in self.rates],
        }


def ratio(result: Result, baseline: Result) -> Estimate:
    """How many times faster: the median over the rounds of the ratio within each round."""
    pairs = zip(result.rates, baseline.rates, strict=True)
    return estimate([ours / theirs for ours, theirs in pairs])


def _serve(connection: Connection, arm: Arm, cores: int | None) -> None:
    """The life of an arm's process: build, then one epoch for every message, until the pipe closes."""
    # Ctrl-C reaches the whole group; the parent decides, and closing the pipe is how it says so.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if cores is not None:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        runner = arm.build(*arm.arguments)
        connection.send(("ready", None))
        while connection.recv() is not None:
            before = cpu_seconds(os.getpid())
            start = time.perf_counter()
            items = runner.epoch()
            seconds = time.perf_counter() - start
            connection.send(("done", Sample(items, seconds, cpu_seconds(os.getpid()) - before)))
    except EOFError:
        return
    except BaseException:
        with contextlib.suppress(OSError):  # the parent has gone: nobody is left to tell
            connection.send(("failed", traceback.format_exc()))


class ArmProcess:
    """An arm in its own process, as its parent sees it."""

    def __init__(self, arm: Arm, plan: Plan) -> None:
        self.arm = arm
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, arm, plan.cores))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process.pid is not None
        return self._process.pid

    def _answer(self) -> Sample | None:
        try:
            kind, content = self._connection.recv()
        except EOFError:
            self._process.join()
            status = self._process.exitcode
            raise BenchError(f"{self.arm.loader} on {self.arm.workload}: its process ended with {status}") from None
        if kind == "failed":
            raise BenchError(f"{self.arm.loader} on {self.arm.workload} failed:\n{content}")
        sample: Sample | None = content
        return sample

    def wait_ready(self) -> None:
        """Waits until the arm is built."""
        self._answer()

    def epoch(self) -> Sample:
        """One epoch."""
        self._connection.send("epoch")
        sample = self._answer()
        assert sample is not None
        return sample

    def measure(self, min_seconds: float) -> Sample:
        """An epoch that is thrown away, then whole epochs, at least one, until `min_seconds` have passed."""
        self.epoch()
        total = self.epoch()
        while total.seconds < min_seconds:
            one = self.epoch()
            total.items += one.items
            total.seconds += one.seconds
            total.cpu_seconds += one.cpu_seconds
        return total

    def close(self) -> None:
        """Ends the process; one that does not end within ten seconds is killed."""
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def measure(arms: Sequence[Arm], plan: Plan, progress: Callable[[str], None] = lambda message: None) -> list[Result]:
    """Measures all arms.

    The rates come from `plan.repeats` rounds in which every arm has its turn. Peak memory is that of each arm
    alone, in a fresh process, over two epochs that are not timed.

    Raises:
        BenchError: An arm failed; the message holds its traceback.
    """
    results = [Result(arm) for arm in arms]
    processes: list[ArmProcess] = []
    try:
        for arm in arms:
            progress(f"{arm.workload}: starting {arm.loader}")
            processes.append(ArmProcess(arm, plan))
            processes[-1].wait_ready()
        for number in range(plan.repeats):
            for process, result in zip(processes, results, strict=True):
                arm = process.arm
                progress(f"{arm.workload}: round {number + 1} of {plan.repeats}, {arm.loader}")
                result.samples.append(process.measure(plan.min_seconds))
    finally:
        close_all(processes)
    for result in results:
        progress(f"{result.arm.workload}: memory of {result.arm.loader}")
        result.peak_pss_bytes = peak_memory(result.arm, plan).peak_bytes
    return results


def peak_memory(arm: Arm, plan: Plan) -> PeakMemory:
    """The peaks of an arm in a fresh process, from its start through two epochs.

    Raises:
        BenchError: The arm failed; the message holds its traceback.
    """
    process = ArmProcess(arm, plan)
    try:
        with PeakMemory(process.pid) as memory:
            process.wait_ready()
            process.epoch()
            process.epoch()
        return memory
    finally:
        process.close()


def close_all(processes: Iterable[ArmProcess]) -> None:
    """Ends every process, also when ending one of them fails."""
    for process in processes:
        process.close()
