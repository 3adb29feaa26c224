"""The iterator of a StatefulDataLoader whose batches the thread engine makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .iterator import ThreadIterator
from .stateful_iterators import Counting, Resume

if TYPE_CHECKING:
    from .stateful import StatefulDataLoader


class StatefulThreads(Counting, ThreadIterator):  # type: ignore[misc]
    """Batches of the thread engine."""

    def _prepare(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        self._first_round = 0 if resume is None else resume.rounds

    def _start(self, loader: Any) -> None:
        self._rounds += self._first_round
        self._first_round = 0
        super()._start(loader)

    def _begin(self, loader: StatefulDataLoader[Any]) -> None:
        super()._begin(loader)
        if loader.seed is None:
            self.progress.constants["rounds"] = self._rounds - 1
        else:
            del self.progress.constants["base_seed"]  # keys nothing

    def _consumed(self) -> int:
        assert self.progress.draws is not None
        return self.progress.draws.drawn - self._unserved()
