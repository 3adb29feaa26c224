"""Writes the fuzzer's seed inputs into a folder: every kind of JPEG behind every kind of program, the same each time.

python tools/fuzz/seeds.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests" / "native"))  # the JPEGs are those of the tests

from jpeg_cases import FROM_TOOLS, KINDS, cmyk, of_kind, with_exif_orientation, with_size, with_xmp

HEAD = 64  # bytes that choose the program; fuzz_image.cpp reads them
MODES = 14  # and takes the first modulo this
JPEG_MODES = range(7, 14)


def bodies() -> list[bytes]:
    kinds = [of_kind(kind, width, height) for kind in KINDS for width, height in [(45, 37), (101, 67)]]
    kinds += FROM_TOOLS.values()
    upright = of_kind("420", 33, 20)
    for orientation in range(1, 9):
        kinds.append(with_exif_orientation(upright, orientation, big_endian=orientation % 2 == 0))
    kinds.append(with_xmp(upright, '<x tiff:Orientation="6"/>'))
    kinds += [cmyk(), cmyk(ycck=True), with_size(upright, 65500, 65500), upright[:200]]
    return kinds


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number, body in enumerate(bodies()):
        for mode in [int(rng.choice(JPEG_MODES)), int(rng.integers(MODES))]:
            head = bytearray(rng.bytes(HEAD))
            head[0] = mode
            (folder / f"seed-{number:03}-{mode:02}").write_bytes(bytes(head) + body)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
