"""ImageNet as people have it: wnid folders with val/ sorted or flat, and the Kaggle tree.

The labels of a flat val/ come from LOC_val_solution.csv (Kaggle: file name to wnid), or from the
development kit: ILSVRC2012_validation_ground_truth.txt holds one ILSVRC2012_ID per image in the order of
their numbers. Those IDs are not in the order of the sorted wnids, so that file is used only together with a
table of IDs: map_clsloc.txt, or the kit's meta.mat when scipy is installed.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SourceError
from .image_folder import TRAIN, refuse_flat, split_folder
from .listing import Source, Split, class_names, flat_images

SOLUTION = "LOC_val_solution.csv"
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"

_WNID = re.compile(r"n\d{8}")
_KAGGLE_ROOTS = (Path("ILSVRC/Data/CLS-LOC"), Path("Data/CLS-LOC"), Path("CLS-LOC"))
_DEVKIT_PLACES = ("", "data", "ILSVRC2012_devkit_t12/data", "devkit/data", "ILSVRC2012_devkit_t12", "devkit")


def find_imagenet(path: Path) -> Source | None:
    """Lists an ImageNet tree, or returns None when `path` is none.

    Takes the folder that holds ILSVRC/, ILSVRC itself, CLS-LOC, or any folder with train/<wnid>/.

    Raises:
        SourceError: it is one, but labels of val/ cannot be known.
    """
    for below in _KAGGLE_ROOTS:
        if (path / below / TRAIN).is_dir():
            return _list(path / below, "imagenet (kaggle)")
    if not (path / TRAIN).is_dir():
        return None
    kaggle = path.absolute().name == "CLS-LOC"
    wnids = class_names(path / TRAIN)
    if kaggle or (wnids and all(_WNID.fullmatch(name) for name in wnids)):
        return _list(path, "imagenet (kaggle)" if kaggle else "imagenet")
    return None


def _list(root: Path, kind: str) -> Source:
    # Kaggle puts its CSV three folders above CLS-LOC; others put it beside val/ or into it.
    above = 3 if "kaggle" in kind else 1
    places = [root / "val", root, *list(root.absolute().parents)[:above]]

    def flat_labels(name: str, folder: Path, classes: tuple[str, ...]) -> Split:
        for place in places:
            if (place / SOLUTION).is_file():
                return _labelled(name, folder, classes, _read_solution(place / SOLUTION), place / SOLUTION)
        for place in places:
            for below in _DEVKIT_PLACES:
                truth = place / below / GROUND_TRUTH
                if truth.is_file():
                    return _from_ground_truth(name, folder, classes, truth)
        return refuse_flat(name, folder, classes)

    return split_folder(root, kind, flat_labels)


def _read_solution(path: Path) -> dict[str, str]:
    """Image name without extension to wnid, from 'ImageId,PredictionString' ('wnid x y x y wnid …')."""
    wnids: dict[str, str] = {}
    with open(path, newline="", encoding="utf-8-sig") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            image, prediction = row.get("ImageId"), row.get("PredictionString")
            wnid = (prediction or "").split(" ", 1)[0]
            if not image or not _WNID.fullmatch(wnid):
                raise SourceError(f"{path}, line {number}: 'ImageId,wnid x y x y …' expected, not {row!r}.")
            wnids[image] = wnid
    return wnids


def _labelled(name: str, folder: Path, classes: Sequence[str], wnids: dict[str, str], labels_file: Path) -> Split:
    ignored: Counter[str] = Counter()
    keys, sizes = flat_images(folder, ignored)
    if not keys:
        raise SourceError(f"{folder} is empty: it holds no images. Remove the folder, or fill it.")
    index = {wnid: number for number, wnid in enumerate(classes)}
    labels = np.empty(len(keys), np.int64)
    for row, key in enumerate(keys):
        wnid = wnids.get(key.rsplit(".", 1)[0])
        if wnid is None:
            raise SourceError(f"{labels_file} has no line for {folder / key}. Is it the file of this split?")
        if wnid not in index:
            raise SourceError(
                f"{labels_file} says {key} shows {wnid}, a class that train/ does not have. "
                "Pack it with the train/ it belongs to."
            )
        labels[row] = index[wnid]
    return Split(name, folder, keys, np.array(sizes, np.int64), labels, tuple(classes), ignored)


def _from_ground_truth(name: str, folder: Path, classes: Sequence[str], truth: Path) -> Split:
    ids = truth.read_text().split()
    table = _id_table(truth.parent)
    if table is None:
        raise SourceError(
            f"{truth} numbers classes in the development kit's own order, which is not that of the folders. "
            f"Put the kit's meta.mat (and pip install scipy) or map_clsloc.txt beside it, or use {SOLUTION}."
        )
    keys, _ = flat_images(folder)
    wnids: dict[str, str] = {}
    for key in keys:
        match = re.fullmatch(r"ILSVRC2012_val_(\d{8})", key.rsplit(".", 1)[0])
        number = int(match.group(1)) if match else 0
        if not 1 <= number <= len(ids) or not ids[number - 1].isdigit() or int(ids[number - 1]) not in table:
            raise SourceError(f"{truth} cannot tell what {folder / key} shows: it has {len(ids)} numbered lines.")
        wnids[key.rsplit(".", 1)[0]] = table[int(ids[number - 1])]
    return _labelled(name, folder, classes, wnids, truth)


def _id_table(folder: Path) -> dict[int, str] | None:
    """ILSVRC2012_ID to wnid, from what lies beside the ground truth; None when nothing does."""
    text = folder / "map_clsloc.txt"
    if text.is_file():
        rows = [line.split() for line in text.read_text().splitlines() if line.strip()]
        return {int(row[1]): row[0] for row in rows if len(row) >= 2 and row[1].isdigit()}
    kit = folder / "meta.mat"
    if not kit.is_file():
        return None
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    synsets: Any = loadmat(str(kit), squeeze_me=True)["synsets"]
    return {int(synset[0]): str(synset[1]) for synset in synsets}
