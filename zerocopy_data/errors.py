"""Every error of this library, in one tree under `ZcdError`.

A message says what is wrong, where (dataset, shard, row, key) and what to do about it.
"""

from __future__ import annotations

from pathlib import Path


class ZcdError(Exception):
    """The root of all errors that this library raises on purpose."""


class ConfigError(ZcdError, ValueError):
    """An argument or an option that cannot work, refused before anything is touched."""


class NotADatasetError(ZcdError):
    """The path holds no dataset that `zcd pack` made."""


class UnfinishedPackError(NotADatasetError):
    """The folder holds shards but no manifest: the pack that was writing it has not finished."""


class ManifestError(ZcdError):
    """A dataset.json that is damaged or contradicts itself."""


class ManifestVersionError(ManifestError):
    """A dataset.json written by a newer version of the library than this one."""


class DatasetChangedError(ZcdError):
    """The dataset on disk is no longer the one that was opened."""


class ShardDamagedError(ZcdError):
    """A shard whose size, structure or checksum is not what was written."""

    def __init__(self, shard: str | Path, reason: str, *, hint: str | None = None) -> None:
        self.shard = Path(shard)
        self.reason = reason
        self.hint = hint or "Copy the shard again from its origin, or pack the dataset again."
        super().__init__(f"shard {self.shard} is damaged: {reason}. {self.hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_shard_damaged, (self.shard, self.reason, self.hint)


def _rebuild_shard_damaged(shard: Path, reason: str, hint: str) -> ShardDamagedError:
    return ShardDamagedError(shard, reason, hint=hint)


class BadSampleError(ZcdError):
    """One sample that cannot be read, decoded or trusted.

    Attributes:
        dataset: The dataset's (or, when packing, the source's) folder.
        shard: File name of the shard, None while packing.
        row: Row within the dataset, None while packing.
        key: The sample's key, usually its path below the split's root.
        reason: What is wrong with it, without the place.
    """

    def __init__(
        self,
        dataset: str | Path,
        shard: str | None,
        row: int | None,
        key: str | None,
        reason: str,
        *,
        hint: str | None = None,
    ) -> None:
        self.dataset = Path(dataset)
        self.shard = shard
        self.row = row
        self.key = key
        self.reason = reason
        self.hint = hint
        place = [str(self.dataset)]
        if shard is not None:
            place.append(f"shard {shard}")
        if row is not None:
            place.append(f"row {row}")
        if key is not None:
            place.append(f"key {key!r}")
        message = f"bad sample in {', '.join(place)}: {reason}"
        super().__init__(f"{message}. {hint}" if hint else message)

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild_bad_sample,
            (self.dataset, self.shard, self.row, self.key, self.reason, self.hint),
        )


def _rebuild_bad_sample(
    dataset: Path, shard: str | None, row: int | None, key: str | None, reason: str, hint: str | None
) -> BadSampleError:
    return BadSampleError(dataset, shard, row, key, reason, hint=hint)


class OutputExistsError(ZcdError):
    """The output folder is taken: by a dataset, an unfinished pack, another pack at work, or other files."""


class SourceError(ZcdError):
    """The source of a pack holds nothing to pack, cannot be read, or is laid out ambiguously."""


class PackError(ZcdError):
    """Packing stopped: the disk is full, a worker was killed, no sample was usable."""


class DeviceMemoryError(ZcdError, MemoryError):
    """A device, or the page-locked memory that its tensors move to, is full and nothing more can be moved away."""
