"""The DataLoader: torch's class, which over shards and compiled datasets makes batches with threads, not processes."""

from __future__ import annotations

import copy
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Sampler, Subset, default_collate

from ..device.request import PassThrough, Staging, as_staging, finishes, has_streams
from ..device.staged import StagedBatches
from ..errors import ConfigError
from ..order.seed import seed_number
from .epoch_sampler import EpochSampler
from .native import NativeDataset, OwnOrder, ThreadServed
from .process_iterator import ProcessIterator, why_not_supported
from .sampler_chain import READ_AHEAD, epoch_shuffle, leave_options, samplers, take_own_order, told_epoch
from .skipped import SkippedSamples

# The thread engine, and with it Arrow and Pillow, is imported where a dataset needs it.
if TYPE_CHECKING:
    from ..device.decode.protocol import DecoderFactory
    from ..device.decode.request import DecodeRequest, Shared
    from ..device.staging import Stager
    from .batch import BatchPlan
    from .decoders import Decoders
    from .decoding import DecodingEngine
    from .thread_engine import ThreadEngine

T_co = TypeVar("T_co", covariant=True)

ON_ERROR = ("raise", "skip", "substitute")


def native_base(dataset: Any) -> NativeDataset | None:
    """The dataset that the thread engine takes: this one, or the one that a torch Subset of it selects from."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return cast(NativeDataset, dataset) if isinstance(dataset, ThreadServed) else None


def why_not_native(dataset: NativeDataset) -> str | None:
    """Why the thread engine can't make batches of this dataset, in words for the user; None when it can."""
    from .batch import why_not_stackable

    return why_not_stackable(dataset)


def as_native(dataset: Any) -> NativeDataset | None:
    """The same, with the rows that the Subsets (`random_split`) select."""
    if type(dataset) is not Subset:
        return native_base(dataset)
    native = as_native(dataset.dataset)
    return None if native is None else native.subset(dataset.indices)


