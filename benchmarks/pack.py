"""How fast is packing, with bytes unchanged and with re-encoding beside a bare loop of the same native calls?

    tools/dev run python benchmarks/pack.py [--data DIR] [--out DIR] [--json FILE]

The source is the folder several times over, as links, and is read once before anything is timed: the page
cache is warm. The output goes to /dev/shm unless --out names another place (on a disk, the fsync of every
shard is part of the time). Medians of five, the two re-encoding arms taking turns.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from zerocopy_data import _native
from zerocopy_data.pack import pack
from zerocopy_data.tuning import machine
from zerocopy_data.tuning.image_arms import list_images
from zerocopy_data.tuning.images import find_tree
from zerocopy_data.tuning.statistics import Estimate, estimate

SAMPLE = Path(__file__).parents[2] / "shared" / "imagenet-sample"
MAX_SIDE = 400
QUALITY = 90
# Smaller than the default: a source of 1 GB then has enough shards for all jobs to end together, as ImageNet
# has.
SHARD_SIZE = "64MB"
COPY_CLAIM_GB = 0.8
TRANSCODE_CLAIM = 0.9


def link_tree(files: list[Path], copies: int, folder: Path) -> Path:
    """A tree with `copies` links to each file, under its class."""
    for copy in range(copies):
        for file in files:
            link = folder / file.parent.name / f"{file.stem}-{copy}{file.suffix}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())
    return folder


def time_pack(source: Path, out: Path, jobs: int, **options: Any) -> float:
    """Seconds of one pack; its output is removed."""
    start = time.perf_counter()
    pack(source, out, jobs=jobs, shard_size=SHARD_SIZE, **options)
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds


def time_bare_loop(blobs: list[bytes], jobs: int) -> float:
    """Seconds that `jobs` threads take to decode, shrink and encode these files, doing nothing else."""

    def work(share: list[bytes]) -> None:
        for blob in share:
            _native.jpeg_transcode(blob, MAX_SIDE, QUALITY)

    start = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, [blobs[first::jobs] for first in range(jobs)]))
    return time.perf_counter() - start


def show(text: str, figure: Estimate, unit: str) -> None:
    """One line of the table."""
    print(f"{text:<58} {figure.median:9,.2f} {unit}  ({figure.low:,.2f} to {figure.high:,.2f})")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=SAMPLE, help=f"ImageFolder of JPEGs (default: {SAMPLE})")
    parser.add_argument("--out", type=Path, default=Path("/dev/shm"), help="folder to write below")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--copies", type=int, default=20, help="times over for the pack that copies bytes")
    parser.add_argument("--transcode-copies", type=int, default=4, help="times over for the one that re-encodes")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()

    files = list_images(find_tree(options.data))
    blobs = [file.read_bytes() for file in files]
    total_bytes = sum(map(len, blobs)) * options.copies
    count = len(files) * options.transcode_copies
    with (
        tempfile.TemporaryDirectory(prefix="zcd-bench-") as links,
        tempfile.TemporaryDirectory(prefix="zcd-bench-", dir=options.out) as written,
    ):
        out = Path(written) / "packed"
        many = link_tree(files, options.copies, Path(links) / "many")
        few = link_tree(files, options.transcode_copies, Path(links) / "few")
        time_pack(few, out, options.jobs)  # warms up: imports, the page cache

        copying = [total_bytes / 1e9 / time_pack(many, out, options.jobs) for _ in range(options.repeats)]
        packed: list[float] = []
        bare: list[float] = []
        for _ in range(options.repeats):
            packed.append(count / time_pack(few, out, options.jobs, max_side=MAX_SIDE, quality=QUALITY))
            bare.append(count / time_bare_loop(blobs * options.transcode_copies, options.jobs))

    copy_rate = estimate(copying)
    share = estimate([ours / loop for ours, loop in zip(packed, bare, strict=True)])
    print(f"{machine.cpu_model()}, {options.jobs} jobs, output on {machine.file_system(options.out).kind}")
    show(f"bytes unchanged ({total_bytes / 1e9:.2f} GB)", copy_rate, "GB/s")
    show(f"--max-side {MAX_SIDE} --quality {QUALITY} ({count} images)", estimate(packed), "images/s")
    show("bare loop of decode, resize, encode", estimate(bare), "images/s")
    show("packing as a share of the bare loop", share, "")
    if options.json is not None:
        report = {
            "benchmark": "pack",
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "results": [
                {"loader": "zcd", "workload": "pack-copy", "unit": "GB/s", **vars(copy_rate)},
                {"loader": "zcd", "workload": "pack-transcode", "unit": "items/s", **vars(estimate(packed))},
                {
                    "loader": "zcd-native",
                    "workload": "pack-transcode",
                    "unit": "items/s",
                    **vars(estimate(bare)),
                },
            ],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    holds = copy_rate.median >= COPY_CLAIM_GB and share.median >= TRANSCODE_CLAIM
    verdict = "holds" if holds else "FAILS"
    print(f"{verdict}: at least {COPY_CLAIM_GB} GB/s, and {TRANSCODE_CLAIM} of the bare loop")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
