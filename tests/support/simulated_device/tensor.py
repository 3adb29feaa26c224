"""Tensors of the simulated device: every operation on them is queued."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .memory import Storage

_MACHINE: list[Any] = []  # the machine in use, if any


def machine() -> Any:
    if not _MACHINE:
        raise RuntimeError('no simulated machine: use "with simulated(Machine()):"')
    return _MACHINE[-1]


class SimTensor(torch.Tensor):
    """A tensor on "sim". `inner` is where its values will be once everything queued has run."""

    inner: torch.Tensor
    storage: Storage

    @staticmethod
    def __new__(cls, inner: torch.Tensor, storage: Storage, device: torch.device) -> SimTensor:
        made: SimTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            dtype=inner.dtype,
            device=device,
            storage_offset=inner.storage_offset(),
        )
        made.inner = inner
        made.storage = storage
        return made

    @property
    def block(self) -> Any:
        return self.storage.block

    def address(self) -> int:
        """Where it lies: stays the same exactly as long as a device's pointer would."""
        return self.inner.data_ptr()

    def record_stream(self, stream: Any) -> None:
        self.storage.used_on.add(stream)

    def is_pinned(self, device: Any = None) -> bool:
        return False

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"SimTensor(shape={list(self.shape)}, dtype={self.dtype}, device={self.device})"


def empty(size: Any, stride: Any, dtype: torch.dtype | None, device: torch.device | None) -> SimTensor:
    """Fresh memory on the current stream."""
    dtype = dtype or torch.get_default_dtype()
    m = machine()
    index = m.local.device if device is None or device.index is None else device.index
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    storage = m.allocators[index].allocate(extent * dtype.itemsize)
    typed = storage.block.bytes[: extent * dtype.itemsize].view(dtype)
    return SimTensor(torch.as_strided(typed, tuple(size), tuple(stride)), storage, torch.device("sim", index))


def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> SimTensor:
    return empty(size, stride, dtype, device)


