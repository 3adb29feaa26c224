"""A read-only list over shared memory: worker processes that walk it copy nothing.

A Python list keeps an object per item, and every look at an object writes its reference count. After a fork each such
write copies a page, until every worker has its own copy of the list. Here the items lie encoded in one memory file;
an item becomes a Python object when it is asked for.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import operator
import os
import pickle
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from multiprocessing import context, reduction
from typing import Any, TypeVar, overload

import numpy as np

from ..errors import ConfigError
from .mapping import map_file

T = TypeVar("T")

_NUMBERS: dict[type, str] = {int: "q", float: "d", bool: "?"}  # type of all items → memoryview format
_BLOCK = 4096  # items that are encoded before they are written


def share(items: Iterable[T]) -> SharedList[T]:
    """Puts a list into shared memory, for datasets whose worker processes walk it.

        self.paths = zcd.share(paths)     # instead of: self.paths = paths

    Items that are all strings, all bytes or all numbers of one type (int, float, bool) are stored as such; any others
    (dicts, tuples, arrays, tensors, mixtures) are pickled one by one. `shared[i]` makes a new object each time.

    Args:
        items: A list, or anything else that is iterable except a string, bytes or a mapping.

    Returns:
        A read-only sequence of equal items. Forked workers inherit it; spawned ones, and those of a fork server, get
        the same memory when the dataset is handed to them. Anything else that pickles it copies the items.

    Raises:
        ConfigError: an item cannot be pickled (the message has its index), or `items` is no list of items.
    """
    if isinstance(items, SharedList):
        return items
    if isinstance(items, str | bytes | bytearray | dict) or not isinstance(items, Iterable):
        raise ConfigError(f"share() takes a list, not {type(items).__name__}.")
    values = items if isinstance(items, Sequence) else list(items)
    kind = _kind(values)
    code = _NUMBERS.get(kind)
    blocks = _packed(values, code) if code else _encoded(values, _encoder(kind))
    store = _Store(_written(blocks), kind, len(values))
    return SharedList(store, range(len(values)))


class SharedList(Sequence[T]):
    """A read-only list over shared memory, made by `share`; slices are views of the same memory.

    Holds one file descriptor. Two tensors of one item that are views of the same larger tensor come back as two.
    """

    __slots__ = ("_rows", "_store")

    def __init__(self, store: _Store, rows: range) -> None:
        self._store = store
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> SharedList[T]: ...
    def __getitem__(self, index: int | slice) -> T | SharedList[T]:
        if isinstance(index, slice):
            return SharedList(self._store, self._rows[index])
        try:
            row = self._rows[index]
        except IndexError:
            raise IndexError(f"item {operator.index(index)} of a SharedList with {len(self)} items") from None
        except TypeError:
            raise TypeError(f"SharedList indices are integers or slices, not {type(index).__name__}") from None
        value: T = self._store.item(row)
        return value

    def __iter__(self) -> Iterator[T]:
        return map(self._store.item, self._rows)

    def __reversed__(self) -> Iterator[T]:
        return map(self._store.item, reversed(self._rows))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedList) and other._store is self._store and other._rows == self._rows:
            return True
        if not isinstance(other, list | SharedList):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __copy__(self) -> SharedList[T]:
        return self

    def __deepcopy__(self, memo: Any) -> SharedList[T]:
        return self  # nobody can change it, and items are new objects anyway

    def __reduce__(self) -> tuple[Any, ...]:
        if context.get_spawning_popen() is None and len(self._rows) < self._store.count:
            store = self._store.selected(self._rows)  # by value: what the view doesn't show stays behind
            return SharedList, (store, range(store.count))
        return SharedList, (self._store, self._rows)

    def __repr__(self) -> str:
        return f"SharedList({len(self)} items, {self._store.kind.__name__}, {self._store.size / 1e6:.1f} MB shared)"


class _Store:
    """Encoded items in a sealed memory file. Numbers lie as an array; others in a row, with uint64 offsets behind.

    Args:
        descriptor: Of the file; the store owns it.
        kind: The type of all items; object where they are pickled.
        count: Number of items.
    """

    def __init__(self, descriptor: int, kind: type, count: int) -> None:
        self.descriptor = descriptor
        self.kind = kind
        self.count = count
        status = os.fstat(descriptor)
        self.inode, self.size = status.st_ino, status.st_size
        self._memory = _mapped(descriptor, self.size)
        self.item: Callable[[int], Any]
        code: Any = _NUMBERS.get(kind)
        if code:
            self.item = self._memory.cast(code).__getitem__
        else:
            self._offsets = self._memory[self.size - 8 * (count + 1) :].cast("Q")
            self.item = _decoder(kind, self._memory, self._offsets)
        with _opening:
            _stores[self.inode] = self

    def selected(self, rows: range) -> _Store:
        """A store of these items only."""
        code = _NUMBERS.get(self.kind)
        if code:
            blocks: Iterator[bytes] = iter([array(_array_code(code), map(self.item, rows)).tobytes()])
        else:
            blocks = _joined(bytes(self._memory[self._offsets[row] : self._offsets[row + 1]]) for row in rows)
        return _Store(_written(blocks), self.kind, len(rows))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        process: Any = context.get_spawning_popen()
        if process is None:
            data = pickle.PickleBuffer(self._memory) if protocol >= 5 else bytes(self._memory)
            return _restored, (data, self.kind, self.count)
        handle: Any
        if process.method == "spawn" and self.descriptor in process._fds:
            handle = process.DupFd(self.descriptor)  # in another pickle for this process: a number goes over once
        else:
            handle = reduction.DupFd(self.descriptor)
        return _opened, (handle, self.kind, self.count)


# Several pickles for one process may hold the same list: it is opened once.
_stores: weakref.WeakValueDictionary[int, _Store] = weakref.WeakValueDictionary()
_opening = threading.RLock()


def _opened(handle: Any, kind: type, count: int) -> _Store:
    """The store behind a descriptor that the parent process handed over."""
    descriptor: int = handle.detach()
    with _opening:
        known = _stores.get(os.fstat(descriptor).st_ino)
        if known is None:
            return _Store(descriptor, kind, count)
        if known.descriptor != descriptor:
            os.close(descriptor)
        return known


def _restored(data: bytes, kind: type, count: int) -> _Store:
    """A store from a copy of another one's memory."""
    return _Store(_written(iter([data])), kind, count)


