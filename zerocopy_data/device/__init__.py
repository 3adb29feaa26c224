"""The way to the device: staging into its memory, decoding and augmentation there, and care for its memory.

    zcd.DataLoader(ds, 256, device="cuda")         batches on the device, copied beside the work that goes on there
    zcd.device.Staging                             the same with more to say: dtypes, memory format, places, transform
    zcd.device.augment                             augmentation of whole batches, each sample by its own random numbers
    zcd.device.decode                              decoders that take images as they are stored
    zcd.device.memory                              a governor of device memory, swapping, datasets that stay there

Everything is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import augment, decode, kernels, memory
    from .request import Staging

__all__ = ["Staging", "augment", "decode", "kernels", "memory"]


def __getattr__(name: str) -> Any:
    if name == "Staging":
        from .request import Staging

        return Staging
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
