"""The benchmark behind `zcd bench images`: which loaders run on which folder, and the report they make."""

from __future__ import annotations

import datetime
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError, SourceError
from . import machine
from .harness import Arm, Plan, Result, check_known, measure, ratio
from .image_arms import LOADERS, RAW_WORKLOADS, WORKLOADS, Setting, list_images

# Decoded pixels load some twenty times as fast: their epochs are as much longer, to take about as long.
RAW_EPOCH_FACTOR = 20


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        data: An ImageFolder tree of JPEGs, or a folder whose train/ is one.
        loaders: Keys of LOADERS.
        workloads: Keys of WORKLOADS.
        epoch_items: A smaller folder is passed over several times in an epoch, to at least this many images.
        limit: Use only this many of the folder's images, spread evenly over it.
        scratch: Where the packed copies go; the system's temporary folder by default. They are removed.
    """

    data: Path
    loaders: tuple[str, ...]
    workloads: tuple[str, ...]
    batch_size: int = 64
    threads: int = 2
    epoch_items: int = 2000
    limit: int | None = None
    scratch: Path | None = None

    def __post_init__(self) -> None:
        check_known("loader", self.loaders, LOADERS)
        check_known("workload", self.workloads, WORKLOADS)
        if self.threads < 1 or self.batch_size < 1:
            raise ConfigError("threads and batch_size must be at least 1")


@dataclass(frozen=True)
class Report:
    """What was measured."""

    results: list[Result]
    skipped: dict[str, str]  # loader: the command that brings what it lacks
    request: Request
    images: int
    mean_bytes: float
    unit: str = "images"

    @property
    def title(self) -> str:
        """Of the table."""
        return f"{self.images} images, mean {self.mean_bytes / 1e3:.0f} KB"

    @property
    def about(self) -> str:
        """The options in words, for under the table."""
        return f"{self.request.threads} threads, batch {self.request.batch_size}"

    @property
    def cpu_per(self) -> int:
        """Images that the table's CPU time is of."""
        return 1

    @property
    def scale(self) -> int:
        """Images that the table counts as one."""
        return 1

    @property
    def moved(self) -> dict[str, float]:
        """Not known: see `WorkloadReport`."""
        return {}

    def as_json(self) -> dict[str, object]:
        """The form that every `zcd bench` has."""
        return {
            "benchmark": "images",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "data": {
                "folder": str(self.request.data),
                "images": self.images,
                "mean_kb": round(self.mean_bytes / 1e3, 1),
            },
            "options": {"batch_size": self.request.batch_size, "threads": self.request.threads},
            "interval": "order statistics around the median: 95 % where the repeats suffice, else smallest to largest",
            "results": [result.as_json() for result in self.results],
            "ratios": [
                {
                    "workload": ours.arm.workload,
                    "loader": "zcd",
                    "over": theirs.arm.loader,
                    **vars(ratio(ours, theirs)),
                }
                for ours, theirs in self.pairs()
            ],
            "skipped": self.skipped,
        }

    def pairs(self) -> list[tuple[Result, Result]]:
        """Our result beside every other of the same workload."""
        ours = {result.arm.workload: result for result in self.results if result.arm.loader == "zcd"}
        return [
            (ours[result.arm.workload], result)
            for result in self.results
            if result.arm.loader != "zcd" and result.arm.workload in ours
        ]


def find_tree(data: Path) -> Path:
    """The ImageFolder tree at `data`: itself, or its train/.

    Raises:
        SourceError: Neither holds a class folder with JPEGs.
    """
    for tree in (data, data / "train"):
        if tree.is_dir() and list_images(tree):
            return tree
    raise SourceError(f"{data} is no ImageFolder tree of JPEGs: expected {data}/<class>/<name>.jpg")


def link_some(files: Sequence[Path], limit: int, folder: Path) -> Path:
    """A tree of links to `limit` of the files, spread evenly."""
    for index in range(limit):
        file = files[index * len(files) // limit]
        link = folder / file.parent.name / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    return folder


def bench_images(request: Request, plan: Plan, progress: Callable[[str], None] = lambda message: None) -> Report:
    """Packs the folder into a temporary place and measures every loader, one workload after the other.

    A loader that is not installed is left out and named in the report.

    Raises:
        SourceError: No images.
        BenchError: A loader failed.
    """
    from ..pack import pack

    tree = find_tree(request.data)
    files = list_images(tree)
    missing = {name: LOADERS[name].missing() for name in request.loaders}
    skipped = {name: command for name, command in missing.items() if command is not None}
    with tempfile.TemporaryDirectory(prefix="zcd-bench-", dir=request.scratch) as name:
        scratch = Path(name)
        if request.limit is not None and request.limit < len(files):
            tree = link_some(files, request.limit, scratch / "images")
            files = list_images(tree)

        def packed(options: dict[str, Any]) -> Path:
            progress("packing" + "".join(f" --{key} {value}" for key, value in options.items()))
            out = scratch / "-".join(["packed", *map(str, options.values())])
            return pack(tree, out, jobs=request.threads, **options).splits[0].path

        plain = packed({})
        raw = packed({"raw": 256}) if set(request.workloads) & set(RAW_WORKLOADS) else None
        results: list[Result] = []
        for workload in request.workloads:
            least = max(request.epoch_items, request.batch_size)
            if workload in RAW_WORKLOADS:
                least *= RAW_EPOCH_FACTOR
            setting = Setting(
                workload=workload,
                folder=tree,
                packed=plain,
                packed_raw=raw,
                batch_size=request.batch_size,
                threads=request.threads,
                copies=math.ceil(least / len(files)),
            )
            arms = [
                Arm(name, workload, LOADERS[name].build, (setting,))
                for name in request.loaders
                if name not in skipped and workload in LOADERS[name].workloads
            ]
            results += measure(arms, plan, progress)
        mean_bytes = sum(file.stat().st_size for file in files) / len(files)
    return Report(results, skipped, request, len(files), mean_bytes)
