"""A contact sheet: many images in a grid, each with a caption under it."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

BACKGROUND = (24, 24, 27)
CAPTION_COLOUR = (220, 220, 225)
MISSING_COLOUR = (70, 30, 30)
GAP = 6
CAPTION_SIZE = 12

Pixels: TypeAlias = npt.NDArray[np.uint8]


def contact_sheet(
    images: Sequence[Pixels | None], captions: Sequence[str], columns: int = 6, tile: int = 160
) -> Image.Image:
    """Draws images into a grid.

    Args:
        images: uint8 [height, width, 3] each, of any size; None draws an empty tile.
        captions: One per image; what does not fit under a tile is cut.
        columns: Tiles in a row.
        tile: The longer side of an image on the sheet, in pixels.
    """
    columns = max(1, min(columns, len(images)))
    rows = math.ceil(len(images) / columns)
    font = _font()
    step_x = tile + GAP
    step_y = tile + GAP + CAPTION_SIZE + 6
    sheet = Image.new("RGB", (columns * step_x + GAP, rows * step_y + GAP), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for index, (pixels, caption) in enumerate(zip(images, captions, strict=True)):
        left = GAP + index % columns * step_x
        top = GAP + index // columns * step_y
        if pixels is None:
            draw.rectangle((left, top, left + tile - 1, top + tile - 1), MISSING_COLOUR)
        else:
            small = _fit(Image.fromarray(pixels), tile)
            sheet.paste(small, (left + (tile - small.width) // 2, top + (tile - small.height) // 2))
        draw.text((left, top + tile + 2), _shorten(caption, font, tile), CAPTION_COLOUR, font)
    return sheet


def _font() -> Any:
    """DejaVu Sans where it is installed, for names in any script; else Pillow's own font (Latin only)."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", CAPTION_SIZE)
    except OSError:
        return ImageFont.load_default(CAPTION_SIZE)


def _fit(image: Image.Image, tile: int) -> Image.Image:
    """The image with its longer side at `tile`."""
    scale = tile / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.BICUBIC)


def _shorten(text: str, font: Any, width: int) -> str:
    """As much of the text as is `width` pixels wide, on one line."""
    text = " ".join(text.encode(errors="replace").decode().splitlines())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
