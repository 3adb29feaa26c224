"""Makes torch know the device "sim": torch.device("sim"), torch.get_device_module("sim"), factories, autograd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from . import tensor
from .machine import Event, Machine, Stream


def why_not() -> str | None:
    """Why torch can't have a device written in Python here; None where it can."""
    if not hasattr(torch._C, "_acc") or not hasattr(torch._C._acc, "register_python_privateuseone_device_guard"):
        return f"torch {torch.__version__} can't have a backend written in Python"
    return None


def _m() -> Machine:
    return tensor.machine()  # type: ignore[no-any-return]


def _index(device: Any = None) -> int:
    if device is None:
        return _m().local.device
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return _m().local.device if index is None else index


@contextmanager
def _device(device: Any) -> Iterator[None]:
    local = _m().local
    before, local.device = local.device, _index(device)
    try:
        yield
    finally:
        local.device = before


@contextmanager
def _on(stream: Stream | None) -> Iterator[None]:
    if stream is None:
        yield
        return
    local = _m().local
    index = stream.device.index
    before, before_device = local.streams.get(index), local.device
    local.streams[index], local.device = stream, index
    try:
        yield
    finally:
        local.device = before_device
        if before is None:
            del local.streams[index]
        else:
            local.streams[index] = before


def _set_device(device: Any) -> None:
    _m().local.device = _index(device)


def _touched(device: Any = None) -> int:
    return _m().touch(_index(device))


def _synchronize(device: Any = None) -> None:
    if tensor._MACHINE:  # torch's profiler asks the registered backend even where no machine is in use
        _m().synchronize(_touched(device))


def _module() -> SimpleNamespace:
    return SimpleNamespace(
        is_available=lambda: bool(tensor._MACHINE),
        is_initialized=lambda: bool(tensor._MACHINE and tensor._MACHINE[-1].touched),
        device_count=lambda: _m().devices,
        current_device=lambda: _touched(_m().local.device),
        set_device=_set_device,
        device=_device,
        Stream=lambda device=None, priority=0: _m().new_stream(_index(device)),
        Event=lambda enable_timing=False, **_: Event(_m()),
        current_stream=lambda device=None: _m().current_stream(_touched(device)),
        default_stream=lambda device=None: _m().defaults[_touched(device)],
        stream=_on,
        synchronize=_synchronize,
        is_current_stream_capturing=lambda: _m().captures > 0,
        mem_get_info=lambda device=None: (
            _m().allocators[_touched(device)].free_bytes,
            _m().allocators[_index(device)].total,
        ),
        memory_stats=lambda device=None: _m().allocators[_touched(device)].stats(),
        memory_allocated=lambda device=None: _m().allocators[_touched(device)].allocated,
        memory_reserved=lambda device=None: _m().allocators[_touched(device)].reserved,
        empty_cache=lambda: _m().allocators[_touched()].empty_cache(),
        manual_seed_all=lambda seed: None,
        _is_in_bad_fork=lambda: False,
    )


@cache
def register() -> torch.library.Library:
    from torch.utils import backend_registration as registration

    class Guard(torch._C._acc.DeviceGuard):  # type: ignore[misc,name-defined]
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.PrivateUse1

    class Hook(torch._C._acc.PrivateUse1Hooks):  # type: ignore[misc,name-defined]
        def is_built(self) -> bool:
            return True

        def is_available(self) -> bool:  # the rest of the process has no accelerator
            return bool(tensor._MACHINE)

        def is_initialized(self) -> bool:
            return True

        def device_count(self) -> int:
            return tensor._MACHINE[-1].devices if tensor._MACHINE else 0

        def current_device(self) -> int:
            return tensor._MACHINE[-1].local.device if tensor._MACHINE else 0

        def has_primary_context(self, device: int) -> bool:
            return True

    registration._setup_privateuseone_for_python_backend(
        "sim", backend_module=_module(), hook=Hook(), device_guard=Guard()
    )
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty_strided", tensor.empty_strided, "PrivateUse1")
    library.impl("empty.memory_format", tensor.empty_memory_format, "PrivateUse1")
    library.impl("arange", tensor.arange_end, "PrivateUse1")
    library.impl("arange.start", tensor.arange, "PrivateUse1")
    library.impl("arange.start_step", tensor.arange, "PrivateUse1")
    return library


@contextmanager
def simulated(machine: Machine) -> Iterator[Machine]:
    """Makes `machine` the one behind torch.device("sim"), for the library too."""
    from zerocopy_data.device.accelerator import KINDS

    from .accelerator import SimulatedAccelerator

    KINDS["sim"] = SimulatedAccelerator
    tensor._MACHINE.append(machine)
    try:
        yield machine
    finally:
        tensor._MACHINE.pop()
