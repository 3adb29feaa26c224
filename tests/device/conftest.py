from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulated_device import Machine, simulated, why_not


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A simulated computer with two devices; nothing that a real device would have punished may happen on it."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with simulated(Machine(devices=2, h2d=1e9, latency=1e-5)) as made:
        yield made
    assert made.faults == []