def _kind(values: Sequence[Any]) -> type:
    """The type that all items have, if there is an encoding for it, else object."""
    types = set(map(type, values))
    if len(types) != 1:
        return object
    kind: type = types.pop()
    if kind is int and not (min(values) >= -(2**63) and max(values) < 2**63):
        return object
    return kind if kind in _NUMBERS or kind in (str, bytes) else object


def _packed(values: Sequence[Any], code: str) -> Iterator[bytes]:
    rest = iter(values)  # a deque, for one, has no slices
    while block := array(_array_code(code), islice(rest, _BLOCK)):
        yield block.tobytes()


def _array_code(code: str) -> str:
    return "B" if code == "?" else code  # array has no bools; one byte, 0 or 1


def _encoder(kind: type) -> Callable[[Any], bytes]:
    if kind is str:
        return lambda text: text.encode("utf-8", "surrogatepass")
    return bytes if kind is bytes else _Pickler()


def _decoder(kind: type, memory: memoryview, offsets: memoryview) -> Callable[[int], Any]:
    # Only this function's own writing is ever unpickled: the file is sealed.
    if kind is str:
        return lambda row: str(memory[offsets[row] : offsets[row + 1]], "utf-8", "surrogatepass")
    if kind is bytes:
        return lambda row: bytes(memory[offsets[row] : offsets[row + 1]])
    return lambda row: pickle.loads(memory[offsets[row] : offsets[row + 1]])


def _encoded(values: Sequence[Any], encode: Callable[[Any], bytes]) -> Iterator[bytes]:
    def pieces() -> Iterator[bytes]:
        for index, value in enumerate(values):
            try:
                yield encode(value)
            except Exception as error:
                raise ConfigError(
                    f"share(): item {index}, of type {type(value).__name__}, cannot be pickled: {error}. "
                    "Leave out what cannot be pickled (open files, locks, lambdas), or make it when it is needed."
                ) from error

    return _joined(pieces())


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces in blocks, then their offsets."""
    offsets = array("Q", [0])
    end = 0
    block: list[bytes] = []
    for piece in pieces:
        end += len(piece)
        offsets.append(end)
        block.append(piece)
        if len(block) == _BLOCK:
            yield b"".join(block)
            block.clear()
    yield b"".join(block)
    yield offsets.tobytes()


class _Pickler:
    """Pickles items one by one."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._pickler = _ItemPickler(self._file, 5)

    def __call__(self, value: Any) -> bytes:
        self._pickler.clear_memo()
        self._file.seek(0)
        self._file.truncate()
        self._pickler.dump(value)
        return self._file.getvalue()


class _ItemPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # A tensor pickles its whole storage: a row of a matrix would bring the matrix.
        torch = sys.modules.get("torch")
        if (
            torch is not None
            and type(value) is torch.Tensor
            and value.layout is torch.strided
            and value.device.type == "cpu"
            and not value.requires_grad
            and value.untyped_storage().nbytes() > value.numel() * value.itemsize
        ):
            return value.clone().__reduce_ex__(5)
        return NotImplemented


def _written(blocks: Iterator[bytes]) -> int:
    """A memory file with this content, which nobody can change any more."""
    descriptor = os.memfd_create("zcd-share", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for block in blocks:
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _mapped(descriptor: int, size: int) -> memoryview:
    """The file's bytes, read-only. With the last view of them the map ends and the descriptor is closed."""
    # Private, as Linux before 6.7 refuses other maps of a sealed file; what is never written is shared all the same.
    # With its pages at once: tools then count them as shared with the first worker that reads them.
    flags = mmap.MAP_PRIVATE | mmap.MAP_POPULATE
    try:
        mapped: Any = map_file(descriptor, size, mmap.PROT_READ, flags, partial(os.close, descriptor))
    except OSError as error:
        os.close(descriptor)
        reason = f"share(): {size} bytes cannot be mapped: {error.strerror}"
        raise OSError(error.errno, reason) from error
    unseen: Any = np.frombuffer(mapped, np.uint8)
    return memoryview(unseen).toreadonly()
