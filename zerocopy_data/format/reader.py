"""Opens a dataset: the manifest at once, each shard as a private map when it is first used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DatasetChangedError, NotADatasetError, ShardDamagedError, UnfinishedPackError
from .fields import Field
from .manifest import MANIFEST_NAME, Manifest, read_manifest, stamp_of
from .output import unfinished
from .shard import Chunk, Shard

__all__ = ["Chunk", "DatasetReader", "Shard", "find_splits"]


class DatasetReader:
    """A dataset on disk. Reads the manifest only; nothing per row is ever a Python object.

    Safe under threads, fork and spawn; pickles as its path and the manifest's digest.

    Args:
        path: The dataset's folder, the one with dataset.json in it.

    Attributes:
        path: Absolute path of the folder.
        manifest: What dataset.json says.
        fields: Logical columns by name.
        shard_starts: int64 [num_shards + 1], the first row of each shard and the end.

    Raises:
        UnfinishedPackError: the folder holds shards but no manifest.
        NotADatasetError: there is no dataset here; when its sub-folders are datasets it names them.
        ManifestVersionError: a newer library wrote it.
        ManifestError: dataset.json is damaged.
    """

    path: Path
    manifest: Manifest
    fields: Mapping[str, Field]
    shard_starts: npt.NDArray[np.int64]

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        try:
            self.manifest = read_manifest(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise _no_manifest(self.path) from None
        self.fields = self.manifest.fields
        # A tuple beside the array: bisect on it costs a tenth of numpy's searchsorted for one row.
        self._starts = (0, *accumulate(entry.rows for entry in self.manifest.shards))
        self.shard_starts = np.array(self._starts, np.int64)
        self._shards: list[Shard | None] = [None] * len(self.manifest.shards)

    @property
    def num_rows(self) -> int:
        return self._starts[-1]

    @property
    def num_shards(self) -> int:
        return len(self._shards)

    def shard(self, index: int) -> Shard:
        """The shard, mapped when first asked for.

        Without a lock on purpose: two threads may both map a shard and one map is dropped, while a lock
        held at fork would hang the child.

        Raises:
            ShardDamagedError: it is missing, of another size than the manifest says, or no Arrow file.
            DatasetChangedError: the dataset has been packed again, or removed, since it was opened.
            ZcdError: the process may open or map no more.
        """
        shard = self._shards[index]
        if shard is None:
            try:
                shard = Shard(self.path, self.manifest.shards[index], self.fields)
            except ShardDamagedError:
                self._check_unchanged()
                raise
            # After mapping, not before: a pack removes the manifest first, so what was mapped is of the pack
            # that the manifest is of as long as that is still there.
            self._check_unchanged()
            self._shards[index] = shard
        return shard

    def _check_unchanged(self) -> None:
        try:
            stamp = stamp_of((self.path / MANIFEST_NAME).stat())
        except OSError:
            stamp = None
        if stamp != self.manifest.stamp:
            raise DatasetChangedError(
                f"{self.path} has been packed again since it was opened. Open it again."
            ) from None

    def locate(self, row: int) -> tuple[int, int]:
        """Shard number and row within it. Negative rows are not taken.

        Raises:
            IndexError: the row is outside the dataset.
        """
        if not 0 <= row < self._starts[-1]:
            raise IndexError(f"row {row} of {self.path}, which has {self._starts[-1]} rows")
        index = bisect_right(self._starts, row) - 1
        return index, row - self._starts[index]

    def value(self, name: str, row: int) -> Any:
        """One value of a field: `Shard.value` at the row's place."""
        index, local = self.locate(row)
        return self.shard(index).value(name, local)

    def checksum_problem(self, name: str, row: int) -> str | None:
        """What is wrong with the stored bytes of a value, None when they are what was written."""
        index, local = self.locate(row)
        return self.shard(index).checksum_problem(name, local)

    def __getstate__(self) -> tuple[str, str]:
        return str(self.path), self.manifest.digest

    def __setstate__(self, state: tuple[str, str]) -> None:
        path, digest = state
        self.__init__(path)  # type: ignore[misc]
        if self.manifest.digest != digest:
            raise DatasetChangedError(
                f"{path} has been packed again since it was opened by the process that sent it here. Open it again."
            )

    def __repr__(self) -> str:
        return f"DatasetReader({str(self.path)!r}, rows={self.num_rows}, fields={list(self.fields)})"


def find_splits(path: Path) -> list[Path]:
    """Sub-folders of `path` that are datasets, by name; empty when there are none."""
    try:
        return sorted(folder for folder in path.iterdir() if (folder / MANIFEST_NAME).is_file())
    except OSError:
        return []


def _no_manifest(path: Path) -> NotADatasetError:
    if not path.exists():
        return NotADatasetError(f"{path} does not exist. Make a dataset with: zcd pack SRC {path}")
    if not path.is_dir():
        return NotADatasetError(f"{path} is a file; a dataset is a folder with {MANIFEST_NAME} in it.")
    splits = find_splits(path)
    if splits:
        names = ", ".join(split.name for split in splits)
        return NotADatasetError(
            f"{path} holds one dataset per split ({names}). Open one of them, for example {splits[0]}"
        )
    if unfinished(path):
        return UnfinishedPackError(
            f"{path} is an unfinished pack: it has no {MANIFEST_NAME}. "
            "Wait for the pack that writes it, or run it again with --overwrite."
        )
    return NotADatasetError(f"{path} holds no {MANIFEST_NAME}. Make a dataset with: zcd pack SRC OUT")
