"""What a benchmark of one workload has measured: the table's content, and JSON."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import machine
from .harness import Result, ratio


@dataclass(frozen=True)
class WorkloadReport:
    """Loaders on one workload, ours ('zcd') among them.

    Attributes:
        benchmark: Its name.
        title: Of the table.
        unit: What is counted, in the plural.
        results: One a loader.
        options: What was asked for.
        cpu_per: How many the table's CPU time is of.
        scale: How many the table counts as one: 1,000,000 for millions.
        moved: By loader, bytes that its code reads and writes for each byte that it delivers, where that is known.
        skipped: By loader that is not installed, the command that brings what it lacks.
    """

    benchmark: str
    title: str
    unit: str
    results: list[Result]
    options: dict[str, Any]
    cpu_per: int = 1
    scale: int = 1
    moved: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The options in words, for under the table."""
        return f"{self.options['threads']} threads, batch {self.options['batch_size']}"

    def as_json(self) -> dict[str, object]:
        """The form that every `zcd bench` has."""
        ours = next(result for result in self.results if result.arm.loader == "zcd")
        others = [result for result in self.results if result is not ours]
        moved = {name: {"bytes_moved_per_byte": round(value, 3)} for name, value in self.moved.items()}
        return {
            "benchmark": self.benchmark,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "options": self.options,
            "interval": "order statistics around the median: 95 % where the repeats suffice, else smallest to largest",
            "results": [{**result.as_json(), **moved.get(result.arm.loader, {})} for result in self.results],
            "ratios": [{"loader": "zcd", "over": other.arm.loader, **vars(ratio(ours, other))} for other in others],
            "skipped": self.skipped,
        }
