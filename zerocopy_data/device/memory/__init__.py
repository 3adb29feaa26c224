"""Care for device memory: `zcd.device.memory`.

    pool = SwapPool("cuda", low=2 << 30, high=4 << 30)      # tensors that may wait in pinned host memory
    cache = DeviceCache(dataset, "cuda", budget=8 << 30)    # rows that stay on the device
    governor = Governor(low=2 << 30, high=4 << 30, reliefs=[cache, pool], source=TorchMemory("cuda"))

Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache import DeviceCache
    from .governor import Action, Governor, InFlight, Relief
    from .limits import HostReading, SystemMemory
    from .saved import saved_activations
    from .swap import Handle, SwapPool
    from .watch import DeviceReading, ProcessMemory, Seldom, TorchMemory, other_processes

_MODULES = {
    "cache": ("DeviceCache",),
    "governor": ("Action", "Governor", "InFlight", "Relief"),
    "limits": ("HostReading", "SystemMemory"),
    "saved": ("saved_activations",),
    "swap": ("Handle", "SwapPool"),
    "watch": ("DeviceReading", "ProcessMemory", "Seldom", "TorchMemory", "other_processes"),
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Action",
    "DeviceCache",
    "DeviceReading",
    "Governor",
    "Handle",
    "HostReading",
    "InFlight",
    "ProcessMemory",
    "Relief",
    "Seldom",
    "SwapPool",
    "SystemMemory",
    "TorchMemory",
    "other_processes",
    "saved_activations",
]


def __getattr__(name: str) -> Any:
    try:
        module = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
