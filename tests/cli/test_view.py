"""`zcd view` writes a contact sheet and overwrites nothing unasked."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from zerocopy_data.cli import app, terminal
from zerocopy_data.cli.sheet import contact_sheet
from zerocopy_data.cli.view import choose_rows, parse_rows
from zerocopy_data.errors import BadSampleError, ConfigError, OutputExistsError
from zerocopy_data.pack import pack

COLOURS = {"blue": (0, 0, 250), "green": (0, 250, 0), "red": (250, 0, 0)}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three classes of one colour each, four images in each."""
    for name, colour in COLOURS.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (48, 32), colour).save(tmp_path / "images" / name / f"{number}.jpg")
    return pack(tmp_path / "images", tmp_path / "packed.zcd", jobs=1).splits[0].path


def view(*arguments: object) -> "tuple[int, str, BaseException | None]":
    result = CliRunner().invoke(app, ["view", *map(str, arguments)])
    return result.exit_code, result.output, result.exception


def colours(path: Path, columns: int, rows: int) -> list[str]:
    """Which of the three colours each tile's middle has."""
    sheet = Image.open(path).convert("RGB")
    found = []
    for row in range(rows):
        for column in range(columns):
            middle = (
                int((column + 0.5) * sheet.width / columns),
                int((row + 0.45) * sheet.height / rows),
            )
            pixel = np.array(sheet.getpixel(middle), dtype=int)
            found.append(min(COLOURS, key=lambda name: int(abs(pixel - COLOURS[name]).sum())))
    return found


def test_named_rows_stand_on_the_sheet_in_their_order(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    status, output, _ = view(dataset, "--rows", "8,0:2,-1,4", "--columns", 5, "--tile", 64, "--out", out)
    assert status == 0, output
    assert output == f"{out}: 5 images\n"
    assert colours(out, 5, 1) == ["red", "blue", "blue", "red", "green"]


def test_rows_are_spread_over_the_dataset_when_none_are_named(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    assert view(dataset, "--count", 3, "--columns", 3, "--out", out)[0] == 0
    assert colours(out, 3, 1) == ["blue", "green", "red"]


def test_existing_file_is_overwritten_only_when_forced(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    out.write_text("mine")
    status, _, error = view(dataset, "--out", out)
    assert status == 1
    assert isinstance(error, OutputExistsError)
    assert out.read_text() == "mine"
    assert view(dataset, "--out", out, "--force")[0] == 0
    assert Image.open(out).format == "PNG"


def test_unreadable_image_leaves_its_tile_empty(dataset: Path, tmp_path: Path) -> None:
    shard = next(dataset.glob("*.arrow"))
    data = bytearray(shard.read_bytes())
    start = data.index((tmp_path / "images" / "blue" / "0.jpg").read_bytes())
    data[start + 200] ^= 0xFF
    shard.write_bytes(data)
    out = tmp_path / "sheet.png"
    status, output, error = view(dataset, "--rows", "0,1", "--columns", 2, "--out", out)
    assert status == 0, error
    assert output == f"{out}: 2 images, 1 of them unreadable\n"
    assert not isinstance(error, BadSampleError)


@pytest.mark.parametrize("rows", ["x", "12", "0,-13", "5:5", "", "1:2:3"])
def test_rows_that_are_not_there_are_refused_in_words(rows: str) -> None:
    with pytest.raises(ConfigError, match="--rows"):
        parse_rows(rows, 12)


def test_random_rows_follow_the_seed() -> None:
    first = choose_rows(1000, 24, None, 7)
    assert first == choose_rows(1000, 24, None, 7) == sorted(set(first))
    assert first != choose_rows(1000, 24, None, 8)
    assert choose_rows(5, 24, None, 7) == [0, 1, 2, 3, 4]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_each_terminal_gets_its_own_protocol_and_a_file_none() -> None:
    known = {"TERM": "xterm-256color"}
    assert terminal.method_of(known, Terminal()) is None
    assert terminal.method_of({**known, "COLORTERM": "truecolor"}, Terminal()) == "blocks"
    assert terminal.method_of({"TERM": "xterm-kitty"}, Terminal()) == "kitty"
    assert terminal.method_of({**known, "TERM_PROGRAM": "iTerm.app"}, Terminal()) == "iterm"
    assert terminal.method_of({"TERM": "xterm-kitty"}, io.StringIO()) is None
    in_tmux = {"TERM": "tmux-256color", "TERM_PROGRAM": "iTerm.app", "COLORTERM": "truecolor", "TMUX": "1"}
    assert terminal.method_of(in_tmux, Terminal()) == "blocks"


def test_kitty_gets_the_whole_png_in_chunks() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    stream = Terminal()
    assert terminal.draw(Image.fromarray(noise), stream, {"TERM": "xterm-kitty"})
    chunks = [part.split(";", 1) for part in stream.getvalue().strip().split("\x1b\\") if part]
    assert [control.rpartition("m=")[2] for control, _ in chunks] == ["1"] * (len(chunks) - 1) + ["0"]
    assert len(chunks) > 1
    assert max(len(text) for _, text in chunks) <= 4096
    png = base64.b64decode("".join(text for _, text in chunks))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), noise)


def test_half_blocks_put_two_pixels_in_a_cell() -> None:
    image = Image.new("RGB", (2, 2), (255, 0, 0))
    image.paste((0, 0, 255), (0, 1, 2, 2))
    stream = Terminal()
    assert terminal.draw(image, stream, {"COLORTERM": "truecolor"})
    assert stream.getvalue().count("▀") == 2
    assert "38;2;255;0;0;48;2;0;0;255" in stream.getvalue()


def test_sheet_takes_images_of_any_shape_and_long_captions() -> None:
    images = [np.zeros((1, 300, 3), np.uint8), np.zeros((300, 1, 3), np.uint8), None]
    sheet = contact_sheet(images, ["a" * 500, "", "käse"], columns=2, tile=40)
    assert sheet.size == (2 * 46 + 6, 2 * 64 + 6)
