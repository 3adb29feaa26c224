"""StatefulDataLoader: a DataLoader that can be stopped in the middle of an epoch and taken up again elsewhere."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import Dataset, Sampler
from torch.utils.data.dataloader import _DatasetKind

from ..device.request import Staging
from ..errors import ConfigError
from .dataloader import DataLoader
from .draws import Mark, Start, TrackedSampler
from .sampler_chain import READ_AHEAD
from .stateful_iterators import (
    Progress,
    Resume,
    StatefulProcesses,
    StatefulSingle,
    StatefulTorchProcesses,
)
from .worker_state import WorkerStates, epoch_end, pack

if TYPE_CHECKING:
    from ..device.decode.protocol import DecoderFactory
    from ..device.decode.request import Shared

T_co = TypeVar("T_co", covariant=True)

_VERSION = 1
_TORCHDATA = {"_snapshot", "_num_yielded"}


class StatefulDataLoader(DataLoader[T_co]):
    """A `DataLoader` with `state_dict()` and `load_state_dict()`, as torchdata's class of that name has them.

    A state counts what has been returned to the caller, whatever workers or threads have prefetched: a loader in a
    fresh process that loads it goes on with exactly the samples that had not been returned, in the same order. Taken
    before the first batch it stands for the whole epoch; after the last batch, before the loop has ended, for the
    rest of the epoch, which is empty; after the loop, for the next epoch.

    - Map-style datasets: the sampler is begun again as it was begun then and its indices are skipped; no sample is
      loaded for that. The rest of the epoch may have another `num_workers`, and another batch size. `shuffle=True`
      without `generator` (or `seed`, over a ShardDataset) continues this epoch exactly; later epochs are drawn from
      torch's global generator, whose state is the training script's to keep. With a generator, they are the same too.
    - Datasets, their iterators, samplers and their iterators that have `state_dict` and `load_state_dict` are asked
      for their state after each batch, in the worker where they live, and restored there. Then `num_workers` must stay.
    - Iterable datasets without: the batches that were returned are made again and dropped, with a warning.
    - Over a ShardDataset random crops continue too. The state is some numbers; with `seed` about 150 bytes.

    Args:
        snapshot_every_n_steps: Workers send the states of datasets, and samplers are asked for theirs, only around
            every n-th batch. Those since are made again and dropped after loading. None: never, all are made again.
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        snapshot_every_n_steps: int | None = 1,
        seed: int | None = None,
        on_error: str = "raise",
        stall_after: float | None = None,
        device: str | int | torch.device | Staging | None = None,
        static: bool = False,
        decode: str | DecoderFactory | Shared = "cpu",
        read_ahead: int = READ_AHEAD,
    ) -> None:
        if snapshot_every_n_steps is not None and snapshot_every_n_steps < 0:
            raise ConfigError(f"snapshot_every_n_steps={snapshot_every_n_steps}: a number of batches, or None.")
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.serving: int | None = None  # the epoch of the latest iterator, where epochs are counted here
        self._loaded: dict[str, Any] | None = None
        self._resume: Resume | None = None
        self._progress: Progress | None = None
        self._prepared: Any = None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
            seed=seed,
            on_error=on_error,
            stall_after=stall_after,
            device=device,
            static=static,
            decode=decode,
            read_ahead=read_ahead,
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iterator stands; before there is one, where the first will begin.

        Returns:
            Numbers, and what datasets and samplers gave: a copy, which `torch.save` and `pickle` take.

        Raises:
            ConfigError: `in_order=False` with worker processes: what has been returned is no place in the order.
        """
        if not self.in_order and self.num_workers and not self.uses_threads():
            raise ConfigError(
                "state_dict() with in_order=False: batches are returned as they come, so what has been returned is no "
                "place in the order. Use in_order=True."
            )
        if self._loaded is not None:
            return copy.deepcopy(self._loaded)
        if self._progress is None:
            self._prepared = iter(self)  # begins the epoch: seeds are drawn, workers started
        assert self._progress is not None
        return self._progress.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next `iter()` go on where the state was taken. Ends the present iterator's claim on this loader.

        Args:
            state_dict: From `state_dict()`. An empty one means: from the beginning.

        Raises:
            ConfigError: it is no state of this class, or of a loader that differs in what the order depends on.
        """
        if state_dict:
            self._check(state_dict)
        self._iterator = None
        self._prepared = self._progress = None
        self._loaded = copy.deepcopy(state_dict) or None
        if "epoch" in state_dict:
            self.epoch = state_dict["epoch"] + bool(state_dict.get("finished"))
        if "sampler_epoch" in state_dict and not state_dict.get("finished"):
            self._tracked().source.set_epoch(state_dict["sampler_epoch"])

    def began(self, progress: Progress) -> None:
        """Called by an iterator that serves another epoch."""
        self._progress = progress

    def begin_epoch(self) -> int:
        """The epoch that begins now; counts on."""
        self.serving = super().begin_epoch()
        return self.serving

    def __iter__(self) -> Any:
        prepared, self._prepared = self._prepared, None
        return super().__iter__() if prepared is None else prepared

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_progress": None, "_prepared": None}

    def _get_iterator(self) -> Any:
        loaded = self._loaded
        self._resume = None if loaded is None else self._resume_from(loaded)
        try:
            iterator = super()._get_iterator()
        finally:
            self._resume = None
        self._loaded = None
        self._progress = iterator.progress
        return iterator

    def _thread_iterator(self) -> Any:
        from .stateful_threads import StatefulThreads

        return StatefulThreads(self, self._resume)

    def _torch_iterator(self) -> Any:
        if self.num_workers == 0:
            return StatefulSingle(self, self._resume)
        self.check_worker_number_rationality()
        iterator = StatefulProcesses if self._slots_carry_batches() else StatefulTorchProcesses
        return iterator(self, self._resume)

    def _tracked(self) -> TrackedSampler:
        return TrackedSampler(self, None, False)

    def _check(self, state: dict[str, Any]) -> None:
        """Refuses states that would go on with other samples than those that are left."""
        if not isinstance(state, dict) or "version" not in state:
            whose = "torchdata's StatefulDataLoader" if _TORCHDATA & set(state) else "something else"
            raise ConfigError(
                f"load_state_dict() takes what state_dict() of this class returned; this is a state of {whose}. "
                "Finish that epoch with the loader that it is from."
            )
        if state["version"] > _VERSION:
            raise ConfigError(
                f"the state is of version {state['version']}, this library knows {_VERSION}. Update zerocopy_data."
            )
        iterable = self._dataset_kind == _DatasetKind.Iterable
        if iterable == ("order" in state):
            kinds = ("a map-style", "an iterable") if iterable else ("an iterable", "a map-style")
            raise ConfigError(f"the state is of {kinds[0]} dataset, this loader has {kinds[1]} one.")
        if state.get("seed") != self.seed:
            raise ConfigError(
                f"the state was taken with seed={state.get('seed')}, this loader has seed={self.seed}: the order would "
                "be another. Give the loader the state's seed."
            )
        self._check_workers(state)
        if iterable or state.get("finished"):
            return
        here = self._tracked().describe()
        for name, what in (("order", "sampler"), ("length", "length of the sampler")):
            if state.get(name) != here.get(name):
                raise ConfigError(
                    f"the {what} was {state.get(name)} when the state was taken, this loader's is {here.get(name)}: "
                    "the order would be another. Load the state with the sampler and the dataset it was taken with."
                )

    def _check_workers(self, state: dict[str, Any]) -> None:
        if "workers" in state:
            then = len(state["workers"]["states"])
        elif "dataset" in state:
            then = 0
        else:
            then = state.get("num_workers", self.num_workers)
        finished = state.get("finished") and not ("workers" in state or "dataset" in state)
        if then != self.num_workers and not finished:
            raise ConfigError(
                f"the state was taken with num_workers={then}, this loader has {self.num_workers}: each worker's "
                f"dataset has a place of its own. Use num_workers={then}, at least to the end of this epoch."
            )

    def _resume_from(self, state: dict[str, Any]) -> Resume:
        state = copy.deepcopy(state)
        resume = Resume(base_seed=state.get("base_seed"), shared_seed=state.get("shared_seed"))
        resume.rounds = state.get("rounds", 0)
        if state.get("finished"):
            return self._resume_next_epoch(state, resume)
        self._check_epochs(state)
        if "position" in state:
            start = Start(
                state.get("generators", []), state.get("sampler_seed"), state.get("opening", {}), state.get("first", {})
            )
            own, behind, ended = state.get("own", {}), state.get("behind", 0), state.get("ended", False)
            resume.place = start, Mark(state["position"], own, behind, ended)
        resume.batches = state["batches"]
        resume.dataset = state.get("dataset")
        if "workers" in state:
            workers = state["workers"]
            resume.workers = WorkerStates([pack(of) for of in workers["states"]], workers["last"])
            resume.replay = workers["replay"]
        elif resume.place is None and resume.dataset is None and resume.batches:
            resume.batches, resume.replay = 0, state["batches"]
            warnings.warn(
                f"{type(self.dataset).__name__} and its iterator have no state_dict: the {resume.replay} batches that "
                "were returned are made again and dropped. Give the dataset state_dict() and load_state_dict().",
                stacklevel=4,
            )
        return resume

    def _resume_next_epoch(self, state: dict[str, Any], resume: Resume) -> Resume:
        resume.generators, resume.own = state.get("generators"), state.get("own")
        resume.dataset = epoch_end(state.get("dataset"))
        resume.shared_seed = None
        if not self.persistent_workers:
            resume.base_seed, resume.rounds = None, 0
            return resume
        resume.rounds += 1
        if "workers" in state:
            resume.workers = WorkerStates([pack(of) for of in state["workers"]["states"]])
        return resume

    def _check_epochs(self, state: dict[str, Any]) -> None:
        """In the middle of an epoch no other one can have been asked for."""
        asked: list[tuple[Any, Any]] = [(state.get("epoch"), self.epoch)]
        if "sampler_epoch" in state:
            asked.append((state["sampler_epoch"], getattr(self._tracked().source, "epoch", None)))
        for then, now in asked:
            if then is not None and then != now:
                raise ConfigError(
                    f"the state is in the middle of epoch {then}, set_epoch asks for epoch {now}. Begin the loop over "
                    f"epochs at {then}."
                )
