"""How fast do next-token pairs come out of a flat file of tokens, beside torch's DataLoader and nanoGPT's loop?

    tools/dev run python benchmarks/tokens.py [--megabytes 400] [--length 2048] [--batch-size 32] [--json FILE]

Batches are int64 inputs and targets, out of uint16 tokens, at random places. All arms read the same file, which is in
the page cache; each runs in a process of its own, with one torch thread, and they take turns:

zcd            zcd.DataLoader over zcd.windows, shuffled, num_workers=0: all in one thread.
zcd-1-thread   The same with num_workers=1: made ahead, beside the consumer.
torch          torch's DataLoader without workers, shuffled, over a Dataset of slices of one numpy.memmap, each
               converted once and cut into input and target.
nanogpt        What nanoGPT's get_batch does: a new memmap a batch, random places, slices of input and target converted
               one by one, two torch.stack.
nanogpt-1-map  The same with one memmap for all batches.

Bytes moved are counted by what each arm's code reads and writes (a token is 2 bytes stored and 16 delivered): the
kernel's zeroing of the fresh memory that torch's arms are given a batch comes on top of theirs.
"""

import argparse
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import zerocopy_data as zcd
from zerocopy_data.tuning import machine
from zerocopy_data.tuning.harness import Arm, Plan, measure, ratio

BATCHES = 500
# What the project promises: our ratio to each peer, both in one thread.
CLAIMS = {"torch": 2.0, "nanogpt": 4.0}
# Bytes read and written a token. torch: 2 read, 8 written; stacked twice: 16 read, 16 written. nanoGPT converts twice.
MOVED = {"zcd": 2 + 16, "zcd-1-thread": 2 + 16, "torch": 10 + 32, "nanogpt": 20 + 32, "nanogpt-1-map": 20 + 32}
DELIVERED = 16


def write_tokens(path: Path, megabytes: int) -> None:
    """Random tokens of a vocabulary of 50,257, as nanoGPT's."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(megabytes):
            rng.integers(0, 50_257, 500_000, np.uint16).tofile(file)


class Slices(Dataset[Any]):
    """Windows the way that many training scripts cut them."""

    def __init__(self, path: str, length: int) -> None:
        self.data = np.memmap(path, np.uint16, "r")
        self.length = length

    def __len__(self) -> int:
        return (len(self.data) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.length
        both = torch.from_numpy(self.data[start : start + self.length + 1].astype(np.int64))
        return both[:-1], both[1:]


class LoaderRunner:
    """A DataLoader that is shuffled anew in every epoch; an epoch is so many batches."""

    def __init__(self, path: str, length: int, batch_size: int, workers: int | None) -> None:
        torch.set_num_threads(1)
        self.tokens = length * batch_size
        self.loader: Any
        if workers is None:
            self.loader = DataLoader(Slices(path, length), batch_size, shuffle=True)
        else:
            windows = zcd.windows(path, length, dtype="uint16").as_tuple()
            self.loader = zcd.DataLoader(windows, batch_size, shuffle=True, seed=0, num_workers=workers)

    def epoch(self) -> int:
        """Tokens of inputs that came."""
        count = 0
        for x, y in islice(self.loader, BATCHES):
            assert x[0, 1] == y[0, 0]
            count += x.numel()
        return count


class GetBatch:
    """nanoGPT's loop."""

    def __init__(self, path: str, length: int, batch_size: int, keep_map: bool) -> None:
        torch.set_num_threads(1)
        self.path, self.length, self.batch_size = path, length, batch_size
        self.kept = np.memmap(path, np.uint16, "r") if keep_map else None

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One batch."""
        data = np.memmap(self.path, np.uint16, "r") if self.kept is None else self.kept
        places = torch.randint(len(data) - self.length, (self.batch_size,)).tolist()
        inputs = [torch.from_numpy(data[i : i + self.length].astype(np.int64)) for i in places]
        targets = [torch.from_numpy(data[i + 1 : i + 1 + self.length].astype(np.int64)) for i in places]
        return torch.stack(inputs), torch.stack(targets)

    def epoch(self) -> int:
        """Tokens of inputs that came."""
        count = 0
        for _ in range(BATCHES):
            x, y = self.batch()
            assert x[0, 1] == y[0, 0]
            count += x.numel()
        return count


def arms(path: str, length: int, batch_size: int) -> list[Arm]:
    """All that are measured, ours first."""
    common = path, length, batch_size
    return [
        Arm("zcd", "tokens", LoaderRunner, (*common, 0)),
        Arm("zcd-1-thread", "tokens", LoaderRunner, (*common, 1)),
        Arm("torch", "tokens", LoaderRunner, (*common, None)),
        Arm("nanogpt", "tokens", GetBatch, (*common, False)),
        Arm("nanogpt-1-map", "tokens", GetBatch, (*common, True)),
    ]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="least time of one measurement")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zcd-bench-") as folder:
        path = Path(folder) / "train.bin"
        write_tokens(path, options.megabytes)
        results = measure(
            arms(str(path), options.length, options.batch_size),
            Plan(options.repeats, options.seconds),
            lambda message: print(f"\r\033[K{message}", end="", file=sys.stderr, flush=True),
        )
    print(f"\r\033[K{machine.cpu_model()}; batches of {options.batch_size} windows of {options.length:,} tokens")
    print(f"{'':<15}{'tokens/s':>14}{'bytes moved per byte':>22}{'zcd is':>8}")
    ours, holds = results[0], True
    for result in results:
        loader = result.arm.loader
        times = ratio(ours, result)
        claim = CLAIMS.get(loader)
        verdict = "" if claim is None else f"at least {claim:g}x: {'holds' if times.median >= claim else 'FAILS'}"
        holds &= claim is None or times.median >= claim
        moved = MOVED[loader] / DELIVERED
        rate = result.as_json()["items_per_s"]
        interval = f"({times.low:.2f} to {times.high:.2f})"
        print(f"{loader:<15}{rate:>14,.0f}{moved:>22.2f}{times.median:>7.2f}x {interval:<15} {verdict}")
    if options.json is not None:
        report = {
            "benchmark": "tokens",
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "results": [
                {**result.as_json(), "bytes_moved_per_byte": MOVED[result.arm.loader] / DELIVERED} for result in results
            ],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