class DataLoader(TorchDataLoader[T_co]):
    """torch.utils.data.DataLoader, faster over a ShardDataset and over what `zcd.compile` gives.

    Takes torch's arguments with torch's meaning. Over one of these, or a torch Subset of one, whose work is native
    (zcd's image operations, fixed-size columns, default collation) batches are decoded by `num_workers` threads of this
    process straight into recycled memory; a batch stays what it is for as long as any of its tensors is held. There,
    `num_workers=0` decodes in the caller's thread, `prefetch_factor` (2) gives twice as many batches in flight,
    `persistent_workers`, `multiprocessing_context` and `in_order` change nothing, and `worker_init_fn` is not called (a
    warning says so). Over any other dataset, or with a `collate_fn` or `batch_size=None`, worker processes do what
    torch's do, with the same order, seeds and errors; only their batches travel in memory that is used again, instead
    of fresh shared memory for each (see `zerocopy_data.loader.transport`).

    Args:
        seed: Keys the shuffling and the random image operations by (seed, epoch, sample): the same batches on every
            machine, whatever the number of threads. None draws from torch's generator, as torch's class does, so that
            `torch.manual_seed` governs. Only for these datasets.
        on_error: What a bad sample does over these datasets: 'raise' BadSampleError, 'skip' it (the batch is
            shorter) or 'substitute' a good sample of the same batch. A batch without a good sample is left out, an
            epoch without one raises ZcdError. `skipped` lists those left out.
        stall_after: With worker processes: when no batch has come for this many seconds, every worker prints the
            stacks of its threads on stderr (it uses SIGUSR1), and waiting goes on. None never does.
        device: Where batches shall be: 'cuda', a torch.device, an index, or a `zcd.Staging` that says more. Batches are
            copied there on a side stream, from page-locked slots (pin_memory is not needed), while the training loop
            works on the one before; images cross the bus as bytes and get their values there. A batch is ready for the
            stream that is current when it is asked for; other streams must wait for that one. None, or the CPU, leaves
            batches in host memory.
        static: With `device`: batches lie at the same addresses every two steps (`Staging(buffers=)`), for CUDA graphs.
            Each is valid until the next one is asked for.
        decode: Who decodes JPEGs where threads make the batches: 'cpu', the threads; 'gpu', DALI on the loader's CUDA
            device, which gets nothing but encoded bytes; 'auto', both, each as many of a batch's images as it has been
            measured to be fast (on a machine without a GPU, or without DALI, the CPU); or a decoder, as
            `zerocopy_data.device.decode.Dali(device='cpu')`. Samples, order, crops and flips are the same; pixels of
            another decoder differ a little from ours. What it does not take (PNG, CMYK, turned images) the CPU decodes.
        read_ahead: Where threads make the batches of shards or token windows, in the order of a sampler of this library
            (shuffle=True with seed= has one): while data has to come from the disk, the kernel is asked for so many
            bytes of the batches that come next, beside those in the making. They are in the page cache then, not in
            the process. 0 asks for nothing, and neither does data that is in memory. Not for folders of files
            (`zcd.compile`), nor for other samplers, which may mind being asked early.

    Attributes:
        epoch: The epoch that the next `iter()` serves. Counts by itself; `set_epoch` sets it.
        skipped: The bad samples that 'skip' and 'substitute' met: iterate for the latest 10,000, `total` counts all.
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
        seed: int | None = None,
        on_error: str = "raise",
        stall_after: float | None = None,
        device: str | int | torch.device | Staging | None = None,
        static: bool = False,
        decode: str | DecoderFactory | Shared = "cpu",
        read_ahead: int = READ_AHEAD,
    ) -> None:
        if on_error not in ON_ERROR:
            raise ConfigError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}.")
        self.seed = seed = None if seed is None else seed_number(seed)
        if stall_after is not None and not stall_after > 0:
            raise ConfigError(f"stall_after is a number of seconds greater than 0, or None, not {stall_after!r}.")
        if isinstance(read_ahead, bool) or not isinstance(read_ahead, int) or read_ahead < 0:
            raise ConfigError(f"read_ahead is a number of bytes, 0 to ask for nothing, not {read_ahead!r}.")
        self.on_error = on_error
        self.stall_after = stall_after
        self.read_ahead = read_ahead
        self.device, self.static = device, static
        self.staging = as_staging(device, static)
        # Whether batches travel to a device; on the CPU they are where they belong.
        self.to_device = self.staging is not None and has_streams(self.staging.device)
        self._staged_batches = StagedBatches(1 if self.staging is None else self.staging.buffers)
        self.decode = decode
        self._decoders: Decoders | None = None
        self._decode_request: DecodeRequest | None = None
        if decode != "cpu":
            from ..device.decode.request import as_request

            self._decode_request = as_request(decode, self.staging)
        self._stager: Stager | None = None
        self._served_by: weakref.ref[Any] | None = None
        self.epoch = 0
        self._told_epoch: int | None = 0
        # Epochs of torch's iterators, which count none: for transforms on the device. None: nobody has begun or told.
        self._rounds: int | None = None
        self.skipped = SkippedSamples()
        self._plan: BatchPlan | None = None
        native = native_base(dataset)
        sampler = take_own_order(dataset, shuffle, sampler, batch_sampler)
        if seed is not None:
            if native is None:
                if isinstance(dataset, OwnOrder):
                    raise ConfigError("seed= over a mix of other people's datasets: leave it out, the mix has its own.")
                raise ConfigError(
                    f"seed= needs a ShardDataset or a compiled dataset, not {type(dataset).__name__}: give torch's "
                    "generator= instead."
                )
            if shuffle and sampler is None and batch_sampler is None:
                sampler, shuffle = EpochSampler(len(dataset), seed, rank=0, world_size=1), None  # type: ignore[arg-type]
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory and not self.to_device,  # staging page-locks what it copies from
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if native is not None:
            reason = why_not_native(native)
            callables = any(callable(transform) for transform in native.transforms.values())
            if reason is not None and not callables and self.collate_fn is default_collate and batch_size is not None:
                raise ConfigError(reason)
            self._refuse_deaf_workers()
        if on_error != "raise" and not self.uses_threads():
            raise ConfigError(
                f"on_error={on_error!r} works where threads make the batches: over a ShardDataset or a compiled "
                "dataset with default collation and native transforms. Elsewhere catch errors in __getitem__."
            )
        if self._decode_request is not None and (isinstance(native, OwnOrder) or not self.uses_threads()):
            if decode != "auto":
                raise ConfigError(
                    f"decode={decode!r} works where threads make the batches: over a ShardDataset or a compiled "
                    "dataset, no mix of them, with default collation and native transforms. Use decode='cpu'."
                )
            self._decode_request = None
        leave_options(self)

    def check_worker_number_rationality(self) -> None:
        """torch's warning about more workers than cores; threads are no workers, and idle ones cost nothing."""
        if not self.uses_threads():
            super().check_worker_number_rationality()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `iter()` serve this epoch; reaches samplers that have a `set_epoch` (DistributedSampler).

        Raises:
            ConfigError: the epoch is negative.
        """
        if epoch < 0:
            raise ConfigError(f"set_epoch({epoch}): epochs count from 0.")
        self.epoch = self._rounds = int(epoch)
        # With a batch sampler of the user's, loader.sampler is another object than the one inside it.
        for sampler in samplers(self.sampler, self.batch_sampler):
            set_epoch = getattr(sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(self.epoch)
        self._told_epoch = told_epoch(self)

    def native(self) -> NativeDataset:
        """The dataset, where `uses_threads`. Subsets are resolved at each call: their indices may have changed."""
        native = as_native(self.dataset)
        assert native is not None
        return native

    @property
    def staged(self) -> StagedBatches:
        """How many batches this loader holds device memory for, and may: see `device.memory.InFlight`.

        Raises:
            ConfigError: there is no device, or static=True has promised the places.
        """
        if not self.to_device or self.staging is None:
            raise ConfigError("DataLoader.staged: without device=, or on the CPU, no batches are staged.")
        if self.staging.static:
            raise ConfigError(
                "DataLoader.staged: static=True keeps every place at its address. Give Staging(buffers=2), the fewest."
            )
        return self._staged_batches

    def largest_batch(self) -> int | None:
        """Samples in the largest batch as far as is known before it comes, None where only the batch sampler knows."""
        size = self.batch_size if self.batch_size is not None else getattr(self.batch_sampler, "batch_size", None)
        return size if isinstance(size, int) else None

    def plan(self, dataset: NativeDataset, room: int, keep: int) -> BatchPlan:
        """The plan of the epoch before, with its slots, where nothing has changed: new memory costs a fault a page."""
        from .batch import BatchPlan

        made = self._plan
        if made is None or not made.serves(dataset, keep, self.on_error, self.to_device):
            decoders = self._its_decoders()
            if decoders is None:
                made = BatchPlan(dataset, room, keep, self.on_error, self.to_device)
            else:
                made = decoders.plan(dataset, room, keep, self.on_error)
            self._plan = made
        return made

    def engine(self, plan: BatchPlan, depth: int) -> ThreadEngine | DecodingEngine:
        """What makes an epoch's batches by a plan."""
        from .thread_engine import ThreadEngine

        decoders = self._its_decoders()
        if decoders is None:
            return ThreadEngine(plan, self.num_workers, depth)
        return decoders.engine(plan, self.num_workers, depth)

    def _its_decoders(self) -> Decoders | None:
        if self._decoders is None and self._decode_request is not None:
            from .decoders import Decoders

            self._decoders = Decoders(self._decode_request, self.to_device)
        return self._decoders

    def __getstate__(self) -> dict[str, Any]:
        # Native columns, memory and streams don't pickle.
        return {**self.__dict__, "_plan": None, "_stager": None, "_served_by": None, "_decoders": None}

    def _count_epoch(self) -> None:
        """Counts the epochs that torch's iterators serve from a sampler of ours."""
        if epoch_shuffle(self) is not None:
            self._tell_epoch(self.begin_epoch())

    def _tell_epoch(self, epoch: int) -> None:
        """Tells a sampler of ours the epoch that torch's iterator is about to serve."""
        sampler = epoch_shuffle(self)
        if sampler is not None:
            sampler.set_epoch(epoch)
            self._told_epoch = told_epoch(self)

    def __iter__(self) -> Any:
        if self._iterator is not None and self.persistent_workers and not self.uses_threads():
            self._count_epoch()  # torch's class begins anew with the iterator that it has
        return self._staged(super().__iter__())

    def _staged(self, host: Any) -> Any:
        """An iterator over what the host's iterator gives, on the device that was asked for."""
        if self.staging is None:
            return host
        begin = functools.partial(self.staging_for, host, self._next_round(host))
        if not self.to_device:
            return PassThrough(host, begin) if finishes(self.staging) else host
        from .device_iterator import DeviceIterator

        before = None if self._served_by is None else self._served_by()
        if before is not None and before.serves(host):  # persistent workers begin anew: what it has staged is over
            before.close()
        iterator = DeviceIterator(host, self._free_stager(self.staging), begin)
        self._served_by = weakref.ref(iterator)
        return iterator

    def _next_round(self, host: Any) -> int | None:
        """The epoch that an iterator serves by our count; a run that goes on in the middle of one has to say which."""
        first = None if getattr(host, "resumed", False) else 0
        counted = first if self._rounds is None else self._rounds
        self._rounds = None if counted is None else counted + 1
        return counted

    def staging_for(self, host: Any, counted: int | None) -> Staging:
        """What an iterator asks for: in its first batch the epoch is settled, by whoever knows it best.

        Args:
            host: The iterator.
            counted: Its epoch by this loader's count; None where that is unknown.
        """
        assert self.staging is not None
        epoch = getattr(host, "epoch", None)
        if epoch is None:
            epoch = told_epoch(self)
        return self.staging.begun(counted if epoch is None else epoch, getattr(host, "resumed", False))

    def _free_stager(self, staging: Staging) -> Stager:
        """The stager of the epoch before, with its memory at its addresses, unless its iterator is still at work."""
        from ..device.staging import Stager

        before = None if self._served_by is None else self._served_by()
        if self._stager is None or (before is not None and not before.closed):
            self._stager = Stager(staging, self._staged_batches)
        return self._stager

    def begin_epoch(self) -> int:
        """The epoch that begins now; counts on.

        Frameworks tell the sampler, and a resumed run begins late: where it was told another epoch, that one it is.
        """
        told = told_epoch(self)
        if self.was_told_epoch() and told is not None:
            self.epoch = told
        self._told_epoch = told
        epoch, self.epoch = self.epoch, self.epoch + 1
        return epoch

    def was_told_epoch(self) -> bool:
        """Whether somebody has told the samplers another epoch since the latest began."""
        return told_epoch(self) != self._told_epoch

    def told_other_than(self, serving: int) -> int | None:
        """The epoch that the samplers have been told since this one began, if it is another; else None."""
        told = told_epoch(self)
        if told == serving:  # heard: the next epoch is the one after
            self._told_epoch = told
        return told if self.was_told_epoch() else None

    def uses_threads(self) -> bool:
        """Whether batches come from the thread engine."""
        return (
            self.batch_sampler is not None
            and self.collate_fn is default_collate
            and (native := native_base(self.dataset)) is not None
            and why_not_native(native) is None
        )

    def _get_iterator(self) -> Any:
        if self.uses_threads():
            return self._thread_iterator()
        if self.seed is None:
            self._count_epoch()
            return self._torch_iterator()
        return self._seeded_torch_iterator(self.seed)

    def _thread_iterator(self) -> Any:
        from .iterator import ThreadIterator

        return ThreadIterator(self)

    def _seeded_torch_iterator(self, seed: int) -> Any:
        """torch's iterator over a copy of the dataset whose random operations are keyed by (seed, epoch)."""
        self._refuse_deaf_workers()
        epoch = self.begin_epoch()
        self._tell_epoch(epoch)
        dataset = self.dataset
        keyed = copy.copy(self.native())
        keyed.seed = seed
        keyed.set_epoch(epoch)
        # Past torch's guard against a new dataset, and only while the iterator takes it over: the user's own dataset
        # object must not find itself fixed to an epoch.
        self.__dict__["dataset"] = keyed
        try:
            return self._torch_iterator()
        finally:
            self.__dict__["dataset"] = dataset

    def _torch_iterator(self) -> Any:
        """torch's iterator, over our transport where there are workers."""
        if self.num_workers == 0:
            return super()._get_iterator()
        if not self._slots_carry_batches():
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return ProcessIterator(self)

    def _slots_carry_batches(self) -> bool:
        """Whether our transport can be used here; warns where it can't."""
        obstacle = why_not_supported()
        if obstacle is not None:
            warnings.warn(f"batches of worker processes travel as torch sends them: {obstacle}.", stacklevel=5)
        return obstacle is None

    def _refuse_deaf_workers(self) -> None:
        if self.seed is not None and self.persistent_workers and not self.uses_threads():
            raise ConfigError(
                "seed= with persistent_workers=True and worker processes: they keep the dataset they were started "
                "with and would repeat the crops of their first epoch. Leave persistent_workers out."
            )
