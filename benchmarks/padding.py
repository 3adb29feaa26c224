"""How much of a batch is padding, and how much is cut off, with each way to make batches of samples of many lengths?

    tools/dev run python benchmarks/padding.py [--samples 200000] [--row 2048] [--tokens 16384] [--pack 1000000]

Lengths: log-normal ones (median 245 tokens, sigma 1), and those of the paragraphs of the texts that installed Python
packages ship (.py, .txt, .md, .rst, .pyi, .h in site-packages; about four characters to a token). Longer ones than a
row are cut to a row.

- no buckets: batches of random samples, of so many that the mean batch has --tokens without its padding
- sorted: samples sorted by length and cut into batches of the same number of samples, which are then shuffled: a plain
  sorted-bucket sampler, whose batches hold the same samples in every epoch and differ in tokens as lengths do
- pools: random pools of 100 such batches, each sorted and cut
- BucketBatchSampler: of at most --tokens with their padding, drawn anew in each epoch; with 8, 64 (the default) and 128
  buckets
- best_fit, histogram: rows of --row tokens, from pack_rows
- cut: no padding but one stream of all documents cut into rows; documents that begin in one row and go on in another
  are those that are split

Shown:

    padding    share of the tokens of all batches, in %
    cut        share of the documents' tokens that are left out, in %
    split      share of the documents that are in more than one row, in %
    batches    with rows, as many tokens as in a batch make one
    tokens     mean of a batch, padding included
    largest    batch, by the mean
    seconds    for the epoch's layout

Result of the defaults, log-normal lengths (the same on every machine, but for the seconds: two busy cores):

                              padding %   cut %   split %   batches   tokens   largest   seconds
    no buckets                   78.488    4.56      0.00     4,762   75,355      1.14     0.023
    sorted                        0.055    4.56      0.00     4,762   16,219      5.30     0.021
    pools of 100                  2.506    4.56      0.00     4,762   16,627      5.17     0.066
    BucketBatchSampler, 8        19.033    4.56      0.00     5,939   16,053      1.02     0.182
    BucketBatchSampler, 64        3.055    4.56      0.00     4,981   15,986      1.02     0.124
    BucketBatchSampler, 128       1.564    4.56      0.00     4,940   15,875      1.03     0.134
    best_fit                      0.007    4.56      0.00     4,712   16,384      1.00     0.216
    histogram                     0.007    4.56      0.00     4,712   16,384      1.00     0.109
    stream, cut                   0.000    4.56     18.80     4,712   16,382      1.00     0.039

200,000 paragraphs (median 38, longest 68,050 tokens; they depend on what is installed):

    no buckets                   94.067    6.28      0.00       820  275,842      1.81     0.039
    sorted                        1.986    6.28      0.00       820   16,697     29.93     0.029
    pools of 100                 18.517    6.28      0.00       820   20,085     24.88     0.160
    BucketBatchSampler, 8        29.404    6.28      0.00     1,180   16,110      1.02     0.283
    BucketBatchSampler, 64        4.109    6.28      0.00       889   15,742      1.04     0.192
    BucketBatchSampler, 128       1.859    6.28      0.00       896   15,261      1.07     0.139
    best_fit                      0.004    6.28      0.00       820   16,367      1.00     0.244
    histogram                     0.004    6.28      0.00       820   16,367      1.00     0.196
    stream, cut                   0.000    6.29      3.22       819   16,384      1.00     0.037

Packing a million log-normal lengths, the best of three (runs differ by half, as others use the machine):

    row            rows   padding %   best_fit   histogram
      512       544,191       0.048     0.46 s      0.31 s
    2,048       188,614       0.005     0.33 s      0.56 s
    8,192        49,307       0.003     0.59 s      0.62 s

A plain sorted sampler pads least of all batches, but its batches differ in tokens 5 to 30 times, so memory has to be
there for the largest, and it always serves the same samples together. Where a budget holds, more buckets pad less, and
mix less: a bucket's samples are only ever with each other. Rows have next to no padding, and attention over segments.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from zerocopy_data.order.buckets import BatchRule, epoch_batches, quantile_edges
from zerocopy_data.order.full import FullOrder
from zerocopy_data.order.packing import pack_rows

Lengths = npt.NDArray[np.int64]
TEXTS = (".py", ".txt", ".md", ".rst", ".pyi", ".h")
CHARACTERS = 4  # to a token, about what byte-pair encodings make of English and code
POOL = 100  # batches


@dataclass(frozen=True)
class Layout:
    """What an epoch's batches cost.

    Attributes:
        sizes: Tokens of each batch, padding included.
        kept: Tokens of documents in all batches.
        split: Documents in more than one row.
    """

    sizes: npt.NDArray[np.int64]
    kept: int
    split: int = 0


def of_batches(lengths: Lengths, starts: Lengths) -> Layout:
    """Batches that are padded to their longest sample; lengths in the batches' order."""
    return Layout(np.maximum.reduceat(lengths, starts[:-1]) * np.diff(starts), int(lengths.sum()))


def even_starts(samples: int, batch: int) -> Lengths:
    """Batches of the same number of samples, but for the last."""
    return np.append(np.arange(0, samples, batch), samples)


def no_buckets(lengths: Lengths, tokens: int) -> Layout:
    batch = max(1, round(tokens / lengths.mean()))
    return of_batches(lengths[FullOrder(len(lengths), 0, 0)(np.arange(len(lengths)))], even_starts(len(lengths), batch))


