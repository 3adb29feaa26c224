"""Treats worker processes and batches badly, at random, and checks that nothing hangs, leaks or changes.

    tools/dev run python tools/torture.py [--seconds 600] [--kills 200] [--seed 0]

Every round opens a loader with random options over rows that carry a checksum of themselves, and then does one
of: read to the end, break off, raise, keep everything, keep some and drop some, kill a worker with SIGKILL at a
random moment, drop the iterator while workers are busy. Kept batches are checked again much later. Each round has a
deadline: a round that takes longer is a hang, and the stacks are printed. At the end the process must have the
descriptors, threads, children and shared memory that it began with. The limit for open files is set to 256; where
the system allows it, /dev/shm is replaced by one of 64 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import os
import random
import resource
import signal
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from zerocopy_data import DataLoader

OPEN_FILES = 256
SHM_BYTES = 64 << 20
ROUND_SECONDS = 90.0
_CLONE_NEWNS = 0x00020000  # <linux/sched.h>
_MS_REC_PRIVATE = 0x4000 | 0x40000  # <linux/mount.h>: MS_REC | MS_PRIVATE


class TortureError(Exception):
    """Something is wrong with the library."""


def row(number: int, largest: int) -> dict[str, Any]:
    """A row of random leaves; `sum` is the checksum of the others."""
    rng = np.random.default_rng(number)
    size = int(rng.integers(0, largest)) if number % 7 else 0
    data = rng.integers(0, 256, size, dtype=np.uint8)
    tensor = torch.from_numpy(rng.random((int(rng.integers(1, 40)), 500)).astype(np.float32))
    fixed = torch.from_numpy(rng.integers(-9, 9, (30_000,)))
    text = "x" * int(rng.integers(0, 50_000))
    return {
        "number": number,
        "data": data,
        "tensor": tensor,
        "fixed": fixed,
        "text": text,
        "sum": checksum(data, tensor, fixed, text),
    }


def checksum(data: Any, tensor: torch.Tensor, fixed: torch.Tensor, text: str) -> int:
    """CRC-32 over all leaves."""
    total = zlib.crc32(np.ascontiguousarray(data))
    for part in (tensor.numpy(), fixed.numpy()):
        total = zlib.crc32(np.ascontiguousarray(part), total)
    return zlib.crc32(text.encode(), total)


class Rows(Dataset[Any]):
    """Rows by number; some are slow, and one in a thousand raises."""

    def __init__(self, length: int, largest: int, pause: float) -> None:
        self.length, self.largest, self.pause = length, largest, pause

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index % 1000 == 999:
            raise ValueError(f"row {index}")
        if self.pause and index % 13 == 0:
            time.sleep(self.pause)
        return row(index, self.largest)


class Stream(IterableDataset[Any]):
    """The same rows, dealt out to the workers."""

    def __init__(self, length: int, largest: int) -> None:
        self.length, self.largest = length, largest

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.length, step):
            yield row(number, self.largest)


def collect(rows: list[Any]) -> list[Any]:
    """No collation."""
    return rows


def collate(rows: list[Any]) -> Any:
    """Default collation of what has one shape; the rest as it is."""
    fixed = torch.utils.data.default_collate([one["fixed"] for one in rows])
    return [{**one, "fixed": fixed[i]} for i, one in enumerate(rows)]


def check(batch: list[Any]) -> None:
    """Every row of a batch has the sum that it carries."""
    for one in batch:
        if checksum(one["data"], one["tensor"], one["fixed"], one["text"]) != one["sum"]:
            raise TortureError(f"row {one['number']} is not what it was")


class Round:
    """One loader and what is done to it."""

    def __init__(self, chance: random.Random, kept: list[Any]) -> None:
        self.chance = chance
        self.kept = kept
        self.killed = False

    def run(self, kill: bool) -> str:
        """Runs it; returns what it did."""
        chance = self.chance
        length, largest = chance.choice([3, 20, 60, 150]), chance.choice([10, 1000, 200_000, 1_000_000])
        iterable = chance.random() < 0.25
        data: Any = Stream(length, largest) if iterable else Rows(length, largest, chance.choice([0, 0, 0.02]))
        persistent = chance.random() < 0.3
        loader = DataLoader(
            data,
            batch_size=chance.choice([1, 2, 5, 16]),
            shuffle=None if iterable else chance.random() < 0.5,
            num_workers=chance.choice([1, 2, 3]),
            collate_fn=chance.choice([collect, collate]),
            prefetch_factor=chance.choice([1, 2, 4]),
            persistent_workers=persistent,
            in_order=chance.random() < 0.8,
        )
        how = "kill" if kill else chance.choice(["end", "break", "raise", "keep", "mix", "drop"])
        for _ in range(2 if persistent and how in ("end", "mix") else 1):
            try:
                self._epoch(loader, how, length)
                time.sleep(0.05 if kill else 0)  # for the signal of a child that has just died
            except RuntimeError as error:
                # torch's handler of SIGCHLD raises wherever the main thread is, not only in next().
                if not kill or "DataLoader worker" not in str(error):
                    raise
        return how

    def _epoch(self, loader: DataLoader[Any], how: str, length: int) -> None:
        iterator = iter(loader)
        stop = self.chance.randrange(1, 8)
        mine: list[Any] = []
        timer = None
        if how == "kill":
            victim = self.chance.choice(iterator._workers).pid
            timer = threading.Timer(self.chance.random() * 0.15, self._kill, (victim,))
            timer.start()
        rows = count = 0
        try:
            while True:
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                except ValueError as error:
                    if "row " not in str(error):
                        raise
                    continue
                check(batch)
                rows += len(batch)
                count += 1
                if how in ("break", "raise", "drop") and count == stop:
                    if how == "raise":
                        raise ZeroDivisionError
                    return
                if how == "keep" or (how == "mix" and self.chance.random() < 0.5):
                    mine.append(batch)
                if how == "mix" and self.chance.random() < 0.2:
                    mine.clear()
            if how != "kill" and rows != length:
                raise TortureError(f"{rows} rows of {length} came")
        except ZeroDivisionError:
            return
        finally:
            if timer is not None:
                timer.join()
            self.kept += mine

    def _kill(self, victim: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it had ended by itself
            os.kill(victim, signal.SIGKILL)
            self.killed = True


def census() -> dict[str, int]:
    """What must be the same at the end."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    maps = Path("/proc/self/maps").read_text()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "children": len(children),
        "slots mapped": maps.count("memfd:zcd"),
        "files in /dev/shm": len(list(Path("/dev/shm").iterdir())),
    }


