"""Puts our DataLoader where torch and the frameworks over it look for torch's, and takes it out again.

Where Accelerate is installed, and torchdata, whose StatefulDataLoader it builds when asked to, that class goes too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import threading
from abc import ABCMeta
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from .dataloader import DataLoader as ZcdDataLoader
from .sampler_chain import options_left
from .stateful import StatefulDataLoader as ZcdStatefulDataLoader

T_co = TypeVar("T_co", covariant=True)

# Packages whose modules make loaders from the name.
SWAPPED = ("torch", "accelerate", "transformers")
# They only ask isinstance, and Lightning also patches every subclass of the class that it holds: it must go on holding
# torch's. What they imported while ours was in place is put right at the end.
STATEFUL = ("torchdata", "accelerate")
RESTORED = (*SWAPPED, "lightning", "pytorch_lightning", "lightning_fabric", "torchdata")


class _InPlaceOf(ABCMeta):
    """isinstance and issubclass for a class that stands under the name of others, its `stands_for`.

    From ABCMeta, so that `class MyLoader(DataLoader, SomeABC)` still finds a common metaclass.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        other = cls.__dict__.get("stands_for")
        return super().__instancecheck__(instance) if other is None else isinstance(instance, other)

    def __subclasscheck__(cls, subclass: type) -> bool:
        other = cls.__dict__.get("stands_for")
        return super().__subclasscheck__(subclass) if other is None else issubclass(subclass, other)


class DataLoader(ZcdDataLoader[T_co], metaclass=_InPlaceOf):
    """zcd.DataLoader under the name torch.utils.data.DataLoader.

    A class of its own, so that `undo` can tell the name that it put somewhere from one that a user imported. Every
    loader of torch's is an instance of it. Options that torch's class has not are taken over from the loader that a
    framework builds anew.
    """

    stands_for = TorchDataLoader

    @functools.wraps(ZcdDataLoader.__init__)  # type: ignore[misc] # the signature, which Lightning reads
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if DataLoader not in type(self).__mro__:
            # A subclass from before the patch that calls torch.utils.data.DataLoader.__init__(self, …) by name.
            TorchDataLoader.__init__(self, *args, **kwargs)
            return
        super().__init__(*args, **_with_options_left(args, kwargs))


def _with_options_left(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a constructor's call, with the options of the loader that is built anew."""
    if kwargs.keys() & {"seed", "on_error", "stall_after", "device", "static", "decode", "read_ahead"}:
        return kwargs
    given = _SIGNATURE.bind_partial(None, *args, **kwargs).arguments
    left = options_left(given.get("dataset"), given.get("batch_sampler"), given.get("sampler"))
    return kwargs if left is None else kwargs | left.keywords()


# That of the stateful class holds the other's arguments in the same places.
_SIGNATURE = inspect.signature(ZcdStatefulDataLoader.__init__)

_lock = threading.RLock()
_holds = 0
_stateful: tuple[type, type] | None = None  # torchdata's class and what stands for it, once made


def _torchdatas() -> type | None:
    """torchdata's StatefulDataLoader, where there is somebody who would build it."""
    if importlib.util.find_spec("accelerate") is None or importlib.util.find_spec("torchdata") is None:
        return None
    try:
        found: type = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader
    except (ImportError, AttributeError):  # one that is too old, or broken: Accelerate will say so if it is asked
        return None
    return found


def _stateful_for(theirs: type) -> type:
    """Our StatefulDataLoader under the name of torchdata's, whose instances are those of either."""

    @functools.wraps(ZcdStatefulDataLoader.__init__)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        ZcdStatefulDataLoader.__init__(self, *args, **_with_options_left(args, kwargs))

    members = {"__init__": initialise, "stands_for": (theirs, ZcdStatefulDataLoader), "__module__": __name__}
    return _InPlaceOf("StatefulDataLoader", (ZcdStatefulDataLoader,), members)


def _replace(old: type, new: type, packages: tuple[str, ...]) -> None:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] in packages:
            # vars(), because getattr would make lazy modules import what they stand for.
            for attribute in [key for key, value in list(vars(module).items()) if value is old]:
                setattr(module, attribute, new)


def hold() -> None:
    """Swaps the classes in, or counts one more user of the swap."""
    global _holds, _stateful
    with _lock:
        _holds += 1
        # Again for later users: a framework may have come in that holds torch's class by another way.
        _replace(TorchDataLoader, DataLoader, SWAPPED)
        if _stateful is None and (theirs := _torchdatas()) is not None:
            _stateful = theirs, _stateful_for(theirs)
        if _stateful is not None:
            _replace(*_stateful, STATEFUL)


def release() -> None:
    """Counts one user less, and after the last puts torch's and torchdata's classes back."""
    global _holds
    with _lock:
        _holds -= 1
        if _holds == 0:
            _replace(DataLoader, TorchDataLoader, RESTORED)
            if _stateful is not None:
                theirs, ours = _stateful
                _replace(ours, theirs, RESTORED)


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
