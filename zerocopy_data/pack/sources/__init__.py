"""What can be packed: each layout in its own module, recognised by looking at the folder."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import SourceError
from ...format.manifest import MANIFEST_NAME
from ..names import printable
from .image_folder import HELD_OUT, TRAIN, find_image_folder
from .imagenet import find_imagenet
from .listing import Source, Split

__all__ = ["Source", "Split", "find_source"]


def find_source(path: Path) -> Source:
    """Recognises the layout of a folder and lists its samples.

    Raises:
        SourceError: the folder cannot be read, is empty, or is laid out in a way that leaves labels open.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist.")
    if not path.is_dir():
        raise SourceError(f"{path} is a file. Give the folder that holds the images, in one folder per class.")
    if _is_packed(path):
        raise SourceError(
            f"{path} is a packed dataset already. Give the folder of images that it was made from, "
            f"or open it: zerocopy_data.open"
        )
    try:
        return find_imagenet(path) or find_image_folder(path)
    except OSError as error:  # no permission, a link to itself
        place = path if error.filename is None else printable(os.fsdecode(error.filename))
        raise SourceError(f"{place} cannot be read: {error.strerror or error}.") from error


def _is_packed(path: Path) -> bool:
    """Whether the folder, or one inside it, holds a manifest and shards."""
    try:
        folders = [path, *(entry for entry in path.iterdir() if entry.name in (TRAIN, *HELD_OUT))]
        return any((folder / MANIFEST_NAME).is_file() and any(folder.glob("shard-*.arrow")) for folder in folders)
    except OSError:
        return False
