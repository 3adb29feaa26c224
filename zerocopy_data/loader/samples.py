"""One sample at a time: what `ds[i]` does, and how a bad one is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import _native
from ..errors import BadSampleError
from ..format.fields import Bytes, Scalar, Tensor, Tokens
from ..format.reader import DatasetReader
from ..image.pillow import decode_with_pillow
from ..image.program import ImageProgram


@dataclass(frozen=True)
class ImageOptions:
    """How stored images are read: see `ShardDataset`."""

    orient: bool = True
    verify: bool = True
    pixel_limit: int = _native.DEFAULT_PIXEL_LIMIT


_DAMAGED = "Check the dataset with: zcd verify, or go on without bad samples: DataLoader(on_error='skip')"
_MISFIT = "The image is sound: the transform doesn't fit it"


def bad_sample(reader: DatasetReader, row: int, reason: str, misfit: bool = False) -> BadSampleError:
    """The error for one row, with all that identifies it. `misfit` says that the transform is to blame."""
    index, _ = reader.locate(row)
    key = None
    if "key" in reader.fields:
        try:
            key = str(reader.value("key", row))
        except Exception:  # the key is a courtesy: the shard is damaged already
            key = None
    return BadSampleError(
        reader.path,
        reader.manifest.shards[index].file,
        row,
        key,
        reason,
        hint=_MISFIT if misfit else _DAMAGED,
    )


def image_views(
    value: Any, program: ImageProgram, sample: int, key: tuple[int, int], options: ImageOptions
) -> torch.Tensor | list[torch.Tensor]:
    """One image through a program: a tensor [3, H, W], or a list of them for MultiCrop.

    Args:
        value: Encoded bytes, or pixels as uint8 [H, W, 3].
        sample: Which one it is, to the random parameters: see `copies.sample_key`.
        key: (seed, epoch) of them.

    Raises:
        ImageError: the bytes are damaged or no image.
    """
    if isinstance(value, np.ndarray):
        made = program.native.run_pixels(value, *key, sample)
    else:
        try:
            made = program.native.run_encoded(value, *key, sample)
        except _native.UnsupportedImage:
            pixels = decode_with_pillow(value, options.orient, options.pixel_limit)
            made = program.native.run_pixels(pixels, *key, sample)
    views = [torch.from_numpy(spec.array(*result)) for spec, result in zip(program.views, made, strict=True)]
    return views if program.multi else views[0]


def random_key(seed: int, epoch: int | None, random: bool) -> tuple[int, int]:
    """(seed, epoch) for one access to a dataset: an epoch that nobody has set is drawn from torch's generator."""
    if epoch is not None:
        return seed % 2**64, epoch % 2**64
    if not random:
        return seed % 2**64, 0
    # Not from the worker's seed: persistent workers keep theirs for life, and would repeat the crops each epoch.
    return seed % 2**64, int(torch.empty((), dtype=torch.int64).random_().item())


def plain_value(reader: DatasetReader, name: str, row: int, verify: bool) -> Any:
    """A value that is no image: int for int64, else what torch's default collation keeps the dtype of.

    Raises:
        BadSampleError: `verify` is asked for and the stored checksum differs.
    """
    if verify:  # before the value is made: of damaged text or JSON none can be
        problem = reader.checksum_problem(name, row)
        if problem is not None:
            raise bad_sample(reader, row, f"column {name!r}: {problem}")
    value = reader.value(name, row)
    match reader.fields[name]:
        case Scalar(dtype="int64"):
            return int(value)
        case Scalar(dtype="bool"):
            return bool(value)
        case Tensor() | Tokens():
            # A copy: the map must not be written through a tensor that the training script changes in place.
            return torch.from_numpy(np.array(value))
        case Bytes():
            return bytes(value)
    return value
