"""What an operation on batches is, and how it works on some of the samples only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ...order.keyed import uniforms
from .batch import Batch, Spec
from .parcel import Parameter, Parcel

_PIECE_BYTES = 1 << 20  # what a CPU works on at a time, counted in float32: it stays in a core's cache

Step: TypeAlias = Callable[[Batch], None]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """The random numbers of one operation: each sample's own, by (seed, epoch, sample, lane)."""

    seed: int
    epoch: int
    samples: npt.NDArray[np.int64]
    lane: int

    def uniform(self, count: int) -> Floats:
        """float64 [n, count] in [0, 1): always the first `count` of each sample."""
        return uniforms(self.seed, self.epoch, self.samples, self.lane, count)

    def following(self, places: int) -> Draws:
        """Those of the operation that stands so many places further on."""
        return replace(self, lane=self.lane + places)


class BatchOp(Protocol):
    """An operation: declared and frozen; `plan` draws on the host, the step that it returns works on the device."""

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """Draws every sample's parameters and puts them into the parcel.

        Returns:
            What to do with the batch once the parcel has been sent, without waiting for the device; and what the batch
            is afterwards.

        Raises:
            ConfigError: the operation can't work on such a batch.
        """


class Rows:
    """Some samples of a batch, known to the host, so that finding them needs no look at the device."""

    def __init__(self, mask: npt.NDArray[np.bool_], parcel: Parcel) -> None:
        self._parcel = parcel
        self._chosen = np.flatnonzero(mask)
        self.count = len(self._chosen)
        self.everything = self.count == len(mask)
        self.index = parcel.add(self._chosen.astype(np.int64))

    def add(self, values: npt.NDArray[Any]) -> Parameter:
        """Puts the chosen samples' share of an array [n, …] into the parcel."""
        return self._parcel.add(values[self._chosen])


def on_rows(batch: Batch, rows: Rows, change: Callable[..., torch.Tensor], *parameters: Parameter) -> None:
    """Puts change(images, *parameters) in the place of some images. Shape and dtype stay.

    Args:
        batch: Whose images are changed.
        rows: Which of them.
        change: From images [m, C, H, W], never written to, and each parameter's tensor [m, …]; acts on each sample
            alone.
        parameters: Of those rows.
    """
    if rows.count == 0:
        return
    images, index = batch.images, rows.index.tensor
    step = rows.count
    if images.device.type == "cpu":
        step = max(1, _PIECE_BYTES // (4 * images[0].numel()))
    if rows.everything and step >= rows.count:
        batch.put(change(images, *(parameter.tensor for parameter in parameters)))
        return
    images = batch.writable()
    for start in range(0, rows.count, step):
        part = slice(start, start + step)
        few = index[part]
        made = change(images.index_select(0, few), *(parameter.tensor[part] for parameter in parameters))
        images.index_copy_(0, few, made)


def ratios(factors: Floats) -> npt.NDArray[np.float32]:
    """float32 [n, 2]: each factor and what it lacks to one, each rounded once."""
    return np.stack([factors, 1.0 - factors], axis=1).astype(np.float32)
