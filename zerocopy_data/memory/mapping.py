"""Maps of files through libc, for what Python's own mmap does not do.

That one keeps a duplicate of the descriptor for as long as it lives, and takes no MAP_NORESERVE: a dataset of more
shards than `ulimit -n`, or a shard larger than the memory, could not be mapped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable

MAP_NORESERVE = 0x4000  # Python has the name from 3.13 on

_LIBC = ctypes.CDLL(None, use_errno=True)
_MMAP = _LIBC.mmap
_MMAP.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,  # off_t
)
_MMAP.restype = ctypes.c_void_p
_MUNMAP = _LIBC.munmap
_MUNMAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MUNMAP.restype = ctypes.c_int
_MADVISE = _LIBC.madvise
_MADVISE.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value


def map_file(
    descriptor: int, size: int, protection: int, flags: int, ended: Callable[[], object] | None = None
) -> ctypes.Array[ctypes.c_ubyte]:
    """Maps a file from its beginning; the map ends, and `ended` is called, when the array is collected.

    The array is a root for views that Python's garbage collector does not see (Arrow's, numpy's): it calls finalizers
    first, while a `__del__` in the same cycle may still use a view that it does see.

    Args:
        descriptor: The file; may be closed afterwards.
        size: Bytes, at least one. What lies beyond the file's end must not be touched.
        protection: mmap's PROT_ flags.
        flags: mmap's MAP_ flags.
        ended: Called after the map has ended, in any thread; not at the interpreter's exit.

    Raises:
        OSError: the system refuses.
    """
    address = _MMAP(None, size, protection, flags, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    mapped = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(mapped, _end, address, size, ended).atexit = False
    return mapped


def advise_random(mapped: ctypes.Array[ctypes.c_ubyte]) -> None:
    """Tells the kernel that a map is read at random places: a page that is touched comes without its neighbours."""
    advise(ctypes.addressof(mapped), len(mapped), True)


def advise(address: int, size: int, random: bool) -> None:
    """The same of a part of a map that begins with a page, or that it is so no more."""
    _MADVISE(address, size, mmap.MADV_RANDOM if random else mmap.MADV_NORMAL)  # to refuse is the kernel's right


def _end(address: int, size: int, ended: Callable[[], object] | None) -> None:
    _MUNMAP(address, size)
    if ended is not None:
        ended()
