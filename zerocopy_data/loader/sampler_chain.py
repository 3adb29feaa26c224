"""What a loader can learn from the samplers it was given, however a framework has wrapped them.

A framework that builds a loader anew, to shard it or to skip batches, wraps its batch sampler in objects of its own.
By convention each keeps what it wraps as `batch_sampler` or `sampler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .native import own_order
from .position_sampler import PositionSampler

if TYPE_CHECKING:
    from .dataloader import DataLoader

READ_AHEAD = 128 << 20  # bytes: some batches of 256 photographs, beside those in the making
_OPTIONS = "_zcd_options"
_DEEPEST = 16  # wrappers; an object that names itself as what it wraps must not hold us up


@dataclass(frozen=True)
class LoaderOptions:
    """The keywords of zcd.DataLoader that torch's class has not, and the dataset that they were meant for."""

    dataset: Any
    seed: int | None
    on_error: str
    stall_after: float | None
    device: Any = None
    static: bool = False
    decode: Any = "cpu"
    read_ahead: int = READ_AHEAD

    def keywords(self) -> dict[str, Any]:
        """As keywords of the constructor."""
        return {
            "seed": self.seed,
            "on_error": self.on_error,
            "stall_after": self.stall_after,
            "device": self.device,
            "static": self.static,
            "decode": self.decode,
            "read_ahead": self.read_ahead,
        }


def samplers(*outermost: Any) -> Iterator[Any]:
    """These samplers and those that they wrap, outside first."""
    for sampler in outermost:
        for _ in range(_DEEPEST):
            if sampler is None:
                break
            yield sampler
            inner = getattr(sampler, "batch_sampler", None)
            sampler = getattr(sampler, "sampler", None) if inner is None else inner


def epoch_shuffle(loader: DataLoader[Any]) -> PositionSampler | None:
    """The sampler that the loader draws from, where that is one of ours: behind shuffle=True with seed=, or given."""
    chain = samplers(loader.batch_sampler, loader.sampler)
    return next((sampler for sampler in chain if isinstance(sampler, PositionSampler)), None)


def take_own_order(dataset: Any, shuffle: bool | None, sampler: Any, batch_sampler: Any) -> Any:
    """The sampler for a dataset that has an order of its own: the one given, or its own for all samples.

    Raises:
        ConfigError: what was given has another order.
    """
    mixed = own_order(dataset)
    if mixed is None:
        return sampler
    if mixed is not dataset:
        raise ConfigError("a torch Subset of a mix would stay in its first epoch: use mixed.subset(…), or mix subsets.")
    own = mixed.sampler(0, 1)
    known = own.describe()
    given = [one for one in samplers(sampler, batch_sampler) if isinstance(one, PositionSampler)]
    if shuffle or any(one.describe() != known for one in given):
        raise ConfigError("a mix comes in an order of its own: leave shuffle out; no sampler, or its own .sampler().")
    return own if sampler is None and batch_sampler is None else sampler


def told_epoch(loader: DataLoader[Any]) -> int | None:
    """The epoch that a sampler was told by `set_epoch`; frameworks tell samplers, not loaders."""
    for sampler in samplers(loader.batch_sampler, loader.sampler):
        epoch = getattr(sampler, "epoch", None)
        if isinstance(epoch, int) and epoch >= 0 and hasattr(sampler, "set_epoch"):
            return epoch
    return None


def leave_options(loader: DataLoader[Any]) -> None:
    """Leaves the loader's own options on its batch sampler, where `options_left` finds them.

    On the object rather than in a table beside it, so that they survive pickling and copies.
    """
    options = LoaderOptions(
        loader.dataset,
        loader.seed,
        loader.on_error,
        loader.stall_after,
        loader.device,
        loader.static,
        loader.decode,
        loader.read_ahead,
    )
    carrier = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    if options.keywords() == LoaderOptions(None, None, "raise", None).keywords() and not hasattr(carrier, _OPTIONS):
        return
    try:
        setattr(carrier, _OPTIONS, options)
    except AttributeError:  # a list, say; frameworks that wrap batch samplers want an object with attributes anyway
        return


def options_left(dataset: Any, batch_sampler: Any, sampler: Any) -> LoaderOptions | None:
    """The options of the loader over this very dataset whose sampler is, or is wrapped in, one of these."""
    for carrier in samplers(batch_sampler, sampler):
        options = getattr(carrier, _OPTIONS, None)
        if isinstance(options, LoaderOptions):
            return options if options.dataset is dataset else None
    return None