def empty_memory_format(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> SimTensor:
    like = torch.empty(tuple(size), dtype=dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    return empty(like.shape, like.stride(), dtype, device)


def arange(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> SimTensor:
    """torch's own makes an empty tensor and resizes it, which a wrapper can't follow."""
    host = torch.arange(start, end, step, dtype=dtype)
    made = empty(host.shape, host.stride(), host.dtype, device)
    m = machine()
    stream = m.current_stream(made.device.index)
    m.queue(stream, "arange", "compute", m.launch, _assign(made.inner, host), [], [made.block])
    return made


def arange_end(end: Any, **kwargs: Any) -> SimTensor:
    return arange(0, end, **kwargs)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, SimTensor) else value


def _meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        inner = _inner(value)
        return torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device="meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    m = machine()
    sims = [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, SimTensor)]
    name = func._schema.name.removeprefix("aten::")
    if name == "copy_":
        return _copy(m, *args, **kwargs)
    target = kwargs.get("device")
    if name == "_to_copy" and target is not None and torch.device(target).type == "cpu":
        return _to_host(m, args[0], kwargs)
    if name == "_local_scalar_dense":
        m.current_stream(sims[0].device.index).synchronize()
        return sims[0].inner.item()
    first = next(iter(sims))
    if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
        out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        return tree_map(lambda t: SimTensor(t, first.storage, first.device) if isinstance(t, torch.Tensor) else t, out)
    return _kernel(m, func, name, args, kwargs, sims)


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    return [
        named[a.name]
        for a in func._schema.arguments
        if a.alias_info is not None and a.alias_info.is_write and a.name in named
    ]


def _kernel(m: Any, func: Any, name: str, args: Any, kwargs: Any, sims: list[SimTensor]) -> Any:
    device = sims[0].device
    stream = m.current_stream(device.index)
    inners, inner_kwargs = tree_map(_inner, args), tree_map(_inner, kwargs)
    inner_kwargs = {k: torch.device("cpu") if isinstance(v, torch.device) else v for k, v in inner_kwargs.items()}
    written = [t for t in tree_flatten(_written(func, args, kwargs))[0] if isinstance(t, SimTensor)]
    if written:
        moved = sum(map(_bytes, sims))
        m.queue(
            stream,
            name,
            "compute",
            max(m.launch, moved / m.bandwidth),
            lambda: func(*inners, **inner_kwargs),
            [t.block for t in sims if not any(t is w for w in written)],
            [t.block for t in written],
        )
        out = written[0] if len(func._schema.returns) == 1 else tuple(written)
        return out if func._schema.returns else None
    try:
        shapes = func(*tree_map(_meta, args), **tree_map(_meta, kwargs))
    except Exception:  # the shape depends on values, or there is no meta function: as a device does it, by waiting
        stream.synchronize()
        shapes = func(*inners, **inner_kwargs)
    flat, spec = tree_flatten(shapes)
    outs = [empty(t.shape, t.stride(), t.dtype, device) if isinstance(t, torch.Tensor) else t for t in flat]
    if not name.startswith(("empty", "new_empty")):
        targets = [_inner(out) if isinstance(out, SimTensor) else None for out in outs]  # nobody's tensor is kept alive

        def run() -> None:
            made = tree_flatten(func(*inners, **inner_kwargs))[0]
            for target, value in zip(targets, made, strict=True):
                if target is not None:
                    target.copy_(value)

        made = [t for t in outs if isinstance(t, SimTensor)]
        moved = sum(map(_bytes, [*sims, *made]))
        m.queue(
            stream,
            name,
            "compute",
            max(m.launch, moved / m.bandwidth),
            run,
            [t.block for t in sims],
            [t.block for t in made],
        )
    return tree_unflatten(outs, spec)


def _copy(m: Any, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if isinstance(target, SimTensor) and isinstance(source, SimTensor):
        seconds = max(m.launch, (_bytes(target) + _bytes(source)) / m.bandwidth)
        run = _assign(target.inner, source.inner)
        m.queue(m.current_stream(target.device.index), "copy", "compute", seconds, run, [source.block], [target.block])
        return target
    to_device = isinstance(target, SimTensor)
    sim, host = (target, source) if to_device else (source, target)
    assert isinstance(sim, SimTensor)
    stream = m.current_stream(sim.device.index)
    seconds = m.latency + _bytes(host) / (m.h2d if to_device else m.d2h)
    later = non_blocking and host.numel() > 0 and m.is_pinned(host.data_ptr(), _extent(host))
    if to_device:
        run, expect = _assign(target.inner, source), None
        if later and m.check:
            run, expect = _watched(m, target.inner, source, stream)
        operation = m.queue(stream, "h2d", "h2d", seconds, run, [], [sim.block])
        if expect is not None:
            filling = m.host_read(host.data_ptr(), _extent(host), operation)
            if filling is not None:  # what is right is known only when a copy into this memory has run
                filling.then.append(expect)
    else:
        operation = m.queue(stream, "d2h", "d2h", seconds, _assign(target, source.inner), [sim.block], [])
        if later and m.check:
            m.host_written(host.data_ptr(), _extent(host), operation)
    if not later:  # pageable memory: a real copy returns when it has read, or written, the host's memory
        m.wait_for(operation)
    return target


def _extent(tensor: torch.Tensor) -> int:
    return (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))) * tensor.element_size()


def _assign(target: torch.Tensor, source: torch.Tensor) -> Any:
    return lambda: target.copy_(source)


def _watched(m: Any, target: torch.Tensor, source: torch.Tensor, stream: Any) -> Any:
    """A copy that knows what its source was when it was queued.

    It holds the memory's address, not the tensor: a device keeps nobody's memory alive either.
    """
    from .machine import Fault

    expected = source.detach().clone()
    raw = source.detach().numpy() if source.dtype != torch.bfloat16 else source.detach().view(torch.int16).numpy()
    pointer, shape, strides, dtype = raw.ctypes.data, raw.shape, raw.strides, raw.dtype
    extent = _extent(source)
    kind = source.dtype

    def now_there() -> torch.Tensor:
        import ctypes

        import numpy as np

        memory = (ctypes.c_ubyte * extent).from_address(pointer)
        return torch.from_numpy(np.ndarray(shape, dtype, memory, strides=strides)).view(kind)

    def expect() -> None:
        if m.is_pinned(pointer, extent):
            expected.copy_(now_there())

    def run() -> None:
        if not m.is_pinned(pointer, extent):
            m.faults.append(Fault("unpinned", "memory was unregistered while a copy out of it was queued"))
            target.copy_(expected)
            return
        now = now_there()
        if not torch.equal(now.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)):
            m.faults.append(Fault("torn", f"host memory was written before a copy of it on {stream} had run"))
        target.copy_(now)

    return run, expect


def _to_host(m: Any, source: SimTensor, kwargs: Any) -> torch.Tensor:
    out = torch.empty_like(source.inner, dtype=kwargs.get("dtype") or source.dtype)
    if out.dtype != source.dtype:
        source = source.to(out.dtype)  # type: ignore[assignment]
    _copy(m, out, source)
    return out
