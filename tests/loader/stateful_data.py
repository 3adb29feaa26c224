"""Datasets and samplers with and without states of their own, and how a run is stopped and taken up again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info


class Numbers(Dataset[int]):
    """Item i is i."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.loaded.append(index)
        return index


class Remembering(Dataset[tuple[int, int]]):
    """Map-style with a state: item i is (i, items made so far by this copy of the dataset)."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.made = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.made += 1
        return index, self.made

    def state_dict(self) -> dict[str, Any]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.made = state["made"]


def share_of_worker(size: int) -> tuple[int, int]:
    """What this worker serves of `size` numbers: uneven on purpose, worker 0 the least."""
    info = get_worker_info()
    if info is None:
        return 0, size
    per = size // (info.num_workers * (info.num_workers + 1) // 2)
    start = per * (info.id * (info.id + 1) // 2)
    return start, size if info.id == info.num_workers - 1 else start + per * (info.id + 1)


class Stream(IterableDataset[int]):
    """Without any state."""

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        yield from range(*share_of_worker(self.size))


class StatefulStream(IterableDataset[int]):
    """The dataset has the state, its iterator is a generator. Begins again after its end."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.done = 0
        self.epochs = 0

    def __iter__(self) -> Iterator[int]:
        start, end = share_of_worker(self.size)
        for number in range(start + self.done, end):
            self.done += 1
            yield number + 1000 * self.epochs
        self.done = 0
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        self.epochs = state["epochs"]


class SelfIterating(IterableDataset[int]):
    """Is its own iterator, and begins at the front when it is asked for one."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.at = 0

    def __iter__(self) -> SelfIterating:
        self.at, self.end = share_of_worker(self.size)
        return self

    def __next__(self) -> int:
        if self.at >= self.end:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class _Walk:
    def __init__(self, start: int, end: int) -> None:
        self.at, self.end = start, end

    def __iter__(self) -> _Walk:
        return self

    def __next__(self) -> int:
        if self.at >= self.end:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": torch.tensor(self.at)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = int(state["at"])


class StreamWithStatefulIterator(IterableDataset[int]):
    """Only its iterators have a state, with a tensor in it."""

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __iter__(self) -> _Walk:
        return _Walk(*share_of_worker(self.size))


class StatefulSampler(Sampler[int]):
    """Has a state of its own: cannot be skipped through, since its order depends on the epochs that it has served."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.given = 0
        self.epochs = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        while self.given < self.size:
            self.given += 1
            yield (self.given * 7 + self.epochs) % self.size
        self.given = 0
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]
        self.epochs = state["epochs"]


class SamplerWithStatefulIterator(Sampler[int]):
    """Its iterators have a state."""

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> _Walk:
        return _Walk(0, self.size)


class StatefulBatches(Sampler[list[int]]):
    """A batch sampler with a state."""

    def __init__(self, size: int = 23) -> None:
        self.size = size
        self.given = 0

    def __len__(self) -> int:
        return -(-self.size // 3)

    def __iter__(self) -> Iterator[list[int]]:
        while self.given < len(self):
            start = 3 * self.given
            self.given += 1
            yield list(range(start, min(start + 3, self.size)))
        self.given = 0

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


def plain(batch: Any) -> Any:
    """A batch as Python numbers, for comparing."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [plain(value) for value in batch]
    return batch


def flat(batches: list[list[Any]]) -> list[Any]:
    """The samples of batches."""
    return [sample for batch in batches for sample in batch]


def stopped(make: Callable[[], Any], stop: int, epochs: int = 0) -> tuple[Any, list[Any], list[Any], Any]:
    """Stops a run after `epochs` and `stop` batches.

    Returns:
        The state (through pickle), the batches that were left of that epoch (after its end: of the next one), those
        of the epoch after, and the loader.
    """
    loader = make()
    for _ in range(epochs):
        list(loader)
    iterator = iter(loader)
    for _ in range(stop):
        next(iterator, None)  # one too many: after the epoch's end
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    left = [plain(batch) for batch in (loader if "finished" in state else iterator)]
    return state, left, [plain(batch) for batch in loader], loader


def resumed(make: Callable[[], Any], state: Any) -> tuple[list[Any], list[Any]]:
    """What a new loader gives after it has loaded the state: the rest of the epoch, and the next one."""
    loader = make()
    loader.load_state_dict(state)
    return [plain(batch) for batch in loader], [plain(batch) for batch in loader]


def batch_by_batch(make: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """An epoch for which a new loader takes over after every batch, and the same epoch from one loader."""
    whole = make()
    state = whole.state_dict()
    expected = [plain(batch) for batch in whole]
    got: list[Any] = []
    while len(got) <= len(expected):
        loader = make()
        loader.load_state_dict(state)
        batch = next(iter(loader), None)
        if batch is None:
            break
        got.append(plain(batch))
        state = loader.state_dict()
    return got, expected
