"""`zcd.compile`: from a torchvision dataset to one that the thread engine runs, or to the list of what forbids it."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch.utils.data import IterableDataset, Subset

from .. import _native
from ..errors import ConfigError
from ..image.pillow import decode_with_pillow
from ..image.torchvision_chain import read_chain
from ..order.seed import seed_number
from .compiled import CompiledDataset, ImageFiles, common_start
from .dataset import ShardDataset
from .samples import ImageOptions
from .selection import Selection

_FOLDER = "torchvision.datasets.folder"
_WATCHED = 8  # samples of a dataset that is not torchvision's whose __getitem__ is watched, twice each
_FEW = 3  # examples in a message
_LOOK_UPS: dict[type, tuple[str, ...]] = {dict: ("__getitem__", "get"), list: ("__getitem__",), tuple: ("__getitem__",)}


def compile_dataset(dataset: Any, *, seed: int = 0, pixel_limit: int = _native.DEFAULT_PIXEL_LIMIT) -> CompiledDataset:
    """Makes a dataset of image files run natively: decoded, cropped, resized, flipped and normalised by threads.

    Taken are torchvision's `ImageFolder`, `DatasetFolder` and `ImageNet`, their subclasses that leave `__getitem__`
    alone, any other dataset with a list `samples` or `imgs` of (path, class index) whose `__getitem__` opens the file,
    converts to RGB, applies `self.transform` and returns (image, class index), and a torch Subset of one. That an
    unknown `__getitem__` does so and no more is checked by watching it on up to eight samples.

    The transform may consist of torchvision's (v1 or v2) RandomResizedCrop, Resize, CenterCrop, RandomCrop,
    RandomHorizontalFlip, with nearest, bilinear or bicubic interpolation; PILToTensor, ToTensor, ToImage,
    ToPureTensor, ToDtype, ConvertImageDtype, Normalize; Identity, RGB, Compose, and torch's Sequential. What resizes
    must stand before what makes a tensor. A `target_transform` may be a look-up (`mapping.get`,
    `some_list.__getitem__`).

    Images equal those of the original dataset in every byte, random ones for the same rectangles: rectangles have
    torchvision's distribution and are keyed by (seed, epoch, sample). EXIF orientation is not applied, as torchvision
    does not. Batches and samples hold plain tensors, also where torchvision's v2 gives its subclass Image.

    Args:
        dataset: What to compile. It is not changed; later changes to it are not seen.
        seed: Of random operations when samples are taken one by one (a `zcd.DataLoader` has its own).
        pixel_limit: Images with more pixels are bad samples; the default is Pillow's own.

    Returns:
        A dataset for `zcd.DataLoader`, where it needs no worker processes, or anybody else's.

    Raises:
        ConfigError: it can't be taken; the message lists every obstacle.
    """
    if isinstance(dataset, CompiledDataset):
        return dataset
    if isinstance(dataset, ShardDataset):
        raise ConfigError(f"{dataset!r} runs natively as it is: give it to zcd.DataLoader.")
    number = seed_number(seed)
    base, subsets = dataset, []
    while type(base) is Subset:
        subsets.append(base)
        base = base.dataset

    chain = read_chain(getattr(base, "transform", None)) if getattr(base, "transform", None) is not None else None
    obstacles: list[str] = []
    samples = _samples(base, obstacles)
    paths: list[bytes] = []
    labels = np.zeros(0, np.int64)
    if samples is not None:
        paths, labels = _paths(samples, obstacles), _labels(samples, getattr(base, "target_transform", None), obstacles)
    if chain is not None:
        obstacles += chain.obstacles
    elif samples is not None or hasattr(base, "transform"):  # else it is something else altogether
        obstacles.append("it has no transform: images of different sizes can't be collated. Give it one")
    if samples is not None and not obstacles and not _torchvisions(base):
        obstacles += _watch(base, paths, labels)
    if obstacles or chain is None:
        reasons = "".join(f"\n  - {text.rstrip('.')}." for text in obstacles)
        raise ConfigError(f"{type(base).__name__} can't be compiled:{reasons}")

    selection = Selection(range(len(paths)))
    for subset in reversed(subsets):
        selection = selection.subset(subset.indices)
    rows = None
    if subsets:
        rows = np.unique(np.asarray(selection.chosen, np.int64))
        paths, labels = [paths[row] for row in rows.tolist()], labels[rows]
    files = ImageFiles.of(_root(base, paths), paths, labels, rows)
    options = ImageOptions(orient=False, verify=False, pixel_limit=pixel_limit)
    classes, numbers = getattr(base, "classes", None), getattr(base, "class_to_idx", None)
    return CompiledDataset(files, selection, chain.ops, number, options, classes, numbers)


def _torchvisions(dataset: Any) -> bool:
    """Whether it is a DatasetFolder, whose __getitem__ is known."""
    folder = sys.modules.get(_FOLDER)
    return folder is not None and isinstance(dataset, folder.DatasetFolder)


def _samples(dataset: Any, obstacles: list[str]) -> Sequence[Any] | None:
    """The list of (path, target), None where there is none; what the class does otherwise joins the obstacles."""
    name = type(dataset).__name__
    if _torchvisions(dataset):
        folder: Any = sys.modules[_FOLDER]
        for method in ("__getitem__", "__getitems__", "__len__"):
            if getattr(type(dataset), method, None) is not getattr(folder.DatasetFolder, method, None):
                obstacles.append(f"{name} has a {method} of its own, whose work is not known")
        if dataset.loader not in (folder.default_loader, folder.pil_loader):
            loader = getattr(dataset.loader, "__qualname__", repr(dataset.loader))
            obstacles.append(f"its loader is {loader}: only torchvision's default loader is known")
        elif dataset.loader is folder.default_loader and sys.modules["torchvision"].get_image_backend() != "PIL":
            obstacles.append("torchvision's image backend is not PIL. Call torchvision.set_image_backend('PIL')")
    for attribute in ("samples", "imgs"):
        samples = getattr(dataset, attribute, None)
        if isinstance(samples, list | tuple):
            return samples
    obstacles.append(f"{name} has no list `samples` or `imgs` of (path, class index)")
    return None


def _paths(samples: Sequence[Any], obstacles: list[str]) -> list[bytes]:
    paths: list[bytes] = []
    wrong: list[str] = []
    for index, sample in enumerate(samples):
        try:
            path, _ = sample if isinstance(sample, list | tuple) else ()
            encoded = os.fsencode(path)
            if not encoded or b"\0" in encoded:
                raise ValueError
            paths.append(encoded)
        except (TypeError, ValueError):
            wrong.append(f"{index}: {sample!r:.80}")
    if wrong:
        obstacles.append(f"{len(wrong)} samples are no pairs of a path and a class index: {_some(wrong)}")
    return paths


def _labels(samples: Sequence[Any], target_transform: Any, obstacles: list[str]) -> npt.NDArray[np.int64]:
    """The class indices, after the target transform where it is a look-up."""
    targets = [sample[1] for sample in samples if isinstance(sample, list | tuple) and len(sample) == 2]
    if target_transform is not None:
        owner = type(getattr(target_transform, "__self__", None))
        if getattr(target_transform, "__name__", None) not in _LOOK_UPS.get(owner, ()):
            name = getattr(target_transform, "__qualname__", repr(target_transform))
            obstacles.append(
                f"its target_transform {name} may do anything. Only look-ups are known: mapping.get, "
                "mapping.__getitem__, some_list.__getitem__"
            )
            return np.zeros(0, np.int64)
        try:
            looked_up = {target: target_transform(target) for target in set(targets)}
        except Exception as error:
            obstacles.append(f"its target_transform fails: {error!r}")
            return np.zeros(0, np.int64)
        targets = [looked_up[target] for target in targets]
    # Other numbers would be collated into another dtype than int64.
    wrong = [f"{index}: {one!r:.40}" for index, one in enumerate(targets) if type(one) not in (int, np.int64)]
    if not wrong:
        try:
            return np.array(targets, np.int64)
        except OverflowError:
            wrong = [f"{index}: {one}" for index, one in enumerate(targets) if not -(2**63) <= one < 2**63]
    obstacles.append(f"{len(wrong)} targets are no integers of 64 bits: {_some(wrong)}")
    return np.zeros(0, np.int64)


def _some(texts: list[str]) -> str:
    return ", ".join(texts[:_FEW]) + (", …" if len(texts) > _FEW else "")


def _root(dataset: Any, paths: list[bytes]) -> Path:
    root = getattr(dataset, "root", None)
    if isinstance(root, str | os.PathLike):
        return Path(root)
    return Path(os.fsdecode(common_start(paths) + b"_")).parent


def _watch(dataset: Any, paths: list[bytes], labels: npt.NDArray[np.int64]) -> list[str]:
    """What a class that is not torchvision's does besides loading and transforming, seen on a few samples."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return [f"{name} has no samples by number and no length"]
    if hasattr(dataset, "__getitems__"):
        return [f"{name} has a __getitems__ of its own, whose work is not known"]
    if len(dataset) != len(paths):
        return [f"{name} has {len(dataset)} samples, its list {len(paths)}"]
    watched = 0
    for index in np.unique(np.linspace(0, len(paths) - 1, _WATCHED).astype(int)).tolist() * 2 if paths else ():
        try:
            expected = decode_with_pillow(
                Path(os.fsdecode(paths[index])).read_bytes(), False, _native.DEFAULT_PIXEL_LIMIT
            )
        except (OSError, _native.ImageError):
            continue  # a bad sample says nothing
        watched += 1
        problem = _other_work(dataset, index, expected, int(labels[index]))
        if problem is not None:
            return [f"{name}.__getitem__({index}) {problem}"]
    return [] if watched or not paths else [f"none of the {name}'s first images can be read"]


def _other_work(dataset: Any, index: int, expected: npt.NDArray[np.uint8], label: int) -> str | None:
    given: list[Any] = []
    mark = object()

    def transform(*values: Any) -> object:
        given.extend(values)
        return mark

    try:
        copied = copy.copy(dataset)
        copied.transform = transform
        got = copied[index]
    except Exception as error:
        return f"fails when its transform is watched: {error!r}"
    if type(got) is not tuple or len(got) != 2:
        many = f" of {len(got)}" if isinstance(got, tuple) else ""
        return f"returns {type(got).__name__}{many}, not (image, class index)"
    if len(given) != 1 or got[0] is not mark:
        return "does more to the image than self.transform"
    image = given[0]
    if not isinstance(image, Image.Image) or image.mode != "RGB" or not np.array_equal(np.asarray(image), expected):
        return "gives its transform something else than the file as Pillow's RGB image"
    if type(got[1]) not in (int, np.int64) or int(got[1]) != label:
        return f"returns {got[1]!r:.40} for a sample whose class index is {label}"
    return None
