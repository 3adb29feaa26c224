"""`pack`: from a source folder to a finished dataset."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, PackError, SourceError
from ..format.fields import Field, Scalar, Text
from ..format.manifest import Manifest, write_manifest
from ..format.output import OutputFolder
from ..format.shard_writer import shard_name, write_problem
from ..format.writer import ROW_GROUP_SIZE
from .engine import run_tasks
from .plan import arrange, parse_size, shard_bounds
from .recipe import Recipe
from .shard_job import ShardTask
from .sources import Source, Split, find_source
from .summary import PackProgress, PackSummary, SkippedSample, SplitSummary

ProgressCallback = Callable[[PackProgress], None]


@dataclass(frozen=True)
class _Options:
    """The options that decide what is written, checked."""

    shard_size: int
    shuffle: int | None
    limit: int | None
    skip_bad: bool
    recipe: Recipe

    def provenance(self, source: Source, split: Split) -> dict[str, Any]:
        options: dict[str, Any] = {"shard_size": self.shard_size}
        options |= {k: v for k, v in (("shuffle", self.shuffle), ("limit", self.limit)) if v is not None}
        options |= {"on_error": "skip"} if self.skip_bad else {}
        entry = {"source": source.kind, "split": split.name} if split.name else {"source": source.kind}
        return {**entry, "options": options | self.recipe.options(), "library": _library()}


def default_output(source: Path) -> Path:
    """The source's name with `.zcd`, beside it."""
    resolved = source.absolute() if source.name else source.resolve()
    return resolved.parent / f"{resolved.name}.zcd"


def pack(
    source: str | Path,
    out: str | Path | None = None,
    *,
    jobs: int | None = None,
    shard_size: str | int = "256MB",
    shuffle: int | None = None,
    limit: int | None = None,
    on_error: str = "raise",
    max_side: int | None = None,
    quality: int | None = None,
    raw: int | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> PackSummary:
    """Packs a folder of images into mmap-able shards, one dataset per split.

    The same source and options give byte-identical output whatever `jobs` is.

    Args:
        source: Class folders of images, train/ val/ test/ over such, or ImageNet in its usual layouts.
        out: Output folder; `source` with `.zcd` when None. A source with splits makes out/train, out/val, …
        jobs: Cores to use, by threads of this process and, beyond a few, by further processes; None takes every core
            that this process may use.
        shard_size: Source bytes per shard: '256MB', '64MiB', or a number.
        shuffle: Seed that shuffles the samples of each split; None keeps ImageFolder's order.
        limit: Keep this many samples of each split, after shuffling.
        on_error: 'raise' stops at the first unusable file; 'skip' leaves such files out and lists them.
        max_side: Re-encode images whose longer side is greater, shrunk to it.
        quality: JPEG quality of re-encoded images, 90 by default. Only with `max_side`.
        raw: Store pixels instead: Resize(raw), CenterCrop(raw), uint8.
        overwrite: Replace a dataset or an unfinished pack at `out`; never any other folder. A dataset stays
            until the new one is whole, so that for a while the disk holds both.
        progress: Called about ten times a second per process.

    Returns:
        What was packed and what was skipped.

    Raises:
        ConfigError: options that cannot work.
        SourceError: nothing to pack, or labels that cannot be known.
        OutputExistsError: `out` is taken.
        BadSampleError: an unusable file, with on_error='raise'.
        PackError: the disk refuses, or a worker died.
    """
    start = time.perf_counter()
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"on_error must be 'raise' or 'skip', not {on_error!r}.")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1, not {limit}.")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs must be at least 1, not {jobs}.")
    if quality is not None and max_side is None:
        raise ConfigError("quality is for images that are re-encoded: give max_side (--max-side N) with it.")
    recipe = Recipe(max_side, 90 if quality is None else quality, raw)
    options = _Options(parse_size(shard_size), shuffle, limit, on_error == "skip", recipe)
    source = Path(source)
    target = default_output(source) if out is None else Path(out)
    _check_apart(source, target)
    output = OutputFolder(target, overwrite=overwrite, keep_old=True)
    if not output.busy():
        output.check()  # before the source is listed, which takes a while for a million files
    found = find_source(source)
    output.claim()
    finished = False
    try:
        run = _Run(found, target, output.work, options, jobs or len(os.sched_getaffinity(0)), progress)
        splits = tuple(run.pack_split(split) for split in run.splits)
        finished = True
    finally:
        output.release(finished=finished)
    seconds = time.perf_counter() - start
    ignored: Counter[str] = Counter()
    for split in found.splits:
        ignored.update(split.ignored)
    return PackSummary(target, found.kind, splits, tuple(run.skipped), run.done.bytes, seconds, dict(ignored))


