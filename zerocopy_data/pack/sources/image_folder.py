"""Image folders: `class/*.jpg`, alone or under train/, val/ and test/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...errors import SourceError
from .listing import Source, Split, class_names, class_split, flat_images

TRAIN = "train"
HELD_OUT = ("val", "valid", "validation", "test")

# Makes a labelled split of flat images: (split name, its folder, the training classes).
FlatLabels = Callable[[str, Path, tuple[str, ...]], Split]


def find_image_folder(path: Path) -> Source:
    """Lists `path` as class folders, or as splits of class folders.

    Raises:
        SourceError: nothing here, or labels that cannot be known.
    """
    folders = class_names(path)
    if not folders:
        images, _ = flat_images(path)
        if images:
            raise SourceError(
                f"{path} holds {len(images)} images but no class folders, so their labels are unknown. "
                "Sort them into one folder per class."
            )
        raise SourceError(f"{path} holds no class folders and no images: there is nothing to pack.")
    if TRAIN in folders and (_holds_classes(path / TRAIN) or set(folders) <= {TRAIN, *HELD_OUT}):
        return split_folder(path, "image folder with splits", refuse_flat)
    return Source("image folder", (class_split("", path),))


def _holds_classes(folder: Path) -> bool:
    """Whether train/ is a split and not a class of trains: it holds folders and no images of its own."""
    return bool(class_names(folder)) and not flat_images(folder)[0]


def split_folder(path: Path, kind: str, flat_labels: FlatLabels) -> Source:
    """Lists train/ and whatever of val/ and test/ is beside it; all use the classes of train/."""
    train = class_split(TRAIN, path / TRAIN)
    assert train.classes is not None
    splits = [train]
    for name in HELD_OUT:
        folder = path / name
        if not folder.is_dir():
            continue
        if class_names(folder):
            splits.append(class_split(name, folder, train.classes))
        elif name == "test":
            splits.append(unlabelled_split(name, folder))
        else:
            splits.append(flat_labels(name, folder, train.classes))
    return Source(kind, tuple(splits))


def unlabelled_split(name: str, folder: Path) -> Split:
    """Flat images without labels, as test sets come."""
    ignored: Counter[str] = Counter()
    keys, sizes = flat_images(folder, ignored)
    if not keys:
        raise SourceError(f"{folder} is empty: it holds no images. Remove the folder, or fill it.")
    return Split(name, folder, keys, np.array(sizes, np.int64), None, None, ignored)


def refuse_flat(name: str, folder: Path, classes: tuple[str, ...]) -> Split:
    """For layouts in which nothing can say what flat images show."""
    keys, _ = flat_images(folder)
    if not keys:
        raise SourceError(f"{folder} is empty: it holds no images. Remove the folder, or fill it.")
    raise SourceError(
        f"{folder} holds {len(keys)} images but no class folders, and no labels were found beside it. "
        "Sort them into one folder per class (ImageNet's valprep.sh does that), or put ImageNet's "
        f"LOC_val_solution.csv beside {folder.name}/."
    )
