"""Datasets, samplers and hooks of the conformance tests, at module level so that spawned workers can import them."""

from __future__ import annotations

import collections
import dataclasses
import faulthandler
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info


class Range(Dataset[int]):
    """0 … n - 1, each its own index."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index


class Made(Dataset[Any]):
    """What a function makes of the index, in the worker."""

    def __init__(self, make: Callable[[Any], Any], n: int = 1) -> None:
        self.make = make
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        return self.make(index)


class Floats(Dataset[torch.Tensor]):
    """Sample i is a float32 [size] full of i."""

    def __init__(self, n: int, size: int = 4) -> None:
        self.n = n
        self.size = size

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.size,), float(index))


class Many(Dataset[int]):
    """Has `__getitems__`, which marks what went through it; `log` keeps the argument of the last call."""

    def __init__(self, n: int, how: Callable[[list[int]], list[Any]] | None = None) -> None:
        self.n = n
        self.how = how

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [1000 + i for i in indices] if self.how is None else self.how(indices)


class NoMany(Range):
    """Says with None that it has no `__getitems__`."""

    __getitems__ = None


class Stream(IterableDataset[Any]):
    """0 … n - 1, cut into equal pieces over the workers unless `whole`."""

    def __init__(self, n: int, whole: bool = False, length: int | None = None) -> None:
        self.n = n
        self.whole = whole
        self.length = length

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info is None or self.whole:
            return iter(range(self.n))
        return iter(range(info.id, self.n, info.num_workers))


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.n if self.length is None else self.length


class FailingIter(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        raise ValueError("no stream today")


class FailingStream(IterableDataset[Any]):
    """Yields `before` numbers, then fails."""

    def __init__(self, before: int) -> None:
        self.before = before

    def __iter__(self) -> Iterator[int]:
        yield from range(self.before)
        raise OSError("the stream broke")


class CountedSampler(Sampler[int]):
    """Counts how often it is asked for an iterator and how many indices were drawn from all of them."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.iters = 0
        self.drawn = 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        self.iters += 1
        return self._draw()

    def _draw(self) -> Iterator[int]:
        for index in range(self.n):
            self.drawn += 1
            yield index


class CountedBatches(CountedSampler):
    """A batch sampler that counts in the same way, batches of two."""

    def __len__(self) -> int:
        return self.n // 2

    def _draw(self) -> Iterator[Any]:
        for index in range(0, self.n, 2):
            self.drawn += 1
            yield [index, index + 1]


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Box:
    corner: Any
    names: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenBox:
    corner: Any


class Pinnable:
    """A batch type of a user's own, with the method that torch's pinning looks for."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.pinned = False

    def pin_memory(self) -> Pinnable:
        self.pinned = True
        return self


class Tagged(torch.Tensor):
    """A tensor subclass."""


class TwoArgumentsError(Exception):
    """Cannot be made from one string."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)


class WithMessageError(Exception):
    """Carries its text in an attribute."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NoArgumentsError(Exception):
    def __init__(self) -> None:
        super().__init__("fixed text")


class AnError(RuntimeError):
    pass


def raiser(make: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def fail(index: Any) -> Any:
        raise make()

    return fail


def seeds(index: Any) -> tuple[int, int, float, float, int]:
    """Worker's id, its seed, and what Python, numpy and torch draw first."""
    info = get_worker_info()
    assert info is not None
    return info.id, info.seed, random.random(), float(np.random.rand()), int(torch.randint(1 << 40, ()))


def worker_id(index: Any) -> int:
    info = get_worker_info()
    return -1 if info is None else info.id


def pid(index: Any) -> int:
    return os.getpid()


def exits(index: int) -> int:
    if index == 2:
        os._exit(3)
    return index


def dies_of(number: int) -> Callable[[int], int]:
    def die(index: int) -> int:
        if index == 2:
            if number == signal.SIGABRT:
                faulthandler.disable()  # pytest's would print its stacks; for other signals torch's handler is there
            os.kill(os.getpid(), number)
            time.sleep(30)
        return index

    return die


def ignores_sigterm_and_sleeps(index: int) -> int:
    if index >= 2:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    return index


def sleeps(seconds: float, first: int) -> Callable[[int], int]:
    def sample(index: int) -> int:
        if index >= first:
            time.sleep(seconds)
        return index

    return sample


def slow_even(index: int) -> int:
    if index == 0:
        time.sleep(0.5)
    return index


def as_is(batch: Any) -> Any:
    return batch


def as_point(batch: list[Any]) -> Point:
    return Point(torch.tensor(batch), [str(sample) for sample in batch])


def as_box(batch: list[Any]) -> Box:
    return Box(torch.tensor(batch), {"n": len(batch)})


def as_frozen_box(batch: list[Any]) -> FrozenBox:
    return FrozenBox(torch.tensor(batch))


def as_pinnable(batch: list[Any]) -> Pinnable:
    return Pinnable(torch.tensor(batch))


def as_nested(batch: list[Any]) -> Any:
    tensor = torch.tensor(batch)
    return {"a": [tensor, {"b": (tensor + 1, None, "text")}], "c": Point(tensor * 2, b"bytes"), 7: {1, 2}}


def as_numpy(batch: list[Any]) -> np.ndarray:
    return np.asarray(batch)


def as_none(batch: list[Any]) -> None:
    return None


def as_ordered(batch: list[Any]) -> collections.OrderedDict[str, Any]:
    return collections.OrderedDict(z=torch.tensor(batch), a=len(batch))


def as_scalar(batch: list[Any]) -> int:
    return sum(batch)


def as_empty(batch: list[Any]) -> list[Any]:
    return []


def as_tagged(batch: list[Any]) -> torch.Tensor:
    return torch.tensor(batch).as_subclass(Tagged)


def set_offset(worker: int) -> None:
    """Lets the worker's dataset copy add to its numbers."""
    info = get_worker_info()
    assert info is not None
    info.dataset.offset = 100 * (worker + 1)


class Offset(Range):
    offset = 0

    def __getitem__(self, index: int) -> int:
        return index + self.offset


def bad_init(worker: int) -> None:
    raise ValueError(f"worker {worker} does not want to start")


class Counter(Range):
    """Counts its own calls: the worker's copy keeps its state for as long as the worker lives."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.calls = 0

    def __getitem__(self, index: int) -> int:
        self.calls += 1
        return self.calls
