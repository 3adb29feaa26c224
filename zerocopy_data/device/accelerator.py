"""One device, through torch's device-generic API: streams, events, page-locked memory, free memory."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from ..errors import ConfigError


class Event(Protocol):
    """A point in a stream's work, as torch's device modules have it."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


class Accelerator:
    """A device whose work is queued on streams.

    Nothing here makes a context on another device than its own: every call that could is made with this device as the
    current one.

    Args:
        device: With an index.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.module: Any = torch.get_device_module(device)

    def active(self) -> AbstractContextManager[Any]:
        """Makes the device the calling thread's current one."""
        chosen: AbstractContextManager[Any] = self.module.device(self.device.index)
        return chosen

    def new_stream(self) -> Any:
        """A stream beside the current one."""
        with self.active():
            return self.module.Stream(device=self.device)

    def stream(self) -> Any:
        """The stream that the calling thread queues its work for this device on."""
        return self.module.current_stream(self.device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Queues the calling thread's work on this stream, and makes its device the current one."""
        chosen: AbstractContextManager[Any] = self.module.stream(stream)
        return chosen

    def record(self, stream: Any) -> Event:
        """An event behind all work that the stream has been given so far."""
        with self.active():
            event: Event = self.module.Event()
            stream.record_event(event)
        return event

    def synchronize(self) -> None:
        """Waits until the device has nothing to do."""
        self.module.synchronize(self.device)

    def capturing(self) -> bool:
        """Whether the calling thread's current stream is being captured into a graph."""
        ask = getattr(self.module, "is_current_stream_capturing", None)
        if ask is None or not self.module.is_initialized():
            return False
        return bool(ask())

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device, as its driver counts them for all processes."""
        with self.active():
            free, total = self.module.mem_get_info(self.device)
        return int(free), int(total)

    def cached(self) -> int:
        """Bytes that torch's allocator has taken from the driver and not given out."""
        stats = self.module.memory_stats(self.device)
        return int(stats.get("reserved_bytes.all.current", 0)) - int(stats.get("allocated_bytes.all.current", 0))

    def release_cache(self) -> None:
        """Gives memory that torch's allocator keeps for later back to the driver. May wait for the device."""
        with self.active():
            self.module.empty_cache()

    def contents(self, tensor: torch.Tensor) -> torch.Tensor:
        """All bytes of the tensor's storage, uint8 [n]; no view of it: keeps nothing but the memory alive."""
        storage = tensor.untyped_storage()
        with self.active():
            empty = torch.empty(0, dtype=torch.uint8, device=self.device)
        return empty.set_(storage, 0, (storage.nbytes(),), (1,))

    def holders(self, tensor: torch.Tensor) -> int:
        """How many tensors lie over this one's storage, itself included; those that autograd saved count too."""
        storage = tensor.untyped_storage()
        use_count = torch._C._storage_Use_Count
        return int(use_count(storage._cdata)) - 1  # the storage object asked is one

    def storage_key(self, tensor: torch.Tensor) -> int:
        """A number that tensors over one storage have in common, and no others while one of them lives."""
        return int(tensor.untyped_storage()._cdata)

    def pin(self, address: int, size: int) -> bool:
        """Page-locks memory of this process for every device; False where that can't be done."""
        return False

    def unpin(self, address: int) -> None:
        """Ends that."""

    def pinned_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values in page-locked memory that is not reused before copies out of it are done."""
        return tensor.pin_memory()

    def pinned_empty(self, size: int) -> torch.Tensor:
        """Page-locked memory: uint8 [size]."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class Cuda(Accelerator):
    """CUDA and ROCm."""

    _PORTABLE = 1  # cudaHostRegisterPortable: for every device of the process, not only the current one

    def pin(self, address: int, size: int) -> bool:
        with self.active():
            return int(torch.cuda.cudart().cudaHostRegister(address, size, self._PORTABLE)) == 0  # type: ignore[no-untyped-call]

    def unpin(self, address: int) -> None:
        with self.active():
            torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


# By torch's device type; what is not here is served by the generic class.
KINDS: dict[str, type[Accelerator]] = {"cuda": Cuda}


def check_device(device: str | int | torch.device) -> torch.device:
    """A device that batches can be brought to, without touching it.

    Raises:
        ConfigError: torch has no such device here, or it has no streams.
    """
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError) as error:
        why = str(error).splitlines()[0] if isinstance(error, RuntimeError) else "give its name, such as 'cuda:0'"
        raise ConfigError(f"device={device!r} is no device: {why}") from None
    if named.type == "cpu":
        return named
    if named.type == "meta":
        raise ConfigError("device='meta' holds no data. Name a real device, for example 'cuda'.")
    module: Any = None
    with contextlib.suppress(RuntimeError, AttributeError):
        module = torch.get_device_module(named)
    if module is None or not module.is_available():
        raise ConfigError(f"device={str(named)!r}: torch {torch.__version__} finds no such device on this machine.")
    if not (hasattr(module, "Stream") and hasattr(module, "stream")):
        raise ConfigError(
            f"device={str(named)!r}: torch has no streams for it. Leave device= out and move batches in the training "
            "loop."
        )
    count = module.device_count()
    if named.index is not None and not 0 <= named.index < count:
        raise ConfigError(f"device={str(named)!r}: there are {count} such devices here, numbered from 0.")
    return named


def accelerator_for(device: str | int | torch.device) -> Accelerator:
    """The accelerator that `device` names, which is not the CPU.

    Args:
        device: As torch takes it; a bare 'cuda' is the process's current device (torch.cuda.set_device).

    Raises:
        ConfigError: torch has no such device here.
    """
    named = check_device(device)
    index = torch.get_device_module(named).current_device() if named.index is None else named.index
    return KINDS.get(named.type, Accelerator)(torch.device(named.type, index))
