"""Random numbers keyed by (seed, epoch, sample): those that the native core draws, for a whole batch at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_WORD = 0xFFFFFFFF
_EPOCH_BLOCK = 0x7A6364  # sets the block that mixes the epoch into the key apart from those that are drawn from

Words = npt.NDArray[np.uint64]  # 32 bits used of each


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10 of many counters under one key.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: the multipliers, the Weyl constants and the
    ten rounds are that paper's.

    Args:
        counter: Four words of 32 bits, in uint64 arrays whose shapes broadcast.
        key: Two words.

    Returns:
        Four arrays of words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    low, half = np.uint64(_WORD), np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> half) ^ c1 ^ np.uint64(k0), b & low, (a >> half) ^ c3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def uniforms(seed: int, epoch: int, samples: npt.ArrayLike, lane: int, count: int) -> npt.NDArray[np.float64]:
    """The first numbers that each sample draws in a lane: functions of (seed, epoch, sample, lane) and nothing else.

    Equal to what `Draws(Key{seed, epoch, sample}, lane).uniform()` of the native core gives one after another.

    Args:
        seed: Any integer; its low 64 bits count.
        epoch: From 0.
        samples: int64 [n], numbers of samples.
        lane: 32 bits that tell operations apart. The native core uses view * 65536 + place in the chain.
        count: How many numbers each sample draws.

    Returns:
        float64 [n, count], uniform in [0, 1) with 53 bits.
    """
    seeds, epochs = seed & 0xFFFFFFFFFFFFFFFF, epoch & 0xFFFFFFFFFFFFFFFF
    one = tuple(np.array([word], np.uint64) for word in (epochs & _WORD, epochs >> 32, lane & _WORD, _EPOCH_BLOCK))
    mixed = philox(one, (seeds & _WORD, seeds >> 32))  # type: ignore[arg-type]
    keys = np.asarray(samples, np.int64).reshape(-1, 1).view(np.uint64)
    blocks = np.arange((count + 1) // 2, dtype=np.uint64)[None]  # four words, so two numbers, a block
    words = philox(
        (keys & np.uint64(_WORD), keys >> np.uint64(32), blocks, mixed[2]), (int(mixed[0][0]), int(mixed[1][0]))
    )
    drawn = np.stack(np.broadcast_arrays(*words), axis=-1).reshape(len(keys), 2 * blocks.size, 2)
    bits = (drawn[..., 0] >> np.uint64(5)) << np.uint64(26) | drawn[..., 1] >> np.uint64(6)
    return bits[:, :count].astype(np.float64) * 2.0**-53
