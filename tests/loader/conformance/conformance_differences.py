"""Where our class is meant to differ from torch's: one table, with the reason for each."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch.utils.data

HANGS = "hangs"


class Difference(NamedTuple):
    """What a test expects of each class, and why they differ."""

    torch: Any
    ours: Any
    why: str


DIFFERENCES = {
    "non-leaf gradient": Difference(
        HANGS, RuntimeError, "torch pickles in a thread of the worker: its refusal reaches nobody, the consumer waits"
    ),
    "unpicklable batch": Difference(HANGS, Exception, "as with a non-leaf gradient: the error must reach the consumer"),
    "conjugate": Difference("bit lost", "kept", "torch ships the storage without the conjugate bit: silently wrong"),
    "negative": Difference("bit lost", "kept", "torch ships the storage without the negative bit: silently wrong"),
    "stacked conjugates": Difference(
        RuntimeError,
        None,
        "torch's stacking into shared memory does not know the conjugate bit; it fails in workers only",
    ),
    "quantised": Difference(
        "quantiser lost", "kept", "torch ships the integers without scale and zero point: any use is an internal assert"
    ),
    "stuck workers": Difference(
        HANGS, 8.0, "torch waits five seconds for each stuck worker in turn; ours share one deadline (seconds)"
    ),
    "killed while sending": Difference(
        (RuntimeError, OSError, EOFError),
        RuntimeError,
        "torch may meet the broken connection before it knows of the death: the error then does not name the worker",
    ),
    "slice": Difference(
        1000, 12, "torch ships a whole storage; ours what lies before the end of the last tensor over it"
    ),
    "is_shared": Difference(
        (True,), (True, False), "memory of a slot is shared all the same, but torch only knows its own shm files"
    ),
}


def expected(loader_class: Any, clause: str) -> Any:
    """What the class should do; skips where torch's class would hang."""
    difference = DIFFERENCES[clause]
    value = difference.torch if loader_class is torch.utils.data.DataLoader else difference.ours
    if value is HANGS:
        pytest.skip(f"torch's class hangs: {difference.why}")
    return value
