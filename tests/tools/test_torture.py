"""A minute of what `tools/torture.py` does for ten by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[2] / "tools" / "torture.py"


@pytest.mark.timeout(300)
def test_killed_workers_and_rude_consumers_leave_nothing_wrong() -> None:
    command = [sys.executable, TORTURE, "--seconds", "60", "--kills", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "holds: no hang, no leak, no wrong byte" in done.stdout
