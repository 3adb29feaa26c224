"""The iterators of a StatefulDataLoader: those of a DataLoader, which note what has been returned."""

from __future__ import annotations

import copy
import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from ..errors import ConfigError
from .draws import Draws, GlobalRandomness, Mark, Start, TrackedSampler, is_stateful
from .process_iterator import ProcessIterator
from .worker_state import (
    Snapshot,
    WorkerHook,
    WorkerStates,
    dataset_state,
    restore_dataset,
    restore_iterator,
    unpack_all,
)

if TYPE_CHECKING:
    from .stateful import StatefulDataLoader

# torch 2.6 does not say whose batch it processes.
_TOLD_WORKER = len(inspect.signature(_MultiProcessingDataLoaderIter._process_data).parameters) > 2


@dataclass
class Resume:
    """Where an iterator begins, taken from a loaded state.

    Attributes:
        place: Where the sampler begins, for map-style datasets; None for the beginning of an epoch.
        base_seed: torch's seed of the workers; None to draw one.
        shared_seed: torch's seed of data pipes.
        generators: For the beginning of an epoch, the states of the generators; None to leave them.
        own: For the beginning of an epoch, the states of a sampler that has its own.
        rounds: Epochs that the iterator served before, with persistent workers.
        batches: Batches returned in this epoch up to the datasets' states.
        replay: Batches returned since then: they are made again and dropped.
        dataset: State of the dataset in this process.
        workers: States of the datasets in the workers.
    """

    place: tuple[Start, Mark] | None = None
    base_seed: int | None = None
    shared_seed: int | None = None
    generators: list[torch.Tensor] | None = None
    own: dict[str, Any] | None = None
    rounds: int = 0
    batches: int = 0
    replay: int = 0
    dataset: dict[str, Any] | None = None
    workers: WorkerStates | None = None


@dataclass
class Progress:
    """How far an epoch has been returned. Outlives its iterator, which ends when a loop breaks.

    Attributes:
        batches: Returned in this epoch, up to the batch that the workers' states are of.
        since: Returned since then.
        finished: Whether the epoch is over.
        constants: What the state says of the whole epoch.
        draws: The indices, for map-style datasets.
        workers: The states of the workers' datasets.
        dataset: Gives the state of the dataset in this process.
    """

    batches: int = 0
    since: int = 0
    finished: bool = False
    constants: dict[str, Any] = field(default_factory=dict)
    draws: Draws | None = None
    workers: WorkerStates | None = None
    dataset: Callable[[], dict[str, Any] | None] | None = None
    _limit: int = 0
    _consumed: int = 0
    _latest_worker: int = -1
    _final: dict[str, Any] = field(default_factory=dict)

    def returned(self, consumed: int, worker: int, every: int | None) -> None:
        """A batch has been returned; with it, so many draws have been used up.

        Args:
            consumed: Draws since the iterator began.
            worker: Whose batch it was.
            every: Batches between states of workers.
        """
        self._consumed = consumed
        if self.workers is None:
            self.batches += 1
            return
        limit = consumed - consumed % every if every else 0
        if limit > self._limit:
            self._limit = limit
            self.workers.count(limit)
            self.batches += self.since
            self.since = 0
            if limit == consumed:
                self.workers.last = worker
                self.batches += 1
                return
            self.workers.last = self._latest_worker
        self.since += 1
        self._latest_worker = worker

    def finish(self, generators: list[torch.Tensor]) -> None:
        """The epoch is over."""
        if self.finished:
            return
        self.finished = True
        self._final = {"generators": generators} if generators else {}
        if self.draws is not None:
            own = self.draws.end()
            own.pop("generators", None)
            if own:
                self._final["own"] = own

    def state(self) -> dict[str, Any]:
        """What `state_dict` returns."""
        if self.draws is not None:
            self.draws.prime()
        state = {"version": 1, "batches": self.batches, **self.constants}
        if self.finished:
            state.update(self._final, finished=True)
        if self.draws is not None:
            self._add_place(state, self._consumed if self.workers is None else self._limit)
        if self.dataset is not None:
            own = copy.deepcopy(self.dataset())
            if own is not None:
                state["dataset"] = own
        if self.workers is not None:
            self._add_workers(state, self.workers)
        return state

    def _add_place(self, state: dict[str, Any], consumed: int) -> None:
        assert self.draws is not None
        if self.finished:
            return
        mark = self.draws.mark(consumed)
        start = self.draws.start
        state["position"] = mark.position
        for name, value in (
            ("generators", start.generators),
            ("sampler_seed", start.seed),
            ("opening", start.opening),
            ("first", start.first),
            ("own", mark.own),
            ("behind", mark.behind if mark.own else 0),
            ("ended", mark.ended if mark.own else False),
        ):
            if value is not None and (name == "sampler_seed" or value):
                state[name] = value

    def _add_workers(self, state: dict[str, Any], workers: WorkerStates) -> None:
        if self.finished:
            workers = workers.next_epoch()
        if workers.known() or self.draws is not None:
            state["workers"] = {"states": unpack_all(workers.states), "last": workers.last, "replay": self.since}
        else:
            state["batches"] += self.since


