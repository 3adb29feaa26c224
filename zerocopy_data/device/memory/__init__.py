"""Care for device memory: `zcd.device.memory`.

    pool = SwapPool("cuda")                              # tensors that may wait in page-locked host memory
    cache = DeviceCache(dataset, "cuda", budget=8 << 30)  # rows that stay on the device
    governor = Governor(low=2 << 30, high=4 << 30, reliefs=[cache, pool], source=TorchMemory("cuda"))

and `governor.step()` between batches. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache import CacheState, DeviceCache
    from .governor import Action, Governor, Relief
    from .in_flight import InFlight, Throttled
    from .limits import HostReading, SystemMemory
    from .saved import SavedActivations, SavedState
    from .swap import Handle, SwapPool, SwapState
    from .watch import DeviceReading, ProcessMemory, TorchMemory, other_processes

_MODULES = {
    "cache": ("CacheState", "DeviceCache"),
    "governor": ("Action", "Governor", "Relief"),
    "in_flight": ("InFlight", "Throttled"),
    "limits": ("HostReading", "SystemMemory"),
    "saved": ("SavedActivations", "SavedState"),
    "swap": ("Handle", "SwapPool", "SwapState"),
    "watch": ("DeviceReading", "ProcessMemory", "TorchMemory", "other_processes"),
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Action",
    "CacheState",
    "DeviceCache",
    "DeviceReading",
    "Governor",
    "Handle",
    "HostReading",
    "InFlight",
    "ProcessMemory",
    "Relief",
    "SavedActivations",
    "SavedState",
    "SwapPool",
    "SwapState",
    "SystemMemory",
    "Throttled",
    "TorchMemory",
    "other_processes",
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
