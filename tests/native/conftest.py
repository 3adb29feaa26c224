"""The real photographs, where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[3] / "shared" / "imagenet-sample"


@pytest.fixture(scope="session")
def sample_files() -> list[Path]:
    files = sorted(SAMPLE.rglob("*.JPEG"))
    if not files:
        pytest.skip("../shared/imagenet-sample is not there")
    return files
