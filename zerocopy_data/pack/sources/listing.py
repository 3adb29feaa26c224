"""The samples of a source, and walking folders in the order of torchvision's ImageFolder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import SourceError
from ..names import is_text, printable

# torchvision.datasets.folder.IMG_EXTENSIONS
IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Split:
    """The samples of one split, in order.

    Attributes:
        name: 'train', 'val', … or '' when the source has no splits.
        root: Folder that keys are relative to.
        keys: Paths below `root`, with '/'.
        sizes: int64 [samples], file sizes in bytes, 0 where the file cannot be looked at.
        labels: int64 [samples], indices into `classes`; None when there are no labels.
        classes: Class names in the order of their indices, None without labels.
        ignored: How many files of no known image extension lie among the samples, by extension.
    """

    name: str
    root: Path
    keys: Sequence[str]
    sizes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64] | None
    classes: tuple[str, ...] | None
    ignored: Mapping[str, int] = field(default_factory=dict)

    def take(self, rows: npt.NDArray[np.int64]) -> Split:
        """The split with only these rows, in this order."""
        labels = None if self.labels is None else self.labels[rows]
        keys = [self.keys[row] for row in rows.tolist()]
        return Split(self.name, self.root, keys, self.sizes[rows], labels, self.classes, self.ignored)


@dataclass(frozen=True)
class Source:
    """A recognised source: `kind` names its layout for the manifest."""

    kind: str
    splits: tuple[Split, ...]


def class_names(folder: Path) -> list[str]:
    """Names of the folders inside, sorted: torchvision's class order."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def image_files(folder: Path, ignored: Counter[str] | None = None) -> tuple[list[str], list[int]]:
    """Images anywhere under `folder` in ImageFolder's order: keys relative to its parent, and sizes.

    Args:
        ignored: Counts what is no image, by extension.

    Raises:
        SourceError: a folder cannot be read, or a link leads back to a folder above it.
    """
    keys: list[str] = []
    sizes: list[int] = []
    prefix = len(str(folder)) - len(folder.name)
    found = []
    waiting = [str(folder)]
    while waiting:
        root = waiting.pop()
        folders, files = _entries(root)
        _refuse_loops(root, folders)
        waiting += [f"{root}/{name}" for name in folders]
        found.append((root, files))
    for root, files in sorted(found, key=lambda item: item[0]):
        for entry in sorted(files, key=lambda entry: entry.name):
            if entry.name.lower().endswith(IMAGE_EXTENSIONS):
                keys.append(f"{root}/{entry.name}"[prefix:])
                sizes.append(_size(entry))
            elif ignored is not None:
                ignored[_extension(entry.name)] += 1
    return keys, sizes


def _entries(folder: str) -> tuple[list[str], list[os.DirEntry[str]]]:
    """Names of the folders inside, links to folders included, and everything else."""
    folders: list[str] = []
    files: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_folder(entry):
                    folders.append(entry.name)
                else:
                    files.append(entry)
    except OSError as error:
        _unreadable(error)
    return folders, files


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, say: the pack finds out and follows its --on-error
        return False


def flat_images(folder: Path, ignored: Counter[str] | None = None) -> tuple[list[str], list[int]]:
    """Images directly inside `folder`, sorted by name; `ignored` counts other files by extension."""
    with os.scandir(folder) as entries:
        files = sorted((entry for entry in entries if not entry.is_dir()), key=lambda entry: entry.name)
    images = [entry for entry in files if entry.name.lower().endswith(IMAGE_EXTENSIONS)]
    if ignored is not None:
        ignored.update(_extension(e.name) for e in files if not e.name.lower().endswith(IMAGE_EXTENSIONS))
    return [entry.name for entry in images], [_size(entry) for entry in images]


def class_split(name: str, root: Path, classes: Sequence[str] | None = None) -> Split:
    """A folder of class folders.

    Args:
        classes: The class list of the training split; None takes this folder's own.

    Raises:
        SourceError: no class folders, an empty one, or one that the training split does not have.
    """
    present = class_names(root)
    if not present:
        images, _ = flat_images(root)
        what = f"holds {len(images)} images but no class folders" if images else "is empty: no class folders"
        raise SourceError(f"{root} {what}. Sort the images into one folder per class.")
    unstorable = [printable(class_name) for class_name in present if not is_text(class_name)]
    if unstorable:
        raise SourceError(
            f"{printable(str(root))} has class folders whose names are no UTF-8: {_some(unstorable)}. Rename them."
        )
    known = present if classes is None else list(classes)
    unknown = sorted(set(present) - set(known))
    if unknown:
        raise SourceError(
            f"{root} holds classes that the training split does not have: {_some(unknown)}. "
            "Move them away, or pack the splits one by one."
        )
    index = {class_name: number for number, class_name in enumerate(known)}
    keys: list[str] = []
    sizes: list[int] = []
    labels: list[int] = []
    empty = []
    ignored: Counter[str] = Counter()
    for class_name in present:
        class_keys, class_sizes = image_files(root / class_name, ignored)
        if not class_keys:
            empty.append(class_name)
        keys += class_keys
        sizes += class_sizes
        labels += [index[class_name]] * len(class_keys)
    if empty:
        raise SourceError(
            f"{root} has class folders without an image: {_some(empty)}. Remove them (they would shift "
            f"the labels); images are files that end in {', '.join(IMAGE_EXTENSIONS)}."
        )
    return Split(name, root, keys, np.array(sizes, np.int64), np.array(labels, np.int64), tuple(known), ignored)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _extension(name: str) -> str:
    return printable(os.path.splitext(name)[1].lower())  # noqa: PTH122 - a Path per file costs as much as looking at it


def _refuse_loops(root: str, folders: Sequence[str]) -> None:
    """Such a link would show the same images again and again, some forty times until the system gives up."""
    for name in folders:
        path = f"{root}/{name}"
        if os.path.islink(path):  # noqa: PTH114
            above, target = (os.path.realpath(place) for place in (root, path))
            if f"{above}/".startswith(f"{target.rstrip('/')}/"):
                raise SourceError(f"{printable(path)} is a link to a folder above itself. Remove it.")


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size  # of a link it is known already, since its kind was asked for
    except OSError:
        return 0  # a dangling link, say: the pack finds out and follows its --on-error


def _unreadable(error: OSError) -> None:
    raise SourceError(f"{error.filename} cannot be read: {error.strerror}.") from error
