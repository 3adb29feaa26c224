"""The DataLoader: torch's class, which over a ShardDataset makes batches with threads instead of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Sampler, default_collate

from ..errors import ConfigError
from ..order.permutation import epoch_permutation
from .batch import Skipped, why_not_stackable
from .dataset import ShardDataset

T_co = TypeVar("T_co", covariant=True)

ON_ERROR = ("raise", "skip", "substitute")


class EpochShuffle(Sampler[int]):
    """The order that `DataLoader(shuffle=True, seed=…)` goes by: a new permutation each epoch, by (seed, epoch)."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = int(epoch)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        order = epoch_permutation(self.size, self.seed, self.epoch)
        # In blocks: a list of all would be a Python object per sample.
        for start in range(0, self.size, 4096):
            yield from order[start : start + 4096].tolist()


class DataLoader(TorchDataLoader[T_co]):
    """torch.utils.data.DataLoader, faster over a ShardDataset.

    Takes torch's arguments with torch's meaning. Over a `ShardDataset` whose work is native (zcd's image operations,
    fixed-size columns, default collation) batches are decoded by `num_workers` threads of this process straight into
    recycled memory; a batch stays what it is for as long as any of its tensors is held. There, `num_workers=0` decodes
    in the caller's thread, `prefetch_factor` (2) gives twice as many batches in flight, and `persistent_workers`,
    `multiprocessing_context` and `in_order` change nothing. Over any other dataset, or with a `collate_fn`,
    `batch_size=None`, `worker_init_fn` or `timeout`, the class does exactly what torch's does.

    Args:
        seed: Keys the shuffling and the random image operations by (seed, epoch, sample): the same batches on every
            machine, whatever the number of threads. None draws from torch's generator, as torch's class does, so that
            `torch.manual_seed` governs. Only for a ShardDataset.
        on_error: What a bad sample does over a ShardDataset: 'raise' BadSampleError, 'skip' it (the batch is
            shorter) or 'substitute' a good sample of the same batch. `skipped` lists those left out.

    Attributes:
        epoch: The epoch that the next `iter()` serves. Counts by itself; `set_epoch` sets it.
        skipped: Bad samples that 'skip' and 'substitute' met so far.
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
    ) -> None:
        if on_error not in ON_ERROR:
            raise ConfigError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}.")
        self.seed = seed
        self.on_error = on_error
        self.epoch = 0
        self.skipped: list[Skipped] = []
        if seed is not None:
            if not isinstance(dataset, ShardDataset):
                raise ConfigError(
                    f"seed= needs a ShardDataset, not {type(dataset).__name__}: give torch's generator= instead."
                )
            if shuffle and sampler is None and batch_sampler is None:
                sampler, shuffle = EpochShuffle(len(dataset), seed), None
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
        )
        if isinstance(dataset, ShardDataset):
            reason = why_not_stackable(dataset)
            callables = any(callable(transform) for transform in dataset.transforms.values())
            if reason is not None and not callables and self.collate_fn is default_collate and batch_size is not None:
                raise ConfigError(reason)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `iter()` serve this epoch; reaches the samplers that have a `set_epoch` too."""
        self.epoch = int(epoch)

    def shards(self) -> ShardDataset:
        """The dataset, where `uses_threads`."""
        assert isinstance(self.dataset, ShardDataset)
        return self.dataset

    def largest_batch(self) -> int | None:
        """Samples in the largest batch, None where only the batch sampler knows."""
        return self.batch_size if self.batch_size is not None else getattr(self.batch_sampler, "batch_size", None)

    def next_key(self, base_seed: int) -> tuple[int, int]:
        """(seed, epoch) of random operations for the epoch that begins now; counts the epoch on."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        return (base_seed, 0) if self.seed is None else (self.seed % 2**64, epoch)

    def uses_threads(self) -> bool:
        """Whether batches come from the thread engine."""
        return (
            isinstance(self.dataset, ShardDataset)
            and self.batch_sampler is not None
            and self.collate_fn is default_collate
            and self.worker_init_fn is None
            and not self.timeout
            and why_not_stackable(self.dataset) is None
        )

    def __iter__(self) -> Any:
        if isinstance(self.dataset, ShardDataset):
            self._pass_epoch_on()
        return super().__iter__()

    def _pass_epoch_on(self) -> None:
        if isinstance(self.sampler, EpochShuffle):
            self.sampler.set_epoch(self.epoch)

    def _get_iterator(self) -> Any:
        if not self.uses_threads():
            if isinstance(self.dataset, ShardDataset) and self.seed is not None:
                self.dataset.seed, epoch = self.next_key(0)
                self.dataset.set_epoch(epoch)
            return super()._get_iterator()
        from .iterator import ThreadIterator

        return ThreadIterator(self)
