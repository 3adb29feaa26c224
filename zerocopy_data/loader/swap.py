"""Puts our DataLoader where torch and the frameworks over it look for torch's, and takes it out again."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from abc import ABCMeta
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from .dataloader import DataLoader as ZcdDataLoader
from .sampler_chain import options_left

T_co = TypeVar("T_co", covariant=True)

# Packages whose modules make loaders from the name.
SWAPPED = ("torch", "accelerate", "transformers")
# They only ask isinstance, and Lightning also patches every subclass of the class that it holds: it must go on holding
# torch's. What they imported while ours was in place is put right at the end.
RESTORED = (*SWAPPED, "lightning", "pytorch_lightning", "lightning_fabric", "torchdata")


class _InTorchsPlace(ABCMeta):
    """isinstance and issubclass for a class that stands under the name of torch's.

    From ABCMeta, so that `class MyLoader(DataLoader, SomeABC)` still finds a common metaclass.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TorchDataLoader) if cls is DataLoader else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, TorchDataLoader) if cls is DataLoader else super().__subclasscheck__(subclass)


class DataLoader(ZcdDataLoader[T_co], metaclass=_InTorchsPlace):
    """zcd.DataLoader under the name torch.utils.data.DataLoader.

    A class of its own, so that `undo` can tell the name that it put somewhere from one that a user imported. Every
    loader of torch's is an instance of it. Options that torch's class has not are taken over from the loader that a
    framework builds anew.
    """

    @functools.wraps(ZcdDataLoader.__init__)  # type: ignore[misc] # the signature, which Lightning reads
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if DataLoader not in type(self).__mro__:
            # A subclass from before the patch that calls torch.utils.data.DataLoader.__init__(self, …) by name.
            TorchDataLoader.__init__(self, *args, **kwargs)
            return
        if not kwargs.keys() & {"seed", "on_error", "stall_after"}:
            given = _SIGNATURE.bind_partial(self, *args, **kwargs).arguments
            left = options_left(given.get("dataset"), given.get("batch_sampler"), given.get("sampler"))
            kwargs |= left.keywords() if left is not None else {}
        super().__init__(*args, **kwargs)


_SIGNATURE = inspect.signature(ZcdDataLoader.__init__)

_lock = threading.RLock()
_holds = 0


def _replace(old: type, new: type, packages: tuple[str, ...]) -> None:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] in packages:
            # vars(), because getattr would make lazy modules import what they stand for.
            for attribute in [key for key, value in list(vars(module).items()) if value is old]:
                setattr(module, attribute, new)


def hold() -> None:
    """Swaps the class in, or counts one more user of the swap."""
    global _holds
    with _lock:
        _holds += 1
        # Again for later users: a framework may have come in that holds torch's class by another way.
        _replace(TorchDataLoader, DataLoader, SWAPPED)


def release() -> None:
    """Counts one user less, and after the last puts torch's class back."""
    global _holds
    with _lock:
        _holds -= 1
        if _holds == 0:
            _replace(DataLoader, TorchDataLoader, RESTORED)


class Patch:
    """The swap that `zcd.patch()` has made: in force until `undo()`, or to the end of a `with` block.

    Patches nest and may be undone in any order: torch's class returns when none is left in force.
    """

    def __init__(self) -> None:
        self._holds = 1
        self._to_enter = True  # the first `with` takes over what the call did
        hold()

    @property
    def active(self) -> bool:
        """Whether this patch is in force."""
        return self._holds > 0

    def undo(self) -> None:
        """Ends this patch; again is harmless."""
        with _lock:
            holds, self._holds, self._to_enter = self._holds, 0, False
            for _ in range(holds):
                release()

    def __enter__(self) -> Patch:
        with _lock:
            if self._to_enter:
                self._to_enter = False
            else:
                self._holds += 1
                hold()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with _lock:
            if self._holds:  # undone inside the block
                self._holds -= 1
                release()

    def __repr__(self) -> str:
        return f"<zerocopy_data patch, {'in force' if self.active else 'undone'}>"
