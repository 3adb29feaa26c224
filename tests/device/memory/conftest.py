"""For tests that need the simulated device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulated_device import Machine, simulated, why_not


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A device of 1 MiB; nothing a test did to it may have been a race or torn."""
    if why_not() is not None:
        pytest.skip(str(why_not()))
    made = Machine(memory=1 << 20, h2d=1e7, d2h=1e7)
    with simulated(made):
        yield made
    assert made.faults == []
