"""The benchmark behind `zcd bench arrays`: shuffled batches of small rows of one size."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import ConfigError
from . import machine
from .array_arms import IndexedArm, Rows, TorchArm, ZcdArm, pack_rows
from .harness import Arm, Plan, Result, measure, ratio

LOADERS = {
    "zcd": (ZcdArm, (True,)),
    "zcd-unchecked": (ZcdArm, (False,)),
    "torch": (TorchArm, ()),
    "indexing": (IndexedArm, ()),
}


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        loaders: Keys of LOADERS.
        rows: In an epoch.
        row_bytes: uint8 values of a row; its label is an int64 more.
        batch_size: Rows in a batch.
        threads: Of ours, and torch's worker processes; 0: none.
        scratch: Where the packed rows go, by default the system's temporary folder. They are removed.
    """

    loaders: tuple[str, ...]
    rows: int = 50_000
    row_bytes: int = 3072
    batch_size: int = 512
    threads: int = 0
    scratch: Path | None = None

    def __post_init__(self) -> None:
        for name in self.loaders:
            if name not in LOADERS:
                raise ConfigError(f"there is no loader {name!r}; there are {', '.join(LOADERS)}")
        if self.rows < self.batch_size:
            raise ConfigError(f"{self.rows} rows are no whole batch of {self.batch_size}")


@dataclass(frozen=True)
class Report:
    """What was measured."""

    results: list[Result]
    request: Request
    skipped: dict[str, str]
    unit: str = "rows"

    @property
    def title(self) -> str:
        """Of the table."""
        return f"{self.request.rows:,} rows of {self.request.row_bytes:,} bytes and a label, shuffled"

    def as_json(self) -> dict[str, object]:
        """The form that every `zcd bench` has."""
        ours = next((result for result in self.results if result.arm.loader == "zcd"), None)
        others = [result for result in self.results if result is not ours] if ours is not None else []
        return {
            "benchmark": "arrays",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "options": {**asdict(self.request), "scratch": None},
            "results": [result.as_json() for result in self.results],
            "ratios": [
                {"loader": "zcd", "over": other.arm.loader, **vars(ratio(ours, other))}  # type: ignore[arg-type]
                for other in others
            ],
        }


def bench_arrays(request: Request, plan: Plan, progress: Callable[[str], None] = lambda message: None) -> Report:
    """Packs rows into a temporary place and measures every loader.

    Raises:
        BenchError: A loader failed.
    """
    with tempfile.TemporaryDirectory(prefix="zcd-bench-", dir=request.scratch) as name:
        progress("packing")
        packed = pack_rows(Path(name) / "rows", request.rows, request.row_bytes)
        setting = Rows(packed, request.rows, request.row_bytes, request.batch_size, request.threads)
        arms = []
        for loader in request.loaders:
            build, options = LOADERS[loader]
            arms.append(Arm(loader, "rows", build, (setting, *options)))
        return Report(measure(arms, plan, progress), request, {})
