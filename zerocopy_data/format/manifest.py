"""dataset.json: what a dataset holds, written last and atomically."""

from __future__ import annotations

import contextlib
import json
import os
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import xxhash

from ..errors import ConfigError, ManifestError, ManifestVersionError
from .fields import Field, check_fields, field_from_json, field_to_json

FORMAT_NAME = "zerocopy_data"
FORMAT_VERSION = 1
MANIFEST_NAME = "dataset.json"

_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.arrow")
_HASH = re.compile(r"[0-9a-f]{32}")
_MAX_COUNT = 2**62  # rows and bytes: sums of them still fit int64

# What tells one dataset.json from the next under the same name: inode, size, time of change in ns.
Stamp: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class ShardEntry:
    """One shard as the manifest knows it: `bytes` is the file's size, `xxh3_128` its hash in hex."""

    file: str
    rows: int
    bytes: int
    xxh3_128: str


@dataclass(frozen=True)
class Manifest:
    """The contents of dataset.json.

    Attributes:
        fields: Logical columns by name, in order.
        shards: Shards in row order.
        provenance: Source kind, options and library version; no times, no absolute paths.
        skipped: Samples that were left out when packing: {'file': …, 'reason': …}.
        digest: xxh3_128 of the file's bytes, '' for a manifest that was never written.
        stamp: `stamp_of` the file that was read, None for a manifest that was never written.
    """

    fields: Mapping[str, Field]
    shards: tuple[ShardEntry, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[Mapping[str, str], ...] = ()
    digest: str = field(default="", compare=False)
    stamp: Stamp | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)


def manifest_to_json(manifest: Manifest) -> str:
    """Deterministic text: the same manifest gives the same bytes. One shard a line, to be read by people."""
    head = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "rows": manifest.rows,
        "fields": {name: field_to_json(f) for name, f in manifest.fields.items()},
        "provenance": dict(manifest.provenance),
    }
    lists = {
        "skipped": [dict(entry) for entry in manifest.skipped],
        "shards": [vars(shard) for shard in manifest.shards],
    }
    parts = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    for key, entries in lists.items():
        lines = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in entries)
        parts.append(f" {json.dumps(key)}: [\n{lines}\n ]" if lines else f" {json.dumps(key)}: []")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes dataset.json so that it is either whole or absent, whatever happens in between."""
    data = manifest_to_json(manifest).encode()
    temporary = folder / f".zcd-{MANIFEST_NAME}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(folder / MANIFEST_NAME)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamp_of(status: os.stat_result) -> Stamp:
    """What changes when a file is replaced by another of the same name."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_manifest(folder: Path) -> Manifest:
    """Reads and checks dataset.json.

    Raises:
        FileNotFoundError: there is none.
        ManifestVersionError: a newer version of the library wrote it.
        ManifestError: it cannot be read, is damaged or contradicts itself.
    """
    path = folder / MANIFEST_NAME
    try:
        with open(path, "rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path} is damaged: it is no JSON ({error}). Copy it again, or pack again.") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT_NAME:
        raise ManifestError(f"{path} is not the manifest of a zerocopy_data dataset ('format' differs).")
    version = value.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ManifestError(f"{path} is damaged: format_version is {reprlib.repr(version)}.")
    if version > FORMAT_VERSION:
        raise ManifestVersionError(
            f"{path} has format version {reprlib.repr(version)}, this library reads up to version {FORMAT_VERSION}. "
            "Upgrade with: pip install -U zerocopy-data"
        )
    try:
        return _checked(path, value, xxhash.xxh3_128_hexdigest(data), stamp)
    except RecursionError as error:
        raise ManifestError(f"{path} is damaged: it nests too deeply. Copy it again, or pack again.") from error


def _checked(path: Path, value: dict[str, Any], digest: str, stamp: Stamp) -> Manifest:
    def require(condition: bool, what: str) -> None:
        if not condition:
            raise ManifestError(f"{path} is damaged: {what}. Copy it again, or pack again.")

    require(isinstance(value.get("fields"), dict), "'fields' is missing")
    require(isinstance(value.get("shards"), list), "'shards' is missing")
    try:
        fields = check_fields({name: field_from_json(f) for name, f in value["fields"].items()})
    except ConfigError as error:
        raise ManifestError(f"{path} is damaged: {error}") from error
    shards = []
    for number, entry in enumerate(value["shards"]):
        sound = (
            isinstance(entry, dict)
            and entry.keys() == {"file", "rows", "bytes", "xxh3_128"}
            and isinstance(entry["file"], str)
            and _SHARD_NAME.fullmatch(entry["file"]) is not None
            and all(type(entry[name]) is int and 0 <= entry[name] <= _MAX_COUNT for name in ("rows", "bytes"))
            and isinstance(entry["xxh3_128"], str)
            and _HASH.fullmatch(entry["xxh3_128"]) is not None
        )
        require(sound, f"entry {number} of 'shards' is {reprlib.repr(entry)}")
        shards.append(ShardEntry(**entry))
    require(len({shard.file for shard in shards}) == len(shards), "'shards' names a file twice")
    provenance, skipped = value.get("provenance", {}), value.get("skipped", [])
    require(isinstance(provenance, dict), "'provenance' is no object")
    sound = isinstance(skipped, list) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("file", "reason"))
        for entry in skipped
    )
    require(sound, "'skipped' is no list of files with reasons")
    manifest = Manifest(fields, tuple(shards), provenance, tuple(skipped), digest, stamp)
    rows = value.get("rows")
    require(
        type(rows) is int and rows == manifest.rows,
        f"'rows' is {reprlib.repr(rows)}, its shards hold {manifest.rows}",
    )
    require(max(manifest.rows, manifest.bytes) <= _MAX_COUNT, "its shards hold more than any disk")
    return manifest
