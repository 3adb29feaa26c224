"""The image folder that the demo makes."""

import hashlib
import subprocess
import sys
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).parents[2] / "tools" / "make_photos.py"
ROUND = 24  # two images of each class


def make(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), str(folder), "--images", str(ROUND), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(folder.rglob("*.JPEG"))
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_same_seed_gives_the_same_files_whatever_the_number_of_processes(tmp_path: Path) -> None:
    assert make(tmp_path / "one", "--jobs", "1").returncode == 0
    assert make(tmp_path / "two", "--jobs", "2").returncode == 0
    assert make(tmp_path / "other", "--seed", "1").returncode == 0
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert not set(digests(tmp_path / "one").values()) & set(digests(tmp_path / "other").values())


def test_images_have_the_sizes_and_bytes_of_imagenet(tmp_path: Path) -> None:
    made = make(tmp_path / "photos")
    assert made.returncode == 0, made.stderr
    files = sorted((tmp_path / "photos").rglob("*.JPEG"))
    assert len(files) == ROUND
    assert len({file.parent.name for file in files}) == 12
    bits = []
    for file in files:
        with Image.open(file) as image:
            image.load()
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert min(image.size) >= 180
            assert max(image.size) <= 800
            bits.append(8 * file.stat().st_size / (image.width * image.height))
    # ImageNet's files have 4.4 bits per pixel in the mean (110 KB, 198 kpixel).
    assert 3.5 < sum(bits) / len(bits) < 5.5


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = make(tmp_path)
    assert result.returncode == 1
    assert "is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
