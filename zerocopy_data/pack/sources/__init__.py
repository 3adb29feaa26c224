"""What can be packed: each layout in its own module, recognised by looking at the folder."""

from __future__ import annotations

from pathlib import Path

from ...errors import SourceError
from .image_folder import find_image_folder
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
    try:
        return find_imagenet(path) or find_image_folder(path)
    except PermissionError as error:
        raise SourceError(f"{error.filename} cannot be read: {error.strerror}.") from error
