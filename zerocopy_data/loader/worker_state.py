"""The states of datasets in worker processes: taken after each batch, sent ahead of it, restored at the start.

The worker's half is `WorkerHook`; the consumer's, `WorkerStates`, keeps of each worker the state that belongs to its
last batch that was returned, whatever has been prefetched since.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import _IterableDatasetStopIteration
from torch.utils.data.dataloader import _DatasetKind

from .draws import is_stateful


def dataset_state(fetcher: Any, iterable: bool, ended: bool = False) -> dict[str, Any] | None:
    """The state of a dataset and of its iterator; None where neither has one.

    Args:
        fetcher: torch's, which holds both.
        iterable: Whether the dataset is an IterableDataset.
        ended: Whether its iterator is known to be exhausted.
    """
    dataset = fetcher.dataset
    found: dict[str, Any] = {}
    if not iterable:
        return {"dataset": dataset.state_dict()} if is_stateful(dataset) else None
    if is_stateful(fetcher.dataset_iter):
        found["iterator"] = fetcher.dataset_iter.state_dict()
    if fetcher.dataset_iter is dataset:
        if found:
            found["same"] = True  # they are one object
    elif is_stateful(dataset):
        found["dataset"] = dataset.state_dict()
    if found and (ended or fetcher.ended):
        found["ended"] = True
    return found or None


def restore_dataset(dataset: Any, state: dict[str, Any] | None) -> None:
    """Before the dataset's iterator is made."""
    if state is not None and "dataset" in state and is_stateful(dataset):
        dataset.load_state_dict(state["dataset"])


def restore_iterator(fetcher: Any, state: dict[str, Any] | None) -> None:
    """After it."""
    if state is not None:
        if "iterator" in state and is_stateful(fetcher.dataset_iter):
            fetcher.dataset_iter.load_state_dict(state["iterator"])
        fetcher.ended = state.get("ended", False)


@dataclass(frozen=True)
class Snapshot:
    """In the place of a batch's number: the state of a worker's dataset after that batch comes with it."""

    worker: int
    number: int


@dataclass
class WorkerHook:
    """What a worker does for the state of its dataset. Goes to the worker when it starts.

    Args:
        worker: Its number.
        workers: How many there are.
        every: Batches between states; None for none.
        state: What to restore.
        left: Batches of the epoch that begins, where the dataset lives on after it: then its state at the end is due
            too. None where it does not.
        length: Batches of the epochs after that.
    """

    worker: int
    workers: int
    every: int | None
    state: dict[str, Any] | None
    left: int | None = None
    length: int | None = None
    _fetcher: Any = None
    _iterable: bool = False

    def install(self, results: Any) -> Any:
        """Called in the worker, before torch's loop runs. Returns the result queue for it."""
        create = _DatasetKind.create_fetcher

        # torch's loop keeps the fetcher to itself; this is where it comes from. Only this process is concerned.
        def create_fetcher(kind: int, dataset: Any, *rest: Any) -> Any:
            state, self.state = self.state, None
            if self._fetcher is not None:  # persistent workers get a new one for each epoch
                self.left = self.length
            restore_dataset(dataset, state)
            self._iterable = kind == _DatasetKind.Iterable
            self._fetcher = create(kind, dataset, *rest)  # type: ignore[no-untyped-call]
            if self._iterable:
                restore_iterator(self._fetcher, state)
            return self._fetcher

        _DatasetKind.create_fetcher = staticmethod(create_fetcher)  # type: ignore[method-assign]
        return _SnapshotQueue(results, self)

    def take(self, number: int, data: Any) -> bytes | None:
        """The state after a batch, if it is due and there is one."""
        ended = isinstance(data, _IterableDatasetStopIteration)
        # Of the last batches before a boundary each worker that is still active makes one.
        due = self.every and number % self.every + self.workers >= self.every
        due = due or (self.left is not None and number + self.workers >= self.left)
        if self._fetcher is None or not (due or ended):
            return None
        state = dataset_state(self._fetcher, self._iterable, ended)
        return None if state is None else pickle.dumps(state, 5)


class _SnapshotQueue:
    """A worker's result queue that sends the state ahead of each batch."""

    def __init__(self, results: Any, hook: WorkerHook) -> None:
        self._results = results
        self._hook = hook

    def put(self, item: tuple[Any, Any]) -> None:
        number, data = item
        if isinstance(number, int):
            try:
                state = self._hook.take(number, data)
            except Exception:
                worker = self._hook.worker
                data = ExceptionWrapper(where=f"in state_dict() in DataLoader worker process {worker}")  # type: ignore[no-untyped-call]
                item = number, data
            else:
                if state is not None:
                    self._results.put((Snapshot(self._hook.worker, number), state))
        self._results.put(item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)


@dataclass
class WorkerStates:
    """The workers' states as of the last batch that counts.

    Attributes:
        states: Pickled, by worker; None where the worker has sent none.
        last: The worker whose batch was the last that counts; -1 before any.
    """

    states: list[bytes | None]
    last: int = -1
    latest: dict[int, bytes] = field(default_factory=dict)
    _arrived: list[tuple[int, int, bytes]] = field(default_factory=list)

    def arrived(self, snapshot: Snapshot, state: bytes) -> None:
        """A worker has sent a state; it counts when its batch does."""
        self._arrived.append((snapshot.number, snapshot.worker, state))
        self.latest[snapshot.worker] = state

    def count(self, limit: int) -> None:
        """Batches before this number count from now on."""
        for number, worker, state in sorted(self._arrived):
            if number < limit:
                self.states[worker] = state
        self._arrived = [entry for entry in self._arrived if entry[0] >= limit]

    def next_epoch(self) -> WorkerStates:
        """For persistent workers, which go into the next epoch with the datasets that they have."""
        between = [self.latest.get(worker, state) for worker, state in enumerate(self.states)]
        return WorkerStates([pack(epoch_end(unpack(state))) for state in between])

    def known(self) -> bool:
        """Whether any dataset has a state."""
        return any(state is not None for state in self.states)


def epoch_end(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """What of a dataset's state goes over into the next epoch, whose iterator is a new one."""
    if state is None:
        return None
    kept = state.get("iterator" if "same" in state else "dataset")
    return None if kept is None else {"dataset": kept}


def pack(state: dict[str, Any] | None) -> bytes | None:
    return None if state is None else pickle.dumps(state, 5)


def unpack(state: bytes | None) -> dict[str, Any] | None:
    return None if state is None else pickle.loads(state)


def unpack_all(states: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
    """States as their owners gave them; new objects each time."""
    return [unpack(state) for state in states]
