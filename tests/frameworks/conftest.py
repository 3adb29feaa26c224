"""The data that the tests with real frameworks train on."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_runs import write_photos


@pytest.fixture(scope="session")
def photos_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("frameworks") / "photos")
