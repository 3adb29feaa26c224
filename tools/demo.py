"""`tools/dev demo`: packs a folder of photographs, loads it, shows the rate beside torch's DataLoader."""

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import make_photos
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torchvision import datasets, transforms

import zerocopy_data as zcd
from zerocopy_data.cli.sheet import contact_sheet
from zerocopy_data.tuning import machine
from zerocopy_data.tuning.image_arms import list_images
from zerocopy_data.tuning.images import find_tree

ROOT = Path(__file__).resolve().parents[1]
BATCH_SIZE = 64
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def our_loader(packed: Path, threads: int) -> Any:
    """Float batches of random crops from packed shards."""
    operations: list[Any] = [zcd.RandomResizedCrop(224), zcd.RandomHorizontalFlip(), zcd.Normalize(MEAN, STD)]
    dataset = zcd.open(packed, transform={"image": operations}).as_tuple("image", "label")
    return zcd.DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=threads, seed=0)


def torch_loader(folder: Path, threads: int) -> Any:
    """The same from the folder itself, the usual way."""
    operations = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    dataset = datasets.ImageFolder(str(folder), operations)
    return torch.utils.data.DataLoader(
        dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=threads, persistent_workers=True
    )


def rate(loader: Iterable[Any]) -> float:
    """Images per second of one epoch."""
    start = time.perf_counter()
    images = sum(len(batch[0]) for batch in loader)
    return images / (time.perf_counter() - start)


def compare(ours: Any, theirs: Any, rounds: int) -> tuple[list[float], list[float]]:
    """Images per second of both, epochs taking turns after one of each that is thrown away."""
    rate(ours), rate(theirs)
    pairs = [(rate(ours), rate(theirs)) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def write_sheet(loader: Any, classes: tuple[str, ...], out: Path) -> None:
    """A contact sheet of the first images of one loaded batch, normalisation undone."""
    images, labels = next(iter(loader))
    shape = (1, 3, 1, 1)
    pixels = images * torch.tensor(STD).view(shape) + torch.tensor(MEAN).view(shape)
    uint8 = (pixels * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    shown = min(48, len(uint8))
    captions = [classes[int(label)] for label in labels[:shown]]
    contact_sheet([np.ascontiguousarray(image) for image in uint8[:shown]], captions, columns=8).save(out)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/dev demo", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("folder", type=Path, nargs="?", help="a folder of JPEGs by class (default: made)")
    parser.add_argument("--images", type=int, default=2000, help="how many to make (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "demo", help="where all output goes (default: demo/)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each loader (default: %(default)s)")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)

    folder: Path = options.folder or out / f"photos-{options.images}"
    if options.folder is None and not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(make_photos.summary(make_photos.make_folder(folder, options.images)))
        (folder / ".complete").touch()
    tree = find_tree(folder)
    print(f"folder   {tree}: {len(list_images(tree)):,} images")

    summary = zcd.pack(tree, out / "packed.zcd", overwrite=True)
    packed = summary.splits[0].path
    rate_gb = summary.source_bytes / 1e9 / summary.seconds
    print(f"packed   {packed}: {summary.rows:,} images in {summary.seconds:.1f} s, {rate_gb:.2f} GB/s")

    ours = our_loader(packed, threads)
    mine, theirs = compare(ours, torch_loader(tree, threads), options.rounds)
    table = Table(title=f"RandomResizedCrop(224), flip, normalise; batch {BATCH_SIZE}, {threads} workers")
    table.add_column("loader")
    table.add_column("images/s (median)", justify="right")
    table.add_column("least to most", justify="right")
    for name, rates in (("zerocopy_data.DataLoader", mine), ("torch DataLoader, torchvision", theirs)):
        table.add_row(name, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f} to {max(rates):,.0f}")
    console = Console()
    console.print(table)
    factor = statistics.median(mine) / statistics.median(theirs)
    console.print(f"{factor:.1f} times as fast, on {machine.cpu_model()}", highlight=False)

    classes = zcd.open(packed).classes("label")
    write_sheet(ours, classes or (), out / "batch.png")
    print(f"a loaded batch is drawn in {out / 'batch.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
