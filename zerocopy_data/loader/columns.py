"""Stored columns made ready for the native core, shard by shard as they are needed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _native
from ..format.fields import Image
from ..format.reader import DatasetReader, Shard
from ..image.program import ImageProgram
from .native import RandomKey


class ShardColumn:
    """One column of a dataset in shards as the core reads it: by row number, without a Python object per row.

    Args:
        reader: The dataset.
        name: The column.
        verify: Whether stored checksums are checked at every read.
    """

    def __init__(self, reader: DatasetReader, name: str, verify: bool) -> None:
        self.reader = reader
        self.name = name
        field = reader.fields[name]
        height, width = 0, 0
        if isinstance(field, Image) and field.shape is not None:
            height, width = field.shape[:2]
        self._mapped: list[Shard] = []
        self._random = False
        self.native = _native.Column(reader.shard_starts.tolist(), raw_width=width, raw_height=height, verify=verify)

    def map(self, rows: npt.NDArray[np.int64]) -> None:
        """Maps the shards of these rows that are not mapped yet. Any number of threads may do so at once.

        Raises:
            ShardDamagedError: a shard is missing or not what was written.
            IndexError: a row does not exist.
        """
        for index in self.native.missing(rows):
            shard = self.reader.shard(index)
            self._mapped.append(shard)
            if self._random:
                shard.read_at_random(True)
            chunks = shard.chunks(self.name)
            sums = [c.data for c in shard.chunks(f"{self.name}.crc32c")]
            self.native.set_shard(
                index,
                [
                    (c.rows, c.data, c.offsets, c.large, c.itemsize if c.offsets is None else 0, s)
                    for c, s in zip(chunks, sums, strict=True)
                ],
            )

    def extents(self, rows: npt.NDArray[np.int64], gap: int) -> list[_native.Extents]:
        """See `read_ahead.Locatable`. Raises what `map` raises."""
        self.map(rows)
        return [self.native.extents(rows, gap)]

    def read_at_random(self, random: bool) -> None:
        """See `read_ahead.Locatable`. Concerns all who read these shards in this process."""
        self._random = random
        for shard in self._mapped:
            shard.read_at_random(random)

    def decode(
        self,
        program: ImageProgram,
        rows: npt.NDArray[np.int64],
        key: RandomKey,
        outs: list[memoryview],
        pooled: bool,
        cancel: _native.Cancel | None,
        places: npt.NDArray[np.int64] | None = None,
    ) -> list[tuple[int, int, str]]:
        """See `native.NativeColumn`. Raises what `map` raises."""
        self.map(rows)
        return self.native.decode(program.native, rows, *key, outs, pooled, cancel, places)

    def gather(
        self, rows: npt.NDArray[np.int64], item: int, out: memoryview, places: npt.NDArray[np.int64] | None = None
    ) -> list[tuple[int, int, str]]:
        """See `native.NativeColumn`. Raises what `map` raises."""
        self.map(rows)
        return self.native.gather(rows, item, out, places)

    def gather_encoded(
        self,
        program: ImageProgram,
        rows: npt.NDArray[np.int64],
        key: RandomKey,
        block: memoryview,
        offsets: npt.NDArray[np.int64],
        geometry: npt.NDArray[np.int32],
        cancel: _native.Cancel | None,
    ) -> tuple[int, list[tuple[int, int, str]]]:
        """See `native.NativeColumn`. Raises what `map` raises."""
        self.map(rows)
        return self.native.gather_encoded(program.native, rows, *key, block, offsets, geometry, cancel)
