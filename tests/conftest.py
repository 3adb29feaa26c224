"""For all tests."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

# Started in the background by a script, a shell ignores Ctrl-C for it, and so would every process made here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What several folders' tests use.
sys.path.insert(0, str(Path(__file__).parent / "support"))
pytest.register_assert_rewrite("device_cases", "same_batches")
