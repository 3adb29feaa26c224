"""Every class as often as any other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .keyed import uniforms

_SAMPLES, _ROUNDS = 0x62616C73, 0x62616C72  # lanes of the random numbers


class BalancedOrder:
    """Rounds of one sample a class, each round's classes in an order of its own.

    Within a class samples come in a random order, and again from its beginning when all have come: none comes a time
    more than another of its class until each has come as often.

    Args:
        labels: int64 [samples], a class each, any numbers.
        seed: Any integer.
        epoch: From 0.
    """

    def __init__(self, labels: npt.NDArray[np.int64], seed: int, epoch: int) -> None:
        drawn = uniforms(seed, epoch, np.arange(len(labels)), _SAMPLES, 1)[:, 0]
        self._samples = np.lexsort((drawn, labels)).astype(np.int64, copy=False)
        _, starts = np.unique(labels[self._samples], return_index=True)
        self._starts = starts.astype(np.int64, copy=False)
        self._sizes = np.diff(np.append(self._starts, len(labels)))
        self._seed, self._epoch = seed, epoch

    def picks(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The samples at these positions, and how often each has come before in this epoch.

        Args:
            positions: int64 [n], from 0.

        Returns:
            int64 [n] each.
        """
        classes = len(self._starts)
        rounds, turns = positions // classes, positions % classes
        known, which = np.unique(rounds, return_inverse=True)
        orders = np.argsort(uniforms(self._seed, self._epoch, known, _ROUNDS, classes), axis=1, kind="stable")
        chosen = orders[which, turns]
        copies = rounds // self._sizes[chosen]
        return self._samples[self._starts[chosen] + rounds % self._sizes[chosen]], copies
