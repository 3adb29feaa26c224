"""The indices of an epoch, drawn so that the drawing can be taken up again at any of them.

Loaders draw ahead: the position that counts is that of the last batch that was returned, not of the last one drawn.
So each draw leaves a mark, and the loader says how many of them have been returned.

What a sampler gives depends on random numbers that it takes when it begins. Those are noted: the state of its and the
loader's generator, the seed where torch's RandomSampler takes one from the global generator, and for samplers that
use the global generators of torch, Python or numpy in some other way, the state of those. A sampler with a
`state_dict` of its own speaks for itself.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler

from ..errors import ConfigError
from .position_sampler import PositionIndices, PositionSampler, gives_positions
from .process_ranks import SharedOrder


def is_stateful(value: Any) -> bool:
    """Whether something saves and restores its own state."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


class GlobalRandomness:
    """The global generators of torch (CPU), Python and numpy, as they are now."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "numpy": np.random.get_state(),
        }

    def changed(self) -> dict[str, Any]:
        """These states, of the generators that have been used since."""
        now = GlobalRandomness().states
        return {name: state for name, state in self.states.items() if not _equal(state, now[name])}

    def restore(self) -> None:
        """Sets the generators back."""
        restore(self.states)


def restore(states: dict[str, Any]) -> None:
    """Sets global generators to states from `GlobalRandomness`."""
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "python" in states:
        version, internal, gauss = states["python"]
        random.setstate((version, tuple(internal), gauss))
    if "numpy" in states:
        np.random.set_state(states["numpy"])


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


@dataclass
class Start:
    """What the first draw of an epoch found.

    Attributes:
        generators: States of the loader's and the sampler's generators.
        seed: What a RandomSampler without a generator drew.
        opening: Global generators that `iter(sampler)` used, as they were before.
        first: The same for the first draw.
    """

    generators: list[torch.Tensor] = field(default_factory=list)
    seed: int | None = None
    opening: dict[str, Any] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)


@dataclass
class Mark:
    """A place in the order.

    Attributes:
        position: Samples (batches, for a batch sampler of the user's) drawn up to here in this epoch; of a
            PositionSampler those that all ranks have drawn.
        own: States of the sampler and of its iterator, where they have some, and of the generators at that time.
        behind: Draws since those were taken.
        ended: Whether the sampler is known to have nothing more in this epoch. Its own state may be the next one's.
    """

    position: int = 0
    own: dict[str, Any] = field(default_factory=dict)
    behind: int = 0
    ended: bool = False


class TrackedSampler:
    """Stands for a loader's index sampler before torch's iterators.

    Args:
        loader: A DataLoader over a map-style dataset.
        every: How many draws lie between states of a sampler that has its own; None: only at the beginning.
        ahead: Whether draws run ahead of what is returned.
    """

    def __init__(self, loader: Any, every: int | None, ahead: bool) -> None:
        self._indices = loader._index_sampler
        self.batches = self._indices if type(self._indices) is BatchSampler else None
        self.source: Any = self._indices if self.batches is None else self.batches.sampler
        # Whose epochs the loader counts: it says which one is served.
        self.counted = isinstance(self.source, PositionSampler)
        self.arrays = loader.uses_threads()  # torch's fetchers want lists
        self.every = every
        self.ahead = ahead
        # Where the next `iter` begins, and (at the beginning of an epoch) what the generators are set to first.
        self.resume: tuple[Start, Mark] | None = None
        self.initial: list[torch.Tensor] | None = None
        self.generators: list[torch.Generator] = []
        for generator in (loader.generator, getattr(self.source, "generator", None)):
            if isinstance(generator, torch.Generator) and not any(generator is known for known in self.generators):
                self.generators.append(generator)

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Draws:
        return Draws(self, self.resume)

    def describe(self) -> dict[str, Any]:
        """What must be the same for a position to mean the same: compared when a state is loaded."""
        found: dict[str, Any] = {"order": type(self.source).__name__}
        if isinstance(self.source, SharedOrder):
            found.update(order=self.source.describe(), length=self.source.size)
        else:
            with contextlib.suppress(TypeError, NotImplementedError):
                found["length"] = len(self.source)
        epoch = getattr(self.source, "epoch", None)
        if isinstance(epoch, int) and hasattr(self.source, "set_epoch") and not self.counted:
            found["sampler_epoch"] = epoch
        return found

    def set_generators(self, states: list[torch.Tensor]) -> None:
        """Sets the generators to these states."""
        if len(states) != len(self.generators):
            raise ConfigError(
                f"the state has {len(states)} torch.Generator(s), this loader {len(self.generators)}. "
                "Give the loader (or its sampler) a generator exactly if it had one when the state was taken."
            )
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)


class Draws(Iterator[Any]):
    """One epoch's indices. Begins where `resume` says."""

    def __init__(self, sampler: TrackedSampler, resume: tuple[Start, Mark] | None) -> None:
        self._sampler = sampler
        self._resumed = resume
        self._iterator: Any = None
        self._begun = self._exhausted = False
        self._waiting: deque[Any] = deque()
        self._marks: deque[tuple[int, Mark]] = deque()
        self.start = Start() if resume is None else resume[0]
        self._here = Mark() if resume is None else copy.copy(resume[1])
        self._returned = 0
        self._returned_mark = copy.copy(self._here)
        self.drawn = 0
        if sampler.batches is None:  # when torch calls iter(): a BatchSampler does it at its first batch
            self._open()

    def __next__(self) -> Any:
        value = self._waiting.popleft() if self._waiting else self._draw()
        self.drawn += 1
        return value

    def prime(self) -> None:
        """Makes the first draw now, so that everything that it depends on is known."""
        if not self._begun and not gives_positions(self._sampler.source):
            try:
                self._waiting.append(self._draw())
            except StopIteration:
                return

    def mark(self, returned: int) -> Mark:
        """The place after so many draws of this object. Earlier places are forgotten."""
        while self._marks and self._marks[0][0] <= returned:
            self._returned, self._returned_mark = self._marks.popleft()
        if not self._sampler.ahead and not self._waiting and self._begun:
            self._returned_mark = Mark(self._here.position, self._own(), 0, self._here.ended)
        return self._returned_mark

    def end(self) -> dict[str, Any]:
        """The own states of the sampler at the end of the epoch."""
        return self._own() if self._iterator is not None else {}

    def _open(self) -> None:
        source = self._sampler.source
        if self._resumed is None:
            before = GlobalRandomness()
            self._iterator = iter(source)
            self.start.opening = before.changed()
        else:
            start, mark = self._resumed
            before = GlobalRandomness()
            if "sampler" in mark.own and is_stateful(source):
                source.load_state_dict(copy.deepcopy(mark.own["sampler"]))
            restore(start.opening)
            self._iterator = iter(source)
            if "iterator" in mark.own and is_stateful(self._iterator):
                self._iterator.load_state_dict(copy.deepcopy(mark.own["iterator"]))
            before.restore()

    def _draw(self) -> Any:
        if self._exhausted:  # a sampler that is its own state would begin the next epoch
            raise StopIteration
        begun, self._begun = self._begun, True
        try:
            value = self._take() if begun else self._first()
        except StopIteration:
            self._exhausted = True
            raise
        if self._sampler.ahead:
            self._here.behind += 1
            number = self.drawn + len(self._waiting) + 1
            every = self._sampler.every
            if every and number % every == 0:
                self._here.own, self._here.behind = self._own(), 0
            self._marks.append((number, copy.copy(self._here)))
        return value

    def _first(self) -> Any:
        source = self._sampler.source
        if self._iterator is None:
            self._open()
        if self._resumed is None:
            if self._sampler.initial is not None:
                self._sampler.set_generators(self._sampler.initial)
            self.start.generators = [generator.get_state() for generator in self._sampler.generators]
            if not self._here.own:
                self._here.own = self._own()
                self._returned_mark = copy.copy(self._here)
            if type(source) is RandomSampler and source.generator is None:
                # The very draw that the sampler would make itself.
                self.start.seed = int(torch.empty((), dtype=torch.int64).random_().item())
                return self._seeded(source, self.start.seed)
            before = GlobalRandomness()
            value = self._take()
            self.start.first = before.changed()
            return value
        self._sampler.set_generators(self._resumed[1].own.get("generators", self.start.generators))
        before = GlobalRandomness()
        try:
            restore(self.start.first)
            if self.start.seed is not None and type(source) is RandomSampler:
                return self._seeded(source, self.start.seed)
            self._skip()
            return self._take()
        finally:
            before.restore()

    def _seeded(self, source: RandomSampler, seed: int) -> Any:
        generator = torch.Generator()
        generator.manual_seed(seed)
        source.generator = generator
        try:
            self._skip()
            return self._take()
        finally:
            source.generator = None

    def _skip(self) -> None:
        if self._resumed is None:
            return
        mark = self._resumed[1]
        if mark.own:
            if mark.ended:
                raise StopIteration
            for _ in range(mark.behind):
                self._take()
            self._here.position = mark.position
            return
        if isinstance(self._iterator, PositionIndices):
            self._iterator.skip(mark.position)
            return
        skipped = sum(1 for _ in islice(self._iterator, mark.position))
        if skipped < mark.position:
            raise ConfigError(
                f"the state is at position {mark.position} of the epoch, but the sampler gives only {skipped} indices. "
                "Load it with the dataset and the sampler that it was taken with."
            )

    def _take(self) -> Any:
        batches = self._sampler.batches
        if batches is None:
            value = next(self._iterator)
            self._here.position += self._ranks()
            return value
        batch: Any
        if isinstance(self._iterator, PositionIndices) and self._sampler.arrays:
            batch = self._iterator.take(batches.batch_size)
        else:
            batch = list(islice(self._iterator, batches.batch_size))
        if not len(batch) or (batches.drop_last and len(batch) < batches.batch_size):
            raise StopIteration
        self._here.position += len(batch) * self._ranks()
        self._here.ended = len(batch) < batches.batch_size
        return batch

    def _ranks(self) -> int:
        """Samples that an epoch moves on for each that is drawn here."""
        return self._iterator.world if isinstance(self._iterator, PositionIndices) else 1

    def _own(self) -> dict[str, Any]:
        found = {}
        for name, value in (("sampler", self._sampler.source), ("iterator", self._iterator)):
            if is_stateful(value):
                found[name] = copy.deepcopy(value.state_dict())
        if found:
            found["generators"] = [generator.get_state() for generator in self._sampler.generators]
        return found
