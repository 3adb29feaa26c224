"""In which order things are used, where that repeats: who is needed soonest, who last."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class CyclicOrder(Generic[T]):
    """A recorded sequence of uses that is expected again and again, and the place in it.

    Args:
        uses: One round; may hold things more than once.
    """

    def __init__(self, uses: Sequence[T]) -> None:
        self._uses = list(uses)
        self._places: dict[T, list[int]] = {}
        for place, thing in enumerate(self._uses):
            self._places.setdefault(thing, []).append(place)
        self.position = 0  # the use expected next
        self.surprises = 0

    def __len__(self) -> int:
        return len(self._uses)

    def used(self, thing: T) -> None:
        """Notes a use: the place moves behind its next occurrence; what was skipped may be left out this round."""
        distance = self.distance(thing)
        if distance is None:
            self.surprises += 1
            return
        self.surprises += distance > 0
        self.position = (self.position + distance + 1) % len(self._uses)

    def distance(self, thing: T) -> int | None:
        """Uses of other things that are expected before the next of this one; None where none is expected."""
        places = self._places.get(thing)
        if not places:
            return None
        found = bisect_left(places, self.position)
        if found < len(places):
            return places[found] - self.position
        return places[0] + len(self._uses) - self.position

    def upcoming(self) -> Iterator[tuple[int, T]]:
        """(distance, thing) of a whole round from here, each thing once."""
        seen: set[T] = set()
        for distance in range(len(self._uses)):
            thing = self._uses[(self.position + distance) % len(self._uses)]
            if thing not in seen:
                seen.add(thing)
                yield distance, thing

    def without(self, thing: T) -> CyclicOrder[T]:
        """The order when this thing is gone."""
        left = CyclicOrder([t for t in self._uses if t != thing])
        before = sum(place < self.position for place in self._places.get(thing, ()))
        left.position = (self.position - before) % len(left) if len(left) else 0
        left.surprises = self.surprises
        return left