class _Run:
    """One pack under way, over all its splits."""

    def __init__(
        self,
        source: Source,
        target: Path,
        work: Path,
        options: _Options,
        jobs: int,
        progress: ProgressCallback | None,
    ) -> None:
        self.source = source
        self.splits = [arrange(split, options.shuffle, options.limit) for split in source.splits]
        self.skipped: list[SkippedSample] = []
        self._target = target
        self._work = work  # where it is written until all is whole
        self._options = options
        self._jobs = jobs
        self._progress = progress
        rows = sum(len(split.keys) for split in self.splits)
        size = sum(int(split.sizes.sum()) for split in self.splits)
        self.done = PackProgress(0, rows, 0, size, 0)

    def pack_split(self, split: Split) -> SplitSummary:
        folder = self._work / split.name  # '' changes nothing
        fields: dict[str, Field] = {"image": self._options.recipe.field()}
        if split.classes is not None:
            fields["label"] = Scalar("int64", split.classes)
        fields["key"] = Text()
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise write_problem(error, folder) from error
        results = run_tasks(self._tasks(split, folder, fields), self._jobs, self._report)
        entries = tuple(result.entry for result in results if result.entry is not None)
        skipped = [SkippedSample(split.name, file, reason) for result in results for file, reason in result.skipped]
        self.skipped += skipped
        if not entries:
            first = skipped[0]
            raise PackError(
                f"none of the {len(skipped)} files of {split.root} could be packed. "
                f"The first: {first.file}: {first.reason}."
            )
        listed = tuple({"file": sample.file, "reason": sample.reason} for sample in skipped)
        manifest = Manifest(fields, entries, self._options.provenance(self.source, split), listed)
        try:
            write_manifest(folder, manifest)
        except OSError as error:
            raise write_problem(error, folder / "dataset.json") from error
        classes = None if split.classes is None else len(split.classes)
        return SplitSummary(split.name, self._target / split.name, manifest.rows, len(entries), manifest.bytes, classes)

    def _tasks(self, split: Split, folder: Path, fields: dict[str, Field]) -> list[ShardTask]:
        options = self._options
        raw = options.recipe.raw
        sizes = split.sizes if raw is None else np.full(len(split.keys), raw**2 * 3, np.int64)
        tasks = []
        for number, (first, end) in enumerate(shard_bounds(sizes, options.shard_size)):
            labels = None if split.labels is None else split.labels[first:end]
            tasks.append(
                ShardTask(
                    folder,
                    shard_name(number),
                    split.root,
                    split.keys[first:end],
                    labels,
                    fields,
                    options.recipe,
                    options.skip_bad,
                    min(ROW_GROUP_SIZE, options.shard_size),
                )
            )
        return tasks

    def _report(self, rows: int, size: int, skipped: int) -> None:
        done = self.done
        self.done = PackProgress(
            done.rows + rows, done.total_rows, done.bytes + size, done.total_bytes, done.skipped + skipped
        )
        if self._progress is not None:
            self._progress(self.done)


def _check_apart(source: Path, target: Path) -> None:
    """Neither folder may lie in the other: the next pack would read its own output, or clear its source."""
    try:
        inner, outer = target.resolve(), source.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: how pathlib reports a link to itself
        raise SourceError(f"{source} or {target} leads into a loop of links.") from error
    if not source.exists():
        raise SourceError(f"{source} does not exist.")
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise ConfigError(f"OUT ({target}) and the source ({source}) must not lie in each other.")


def _library() -> str:
    try:
        return f"zerocopy-data {metadata.version('zerocopy-data')}"
    except metadata.PackageNotFoundError:
        return "zerocopy-data (not installed)"
