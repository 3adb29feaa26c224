"""A crop, a flip and Normalize in a row, of bytes: one pass over memory instead of three."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..kernels.normalize import fused_normalize, normalize_table
from .batch import Batch, Spec
from .crop import RandomCrop
from .flip import RandomHorizontalFlip
from .normalize import Normalize
from .op import BatchOp, Draws, Step
from .parcel import Parcel


@dataclass(frozen=True)
class CropFlipNormalize:
    """Does what its parts do one after another, with the same draws; `fuse` makes it.

    Attributes:
        crop: Without padding; None for the whole image.
        flip: None for none.
        normalize: Comes last.
    """

    crop: RandomCrop | None
    flip: RandomHorizontalFlip | None
    normalize: Normalize

    @property
    def parts(self) -> list[BatchOp]:
        """One after another."""
        return [part for part in (self.crop, self.flip, self.normalize) if part is not None]

    def plan(self, spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
        """See `BatchOp`. `draws` are those of the first part."""
        if spec.is_float or (self.crop is not None and any(self.crop.pads(spec))):
            return _in_a_row(self.parts, spec, draws, parcel)
        size, offsets, flips = (spec.height, spec.width), None, None
        if self.crop is not None:
            offsets, size = parcel.add(self.crop.offsets(spec, draws)), self.crop.size  # type: ignore[assignment]
            draws = draws.following(1)
        if self.flip is not None:
            flips = parcel.add(self.flip.flips(draws))
        table = parcel.add(normalize_table(*self.normalize.for_channels(spec.channels)).numpy().astype(np.float32))
        dtype = self.normalize.result(spec)

        def step(batch: Batch) -> None:
            made = fused_normalize(
                batch.images,
                table.tensor,
                dtype,
                spec.memory_format,
                size,
                None if offsets is None else offsets.tensor,
                None if flips is None else flips.tensor,
            )
            batch.put(made)

        return step, replace(spec, height=size[0], width=size[1], dtype=dtype)


def fuse(ops: Sequence[BatchOp]) -> list[tuple[int, BatchOp]]:
    """A chain with what goes together put together.

    Returns:
        Operations, each with the place in `ops` of its first part.
    """
    made: list[tuple[int, BatchOp]] = []
    for place, op in enumerate(ops):
        if not isinstance(op, Normalize):
            made.append((place, op))
            continue
        first, crop, flip = place, None, None
        if made and isinstance(made[-1][1], RandomHorizontalFlip):
            first, flip = first - 1, made.pop()[1]
        if made and isinstance(made[-1][1], RandomCrop):
            first, crop = first - 1, made.pop()[1]
        made.append((first, CropFlipNormalize(crop, flip, op) if first < place else op))  # type: ignore[arg-type]
    return made


def _in_a_row(ops: Sequence[BatchOp], spec: Spec, draws: Draws, parcel: Parcel) -> tuple[Step, Spec]:
    steps = []
    for place, op in enumerate(ops):
        step, spec = op.plan(spec, draws.following(place), parcel)
        steps.append(step)

    def all_steps(batch: Batch) -> None:
        for step in steps:
            step(batch)

    return all_steps, spec
