"""Standard streams that no command has to think about: closed, gone, full, or unable to show a character."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from ..errors import ZcdError


class StdoutError(ZcdError):
    """Standard output takes no more, and not because its reader has gone."""


def prepare() -> None:
    """Makes stdout swallow what nobody reads and replace what its encoding lacks; opens closed streams."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes this number: the lowest that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for the rest of the process
    previous = sys.stdout
    if previous is None or previous.fileno() == 1:
        encoding = "utf-8" if previous is None else previous.encoding
        terminal = os.isatty(1)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Stdout(1, "w", closefd=False)), encoding, "replace", line_buffering=terminal
        )


class _Stdout(io.FileIO):
    """Descriptor 1. After the first failure it takes everything and writes nothing."""

    _failed = False

    def write(self, data: Any) -> int:
        if self._failed:
            return len(memoryview(data).cast("B"))
        try:
            return super().write(data) or 0
        except OSError as error:
            self._failed = True
            if error.errno != errno.EPIPE:
                raise StdoutError(f"the output could not be written: {error.strerror or error}.") from error
            return len(memoryview(data).cast("B"))
