"""How well do shuffles mix a dataset that is stored class by class?

    tools/dev run python benchmarks/shuffle_quality.py [--size 1281167] [--classes 1000] [--batch-size 256]

Beside a full shuffle and the order on disk: the window shuffle of `zcd.EpochSampler(shuffle="window")` at several
window sizes, and what readers of tar files do, WebDataset among them: shards in random order, then a buffer out of
which a random sample is taken for each that comes in (shards of 1,000 samples).

Shown, over an epoch:

    in memory     samples that are kept at a time
    displacement  mean distance between a sample's place on disk and in the order, by the size; a third when random
    correlation   of the two places
    entropy       of the labels of a batch, in bits, mean and the worst of a hundred batches (1st percentile)
    classes       different ones in a batch, mean
    together      neighbours on disk that come within a batch's length of each other, in %

Result of the defaults (the same on every machine; displacement is 0.33 for all that shuffle):

    order                     in memory   entropy   worst   classes   together
    full shuffle              1,281,167      7.76    7.66       226       0.04
    window=1,000, block=15          990      5.98    5.72        72      41.95
    window=10,000, block=128      9,984      6.04    5.90        76       5.00
    window=100,000, block=128    98,560      7.51    7.39       198       0.52
    buffer of 1,000               1,000      2.24    1.65        10      22.49
    buffer of 10,000             10,000      5.08    4.73        53       2.53
    buffer of 100,000           100,000      7.17    6.74       166       0.26

With as much in memory a window has more classes in a batch than a buffer; neighbours meet in a batch more often, since
a window serves its blocks whole.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from zerocopy_data.order.full import FullOrder
from zerocopy_data.order.window import WindowOrder

Order = npt.NDArray[np.int64]
SHARD = 1000


def buffered(size: int, buffer: int, seed: int) -> Order:
    """Shards in random order, through a buffer from which a random sample is replaced by the next that comes in."""
    rng = np.random.default_rng(seed)
    shards = rng.permutation(-(-size // SHARD))
    stream = np.concatenate([np.arange(shard * SHARD, min((shard + 1) * SHARD, size)) for shard in shards])
    kept = stream[:buffer].copy()
    out = np.empty(size, np.int64)
    places = rng.integers(0, len(kept), max(0, size - buffer)).tolist()
    for i, (place, sample) in enumerate(zip(places, stream[buffer:].tolist(), strict=True)):
        out[i] = kept[place]
        kept[place] = sample
    out[size - len(kept) :] = rng.permutation(kept)
    return out


def entropies(order: Order, classes: int, batch: int) -> tuple[npt.NDArray[np.float64], float]:
    """(Bits of each whole batch's labels, mean number of classes in a batch)."""
    batches = len(order) // batch
    labels = order[: batches * batch].reshape(batches, batch) * classes // len(order)
    keys = np.arange(batches)[:, None] * classes + labels
    counts = np.bincount(keys.ravel(), minlength=batches * classes).reshape(batches, classes)
    shares = counts / batch
    bits = -(shares * np.log2(np.where(counts > 0, shares, 1.0))).sum(axis=1)
    return bits, float((counts > 0).sum(axis=1).mean())


def figures(order: Order, classes: int, batch: int) -> dict[str, float]:
    """What the table shows of an order."""
    size = len(order)
    places = np.empty(size, np.int64)
    places[order] = np.arange(size)
    bits, different = entropies(order, classes, batch)
    return {
        "displacement": float(np.abs(order - np.arange(size)).mean() / size),
        "correlation": float(np.corrcoef(order, np.arange(size))[0, 1]),
        "entropy": float(bits.mean()),
        "worst entropy": float(np.quantile(bits, 0.01)),
        "classes": different,
        "together": float((np.abs(np.diff(places)) < batch).mean() * 100),
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1_281_167, help="samples (default: as ImageNet's training set)")
    parser.add_argument("--classes", type=int, default=1000, help="classes, stored one after the other")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args()
    if not (args.classes >= 1 and args.size >= args.batch_size >= 1):
        parser.error("needs --size of at least a batch, and a class")
    everything = np.arange(args.size)
    sizes = [size for size in (1000, 10_000, 100_000) if size < args.size]
    orders = {
        "order on disk": (0, everything),
        "full shuffle": (args.size, FullOrder(args.size, args.seed, 0)(everything)),
    }
    for size in sizes:
        window = WindowOrder(args.size, size, args.seed, 0)
        orders[f"window={size:,}, block={window.block:,}"] = (window.window, window(everything))
    for size in sizes:
        orders[f"buffer of {size:,}, shards of {SHARD:,}"] = (size, buffered(args.size, size, args.seed))
    table = Table("order", "in memory", "displacement", "correlation", "entropy", "worst", "classes", "together %")
    results = {}
    for name, (memory, order) in orders.items():
        found = results[name] = figures(order, args.classes, args.batch_size)
        table.add_row(
            name,
            f"{memory:,}",
            f"{found['displacement']:.3f}",
            f"{found['correlation']:+.3f}",
            f"{found['entropy']:.2f}",
            f"{found['worst entropy']:.2f}",
            f"{found['classes']:.0f}",
            f"{found['together']:.2f}",
        )
    Console(width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
