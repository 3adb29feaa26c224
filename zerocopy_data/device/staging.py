"""Staging: batches in host memory become batches on the device, copied beside the work that goes on there.

A side stream copies a batch out of its page-locked slot into device memory that is used again and again. The stream
that computes waits for an event behind the copies, the side stream for events behind the last readers of the memory
that it writes; the host waits for neither. A slot is held here until the copies out of it are done.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import ConfigError
from ..memory.blocks import block_of
from .accelerator import Event, accelerator_for
from .leaf import Leaf
from .request import Staging
from .ring import Place, Rings, Spec, dense
from .staged import StagedBatches
from .trees import Hole, map_leaves

# More kinds of batch than this under static=True are no buckets.
_MANY_KINDS = 32
# Smaller tensors that are not in a slot are copied from pageable memory: the driver takes them along with the command.
_SMALL = 16 << 10


@dataclass(eq=False)
class _Staged:
    """A batch on its way.

    Attributes:
        batch: As it came, with `Hole`s for what is in `leaves`.
        leaves: (what finishes it, or None; its tensor on the device).
        place: Where those tensors lie.
        values: With static=True, what is delivered.
    """

    batch: Any
    leaves: list[tuple[Leaf | None, torch.Tensor]]
    place: Place
    values: list[torch.Tensor] = field(default_factory=list)


class Stager:
    """Stages batches one after the other.

    `put` queues a batch's copies, `get` hands out the oldest batch that was put; `release` says that the caller has
    queued all its work on the batch of the latest `get`. All three from one thread, the one that trains.

    Args:
        staging: What is asked for, of a device that is not the CPU.
        staged: What limits the batches that are staged at a time; one of its own by default.
    """

    def __init__(self, staging: Staging, staged: StagedBatches | None = None) -> None:
        self.staging = staging
        self._limit = StagedBatches(staging.buffers) if staged is None else staged
        self._limit.add(self)
        self.accelerator = accelerator_for(staging.device)
        self._pid = os.getpid()
        self._rings = Rings(staging.buffers, staging.static)
        self._side: Any = None  # made at the first batch: iter() alone makes no context on the device
        self._staged: deque[_Staged] = deque()
        self._copying: deque[tuple[Event, Any]] = deque()
        weakref.finalize(self, _end, self._copying, self._pid).atexit = False
        self._lent: tuple[Place, Any] | None = None
        self._constants: dict[Any, torch.Tensor] = {}
        self._warned = False

    def __len__(self) -> int:
        """Batches put and not yet handed out."""
        return len(self._staged)

    @property
    def room(self) -> int:
        """Batches that may be put without writing over one that is staged or lent."""
        return self._buffers - len(self._staged) - (self._lent is not None)

    @property
    def held(self) -> int:
        """Places that device memory is held for."""
        return sum(bool(place.buffers) for place in self._rings.places())

    @property
    def _buffers(self) -> int:
        """Batches that may lie on the device at a time."""
        buffers = self.staging.buffers
        return buffers if self.staging.static else max(1, min(buffers, self._limit.limit))

    def beside(self) -> AbstractContextManager[Any]:
        """Queues the calling thread's work on the side stream, where batches that are put are copied."""
        if self._side is None:
            self._side = self.accelerator.new_stream()
        return self.accelerator.on(self._side)

    def put(self, batch: Any) -> None:
        """Queues the copies of a batch on the side stream.

        Args:
            batch: Nested tensors and `Leaf`s in host memory. It is held until its copies are done.
        """
        self.refuse_capture()
        while len(self._copying) > self.staging.buffers + 2:
            # The host is far ahead of the device: each copy that waits holds a slot.
            self._copying[0][0].synchronize()
            self._collect()
        self._collect()
        batch = self.staging.prepared(batch)
        leaves: list[tuple[Leaf | None, torch.Tensor]] = []
        skeleton = map_leaves(batch, lambda part: self._take(part, leaves))
        try:
            with self.beside():
                self._keep_to_limit()
                sources = [self._source(leaf, tensor) for leaf, tensor in leaves]
                self._copy(batch, skeleton, leaves, sources)
        except BaseException:
            # Some copies may be under way: what they read must outlive them.
            with contextlib.suppress(Exception):
                self._side.synchronize()
            raise

    def get(self) -> Any:
        """The oldest batch that was put, ready for the current stream."""
        self.refuse_capture()
        staged = self._staged.popleft()
        accelerator, place = self.accelerator, staged.place
        stream = accelerator.stream()
        assert place.ready is not None
        stream.wait_event(place.ready)
        with accelerator.on(stream):
            if self.staging.static:
                values = staged.values
                for value in values:  # the caller may hold them when this object, and its stream, are gone
                    value.record_stream(stream)
                self._lent = place, stream
            else:
                try:
                    values = [self._fresh(leaf, raw) for leaf, raw in staged.leaves]
                finally:
                    place.released = [accelerator.record(stream)]
            batch = self._filled(staged.batch, values)
            if not self.staging.static and self.staging.transform is not None:
                batch = self.staging.transform(batch)
        return batch

    def release(self) -> None:
        """Nothing that is queued from now on reads the batch of the latest `get` (static=True)."""
        if self._lent is not None:
            place, stream = self._lent
            streams = [stream]
            here = self.accelerator.stream()
            if here != stream:
                streams.append(here)
            place.released = [self.accelerator.record(each) for each in streams]
            self._lent = None

    def drain(self) -> None:
        """Forgets what is staged and waits until nothing reads host memory any more. The memory stays for later."""
        if os.getpid() != self._pid:
            return  # a forked child has no device
        self._staged.clear()
        if self.accelerator.capturing():
            return  # waiting would end the capture; what is being copied is held until the next `put`
        self.release()
        _wait(self._copying)
        for place in self._rings.places():  # the memory goes back to this stream's pool, behind its last readers
            for event in place.released:
                self._side.wait_event(event)

    def refuse_capture(self) -> None:
        """Copies of the next batch must not become part of a graph that is being captured."""
        if self.accelerator.capturing():
            raise ConfigError(
                "a batch was asked for while the current stream is being captured into a graph. Take the batch before "
                "the capture, and with static=True replay the graph on every batch that lies at the same addresses."
            )

    # Into device memory

    def _keep_to_limit(self) -> None:
        """Gives up places beyond the limit, behind their last readers, with the side stream current."""
        for place in self._rings.resize(self._buffers, {staged.place for staged in self._staged}):
            for event in place.released:
                self._side.wait_event(event)
            place.buffers.clear()  # goes back to the side stream's pool

    def _take(self, part: Any, leaves: list[tuple[Leaf | None, torch.Tensor]]) -> Any:
        """Notes a part of the batch; gives what stands for it."""
        if isinstance(part, Leaf) and not isinstance(part, torch.Tensor):
            leaves.append((part, torch.empty(0)))
            return Hole(len(leaves) - 1)
        if not _only_values(part):
            if self.staging.static:
                raise _not_fixed(part)
            return Hole(-1, part)
        if part.device.type != "cpu":
            return Hole(-1, part)
        leaves.append((None, part))
        return Hole(len(leaves) - 1)

    def _source(self, leaf: Leaf | None, tensor: torch.Tensor) -> torch.Tensor:
        """What the copy of a leaf reads: page-locked, or small, or on the device already."""
        source = dense((tensor if leaf is None else leaf.raw()).detach().resolve_conj().resolve_neg())
        if source.device.type != "cpu" or source.numel() == 0:
            return source
        size = source.numel() * source.element_size()
        block = block_of(source.data_ptr(), size)
        if block is not None and block.lock(self.accelerator):
            return source
        if size <= _SMALL or source.is_pinned():
            return source
        return self.accelerator.pinned_copy(source)

    def _copy(
        self,
        batch: Any,
        skeleton: Any,
        leaves: list[tuple[Leaf | None, torch.Tensor]],
        sources: list[torch.Tensor],
    ) -> None:
        """With the side stream current."""
        side, accelerator = self._side, self.accelerator
        specs = tuple(map(Spec.of, sources))
        place = self._rings.next(specs)
        for event in place.released:
            side.wait_event(event)
        raws = []
        try:
            for index, (spec, source) in enumerate(zip(specs, sources, strict=True)):
                raw = place.tensor(index, spec, accelerator)
                raw.copy_(source, non_blocking=True)
                raws.append(raw)
            moved = [(leaf, raw) for (leaf, _), raw in zip(leaves, raws, strict=True)]
            staged = _Staged(skeleton, moved, place)
            if self.staging.static:
                self._finish_in_place(staged)
                self._warn_of_many_kinds()
        finally:
            # A reader of what was copied now may begin behind this, a writer may not begin before.
            place.ready = accelerator.record(side)
            place.released = [place.ready]
            self._copying.append((place.ready, (batch, sources)))
        self._staged.append(staged)

    def _collect(self) -> None:
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()

    # Out of it

    def _finish_in_place(self, staged: _Staged) -> None:
        """Makes the tensors to deliver in the place's own memory, behind the raw ones."""
        values = [self._finish(leaf, raw) for leaf, raw in staged.leaves]
        if self.staging.transform is not None:
            transformed = self.staging.transform(self._filled(staged.batch, values))
            values = []
            staged.batch = map_leaves(transformed, lambda part: _number(part, values))
        raws = {id(raw) for _, raw in staged.leaves}
        buffers = len(staged.leaves)
        for value in map(dense, values):
            if id(value) in raws:
                staged.values.append(value)
                continue
            target = staged.place.tensor(buffers, Spec.of(value), self.accelerator, fixed=True)
            staged.values.append(target.copy_(value, non_blocking=True))
            buffers += 1

    def _finish(self, leaf: Leaf | None, raw: torch.Tensor) -> torch.Tensor:
        return self.staging.converted(raw if leaf is None else leaf.finish(raw, self._constant))

    def _fresh(self, leaf: Leaf | None, raw: torch.Tensor) -> torch.Tensor:
        """A tensor of its own: the place is written again while it may be kept."""
        value = self._finish(leaf, raw)
        return value.clone() if value is raw else value

    def _constant(self, table: torch.Tensor) -> torch.Tensor:
        """A table on the device."""
        key = table.dtype, table.shape, table.numpy().tobytes()  # by what it says: each batch brings one of its own
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = table.to(self.accelerator.device)
        return known

    def _filled(self, skeleton: Any, values: list[torch.Tensor]) -> Any:
        return map_leaves(skeleton, lambda hole: self._fill(hole, values))

    def _fill(self, hole: Hole, values: list[torch.Tensor]) -> Any:
        if hole.mover is None:
            return values[hole.number]
        device = self.accelerator.device
        if isinstance(hole.mover, torch.Tensor) and hole.mover.device == device:
            return hole.mover
        moved = _moved(hole.mover, device)
        self._copying.append((self.accelerator.record(self.accelerator.stream()), hole.mover))
        return moved

    def _warn_of_many_kinds(self) -> None:
        if not self._warned and len(self._rings) > _MANY_KINDS:
            self._warned = True
            warnings.warn(
                f"static=True has met {len(self._rings)} kinds of batches, and keeps device memory for each. Pad to a "
                "few lengths, or leave static out.",
                stacklevel=2,
            )


