"""What is asked for: batches on which device, and in what form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..errors import ConfigError
from .accelerator import check_device
from .leaf import Leaf
from .trees import map_leaves


@dataclass(frozen=True)
class Staging:
    """How batches come to the device; what `DataLoader(device=)` takes where a device's name is not enough.

    Attributes:
        device: 'cuda', 'cuda:1', a torch.device or an index.
        static: Whether batches lie in fixed memory: the addresses of a kind of batch are the same every `buffers`
            batches, as CUDA graphs need it, and a batch is valid until the next one is asked for. Otherwise batches
            are ordinary tensors that may be kept. On the CPU they always are.
        buffers: Places in device memory: one is read while the others are being filled.
        cast: What dtypes become on the device: {torch.uint8: torch.float16} sends bytes and delivers halves.
        memory_format: torch.channels_last gives four-dimensional tensors that order in memory.
        transform: Called with each batch on the device, on the stream of its readers; gives the batch to deliver. Where
            it has a method `prepare`, that is called before, with the batch in host memory, and gives the batch to send
            (`device.augment.Augment.on` makes such a transform). Where it has a method `at_epoch`, each iterator of a
            DataLoader calls that at its first batch, with the epoch and whether it began in the middle of it, and uses
            the transform that it gives.
    """

    device: str | int | torch.device
    static: bool = False
    buffers: int = 2
    cast: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    memory_format: torch.memory_format | None = None
    transform: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.buffers, int) or self.buffers < 1 + bool(self.static):
            least = "2 with static=True, one to read and one to fill" if self.static else "1"
            raise ConfigError(f"buffers={self.buffers!r}: a number of places in device memory, at least {least}.")
        if isinstance(self.device, Staging):
            raise ConfigError("Staging(Staging(...)): give the inner one to the DataLoader, or its device to this one.")
        check_device(self.device)
        if self.transform is not None and not callable(self.transform):
            raise ConfigError(f"transform={self.transform!r} can't be called: a function of a batch is needed.")
        if not isinstance(self.cast, Mapping):
            raise ConfigError(f"cast={self.cast!r}: a mapping is needed, such as {{torch.uint8: torch.float16}}.")
        if self.memory_format not in (None, torch.channels_last, torch.contiguous_format):
            raise ConfigError(f"memory_format={self.memory_format!r}: torch.channels_last, or None to keep what comes.")
        for pair in self.cast.items():
            if not all(isinstance(dtype, torch.dtype) for dtype in pair):
                raise ConfigError(f"cast maps torch dtypes to torch dtypes, not {pair[0]!r} to {pair[1]!r}.")

    def begun(self, epoch: int | None, resumed: bool) -> Staging:
        """What an iterator uses.

        Args:
            epoch: That it serves; None where it is not known.
            resumed: Whether it began in the middle of that.
        """
        at_epoch = getattr(self.transform, "at_epoch", None)
        return self if at_epoch is None else replace(self, transform=at_epoch(epoch, resumed))

    def prepared(self, batch: Any) -> Any:
        """The batch to send, from the one in host memory."""
        prepare = getattr(self.transform, "prepare", None)
        return batch if prepare is None else prepare(batch)

    def converted(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor in the dtype and memory order that it is wanted in; itself where it is so."""
        dtype = self.cast.get(tensor.dtype, tensor.dtype)
        wanted = self.memory_format
        if wanted is not None and tensor.dim() == 4 and not tensor.is_contiguous(memory_format=wanted):
            return tensor.to(dtype, memory_format=wanted)
        return tensor if dtype == tensor.dtype else tensor.to(dtype)


def as_staging(device: str | int | torch.device | Staging | None, static: bool) -> Staging | None:
    """What `DataLoader(device=, static=)` asks for.

    Raises:
        ConfigError: there is no such device.
    """
    if device is None:
        if static:
            raise ConfigError("static=True needs device=: it keeps batches at fixed addresses in device memory.")
        return None
    if isinstance(device, Staging):
        return replace(device, static=True) if static else device
    return Staging(device, static)


def has_streams(device: str | int | torch.device) -> bool:
    """Whether batches must travel to get there."""
    return torch.device(device).type != "cpu"


def finishes(staging: Staging) -> bool:
    """Whether there is anything to do on the CPU."""
    return bool(staging.cast) or staging.memory_format is not None or staging.transform is not None


class PassThrough(Iterator[Any]):
    """Batches that stay on the CPU, in the form that was asked for.

    Args:
        host: An iterator of a DataLoader.
        begin: Gives what is asked for, once the first batch is there.
    """

    def __init__(self, host: Any, begin: Callable[[], Staging]) -> None:
        self._host = host
        self._begin = begin
        self._staging: Staging | None = None

    def __len__(self) -> int:
        return len(self._host)

    def __next__(self) -> Any:
        host = next(self._host)
        if self._staging is None:
            self._staging = self._begin()
        staging = self._staging

        def converted(part: Any) -> Any:
            if isinstance(part, Leaf) and not isinstance(part, torch.Tensor):
                part = part.finish(part.raw(), lambda table: table)
            return staging.converted(part) if type(part) is torch.Tensor else part

        batch = map_leaves(staging.prepared(host), converted)
        return batch if staging.transform is None else staging.transform(batch)
