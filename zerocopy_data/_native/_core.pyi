"""What the compiled core offers to Python. Every function checks every length it is given."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

class ImageError(ValueError):
    """The bytes are no image that can be decoded: damaged, truncated, or beyond the pixel limit."""

class UnsupportedImage(ImageError):  # noqa: N818
    """The bytes may be a sound image, but not one that libjpeg-turbo takes (PNG, CMYK, …): ask Pillow."""

class ImageMisfit(ImageError):  # noqa: N818
    """A sound image of a size that the operations can't work on."""

DEFAULT_PIXEL_LIMIT: int

def jpeg_library() -> str:
    """Name and version of the JPEG library this module was built with, as 'libjpeg-turbo 2.1.5'."""

def simd() -> str:
    """Instruction set that the kernels of this process use: 'avx2' or 'scalar'."""

def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, continuing from `value`. Releases the GIL."""

def crc32c_rows(data: Buffer, row_bytes: int) -> npt.NDArray[np.uint32]:
    """CRC-32C of each of the rows of `row_bytes` bytes that `data` consists of. Releases the GIL."""

class JpegInfo:
    width: int  # after EXIF rotation
    height: int
    stored_width: int  # as the file has it
    stored_height: int
    orientation: int  # EXIF, 1 to 8
    components: int  # 1 gray, 3 colour
    progressive: bool

def jpeg_probe(data: Buffer, pixel_limit: int = ..., check_end: bool = True) -> JpegInfo:
    """Reads a JPEG's header without decoding it. With `check_end` a file that lacks its end marker is decoded
    to its last line to see whether it is truncated (ImageError)."""

def jpeg_decode(data: Buffer, orient: bool = True, pixel_limit: int = ...) -> npt.NDArray[np.uint8]:
    """Decodes to uint8 [height, width, 3] (RGB)."""

def jpeg_region(
    data: Buffer, x: int, y: int, width: int, height: int, plain: bool = False
) -> tuple[npt.NDArray[np.uint8], bool]:
    """For tests: the part of jpeg_decode's result that is meant (ImageError if there is no such part), and whether our
    own Huffman decoder read it. `plain` leaves that to libjpeg."""

def jpeg_encode(image: npt.NDArray[np.uint8], quality: int = 90) -> bytes:
    """Encodes uint8 [height, width, 3] as a baseline 4:2:0 JPEG."""

def jpeg_transcode(
    data: Buffer, max_side: int, quality: int, orient: bool = True, pixel_limit: int = ...
) -> tuple[bytes, int, int]:
    """Decodes, shrinks so that the longer side is at most `max_side` (Pillow's bilinear), encodes: one call
    without the GIL. Returns the bytes, width and height. An image that is no larger is re-encoded at its own size."""

def resize(
    image: npt.NDArray[np.uint8], width: int, height: int, interpolation: str = "bilinear"
) -> npt.NDArray[np.uint8]:
    """Pillow's Image.resize of uint8 [h, w, 3], equal in every byte. 'nearest', 'bilinear', 'bicubic'."""

class Op:
    """One declared operation on images; sizes in pixels."""

    @staticmethod
    def random_resized_crop(
        height: int,
        width: int,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        interpolation: str,
    ) -> Op: ...
    @staticmethod
    def random_crop(
        height: int,
        width: int,
        padding: tuple[int, int, int, int],
        pad_if_needed: bool,
        fill: tuple[int, int, int],
    ) -> Op:
        """`padding` is left, top, right, bottom."""
    @staticmethod
    def center_crop(height: int, width: int) -> Op: ...
    @staticmethod
    def resize(height: int, width: int | None, max_size: int, interpolation: str) -> Op:
        """`width` None resizes the shorter side to `height`; `max_size` 0 is no limit."""
    @staticmethod
    def horizontal_flip(p: float) -> Op: ...

class View:
    """One output of a sample. `table` is uint32 [3, 256], the bits of the value that each byte becomes, for float
    dtypes. `height` and `width` are the size that every sample comes out with, 0 where it varies."""

    def __init__(
        self,
        ops: Sequence[Op],
        dtype: str,
        layout: str,
        table: npt.NDArray[np.uint32] | None,
        height: int,
        width: int,
    ) -> None: ...

class Program:
    """Views that are made from one decode. `may_go_down_first` follows Pillow 13's order of passes."""

    def __init__(
        self,
        views: Sequence[View],
        orient: bool = True,
        pixel_limit: int = ...,
        may_go_down_first: bool = True,
    ) -> None: ...
    def steps(
        self, width: int, height: int, seed: int, epoch: int, sample: int
    ) -> list[list[tuple[str, int, int, int, int]]]:
        """What a sample of that size undergoes, a view each: ('crop' | 'resize' | 'flip', x, y, width, height)."""
    def run_encoded(
        self, data: Buffer, seed: int, epoch: int, sample: int
    ) -> list[tuple[npt.NDArray[np.uint8], int, int]]:
        """One JPEG: (bytes of the result, height, width) a view. Raises ImageError, UnsupportedImage."""
    def run_pixels(
        self, image: npt.NDArray[np.uint8], seed: int, epoch: int, sample: int
    ) -> list[tuple[npt.NDArray[np.uint8], int, int]]:
        """The same from uint8 [height, width, 3]."""
    def place_pixels(
        self,
        image: npt.NDArray[np.uint8],
        seed: int,
        epoch: int,
        sample: int,
        outs: Sequence[Buffer],
        index: int,
    ) -> None:
        """Makes one sample from pixels into place `index` of a batch."""

class Cancel:
    def set(self) -> None:
        """Makes the batches that were given this object end early."""

class Column:
    """A stored column over all shards, which come in as they are mapped. Keeps the buffers it is given alive."""

    def __init__(
        self, shard_starts: Sequence[int], raw_width: int = 0, raw_height: int = 0, verify: bool = True
    ) -> None: ...
    def set_shard(
        self,
        shard: int,
        chunks: Sequence[tuple[int, Buffer, Buffer | None, bool, int, Buffer | None]],
    ) -> None:
        """Chunks are (rows, data, offsets or None, offsets are 64-bit, bytes a row or 0, checksums or None).
        Raises ValueError when they are too short or don't add up to the shard's rows."""
    def missing(self, rows: npt.NDArray[np.int64]) -> list[int]:
        """Shards of these rows that have not been given yet. Raises IndexError for a row that doesn't exist."""
    def decode(
        self,
        program: Program,
        rows: npt.NDArray[np.int64],
        seed: int,
        epoch: int,
        keys: npt.NDArray[np.int64] | None,
        outs: Sequence[Buffer],
        pooled: bool = True,
        cancel: Cancel | None = None,
        places: npt.NDArray[np.int64] | None = None,
    ) -> list[tuple[int, int, str]]:
        """Decodes rows into their places (in order, where `places` says no others) without the GIL. `keys` are the
        samples of the random parameters, None for the rows. Returns the faults: (turn in `rows`, kind, message);
        kinds are 1 ask Pillow, 2 damaged, 3 checksum, 4 cancelled, 5 misfit, 6 no descriptors or memory left."""
    def gather(
        self,
        rows: npt.NDArray[np.int64],
        item: int,
        out: Buffer,
        places: npt.NDArray[np.int64] | None = None,
    ) -> list[tuple[int, int, str]]:
        """Copies values of `item` bytes each. Returns faults as `decode` does: another size, or a wrong checksum."""
    def extents(self, rows: npt.NDArray[np.int64], gap: int) -> Extents:
        """The pages of these rows' values, joined where no more than `gap` bytes of the column lie between them. Rows
        of shards that have not been given have none. Raises IndexError for a row that doesn't exist."""
    def gather_encoded(
        self,
        program: Program,
        rows: npt.NDArray[np.int64],
        seed: int,
        epoch: int,
        keys: npt.NDArray[np.int64] | None,
        block: Buffer,
        offsets: npt.NDArray[np.int64],
        geometry: npt.NDArray[np.int32],
        cancel: Cancel | None = None,
    ) -> tuple[int, list[tuple[int, int, str]]]:
        """Copies encoded images into `block`, one after another, and draws their parameters, without the GIL.

        `offsets` is int64 [rows + 1]. `geometry` is int32 [rows, views, 9]: y, x, height, width of the cut; height and
        width that it is resized to; top and left of the view's fixed size in that; whether it is mirrored. A row with
        a fault takes no bytes; kind 1 asks for `decode`. Returns the bytes needed and the faults: with a smaller block
        the call is to be made again."""

class FileColumn:
    """A column whose values are whole files, read when they are decoded.

    The path of row r is prefix + paths[offsets[i]:offsets[i + 1]], where i is r or, with `rows` (rising), the place of
    r in them. Keeps the buffers it is given alive.
    """

    def __init__(
        self,
        prefix: bytes,
        paths: Buffer,
        offsets: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64] | None = None,
    ) -> None: ...
    def decode(
        self,
        program: Program,
        rows: npt.NDArray[np.int64],
        seed: int,
        epoch: int,
        keys: npt.NDArray[np.int64] | None,
        outs: Sequence[Buffer],
        pooled: bool = True,
        cancel: Cancel | None = None,
        places: npt.NDArray[np.int64] | None = None,
    ) -> list[tuple[int, int, str]]:
        """As Column.decode. Regular files only, of at most 1 GiB."""
    def gather_encoded(
        self,
        program: Program,
        rows: npt.NDArray[np.int64],
        seed: int,
        epoch: int,
        keys: npt.NDArray[np.int64] | None,
        block: Buffer,
        offsets: npt.NDArray[np.int64],
        geometry: npt.NDArray[np.int32],
        cancel: Cancel | None = None,
    ) -> tuple[int, list[tuple[int, int, str]]]:
        """As Column.gather_encoded."""
    def path(self, row: int) -> bytes: ...
    def read(self, row: int) -> bytes:
        """The file's bytes. Raises ImageError when it can't be read or is no file, OSError when the process lacks
        descriptors or memory."""

