"""The iterator of a StatefulDataLoader whose batches the thread engine makes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .iterator import ThreadIterator
from .stateful_iterators import Counting, Resume

if TYPE_CHECKING:
    from .stateful import StatefulDataLoader


class StatefulThreads(Counting, ThreadIterator):  # type: ignore[misc]
    """Batches of the thread engine."""

    def _prepare(self, loader: StatefulDataLoader[Any], resume: Resume | None) -> None:
        self._first_round = 0 if resume is None else resume.rounds
        self._loader: weakref.ref[Any] = weakref.ref(loader)

    def _start(self, loader: Any) -> None:
        self._rounds += self._first_round
        self._first_round = 0
        super()._start(loader)
        if self._to_settle is not None:  # at first `loader` is a TrackedLoader, which nobody keeps
            self._to_settle = self._loader

    def _begin_told(self, loader: Any, epoch: int) -> None:
        if self.resumed:
            raise ConfigError(
                f"the state is in the middle of epoch {self.epoch}, set_epoch asks for epoch {epoch}. Begin the loop "
                f"over epochs at {self.epoch}."
            )
        super()._begin_told(loader, epoch)

    def _begin(self, loader: StatefulDataLoader[Any]) -> None:
        super()._begin(loader)
        if loader.seed is None:
            self.progress.constants["rounds"] = self._rounds - 1
        else:
            del self.progress.constants["base_seed"]  # keys nothing

    def _consumed(self) -> int:
        assert self.progress.draws is not None
        return self.progress.draws.drawn - self._unserved()
