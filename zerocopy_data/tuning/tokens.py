"""The benchmark behind `zcd bench tokens`: next-token pairs out of a flat file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import ConfigError
from .harness import Arm, Plan, check_known, measure
from .report import WorkloadReport
from .token_arms import MOVED, GetBatch, Stream, TorchArm, ZcdArm, write_tokens

LOADERS = {
    "zcd": (ZcdArm, ()),
    "torch": (TorchArm, ()),
    "nanogpt": (GetBatch, (False,)),
    "nanogpt-1-map": (GetBatch, (True,)),
}


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        loaders: Keys of LOADERS.
        megabytes: Of the file, which is made for this.
        length: Tokens of a window.
        batch_size: Windows of a batch.
        threads: Of ours, and torch's worker processes; 0: none.
        scratch: Where the file goes, by default the system's temporary folder. It is removed.
    """

    loaders: tuple[str, ...]
    megabytes: int = 400
    length: int = 2048
    batch_size: int = 32
    threads: int = 0
    scratch: Path | None = None

    def __post_init__(self) -> None:
        check_known("loader", self.loaders, LOADERS)
        if self.megabytes * 500_000 <= self.length * self.batch_size:
            raise ConfigError(f"{self.megabytes} MB hold no batch of {self.batch_size} windows of {self.length} tokens")


def bench_tokens(
    request: Request, plan: Plan, progress: Callable[[str], None] = lambda message: None
) -> WorkloadReport:
    """Writes a file of tokens into a temporary place and measures every loader.

    Raises:
        BenchError: A loader failed.
    """
    with tempfile.TemporaryDirectory(prefix="zcd-bench-", dir=request.scratch) as folder:
        progress("writing tokens")
        path = Path(folder) / "train.bin"
        write_tokens(path, request.megabytes)
        stream = Stream(path, request.length, request.batch_size, request.threads)
        arms = [Arm(name, "tokens", LOADERS[name][0], (stream, *LOADERS[name][1])) for name in request.loaders]
        results = measure(arms, plan, progress)
    title = f"windows of {request.length:,} tokens out of {request.megabytes} MB of uint16, int64 pairs"
    moved = {name: MOVED[name] for name in request.loaders}
    return WorkloadReport("tokens", title, "tokens", results, {**asdict(request), "scratch": None}, 10**6, 10**6, moved)