class Threads:
    """Decoding threads reserved by one user of the process's pool, until released or dropped."""

    def __init__(self, count: int) -> None: ...
    def release(self) -> None: ...

def pool_threads() -> int:
    """Decoding threads that exist now."""

def bench_decode(blobs: Sequence[Buffer], program: Program, threads: int, rounds: int = 1) -> float:
    """Images per second of a bare loop of decode and resize over JPEGs in memory: the limit of any loader."""

class Permutation:
    """A keyed permutation of 0 … n-1 that knows the value at any position without those before it.

    Args:
        n: From 1 to 2**62.
        seed: 64 bits.
        epoch: 64 bits.

    Raises:
        ValueError: n is none of these.
    """

    def __init__(self, n: int, seed: int, epoch: int) -> None: ...
    def values(self, positions: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
        """Writes the values at these positions. Both are contiguous.

        Raises:
            IndexError: a position is outside; `out` is written up to there.
            ValueError: the buffers differ in length.
        """

class Extents:
    """Pages of mapped files, rising, none of them twice. Keeps the column that they are of alive."""

    @property
    def bytes(self) -> int: ...
    def pieces(self) -> list[tuple[int, int]]:
        """(Address, bytes) of each run of pages."""
    def ask(self, room: int) -> int:
        """Asks the kernel for the first of these pages, no more than `room` bytes, without the GIL. Does not wait
        until they are there. Returns the bytes asked for."""

class TokenStream:
    """Tokens in any number of runs, read as one stream. Any thread may read it.

    Args:
        dtype: 'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32' or 'int64'.
        parts: For each run its bytes; the int32 offsets of the documents in it, in tokens, or None: then it is no
            documents; and the CRC-32C of each document, uint32, or None: then they are not checked.

    Raises:
        ValueError: offsets lead outside their bytes, or something is missing.
    """

    def __init__(self, dtype: str, parts: Sequence[tuple[Buffer, Buffer | None, Buffer | None]]) -> None: ...
    def __len__(self) -> int:
        """Tokens of all runs."""

    def extents(self, starts: npt.NDArray[np.int64], reach: int, gap: int) -> Extents:
        """The pages of windows of `reach` tokens: see `Column.extents`. Raises IndexError for a window that leaves the
        stream."""
    def gather(
        self,
        starts: npt.NDArray[np.int64],
        length: int,
        inputs: Buffer,
        targets: Buffer | None = None,
        places: npt.NDArray[np.int64] | None = None,
    ) -> list[tuple[int, int, str]]:
        """Writes windows as int64, in order or to their places: `length` tokens from each of `starts` on, and to
        `targets` as many from the next token on. Releases the GIL.

        Returns:
            (window, kind, text) of those not written, as a document that they touch is not what its checksum says. A
            document's checksum is compared at the first touch.

        Raises:
            IndexError: a window leaves the stream.
            ValueError: the room is too small or not aligned.
        """

class Mapping:
    """A shared, writable map of a file, unmapped when it and its leases are gone. Keeps no descriptor."""

    def __init__(self, descriptor: int, size: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    def punch(self) -> None:
        """Gives the pages back to the system: they read as zeros from now on, in every process."""

class Lease:
    """A writable buffer over a whole mapping; `on_end` is called when nothing refers to it any more."""

    def __init__(self, mapping: Mapping, on_end: Callable[[], object]) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
