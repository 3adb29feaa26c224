"""Odd names, odd labels and odd places for the output: in words, with the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from zerocopy_data.cli import app
from zerocopy_data.cli.pack import _say_how_to_go_on
from zerocopy_data.cli.sheet import contact_sheet
from zerocopy_data.cli.view import _class
from zerocopy_data.format.manifest import MANIFEST_NAME
from zerocopy_data.pack import pack

ZCD = f"{sys.executable} -m zerocopy_data.cli"
ROOT = Path(__file__).parents[2]


def shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("zcd ", f"{ZCD} ")],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def images(root: Path, classes: tuple[str, ...], each: int = 2) -> Path:
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for index in range(each + number):
            Image.new("RGB", (24, 16), (90, number, index)).save(root / name / f"{index}.jpg")
    return root


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A dataset whose path and class names are rich markup, with a line break."""
    source = images(tmp_path / "s", ("[", "[bold]", "two\nlines"))
    (source / "[bold]" / "[red].jpg").write_bytes(b"")
    # A folder named '[' that holds one named ']': the path reads '[/]'.
    return pack(source, tmp_path / "[" / "]", jobs=1, on_error="skip").path


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("command", ["info", "info --json", "verify", "view -n 9 --force"])
def test_markup_in_names_is_only_text(odd: Path, tmp_path: Path, command: str, encoding: str) -> None:
    result = shell(f"zcd {command} '[/]'", tmp_path, PYTHONIOENCODING=encoding)
    assert (result.returncode, result.stderr) == (0, "")
    if command == "info":
        assert str(odd) in result.stdout
        assert "[bold]/[red].jpg" in result.stdout
        assert "two lines" in result.stdout


def test_markup_in_a_terminals_progress_bar_is_only_text(odd: Path, tmp_path: Path) -> None:
    result = shell(f"script -qec \"{ZCD} verify '[/]'\" /dev/null", tmp_path, TERM="xterm")
    if result.returncode == 127:
        pytest.skip("there is no `script` here")
    assert "are sound" in result.stdout
    assert "Traceback" not in result.stdout


def test_pack_takes_markup_and_odd_encodings(tmp_path: Path) -> None:
    images(tmp_path / "[bold]", ("ä", "[/]b".replace("/", "")))
    result = shell("zcd pack '[bold]' '[red]x'", tmp_path, PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert "[bold]" not in result.stderr
    assert "[red]x" in result.stdout


@pytest.mark.parametrize(("names", "label", "shown"), [(("a",), 0, "a"), (("a",), 1, "1"), (("a",), -1, "-1")])
def test_a_label_without_a_name_is_shown_as_a_number(names: tuple[str, ...], label: int, shown: str) -> None:
    assert _class(names, label) == shown


@pytest.mark.parametrize("caption", ["two\nlines", "\udcff", "", "\x00", "x" * 500])
def test_any_caption_can_be_drawn(caption: str) -> None:
    contact_sheet([None], [caption])


def test_a_sheet_for_a_folder_that_is_not_there(odd: Path, tmp_path: Path) -> None:
    for out, words in (("nodir/x.png", "there is no folder"), (str(tmp_path), "exists")):
        result = CliRunner().invoke(app, ["view", str(odd), "--out", out])
        assert result.exit_code == 1
        assert words in str(result.exception)
    (tmp_path / "s.png").mkdir()
    result = CliRunner().invoke(app, ["view", str(odd), "--out", str(tmp_path / "s.png"), "--force"])
    assert "cannot be written" in str(result.exception)


def test_markup_in_the_path_that_doctor_is_asked_about(odd: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--path", str(odd)])
    assert result.exception is None


@pytest.mark.parametrize(
    ("command", "redirects"),
    [
        ("info D", ("| true", ">&-")),
        ("verify D", ("| true",)),
        ("--help", ("| true", "<&- >&- 2>&-")),
        ("pack s out", ("| true", ">&- 2>&-", "<&- >&- 2>&-")),
        ("view D --force", (">&-",)),
    ],
)
def test_a_reader_that_has_gone_is_no_error(tmp_path: Path, command: str, redirects: tuple[str, ...]) -> None:
    images(tmp_path / "s", ("a", "b"))
    pack(tmp_path / "s", tmp_path / "D", jobs=1)
    for redirect in redirects:
        result = shell(f"rm -rf out; zcd {command} {redirect}", tmp_path)
        assert (result.returncode, result.stderr) == (0, ""), redirect
        if command.startswith("pack"):
            assert (tmp_path / "out" / MANIFEST_NAME).exists()


@pytest.mark.parametrize("command", ["info D", "verify D", "--help"])
def test_a_full_disk_under_stdout_is_one_line(tmp_path: Path, command: str) -> None:
    pack(images(tmp_path / "s", ("a", "b")), tmp_path / "D", jobs=1)
    result = shell(f"zcd {command} > /dev/full", tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["error: the output could not be written: No space left on device."]


def test_ignored_files_are_told(tmp_path: Path) -> None:
    source = images(tmp_path / "s", ("a", "b"))
    for number in range(8):
        (source / "a" / f"{number}.gif").write_bytes(b"GIF89a")
    (source / "b" / "README").write_text("x")
    text = shell("zcd pack s", tmp_path).stdout
    assert "9 files ignored: without extension 1, .gif 8" in text


@pytest.mark.parametrize("old", [False, True])
def test_ctrl_c_says_what_has_become_of_out(tmp_path: Path, old: bool) -> None:
    folder = tmp_path / "s" / "a"
    folder.mkdir(parents=True)
    Image.new("RGB", (2500, 2500)).save(folder / "0.jpg")
    for copy in range(1, 600):
        os.link(folder / "0.jpg", folder / f"{copy}.jpg")
    if old:
        pack(images(tmp_path / "t", ("a",)), tmp_path / "s.zcd", jobs=1)
    arguments = ["pack", str(tmp_path / "s"), "--raw", "300", "--shard-size", "5MB", "--jobs", "2", "--overwrite"]
    process = subprocess.Popen([*ZCD.split(), *arguments], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    # Where an old dataset is replaced, the first shard that is begun will do; else one must be whole.
    while not list(tmp_path.glob("*s.zcd*/.zcd-shard*" if old else "s.zcd/shard-*")):
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(2)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    if old:
        assert f"{tmp_path}/s.zcd is as it was before." in stderr
        assert sorted(path.name for path in (tmp_path / "s.zcd").iterdir()) == ["dataset.json", "shard-00000.arrow"]
    else:
        assert f"{tmp_path}/s.zcd is unfinished. Pack again with --overwrite" in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == (["s", "s.zcd", "t"] if old else ["s", "s.zcd"])


def test_ctrl_c_before_the_first_shard_says_that_nothing_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), _say_how_to_go_on(tmp_path / "s", tmp_path / "out"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == f"nothing was written to {tmp_path / 'out'}.\n"


def test_too_little_memory_is_said_in_words() -> None:
    code = "import zerocopy_data.cli as cli\ndef fail(): raise MemoryError\ncli.app = fail\ncli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is not enough memory")
