"""`zcd pack`, `zcd info` and `zcd verify` as a user runs them."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ZCD = [sys.executable, "-m", "zerocopy_data.cli"]


def zcd(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ZCD, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, cwd=cwd
    )


def jpeg(number: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (12, 18, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number, name in enumerate(["ant/0", "ant/1", "ant/2", "bee/0"]):
        path = tmp_path / "photos" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    return tmp_path / "photos"


def test_pack_says_what_it_made_and_how_to_open_it(photos: Path, tmp_path: Path) -> None:
    result = zcd("pack", "photos", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "4 images, 2 classes, 1 shard" in result.stdout
    assert "images/s" in result.stdout
    assert f'zerocopy_data.open("{tmp_path}/photos.zcd")' in result.stdout
    assert result.stderr == "", "short packs print no progress outside a terminal"


def test_pack_takes_every_option(photos: Path, tmp_path: Path) -> None:
    options = "--jobs 2 --shard-size 1kB --shuffle 3 --limit 3 --on-error skip --max-side 10 --quality 80"
    assert zcd("pack", photos, tmp_path / "out", *options.split()).returncode == 0
    assert zcd("pack", photos, tmp_path / "out", "--raw", 8).returncode == 1
    assert zcd("pack", photos, tmp_path / "out", "--raw", 8, "--overwrite").returncode == 0
    shown = json.loads(zcd("info", tmp_path / "out", "--json").stdout)
    assert shown["fields"]["image"] == {"kind": "image", "encoding": "raw", "shape": [8, 8, 3]}


def test_skipped_files_are_listed(photos: Path, tmp_path: Path) -> None:
    (photos / "bee" / "broken.jpg").write_bytes(b"")
    result = zcd("pack", photos, tmp_path / "out")
    assert result.returncode == 1
    assert "bee/broken.jpg" in result.stderr
    assert "--on-error skip" in result.stderr
    result = zcd("pack", photos, tmp_path / "out", "--on-error", "skip", "--overwrite")
    assert result.returncode == 0
    assert "skipped 1" in result.stdout
    assert "bee/broken.jpg: the file is empty" in result.stdout
    assert "broken.jpg" in zcd("info", tmp_path / "out").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack", "nowhere"], "does not exist"),
        (["pack", "photos", "photos/out"], "must not lie in each other"),
        (["pack", "photos", "--raw", "8", "--max-side", "9"], "exclude each other"),
        (["pack", "photos", "--shard-size", "huge"], "no size"),
        (["info", "photos"], "no dataset.json"),
        (["verify", "nowhere"], "does not exist"),
    ],
)
def test_errors_are_plain_words_without_a_traceback(
    photos: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = zcd(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in zcd("--traceback", *arguments, cwd=tmp_path).stderr


def test_info_shows_rows_classes_and_balance(photos: Path, tmp_path: Path) -> None:
    zcd("pack", photos, tmp_path / "out")
    text = zcd("info", tmp_path / "out").stdout
    assert "4 rows in 1 shard," in text
    assert "2 classes" in text
    (ant,) = [line for line in text.splitlines() if line.strip().startswith("ant")]
    (bee,) = [line for line in text.splitlines() if line.strip().startswith("bee")]
    assert ant.split()[-1] == "3"
    assert bee.split()[-1] == "1"
    assert ant.count("█") == 3 * bee.count("█")
    shown = json.loads(zcd("info", tmp_path / "out", "--json").stdout)
    assert shown["class_balance"] == {"label": {"ant": 3, "bee": 1}}
    assert (shown["rows"], len(shown["shards"])) == (4, 1)


def test_info_and_verify_take_a_folder_of_splits(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    photos.rename(tmp_path / "s" / "train")
    assert zcd("pack", tmp_path / "s", tmp_path / "out").returncode == 0
    assert "out/train" in zcd("info", tmp_path / "out").stdout
    (shown,) = json.loads(zcd("info", tmp_path / "out", "--json").stdout)
    assert shown["rows"] == 4
    assert "sound" in zcd("verify", tmp_path / "out").stdout


def test_verify_passes_a_sound_dataset_and_names_bad_rows(photos: Path, tmp_path: Path) -> None:
    zcd("pack", photos, tmp_path / "out")
    for options in ([], ["--quick"], ["--jobs", "1"]):
        result = zcd("verify", tmp_path / "out", *options)
        assert (result.returncode, "are sound" in result.stdout) == (0, True)
    shard = tmp_path / "out" / "shard-00000.arrow"
    data = bytearray(shard.read_bytes())
    data[data.index(jpeg(2)) + 200] ^= 4
    shard.write_bytes(data)
    result = zcd("verify", tmp_path / "out")
    assert result.returncode == 1
    assert "shard-00000.arrow, row 2, key 'ant/2.jpg'" in result.stdout
    assert "2 problems" in result.stderr
    assert zcd("verify", tmp_path / "out", "--quick").returncode == 1
    shard.write_bytes(data[:-10])
    result = zcd("verify", tmp_path / "out")
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_pack_cleans_up_and_prints_no_traceback(tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "s" / "a"
    folder.mkdir(parents=True)
    file = io.BytesIO()
    Image.new("RGB", (2500, 2500)).save(file, "JPEG")
    (folder / "0.jpg").write_bytes(file.getvalue())
    for copy in range(1, 600):
        os.link(folder / "0.jpg", folder / f"{copy}.jpg")
    command = [*ZCD, "pack", str(tmp_path / "s"), "--raw", "300", "--shard-size", "5MB", "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    while not list(tmp_path.glob("s.zcd/.zcd-shard*")):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in stderr
    assert stdout == ""
    assert not list((tmp_path / "s.zcd").glob("*.tmp"))


def test_a_terminal_gets_a_progress_bar(photos: Path, tmp_path: Path) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*ZCD, "pack", str(photos), str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(child)
    shown = b""
    while select.select([parent], [], [], 30)[0]:
        try:
            data = os.read(parent, 4096)
        except OSError:  # how Linux reports that the other side has closed
            break
        if not data:
            break
        shown += data
    os.close(parent)
    assert process.wait() == 0
    process.communicate()
    assert b"packing" in shown
    assert b"4/4 images" in shown
    assert b"ETA" in shown


def test_help_starts_fast_and_without_heavy_imports() -> None:
    code = (
        "import sys\nsys.argv = ['zcd', '--help']\nfrom zerocopy_data.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'pyarrow', 'numpy', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    times = []
    for _ in range(3):
        before = os.times()
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        after = os.times()
        assert result.returncode == 0, result.stderr
        # CPU time: it is what we answer for when the machine is busy with other things.
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        times.append(spent)
    assert min(times) < 0.5
    for command in ("pack", "info", "verify"):
        assert command in result.stdout


def test_every_commands_help_shows_examples() -> None:
    for command in ("pack", "info", "verify"):
        text = zcd(command, "--help").stdout
        assert "Examples:" in text
        assert f"zcd {command} " in text


def test_the_version_is_that_of_the_package() -> None:
    from importlib import metadata

    result = zcd("--version")
    assert result.returncode == 0
    assert result.stdout.split()[0] == "zcd"
    try:
        assert metadata.version("zerocopy-data") in result.stdout
    except metadata.PackageNotFoundError:
        assert "not installed" in result.stdout
