"""zcd.mix: several datasets in given proportions, as one map-style dataset."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from ..errors import ConfigError
from ..order.mixture import Mixture
from ..order.seed import whole_number
from ..order.stirred import StirredOrder
from .copies import CopyIndex, copy_of
from .native import OwnOrder, ThreadServed, own_order
from .position_sampler import CopyOrder, PositionSampler
from .selection import Selection

_LAST = 1 << 62  # of a run's positions: far enough from the end of int64 for sums of a few


def mix(
    weights: Mapping[Any, float],
    *,
    seed: int = 0,
    shuffle: bool = True,
    temperature: float = 1.0,
    num_samples: int | None = None,
    schedule: Mapping[int, Mapping[Any, float]] | None = None,
) -> MixedDataset:
    """Several datasets as one, each with its share of every stretch of samples.

        mixed = zcd.mix({web: 0.7, code: 0.2, books: 0.1}, seed=0)
        loader = zcd.StatefulDataLoader(mixed, 256, seed=0, num_workers=8)
        loader = zcd.StatefulDataLoader(mixed, 256, sampler=mixed.sampler(), seed=0)  # shared among ranks

    Which source comes when is arithmetic, not chance: at each multiple of 1,024 samples of a run every source has had
    its share to within a few samples, whatever ranks, threads and batch sizes are, and a state is a position. Each
    source is gone through again and again, in another order each time: its epochs are its own. A run of several loader
    epochs is one long sequence, of which each epoch serves the next `num_samples`.

    Over ShardDatasets, compiled datasets or `zcd.windows` alike in columns and transforms batches are made by threads;
    over datasets of any other kind by torch's iterators. In torch's own DataLoader give sampler=mixed.sampler() and
    call its set_epoch.

    Args:
        weights: By dataset, in any unit: {a: 3, b: 1} as {a: 0.75, b: 0.25}; {a: len(a), b: len(b)} for their sizes.
        seed: Of the sources' orders.
        shuffle: Whether sources are shuffled, and neighbours among each other in blocks of 1,024 samples. Otherwise
            sources are read in their order and evenly interleaved: then one of several ranks may meet one source only.
        temperature: Weights are raised to 1 / temperature: above 1 small sources come more often.
        num_samples: Samples of an epoch; the sum of the sources' by default.
        schedule: From so many samples of the run on other weights apply: {1_000_000: {web: 0.4, code: 0.6, books: 0}}.
            Counted over all ranks and epochs, and exact at multiples of 1,024 where sources are shuffled. Every source
            must be named.

    Raises:
        ConfigError: weights make no sense, or the datasets are not alike.
    """
    if not isinstance(weights, Mapping) or not weights or not isinstance(schedule or {}, Mapping):
        raise ConfigError(
            "mix() takes weights by dataset, {ds: weight, …}, of at least one, and a schedule of such by sample; "
            f"not {weights!r}{'' if schedule is None else f' and {schedule!r}'}."
        )
    sources = tuple(weights)
    for source in sources:
        if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
            raise ConfigError(f"mix() takes map-style datasets (with a length), not {type(source).__name__}.")
        if own_order(source) is not None:
            raise ConfigError("mix() of a mix: give all sources to one, with the products of their weights.")
    later = {start: _row(sources, row, start) for start, row in (schedule or {}).items()}
    sizes = [len(source) for source in sources]
    mixture = Mixture(list(weights.values()), sizes, seed, shuffle, temperature, later)
    count = sum(sizes) if num_samples is None else whole_number(num_samples, "num_samples", 1)
    if all(isinstance(source, ThreadServed) for source in sources):
        from .mix_native import NativeMix

        return NativeMix(sources, mixture, count)
    return MixedDataset(sources, mixture, count)


def _row(sources: tuple[Any, ...], row: Mapping[Any, float], start: int) -> list[float]:
    if not isinstance(row, Mapping):
        raise ConfigError(f"schedule[{start}]={row!r}: weights by dataset, as the first ones.")
    missing = [number for number, source in enumerate(sources) if source not in row]
    if missing or len(row) != len(sources):
        raise ConfigError(
            f"schedule[{start}] has other datasets than the weights: give each of those a weight, 0 for those that "
            "pause, and no other."
        )
    return [row[source] for source in sources]


class MixedDataset(OwnOrder, Dataset[Any]):
    """Samples of several datasets. Made by `zcd.mix`; immutable except for the epoch.

    `mixed[i]` is the i-th sample of the epoch: of that which a `sampler()` says, or else of `set_epoch`'s, or of the
    first. A zcd.DataLoader without a sampler takes this dataset's own. Parts of it are `subset`s, not torch's: those
    stay in the first epoch.

    Attributes:
        sources: The datasets, in the order of the weights.
        mixture: Which of them comes when: `mixture.counts(n)` are the samples of each among the first n of the run.
    """

    def __init__(self, sources: Sequence[Any], mixture: Mixture, num_samples: int) -> None:
        self.sources = tuple(sources)
        self.mixture = mixture
        self.epoch: int | None = None
        self.selection = Selection(range(num_samples))
        self._samples = num_samples
        self._stirred = StirredOrder(mixture.seed) if mixture.shuffle else None

    def set_epoch(self, epoch: int) -> None:
        """Fixes the epoch that indices without one are of."""
        self.epoch = int(epoch)

    def sampler(self, rank: int | None = None, world_size: int | None = None, uneven: str = "pad") -> MixSampler:
        """The order of the mix as a torch Sampler, shared among ranks: see `EpochSampler`."""
        return MixSampler(self, rank, world_size, uneven)

    def places(
        self, indices: npt.NDArray[np.int64], copies: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """What stands at indices.

        Args:
            indices: int64 [n], within the epoch.
            copies: int64 [n], -1 - the epoch of each, as the sampler has it; 0, or None: that of `set_epoch`.

        Returns:
            Three int64 [n]: the source's number, the sample's index in it, and a number that tells apart all times
            that a sample of any source comes: see `loader.copies`.

        Raises:
            IndexError: an index is outside.
            ConfigError: a sampler of another kind says that a sample comes again, or the epoch is none.
        """
        told = 0 if self.epoch is None else self.epoch
        self.check_epoch(told)
        epochs = np.full_like(indices, told)
        if copies is not None:
            if copies.size and int(copies.max()) > 0:
                raise ConfigError("a mix comes in an order of its own: give no other sampler than mixed.sampler().")
            epochs = np.where(copies < 0, -1 - copies, epochs)
        positions = self.selection.rows(indices) + epochs * self._samples
        if self._stirred is not None:
            positions = self._stirred(positions)
        source, sample, round_ = self.mixture(positions)
        return source, sample, round_ * len(self.sources) + source

    def check_epoch(self, epoch: int) -> None:
        """Raises ConfigError where a run has no such epoch."""
        if epoch < 0 or (epoch + 1) * self._samples > _LAST:
            raise ConfigError(f"epoch {epoch} of {self._samples} samples: from 0, and up to 2**62 samples in a run.")

    def subset(self, indices: Sequence[int] | npt.NDArray[Any] | range | slice) -> MixedDataset:
        """These of an epoch's samples, in this order."""
        made = copy.copy(self)
        made.selection = self.selection.subset(indices)
        return made

    def fingerprint(self) -> int:
        """32 bits of everything that the order depends on."""
        chosen = self.selection.chosen
        what = repr(chosen).encode() if isinstance(chosen, range) else chosen.tobytes()
        return zlib.crc32(what, self.mixture.fingerprint() ^ (self._samples & 0xFFFFFFFF))

    def __len__(self) -> int:
        return len(self.selection)

    def __getitem__(self, index: Any) -> Any:
        source, sample, time = self.place(index)
        return self.sources[source][CopyIndex(sample, time) if time else sample]

    def place(self, index: Any) -> tuple[int, int, int]:
        """`places` for one index."""
        self.selection.row(index)  # refuses what is no index, in words
        source, sample, time = self.places(np.array([int(index)], np.int64), np.array([copy_of(index)], np.int64))
        return int(source[0]), int(sample[0]), int(time[0])

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.3g}" for share in self.mixture.shares())
        return f"{type(self).__name__}(samples={len(self)}, shares=[{shares}], sources={list(self.sources)})"


class MixSampler(PositionSampler):
    """The order of a mix. Made by `MixedDataset.sampler`."""

    def __init__(self, mixed: MixedDataset, rank: int | None, world_size: int | None, uneven: str) -> None:
        self._mixed = mixed
        self._known = mixed.fingerprint()
        super().__init__(len(mixed), mixed.mixture.seed, rank, world_size, uneven)

    def describe(self) -> str:
        """What the order depends on beside size and epoch, for states that must find it again."""
        return f"mix({self._known:08x})"

    def order(self) -> CopyOrder:
        """Indices in their order, which the dataset takes with the epoch."""
        self._mixed.check_epoch(self.epoch)
        return _OfEpoch(self.epoch)


class _OfEpoch:
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def picks(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return positions, np.full_like(positions, -1 - self._epoch)
