"""Which samples go into which shard: a pure function of the sample list and the options."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import xxhash

from ..errors import ConfigError
from .sources import Split

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}{tail}": 1000**power for power, letter in enumerate("KMGT", 1) for tail in ("B", "")},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def parse_size(size: str | int) -> int:
    """Bytes from '256MB' (10^6), '256MiB' (2^20) or a number.

    Raises:
        ConfigError: no size, or not above zero.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if not match or match.group(2).upper() not in _UNITS:
        raise ConfigError(f"{size!r} is no size. Write it like 256MB, 64MiB or 1GB.")
    size_bytes = float(match.group(1)) * _UNITS[match.group(2).upper()]
    if size_bytes >= 2**63:
        shown = str(size) if len(str(size)) <= 40 else f"{str(size)[:37]}..."
        raise ConfigError(f"{shown} is too large a size: no disk holds that much.")
    count = int(size_bytes)
    if count < 1:
        raise ConfigError(f"a size must be above zero, not {size!r}.")
    return count


def arrange(split: Split, shuffle: int | None, limit: int | None) -> Split:
    """The split in the order it is packed in: shuffled if asked, then cut to `limit`."""
    rows = np.arange(len(split.keys), dtype=np.int64)
    if shuffle is not None:
        # Sorted by a hash of each key: the same order on every machine and under every version of numpy.
        seed = shuffle & 0xFFFF_FFFF_FFFF_FFFF
        names = [key.encode(errors="surrogateescape") for key in split.keys]
        ranks = [(xxhash.xxh3_64_intdigest(name, seed), name) for name in names]
        rows = np.array(sorted(range(len(ranks)), key=ranks.__getitem__), np.int64)
    if limit is not None:
        rows = rows[:limit]
    return split if shuffle is None and limit is None else split.take(rows)


def shard_bounds(sizes: npt.NDArray[np.int64], shard_size: int) -> list[tuple[int, int]]:
    """Cuts samples of these sizes into shards of equal weight, at most about `shard_size` each.

    Equal rather than full shards: no small one at the end, and workers finish together.

    Returns:
        (first sample, end) of each shard; every shard has at least one sample.
    """
    count = len(sizes)
    if count == 0:
        return []
    ends = np.cumsum(np.maximum(sizes, 1))
    total = int(ends[-1])
    shards = min(count, -(-total // shard_size))
    # Each shard ends with the last sample that lies wholly within the even shares up to it.
    targets = np.array([total * number // shards for number in range(1, shards)], np.int64)
    cuts = np.searchsorted(ends, targets, "right")
    bounds = np.unique(np.concatenate([[0], cuts, [count]])).tolist()
    return list(pairwise(bounds))
