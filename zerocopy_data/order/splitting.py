"""Arrivals split between sources in given shares, each by its number alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .weights import left_share

_BITS = 32
_ONE, _HALF, _LOW = 1 << _BITS, 1 << (_BITS - 1), (1 << _BITS) - 1

Numbers = npt.NDArray[np.int64]
_Amount = TypeVar("_Amount", int, Fraction)


class Splitters:
    """Binary trees that split arrivals between sources, several in one list of nodes so that they work as one.

    The first c arrivals at a node send round(c * share) of them to the left, halves up, where the share is a whole
    number of 2**-32: the c-th goes where that grows. What an arrival counts as in its child follows, without those
    before it. A leaf is a node that sends everything to itself, so all trees may be taken as equally deep.

    Args:
        trees: For each tree its sources: (number from 0, weight above 0), in order.
    """

    def __init__(self, trees: Sequence[Sequence[tuple[int, Decimal]]]) -> None:
        self._parts: list[int] = []
        self._children: list[tuple[int, int]] = []
        self._leaves: list[int] = []  # the source; -1 where there are children
        roots = [self._grow(members) for members in trees]
        self.depth = max((len(members) - 1).bit_length() for members in trees)
        self._bounds = [*roots, len(self._parts)]
        self._roots, self._share = np.array(roots, np.int64), np.array(self._parts, np.uint64)
        self._left, self._right = np.array(self._children, np.int64).T.copy()
        self._source = np.array(self._leaves, np.int64)

    def __call__(self, tree: Numbers, arrival: Numbers) -> tuple[Numbers, Numbers]:
        """Where arrivals go.

        Args:
            tree: int64 [n], numbers of trees.
            arrival: int64 [n], how many came to the tree before, from 0.

        Returns:
            Two int64 [n]: the source, and how many came to it before from this tree.
        """
        node, count = self._roots[tree], arrival.view(np.uint64)
        one, half, low, bits = np.uint64(_ONE), np.uint64(_HALF), np.uint64(_LOW), np.uint64(_BITS)
        for _ in range(self.depth):
            # (count * share + half) >> 32 from two parts of the count, neither of which leaves 64 bits.
            share = self._share[node]
            scaled = (count & low) * share + half
            lefts = (count >> bits) * share + (scaled >> bits)
            grows = (scaled & low) + share >= one
            count = np.where(grows, lefts, count - lefts)
            node = np.where(grows, self._left[node], self._right[node])
        return self._source[node], count.view(np.int64)

    def counts(self, tree: int, arrivals: int) -> dict[int, int]:
        """How many of a tree's first arrivals each of its sources gets."""
        return self._divided(tree, arrivals, lambda whole, share: (whole * share + _HALF) >> _BITS)

    def shares(self, tree: int) -> dict[int, Fraction]:
        """What each source of a tree gets in the long run, of 1."""
        return self._divided(tree, Fraction(1), lambda whole, share: whole * share / _ONE)

    def described(self) -> str:
        """The same for trees that split alike, and no others."""
        return repr((self._bounds, self._parts, self._leaves))

    def _divided(self, tree: int, whole: _Amount, left: Callable[[_Amount, int], _Amount]) -> dict[int, _Amount]:
        """`left` says what the left gets of a node's amount, by its share."""
        first, end = self._bounds[tree : tree + 2]
        amounts, got = {first: whole}, {}
        for node in range(first, end):  # each after its parent
            amount = amounts.pop(node)
            if self._leaves[node] >= 0:
                got[self._leaves[node]] = amount
                continue
            part = left(amount, self._parts[node])
            near, far = self._children[node]
            amounts[near], amounts[far] = part, amount - part
        return got

    def _grow(self, members: Sequence[tuple[int, Decimal]]) -> int:
        """Appends a balanced tree, each node before its children; returns its root."""
        node, middle = len(self._parts), (len(members) + 1) // 2
        self._parts.append(_ONE)
        self._children.append((node, node))
        self._leaves.append(members[0][0] if len(members) == 1 else -1)
        if len(members) > 1:
            weights = [weight for _, weight in members]
            self._parts[node] = left_share(weights[:middle], weights[middle:], _ONE)
            self._children[node] = self._grow(members[:middle]), self._grow(members[middle:])
        return node
