"""The benchmark behind `zcd bench arrays`: shuffled batches of small rows of one size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import ConfigError
from .array_arms import IndexedArm, Rows, TorchArm, ZcdArm, pack_rows
from .harness import Arm, Plan, check_known, measure
from .report import WorkloadReport

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
        check_known("loader", self.loaders, LOADERS)
        if self.rows < self.batch_size:
            raise ConfigError(f"{self.rows} rows are no whole batch of {self.batch_size}")


def bench_arrays(
    request: Request, plan: Plan, progress: Callable[[str], None] = lambda message: None
) -> WorkloadReport:
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
        results = measure(arms, plan, progress)
    title = f"{request.rows:,} rows of {request.row_bytes:,} bytes and a label, shuffled"
    return WorkloadReport("arrays", title, "rows", results, {**asdict(request), "scratch": None}, 1000)