def settled(start: dict[str, int]) -> dict[str, int]:
    """The census, once what ends by itself (torch's feeder threads) has had its time."""
    deadline = time.monotonic() + 15
    while (now := census()) != start and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def small_shm() -> bool:
    """Replaces /dev/shm by one of 64 MB, for this process alone. Needs the right to mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0 or libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) != 0:
        return False
    return bool(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={SHM_BYTES}".encode()) == 0)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="go on for at least this long")
    parser.add_argument("--kills", type=int, default=200, help="and until so many workers have been killed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    shm = small_shm()
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    torch.set_num_threads(1)
    chance = random.Random(options.seed)
    list(DataLoader(Rows(4, 10, 0), num_workers=1, collate_fn=collect))  # what is opened once for the process
    start = census()
    print(f"open files: {OPEN_FILES}; /dev/shm of 64 MB: {'yes' if shm else 'not allowed here'}; at the start: {start}")
    begun, kept, kills, rounds = time.monotonic(), [], 0, 0
    told = begun
    while time.monotonic() - begun < options.seconds or kills < options.kills:
        share = min(1.0, (time.monotonic() - begun + 1) / options.seconds) if options.seconds else 1.0
        faulthandler.dump_traceback_later(ROUND_SECONDS, exit=True)
        one = Round(chance, kept)
        one.run(kill=kills < options.kills * share)
        faulthandler.cancel_dump_traceback_later()
        kills += one.killed
        rounds += 1
        while len(kept) > 60:
            old = kept.pop(chance.randrange(len(kept)))
            check(old)
            del old
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{told - begun:5.0f} s: {rounds} rounds, {kills} kills, {len(kept)} batches kept", flush=True)
    for old in kept:
        check(old)
    kept.clear()
    old = one = None  # type: ignore[assignment]
    end = settled(start)
    print(f"{rounds} rounds, {kills} workers killed, {time.monotonic() - begun:.0f} s; at the end: {end}")
    if end != start:
        print("FAILS: something was left behind")
        return 1
    print("holds: no hang, no leak, no wrong byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
