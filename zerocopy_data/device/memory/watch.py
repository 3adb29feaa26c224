"""How much memory a device has left, for this process and for others."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ConfigError
from ..accelerator import Accelerator, accelerator_for, check_device


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


def real_device(device: str | int | torch.device) -> Accelerator:
    """The accelerator of a device that has memory of its own.

    Raises:
        ConfigError: torch has no such device here, or it is the CPU.
    """
    if check_device(device).type == "cpu":
        raise ConfigError("The CPU has no device memory: name an accelerator, or watch the host with SystemMemory().")
    return accelerator_for(device)


class TorchMemory:
    """A device's memory by its driver (mem_get_info) and torch's allocator (memory_stats).

    Args:
        device: As torch takes it.

    Raises:
        ConfigError: torch has no such device here, or it is the CPU.
    """

    def __init__(self, device: str | int | torch.device | Accelerator) -> None:
        self.accelerator = device if isinstance(device, Accelerator) else real_device(device)

    def read(self) -> DeviceReading:
        """Asks both, of which the driver takes some ten microseconds."""
        free, total = self.accelerator.memory()
        return DeviceReading(free, total, self.accelerator.cached())


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
