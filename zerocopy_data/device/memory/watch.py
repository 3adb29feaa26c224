"""How much memory a device has left, for this process and for others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from ...errors import ConfigError
from ..accelerator import Accelerator, accelerator_for

_Reading = TypeVar("_Reading")


@dataclass(frozen=True)
class DeviceReading:
    """Device memory at one moment.

    The driver and torch count differently: memory that tensors have given back stays with torch's allocator, so that
    the driver, and every other process, still sees it taken.

    Attributes:
        driver_free: Bytes that the driver could still give to any process.
        total: Bytes of the device.
        cached: Bytes that torch's allocator of this process holds and has not given out.
    """

    driver_free: int
    total: int
    cached: int = 0

    @property
    def free(self) -> int:
        """Bytes that this process can still give to tensors."""
        return self.driver_free + self.cached


class DeviceMemory(Protocol):
    """What knows a device's memory: torch, or a trace in a test."""

    def read(self) -> DeviceReading: ...


class _Source(Protocol[_Reading]):  # type: ignore[misc]
    def read(self) -> _Reading: ...


class TorchMemory:
    """A device's memory by its driver (mem_get_info) and torch's allocator (memory_stats).

    Args:
        device: As torch takes it.

    Raises:
        ConfigError: torch has no such device here, or it is the CPU.
    """

    def __init__(self, device: str | int | torch.device | Accelerator) -> None:
        accelerator = device if isinstance(device, Accelerator) else accelerator_for(device)
        if accelerator is None:
            raise ConfigError("The CPU has no device memory. Watch host memory with SystemMemory().")
        self.accelerator = accelerator

    def read(self) -> DeviceReading:
        """Asks both, of which the driver takes some ten microseconds."""
        free, total = self.accelerator.memory()
        return DeviceReading(free, total, self.accelerator.cached())


class Seldom(Generic[_Reading]):
    """A source that is asked at most once in some time; in between the last reading is given again.

    Args:
        source: What has `read()`.
        seconds: How old a reading may be.
        clock: Seconds, rising.
    """

    def __init__(
        self, source: _Source[_Reading], seconds: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.source = source
        self.seconds = seconds
        self.clock = clock
        self._last: tuple[float, _Reading] | None = None

    def read(self) -> _Reading:
        """The last reading if it is young enough, else a new one."""
        now = self.clock()
        if self._last is None or now - self._last[0] >= self.seconds:
            self._last = (now, self.source.read())
        return self._last[1]


@dataclass(frozen=True)
class ProcessMemory:
    """Device memory of one process.

    Attributes:
        pid: Its number, as the driver sees it: in a container that may be another one than inside.
        bytes: What it takes; None where the driver doesn't say.
    """

    pid: int
    bytes: int | None


def other_processes(device: int = 0) -> list[ProcessMemory]:
    """Who else has memory on an NVIDIA device, through NVML.

    Args:
        device: The index by torch's count, which CUDA_VISIBLE_DEVICES changes.

    Raises:
        ConfigError: nvidia-ml-py is not installed, or NVML does not work here.
    """
    try:
        import pynvml
    except ImportError:
        raise ConfigError(
            "The memory of other processes is read through NVML, and nvidia-ml-py is not installed. "
            "Run: pip install nvidia-ml-py   (or: pip install 'zerocopy-data[nvml]')"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ConfigError(f"NVML does not work on this machine: {error}. It comes with NVIDIA's driver.") from None
    try:
        handle = _nvml_handle(pynvml, device)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return [ProcessMemory(p.pid, p.usedGpuMemory) for p in found if p.pid != os.getpid()]
    except pynvml.NVMLError as error:
        raise ConfigError(f"NVML can't say which processes use device {device}: {error}.") from None
    finally:
        pynvml.nvmlShutdown()


def _nvml_handle(pynvml: Any, device: int) -> Any:
    """NVML counts all devices of the machine, torch those that it may see: their identifiers are the same."""
    if torch.cuda.is_available():
        identifier = str(torch.cuda.get_device_properties(device).uuid)
        identifier = identifier if identifier.startswith(("GPU-", "MIG-")) else f"GPU-{identifier}"
        return pynvml.nvmlDeviceGetHandleByUUID(identifier)
    return pynvml.nvmlDeviceGetHandleByIndex(device)
