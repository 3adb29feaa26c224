"""Samples drawn by weight."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .keyed import uniforms

_DRAWS, _KEYS = 0x77647277, 0x776B6579  # lanes of the random numbers


def weights_array(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Weights as float64 [samples].

    Raises:
        ConfigError: they are no list of finite numbers from 0, or all are 0.
    """
    try:
        array = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim != 1 or not array.size:
        raise ConfigError(f"weights= has one number a sample, in one dimension; got {_short(weights)}.")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        raise ConfigError(f"weights[{wrong[0]}] is {array[wrong[0]]}: weights are finite numbers from 0.")
    if not array.any():
        raise ConfigError("all weights are 0: give at least one sample a weight.")
    scaled: npt.NDArray[np.float64] = array / array.max()  # whose sum is finite
    return scaled


def fingerprint(weights: npt.NDArray[np.float64]) -> int:
    """32 bits that differ where weights do."""
    return zlib.crc32(weights.tobytes())


class DrawnOrder:
    """Each position draws a sample by weight, whatever the others have drawn: with replacement.

    Args:
        weights: float64 [samples], as `weights_array` gives them.
        seed: Any integer.
        epoch: From 0.
    """

    def __init__(self, weights: npt.NDArray[np.float64], seed: int, epoch: int) -> None:
        self._sums = np.cumsum(weights)
        self._last = int(np.flatnonzero(weights)[-1])
        self._seed, self._epoch = seed, epoch

    def picks(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The samples at these positions, and copies: a number of its own for each draw.

        Args:
            positions: int64 [n], from 0.

        Returns:
            int64 [n] each.
        """
        drawn = uniforms(self._seed, self._epoch, positions, _DRAWS, 1)[:, 0] * self._sums[-1]
        # From the right: a sample of weight 0 has its neighbour's sum. Rounding may reach the last sum itself.
        samples = np.minimum(np.searchsorted(self._sums, drawn, side="right"), self._last)
        return samples.astype(np.int64, copy=False), positions + 1


def without_replacement(weights: npt.NDArray[np.float64], count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Samples drawn one after another by weight from those that are left.

    Sorts by -log(u) / weight with a u for each sample: Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", Information Processing Letters 97 (2006).

    Args:
        weights: float64 [samples].
        count: At most as many as have a weight.
        seed: Any integer.
        epoch: From 0.

    Returns:
        int64 [count], in the order of drawing.
    """
    there = np.flatnonzero(weights)
    drawn = uniforms(seed, epoch, there, _KEYS, 1)[:, 0]
    keys = -np.log1p(-drawn) / weights[there]  # 1 - u is above 0
    return there[np.argsort(keys, kind="stable")[:count]].astype(np.int64, copy=False)


def _short(weights: npt.ArrayLike) -> str:
    text = repr(weights)
    return text if len(text) < 80 else f"{text[:77]}…"