def sorted_batches(lengths: Lengths, tokens: int) -> Layout:
    batch = max(1, round(tokens / lengths.mean()))
    return of_batches(np.sort(lengths), even_starts(len(lengths), batch))


def pools(lengths: Lengths, tokens: int) -> Layout:
    batch = max(1, round(tokens / lengths.mean()))
    drawn = FullOrder(len(lengths), 0, 0)(np.arange(len(lengths)))
    ordered = drawn[np.lexsort((lengths[drawn], np.arange(len(lengths)) // (batch * POOL)))]
    return of_batches(lengths[ordered], even_starts(len(lengths), batch))


def buckets(count: int) -> Callable[[Lengths, int], Layout]:
    def layout(lengths: Lengths, tokens: int) -> Layout:
        rule = BatchRule(tokens, "padded", None, quantile_edges(lengths, count))
        batches = epoch_batches(lengths, rule, 0, 0)
        return of_batches(lengths[batches.samples], batches.starts)

    return layout


def packed(method: str, row: int) -> Callable[[Lengths, int], Layout]:
    def layout(lengths: Lengths, tokens: int) -> Layout:
        rows = pack_rows(lengths, row, method=method)
        batch = max(1, tokens // row)
        return Layout(np.diff(even_starts(len(rows), batch)) * row, int(rows.lengths.sum()))

    return layout


def stream(row: int) -> Callable[[Lengths, int], Layout]:
    def layout(lengths: Lengths, tokens: int) -> Layout:
        ends = np.cumsum(lengths[FullOrder(len(lengths), 0, 0)(np.arange(len(lengths)))])
        rows = int(ends[-1]) // row
        begins = np.append(0, ends[:-1])
        split = int((begins // row != (ends - 1) // row).sum())
        return Layout(np.diff(even_starts(rows, max(1, tokens // row))) * row, rows * row, split)

    return layout


def paragraphs(most: int, seed: int) -> Lengths:
    """Lengths, in tokens, of paragraphs of the texts in site-packages, of files in random order."""
    folders = {Path(folder).resolve() for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))}
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in TEXTS and path.is_file())
    random.Random(seed).shuffle(files)
    found: list[int] = []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [-(-len(part) // CHARACTERS) for part in text.split("\n\n") if part.strip()]
        if len(found) >= most:
            break
    return np.array(found[:most], np.int64)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=200_000, help="at most; fewer where fewer texts are installed")
    parser.add_argument("--row", type=int, default=2048, help="tokens of a row, and of the longest sample")
    parser.add_argument("--tokens", type=int, default=16_384, help="tokens of a batch")
    parser.add_argument("--pack", type=int, default=1_000_000, help="lengths that are packed for the time it takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args()
    if not (args.samples >= 1 and args.pack >= 1 and args.tokens >= args.row >= 1):
        parser.error("needs samples, and --tokens of at least a --row")
    ways = {
        "no buckets": no_buckets,
        "sorted": sorted_batches,
        f"pools of {POOL}": pools,
        **{f"BucketBatchSampler, {count}": buckets(count) for count in (8, 64, 128)},
        "best_fit": packed("best_fit", args.row),
        "histogram": packed("histogram", args.row),
        "stream, cut": stream(args.row),
    }
    drawn = np.random.default_rng(args.seed).lognormal(5.5, 1.0, max(args.samples, args.pack)).astype(np.int64) + 1
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, lengths in (("log-normal", drawn[: args.samples]), ("paragraphs", paragraphs(args.samples, args.seed))):
        title = f"{name}: {len(lengths):,} samples, median {np.median(lengths):.0f}, longest {lengths.max():,} tokens"
        table = Table("", "padding %", "cut %", "split %", "batches", "tokens", "largest", "seconds", title=title)
        results[name] = {}
        for way, layout in ways.items():
            begin = time.perf_counter()
            made = layout(np.minimum(lengths, args.row), args.tokens)
            seconds = time.perf_counter() - begin
            figures = results[name][way] = {
                "padding": 100 * (1 - made.kept / int(made.sizes.sum())),
                "cut": 100 * (1 - made.kept / int(lengths.sum())),
                "split": 100 * made.split / len(lengths),
                "batches": len(made.sizes),
                "tokens": float(made.sizes.mean()),
                "largest": float(made.sizes.max() / made.sizes.mean()),
                "seconds": seconds,
            }
            formats = (".3f", ".2f", ".2f", ",.0f", ",.0f", ".2f", ".3f")
            table.add_row(way, *(format(value, how) for value, how in zip(figures.values(), formats, strict=True)))
        Console(width=120).print(table)
    table = Table("packing", "row", "rows", "padding %", "seconds", title=f"{args.pack:,} log-normal lengths")
    results["packing"] = {}
    for row in (512, 2048, 8192):
        for method in ("best_fit", "histogram"):
            times = []
            for seed in range(3):
                begin = time.perf_counter()
                rows = pack_rows(drawn[: args.pack], row, method=method, long="truncate", seed=seed)
                times.append(time.perf_counter() - begin)
            found = {"rows": len(rows), "padding": 100 * rows.padding, "seconds": min(times)}
            results["packing"][f"{method}, {row}"] = found
            table.add_row(method, f"{row:,}", f"{len(rows):,}", f"{100 * rows.padding:.3f}", f"{min(times):.2f}")
    Console(width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