def _only_values(part: Any) -> bool:
    """Whether a part is a tensor that is nothing but values in memory, and not one that moves itself."""
    return (
        type(part) is torch.Tensor
        and part.layout is torch.strided
        and not (part.requires_grad or part.is_nested or part.is_quantized or part.is_meta)
    )


def _moved(mover: Any, device: torch.device) -> Any:
    """What an object gives that is told to move itself."""
    try:
        try:
            return mover.to(device, non_blocking=True)
        except TypeError:  # an object whose .to takes the device only
            return mover.to(device)
    except Exception as error:
        error.add_note(
            f"This was .to({str(device)!r}) of a {type(mover).__name__} in a batch: staging asks objects that have a "
            "`to` to move themselves. Collate it to tensors, or to what has no `to`."
        )
        raise


def _not_fixed(part: Any) -> ConfigError:
    return ConfigError(
        f"static=True: a {type(part).__name__} can't be kept at a fixed address. Collate it to plain tensors, or leave "
        "static out."
    )


def _number(part: Any, values: list[torch.Tensor]) -> Hole:
    if not isinstance(part, torch.Tensor) or part.layout is not torch.strided:  # what a transform has made
        raise _not_fixed(part)
    values.append(part)
    return Hole(len(values) - 1)


def _wait(copying: deque[tuple[Event, Any]]) -> None:
    """Until nothing reads host memory any more."""
    while copying:
        copying[0][0].synchronize()
        copying.popleft()


def _end(copying: deque[tuple[Event, Any]], pid: int) -> None:
    """The stager is gone; what its copies read must outlive them."""
    if os.getpid() == pid:
        with contextlib.suppress(Exception):  # the device may be on its way out
            _wait(copying)
