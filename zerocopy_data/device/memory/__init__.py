"""Care for device memory: `zcd.device.memory`.

    loader = zcd.DataLoader(dataset, 256, device=zcd.Staging("cuda", buffers=4))
    cache = DeviceCache(features, "cuda", budget=8 << 30)  # rows of tensors, or of a ShardDataset, that stay there
    pool = SwapPool("cuda")  # tensors that may wait in page-locked host memory
    table = pool.register(torch.zeros(1 << 28, device="cuda"), name="table")
    saved = SavedActivations("cuda", low=2 << 30, high=4 << 30)  # what autograd saves, likewise
    governor = Governor(
        low=2 << 30,  # bytes of free device memory below which something is done
        high=4 << 30,
        reliefs=[InFlight(loader.staged, bytes_each=150 << 20), cache, pool],  # what costs least first
        source=TorchMemory("cuda"),
    )
    for step, (images, labels) in enumerate(loader):
        extra = cache.batch(range(256 * step, 256 * step + len(images)))  # row numbers, on the host
        with table as weights, saved:
            loss = model(images, extra, weights)
        loss.backward()
        governor.step()

Each part works without the others. Nothing here is for the CPU: there is no other memory to move to. Names are imported
when they are first used.
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