class TrackedLoader:
    """A loader as torch's iterators shall see it: with a sampler that takes notes."""

    def __init__(self, loader: StatefulDataLoader[Any], sampler: TrackedSampler | None) -> None:
        self._loader = loader
        if sampler is not None:
            self._index_sampler = sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Counting:
    """What is common to the iterators: mixed into torch's classes.

    Attributes:
        resumed: Whether the epoch that is being served was begun by another iterator, whose state was loaded.
    """

    _sampler_iter: Any
    _profile_name: str
    _resuming: Resume | None

    def __init__(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        ahead = not isinstance(self, _SingleProcessDataLoaderIter)
        self._every = loader.snapshot_every_n_steps
        self._tracked: TrackedSampler | None = None
        if loader._dataset_kind == _DatasetKind.Map:
            self._tracked = TrackedSampler(loader, self._every, ahead)
            if resume is not None:
                self._tracked.resume = resume.place
                self._next_epoch(self._tracked, resume)
        self._resuming = resume
        self.resumed = resume is not None and bool(resume.batches or resume.replay)
        self.progress = Progress()
        # Where batches go on to a device, what is to be noted when they reach the caller.
        self._held: deque[tuple[int, int] | list[torch.Tensor]] | None = deque() if loader.to_device else None
        mid_epoch = resume is not None and resume.base_seed is not None
        before = GlobalRandomness() if mid_epoch else None
        self._prepare(loader, resume)
        super().__init__(TrackedLoader(loader, self._tracked))  # type: ignore[call-arg]
        # Profilers and their users look for torch's names.
        shown = next(kind for kind in type(self).__mro__ if not issubclass(kind, Counting)).__name__
        self._profile_name = self._profile_name.replace(f"#{type(self).__name__}.", f"#{shown}.")
        self._begin(loader)
        if resume is not None:
            if self._tracked is not None:
                self._tracked.resume = self._tracked.initial = None
            self._catch_up(resume)
        self._resuming = None
        if before is not None:  # the run that was stopped drew its seeds when this epoch began
            before.restore()

    def _next_epoch(self, sampler: TrackedSampler, resume: Resume) -> None:
        if resume.own is not None and "sampler" in resume.own and is_stateful(sampler.source):
            sampler.source.load_state_dict(copy.deepcopy(resume.own["sampler"]))
        if resume.generators is None:
            return
        if resume.base_seed is None:
            sampler.set_generators(resume.generators)
        else:  # torch draws a base seed all the same, which the workers that persisted did not
            sampler.initial = resume.generators

    def _prepare(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        """Before torch's constructor, which starts the workers."""

    def _begin(self, loader: StatefulDataLoader[Any]) -> None:
        """An epoch begins."""
        progress = self.progress
        if isinstance(self._sampler_iter, Draws):
            progress.draws = self._sampler_iter
        constants = progress.constants
        constants["base_seed"] = self._base_seed
        if self._shared_seed is not None:
            constants["shared_seed"] = self._shared_seed
        if self._tracked is not None:
            constants.update(self._tracked.describe())
        else:
            constants["num_workers"] = loader.num_workers
        if loader.serving is not None:
            constants["epoch"] = loader.serving
        if loader.seed is not None:
            constants["seed"] = loader.seed

    def _catch_up(self, resume: Resume) -> None:
        self.progress.batches = self._num_yielded = resume.batches
        for made in range(resume.replay):
            try:
                next(self)
            except StopIteration:
                raise ConfigError(
                    f"the state is at batch {resume.batches + resume.replay} of an epoch, but the dataset gives only "
                    f"{resume.batches + made}. Load it with the dataset that it was taken with."
                ) from None
            if self._held is not None:
                self.handed_out()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            workers = self.progress.workers
            self.resumed = False
            self.progress = Progress(workers=workers)
            if self._held is not None:
                self._held.clear()
        super()._reset(loader, first_iter)  # type: ignore[misc]
        if not first_iter:
            if self.progress.workers is not None:
                self.progress.workers = self.progress.workers.next_epoch()
            self._begin(loader)
            loader.began(self.progress)

    def __next__(self) -> Any:
        try:
            data = super().__next__()  # type: ignore[misc]
        except StopIteration:
            generators = [] if self._tracked is None else [g.get_state() for g in self._tracked.generators]
            self._note(generators)
            raise
        self._note((self._consumed(), self._worker()))
        return data

    def _note(self, what: tuple[int, int] | list[torch.Tensor]) -> None:
        """A batch has left, or (the generators' states) there is none any more."""
        if self._held is not None:
            self._held.append(what)
        elif isinstance(what, tuple):
            self.progress.returned(*what, self._every)
        else:
            self.progress.finish(what)

    def handed_out(self) -> None:
        """The oldest batch that has left for the device, or the end of the epoch, has reached the caller."""
        held, self._held = self._held, None
        assert held is not None
        try:
            if held:
                self._note(held.popleft())
        finally:
            self._held = held

    def _consumed(self) -> int:
        """Draws whose batches have been returned."""
        raise NotImplementedError

    def _worker(self) -> int:
        return 0

    # torch assigns these when it has drawn them; what the stopped run drew takes their place.
    @property
    def _base_seed(self) -> int:
        seed: int = self.__dict__["_base_seed"]
        return seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        resume = self._resuming
        self.__dict__["_base_seed"] = drawn if resume is None or resume.base_seed is None else resume.base_seed

    @property
    def _shared_seed(self) -> int | None:
        seed: int | None = self.__dict__["_shared_seed"]
        return seed

    @_shared_seed.setter
    def _shared_seed(self, drawn: int | None) -> None:
        resume = self._resuming
        replaced = drawn is not None and resume is not None and resume.shared_seed is not None
        self.__dict__["_shared_seed"] = resume.shared_seed if replaced and resume is not None else drawn


class StatefulSingle(Counting, _SingleProcessDataLoaderIter):  # type: ignore[misc]
    """Batches made in this process, one by one."""

    def _prepare(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        if resume is not None:
            restore_dataset(loader.dataset, resume.dataset)

    def _begin(self, loader: StatefulDataLoader[Any]) -> None:
        super()._begin(loader)
        fetcher = self._dataset_fetcher
        iterable = self._dataset_kind == _DatasetKind.Iterable
        if iterable and self._resuming is not None:
            restore_iterator(fetcher, self._resuming.dataset)
        if iterable or is_stateful(fetcher.dataset):
            self.progress.dataset = lambda: dataset_state(fetcher, iterable)

    def _consumed(self) -> int:
        return self.progress.draws.drawn if self.progress.draws is not None else 0


class _Workers(Counting):
    """Batches of worker processes."""

    _rcvd_idx: int
    _send_idx: int
    _task_info: dict[int, Any]
    _last_worker = -1
    _turn = 0
    _length: int | None
    _left: int | None

    def _prepare(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        self._owners: dict[int, int] = {}
        iterable = loader._dataset_kind == _DatasetKind.Iterable
        if iterable or is_stateful(loader.dataset):
            self.progress.workers = WorkerStates([None] * loader.num_workers)
        self._hooks_every, self._length, self._left = self._every, None, None
        if loader.persistent_workers and not iterable:
            try:
                self._length = len(loader._index_sampler)
            except (TypeError, NotImplementedError):
                self._hooks_every = 1  # any batch may be an epoch's last
            else:
                done = 0 if resume is None or resume.place is None else resume.place[1].position
                self._left = self._length - done
        if resume is not None and resume.workers is not None:
            self.progress.workers = WorkerStates(list(resume.workers.states), resume.workers.last)
            # torch hands out work in turn, beginning with worker 0.
            self._turn = resume.workers.last + 1

    def _worker_hook(self, worker: int) -> WorkerHook | None:
        states = self.progress.workers
        if states is None:
            return None
        state = unpack_all(states.states)[worker]
        return WorkerHook(worker, len(states.states), self._hooks_every, state, self._left, self._length)

    def _try_put_index(self) -> None:
        while self._turn > 0:
            next(self._worker_queue_idx_cycle)  # type: ignore[attr-defined]
            self._turn -= 1
        number = self._send_idx
        super()._try_put_index()  # type: ignore[misc]
        if self._send_idx > number and not _TOLD_WORKER:
            self._owners[number] = self._task_info[number][0]

    def _try_get_data(self, *timeout: Any) -> Any:
        while True:
            success, message = super()._try_get_data(*timeout)  # type: ignore[misc]
            if not (success and isinstance(message[0], Snapshot)):
                return success, message
            assert self.progress.workers is not None
            self.progress.workers.arrived(*message)

    def _process_data(self, data: Any, *worker: int) -> Any:
        # Out of order, where the number would be another's, the worker is of no interest: there is no state then.
        self._last_worker = worker[0] if _TOLD_WORKER else self._owners.pop(self._rcvd_idx - 1, -1)
        return super()._process_data(data, *worker)  # type: ignore[misc]

    def _consumed(self) -> int:
        return self._rcvd_idx

    def _worker(self) -> int:
        return self._last_worker


class StatefulProcesses(_Workers, ProcessIterator):  # type: ignore[misc]
    """Over our transport."""


class StatefulTorchProcesses(_Workers, _MultiProcessingDataLoaderIter):  # type: ignore[misc]
    """Over torch's, where ours can't be used. Nothing asks for the datasets' states: batches are made again."""

    def _prepare(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        super()._prepare(loader, resume)
        self._every = None
