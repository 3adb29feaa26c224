"""What a pack reports: progress while it runs, a summary when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SkippedSample:
    """A sample that was left out under on_error='skip'."""

    split: str
    file: str
    reason: str


@dataclass(frozen=True)
class SplitSummary:
    """One packed split. `bytes` is the size of its shards."""

    name: str
    path: Path
    rows: int
    shards: int
    bytes: int
    classes: int | None


@dataclass(frozen=True)
class PackSummary:
    """The result of a pack.

    Attributes:
        path: The output folder.
        kind: The recognised layout of the source.
        splits: One entry per dataset made; a source without splits has one, named ''.
        skipped: What was left out.
        source_bytes: Bytes read from the source.
        seconds: Wall time, listing the source included.
        ignored: Files of no known image extension by extension; '' are those without one.
    """

    path: Path
    kind: str
    splits: tuple[SplitSummary, ...]
    skipped: tuple[SkippedSample, ...]
    source_bytes: int
    seconds: float
    ignored: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(split.rows for split in self.splits)

    @property
    def bytes(self) -> int:
        return sum(split.bytes for split in self.splits)


@dataclass(frozen=True)
class PackProgress:
    """How far a pack is: samples and source bytes done and in all. Skipped samples count as done."""

    rows: int
    total_rows: int
    bytes: int
    total_bytes: int
    skipped: int
