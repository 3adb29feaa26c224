"""One maker for every kind of value that a dataset may return; a worker makes it, the parent makes it again."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from conformance_data import Box, FrozenBox, Point, Tagged


class Colour(enum.Enum):
    RED = 1


def _quantised_per_channel() -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 3])
    return torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.qint8)


def _structured() -> np.ndarray:
    return np.array([(1, 2.5, b"a"), (3, 4.5, b"b")], dtype=[("n", "i4"), ("x", "f8"), ("s", "S3")])


def _readonly() -> np.ndarray:
    made = np.arange(5)
    made.flags.writeable = False
    return made


def _pattern() -> torch.Tensor:
    """Eight bytes that are a NaN with a payload, and a negative zero."""
    return torch.tensor([0x7FF8_0000_DEAD_BEEF, -(2**63)], dtype=torch.int64).view(torch.float64)


def _coalesced() -> torch.Tensor:
    return torch.eye(3).to_sparse().coalesce()


def _uncoalesced() -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2.0, 3.0]), (4,))


DTYPES = [
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex32, torch.complex64, torch.complex128, torch.bool,
]  # fmt: skip


def _of_dtype(dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    size = dtype.itemsize
    return lambda: (torch.arange(6 * size, dtype=torch.uint8) % (2 if dtype == torch.bool else 251)).view(dtype)


TENSORS: dict[str, Callable[[], torch.Tensor]] = {str(dtype): _of_dtype(dtype) for dtype in DTYPES} | {
    "sparse": _coalesced,
    "sparse with repeated indices": _uncoalesced,
    "sparse empty": lambda: torch.zeros(3, 4).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "csc": lambda: torch.eye(3).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "0-d": lambda: torch.tensor(3.5),
    "one element": lambda: torch.tensor([[[1]]]),
    "empty": lambda: torch.zeros(0),
    "zero rows": lambda: torch.zeros(0, 3, 4, dtype=torch.uint8),
    "zero columns": lambda: torch.zeros(3, 0),
    "transposed": lambda: torch.arange(6).view(2, 3).t(),
    "every other": lambda: torch.arange(20)[1::2],
    "permuted slice": lambda: torch.arange(24).view(2, 3, 4).permute(2, 0, 1)[1:3],
    "expanded": lambda: torch.tensor([[1.0], [2.0]]).expand(2, 1000),
    "with an offset": lambda: torch.arange(10)[5:],
    "odd offset": lambda: torch.arange(100, dtype=torch.uint8)[3:90],
    "channels last": lambda: torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "overlapping": lambda: torch.arange(10.0).as_strided((4, 3), (2, 1)),
    "empty slice of much": lambda: torch.arange(1000)[500:500],
    "nan and negative zero": _pattern,
    "parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.arange(3), requires_grad=False),
    "leaf": lambda: torch.arange(3.0).requires_grad_(),
    "meta": lambda: torch.empty(3, 4, device="meta"),
    "subclass": lambda: torch.ones(3).as_subclass(Tagged),
    "2 MB": lambda: torch.arange(1 << 19, dtype=torch.int32),
    "64 dimensions": lambda: torch.ones((1,) * 64),
}

QUANTISED: dict[str, Callable[[], torch.Tensor]] = {
    "per tensor": lambda: torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8),
    "32 bits": lambda: torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.qint32),
    "per channel": _quantised_per_channel,
}

ARRAYS: dict[str, Callable[[], np.ndarray]] = {
    "c order": lambda: np.arange(6.0).reshape(2, 3),
    "fortran order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "reversed": lambda: np.arange(6)[::-1],
    "every other": lambda: np.arange(20).reshape(4, 5)[::2, ::2],
    "broadcast": lambda: np.broadcast_to(np.arange(3), (4, 3)),
    "0-d": lambda: np.array(2.5),
    "empty": lambda: np.zeros(0),
    "zero rows": lambda: np.zeros((0, 4), dtype=np.int8),
    "bool": lambda: np.array([True, False]),
    "float16": lambda: np.arange(3, dtype=np.float16),
    "longdouble": lambda: np.zeros(3, dtype=np.longdouble),
    "complex128": lambda: np.array([1 + 2j, -0.0]),
    "uint64": lambda: np.array([2**64 - 1], dtype=np.uint64),
    "big-endian": lambda: np.arange(4, dtype=">i4"),
    "datetime": lambda: np.array(["2026-01-02", "NaT"], dtype="datetime64[D]"),
    "timedelta": lambda: np.array([1, 2], dtype="timedelta64[ms]"),
    "structured": _structured,
    "nested structured": lambda: np.zeros(2, dtype=[("a", [("b", "i2", (3,))]), ("c", "f4")]),
    "record": lambda: _structured().view(np.recarray),
    "object": lambda: np.array([None, "text", 5, [1, 2]], dtype=object),
    "structured with objects": lambda: np.array([(1, None), (2, "x")], dtype=[("n", "i4"), ("o", "O")]),
    "unicode": lambda: np.array(["a", "ünïcode", ""]),
    "bytes": lambda: np.array([b"a", b"bcd"]),
    "void": lambda: np.array([b"abcd"], dtype="V4"),
    "read-only": _readonly,
    "masked": lambda: np.ma.masked_array(np.arange(4), mask=[0, 1, 0, 1]),
    "2 MB": lambda: np.arange(1 << 18, dtype=np.float64),
}

OBJECTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "bool": lambda: True,
    "int": lambda: -5,
    "huge int": lambda: 3**500,
    "float": lambda: 0.1,
    "nan": lambda: float("nan"),
    "complex": lambda: 1 - 2j,
    "text": lambda: "süß 漢字 🙂 \0 end",
    "lone surrogate": lambda: "\udc80",
    "long text": lambda: "x" * 200_000,
    "empty text": lambda: "",
    "bytes": lambda: b"\0\xff" * 3,
    "long bytes": lambda: bytes(range(256)) * 2000,
    "bytearray": lambda: bytearray(b"abc"),
    "decimal": lambda: decimal.Decimal("1.10"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "time": lambda: datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
    "path": lambda: pathlib.PurePosixPath("a/b"),
    "uuid": lambda: uuid.UUID(int=5),
    "enum": lambda: Colour.RED,
    "range": lambda: range(1, 10, 3),
    "set": lambda: {1, 2, 3},
    "frozenset": lambda: frozenset("ab"),
    "ellipsis": lambda: ...,
    "type": lambda: Point,
    "array.array": lambda: array.array("d", [1.0, 2.0]),
    "empty containers": lambda: [[], {}, (), set()],
    "tuple": lambda: (1, (2, (3,))),
    "deque": lambda: collections.deque([torch.ones(2), 1], maxlen=5),
    "ordered dict": lambda: collections.OrderedDict(z=1, a=torch.ones(2)),
    "counter": lambda: collections.Counter("aab"),
    "namedtuple": lambda: Point(torch.ones(2), None),
    "dataclass": lambda: Box(torch.arange(3), [np.arange(2)]),
    "frozen dataclass": lambda: FrozenBox(torch.arange(3)),
    "numpy number": lambda: np.float32(1.5),
    "numpy time": lambda: np.datetime64("2026-01-02"),
    "torch size": lambda: torch.Size([2, 3]),
    "torch dtype": lambda: torch.bfloat16,
    "torch device": lambda: torch.device("cpu"),
    "dict of all": lambda: {"t": [torch.ones(2), np.ones(3)], 5: ("x", None, b"y"), (1, 2): {"n": torch.zeros(0)}},
    "long list": lambda: list(range(10_000)),
    "many tensors": lambda: [torch.full((3,), i) for i in range(300)],
    "deep": lambda: [[[[[[[[[[torch.ones(1)]]]]]]]]]],
}

KINDS: dict[str, Callable[[], Any]] = {
    f"{family} {name}": make
    for family, makers in (("tensor", TENSORS), ("array", ARRAYS), ("object", OBJECTS))
    for name, make in makers.items()
}


def of_kind(kind: str) -> Any:
    return KINDS[kind]()
