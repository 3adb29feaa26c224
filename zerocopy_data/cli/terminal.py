"""Images in a terminal: by its own protocol where it has one, with half blocks where it has colours."""

import base64
import io
import os
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

from PIL import Image

Method = Literal["kitty", "iterm", "blocks"]

KITTY_CHUNK = 4096  # the most base64 characters of one escape, by the protocol


def method_of(environment: Mapping[str, str], stream: TextIO) -> Method | None:
    """How the terminal behind `stream` can show an image; None where it cannot or is no terminal."""
    if not stream.isatty():
        return None
    term = environment.get("TERM", "")
    program = environment.get("TERM_PROGRAM", "")
    # A multiplexer swallows the escapes of the terminal around it.
    inside_multiplexer = "TMUX" in environment or term.startswith(("screen", "tmux"))
    if not inside_multiplexer:
        if "kitty" in term or "KITTY_WINDOW_ID" in environment or program.lower() == "ghostty":
            return "kitty"
        if program in ("iTerm.app", "WezTerm", "mintty", "vscode"):
            return "iterm"
    if environment.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "blocks"
    return None


def draw(image: Image.Image, stream: TextIO = sys.stdout, environment: Mapping[str, str] = os.environ) -> bool:
    """Draws the image if the terminal can.

    Returns:
        Whether something was drawn.
    """
    method = method_of(environment, stream)
    if method is None:
        return False
    if method == "blocks":
        _draw_blocks(image, stream)
        return True
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    text = base64.b64encode(buffer.getvalue()).decode()
    stream.write(kitty_escape(text) if method == "kitty" else iterm_escape(text, len(buffer.getvalue())))
    stream.write("\n")
    stream.flush()
    return True


def kitty_escape(text: str) -> str:
    """The kitty graphics protocol: transmit and show a PNG, in chunks."""
    chunks = [text[start : start + KITTY_CHUNK] for start in range(0, len(text), KITTY_CHUNK)]
    parts = []
    for index, chunk in enumerate(chunks):
        more = int(index < len(chunks) - 1)
        control = f"a=T,f=100,m={more}" if index == 0 else f"m={more}"
        parts.append(f"\x1b_G{control};{chunk}\x1b\\")
    return "".join(parts)


def iterm_escape(text: str, size: int) -> str:
    """The inline images protocol of iTerm2, which several other terminals speak."""
    return f"\x1b]1337;File=inline=1;size={size};preserveAspectRatio=1:{text}\x07"


def _draw_blocks(image: Image.Image, stream: TextIO) -> None:
    """Two pixels to a character cell: the upper one is the colour of '▀', the lower one its background."""
    from rich.color import Color
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    console = Console(file=stream, force_terminal=True, color_system="truecolor")
    width = min(console.width, image.width)
    height = max(2, round(image.height * width / image.width) // 2 * 2)
    pixels = image.convert("RGB").resize((width, height), Image.Resampling.BOX).tobytes()

    def colour(x: int, y: int) -> Color:
        start = (y * width + x) * 3
        return Color.from_rgb(*pixels[start : start + 3])

    for y in range(0, height, 2):
        line = Text()
        for x in range(width):
            line.append("▀", Style(color=colour(x, y), bgcolor=colour(x, y + 1)))
        console.print(line, soft_wrap=True)
