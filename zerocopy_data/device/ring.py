"""Device memory that batches come to lie in, one after the other: places, each with the events that guard it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..errors import ConfigError
from .accelerator import Accelerator, Event


@dataclass(frozen=True)
class Spec:
    """One tensor's type, shape and order in memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Spec:
        """The spec of a tensor without gaps: see `dense`."""
        return cls(tensor.dtype, tuple(tensor.shape), tensor.stride())

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        count = 1
        for n in self.shape:
            count *= n
        return count * self.dtype.itemsize


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its values side by side in memory, in an order that torch has a name for; most are so already."""
    if tensor.is_contiguous():
        return tensor
    for dimensions, memory_format in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dimensions and tensor.is_contiguous(memory_format=memory_format):
            return tensor
    return tensor.contiguous()


@dataclass(eq=False)
class Place:
    """Device memory for one batch, a buffer a tensor.

    Attributes:
        buffers: uint8 [bytes] each. Their addresses never change while the place lives in a static ring.
        ready: Behind the copies into it.
        released: Behind all that may still read it; a new copy waits for these.
    """

    buffers: list[torch.Tensor] = field(default_factory=list)
    ready: Event | None = None
    released: list[Event] = field(default_factory=list)

    def tensor(self, index: int, spec: Spec, accelerator: Accelerator, fixed: bool = False) -> torch.Tensor:
        """The first bytes of a buffer as a tensor; a buffer that is too small is replaced by a roomier one.

        Called with the copying stream current and after it has waited for `released`: the old buffer goes back to
        that stream's pool, behind its last readers. Where addresses are `fixed` it is refused instead.
        """
        size = max(spec.nbytes, 1)
        while len(self.buffers) <= index:
            self.buffers.append(_buffer(size, accelerator))
        if self.buffers[index].numel() < size:
            if fixed:
                raise ConfigError(
                    f"static=True: a transform gave {spec.nbytes} bytes for a batch whose memory was made for "
                    f"{self.buffers[index].numel()}. Let it give tensors of one size for batches of one size."
                )
            # A quarter more: lengths that creep up would otherwise make new memory each time.
            self.buffers[index] = _buffer(size + size // 4, accelerator)
        flat = self.buffers[index][: spec.nbytes].view(spec.dtype)
        return flat.as_strided(spec.shape, spec.stride)


def _buffer(size: int, accelerator: Accelerator) -> torch.Tensor:
    # Whole words: a view as any dtype needs it.
    return torch.empty(-(-size // 16) * 16, dtype=torch.uint8, device=accelerator.device)


class Ring:
    """Places in turn: the place of a batch is that of the batch `count` before it."""

    def __init__(self, count: int) -> None:
        self.places = [Place() for _ in range(count)]
        self._next = 0

    def next(self) -> Place:
        """The place whose turn it is."""
        place = self.places[self._next]
        self._next = (self._next + 1) % len(self.places)
        return place

    def resize(self, count: int, busy: set[Place]) -> list[Place]:
        """Makes it a ring of so many places, or as few as the busy ones allow.

        Returns:
            Those that it has no more. Whoever reads them may not be done.
        """
        spare = [place for place in self.places if place not in busy][: max(0, len(self.places) - count)]
        if spare or len(self.places) < count:
            # In the order of their turns, the next one first.
            turns = self.places[self._next :] + self.places[: self._next]
            self.places = [place for place in turns if place not in spare]
            self.places += [Place() for _ in range(count - len(self.places))]
            self._next = 0
        return spare


class Rings:
    """The ring of every kind of batch.

    Args:
        count: Places a ring.
        static: Whether addresses must stay: then batches of one kind, of the same dtypes, shapes and orders in memory,
            have a ring of their own. Otherwise all share one, whose buffers grow.
    """

    def __init__(self, count: int, static: bool) -> None:
        self._count = count
        self._static = static
        self._rings: dict[tuple[Spec, ...], Ring] = {}

    def resize(self, count: int, busy: set[Place]) -> list[Place]:
        """See `Ring.resize`. Static rings stay as they are: their addresses are promised."""
        if self._static or count == self._count:
            return []
        self._count = count
        return [place for ring in self._rings.values() for place in ring.resize(count, busy)]

    def __len__(self) -> int:
        """Rings made so far."""
        return len(self._rings)

    def next(self, specs: tuple[Spec, ...]) -> Place:
        """The place for a batch of these tensors."""
        kind = specs if self._static else ()
        ring = self._rings.get(kind)
        if ring is None:
            ring = self._rings[kind] = Ring(self._count)
        return ring.next()

    def places(self) -> list[Place]:
        """All places."""
        return [place for ring in self._rings.values() for place in ring.places]
