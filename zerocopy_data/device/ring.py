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

    @property
    def row(self) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
        """What tensors of one bucket have in common: all but the number of samples."""
        return self.dtype, self.shape[1:], self.stride[1:] if self.shape and self.shape[0] else ()


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

    def __init__(self, count: int, capacity: tuple[int, ...] = ()) -> None:
        self.places = [Place() for _ in range(count)]
        self.capacity = capacity
        self._next = 0

    def next(self) -> Place:
        """The place whose turn it is."""
        place = self.places[self._next]
        self._next = (self._next + 1) % len(self.places)
        return place

    def serves(self, specs: tuple[Spec, ...]) -> bool:
        """Whether batches of these specs fit into the memory that the ring was made with."""
        return all(spec.nbytes <= room for spec, room in zip(specs, self.capacity, strict=True))


class Rings:
    """The ring of every kind of batch.

    Args:
        count: Places a ring.
        static: Whether addresses must stay: then each kind of batch (dtypes, shapes but for the number of samples,
            memory order) has a ring of its own, and a larger batch of a kind gets another one. Otherwise all share one
            ring whose buffers grow.
    """

    def __init__(self, count: int, static: bool) -> None:
        self._count = count
        self._static = static
        self._shared = Ring(count)
        self._kinds: dict[tuple[object, ...], list[Ring]] = {}

    def __len__(self) -> int:
        """Rings made so far."""
        return sum(map(len, self._kinds.values())) if self._static else 1

    def next(self, specs: tuple[Spec, ...]) -> Place:
        """The place for a batch of these tensors."""
        if not self._static:
            return self._shared.next()
        rings = self._kinds.setdefault(tuple(spec.row for spec in specs), [])
        # The oldest that has room: batches of one shape always meet the same one, so their addresses stay.
        ring = next((ring for ring in rings if ring.serves(specs)), None)
        if ring is None:
            ring = Ring(self._count, tuple(spec.nbytes for spec in specs))
            rings.append(ring)
        return ring.next()

    def places(self) -> list[Place]:
        """All places."""
        rings = [ring for kind in self._kinds.values() for ring in kind] if self._static else [self._shared]
        return [place for ring in rings for place in ring.places]
