"""The bad samples that a loader left out or replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import ZcdError


@dataclass(frozen=True)
class Skipped:
    """A bad sample that was left out or replaced."""

    row: int
    error: ZcdError


class SkippedSamples:
    """The latest samples that were skipped, and how many there were in all.

    Bounded: bad rows that come up in every epoch of a month must not fill the memory.
    """

    KEPT = 10_000

    def __init__(self) -> None:
        self.total = 0
        self._latest: deque[Skipped] = deque(maxlen=self.KEPT)

    def add(self, samples: list[Skipped]) -> None:
        self.total += len(samples)
        self._latest.extend(samples)

    def __len__(self) -> int:
        return len(self._latest)

    def __iter__(self) -> Iterator[Skipped]:
        return iter(tuple(self._latest))

    def __repr__(self) -> str:
        return f"SkippedSamples(total={self.total}, rows={[sample.row for sample in self]})"
