"""Progress on stderr: a bar with rates and time left in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

_PLAIN_SECONDS = 10.0


def size_text(size: float) -> str:
    """Bytes for people, decimal as disks are sold: '1.2 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


class Progress:
    """Context manager; call `update` with what is done and what there is in all.

    Args:
        task: What is going on, as 'packing'.
        unit: What rows are, as 'images'.
    """

    def __init__(self, task: str, unit: str) -> None:
        self._task = task
        self._unit = unit
        self._start = self._last = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[count]}", markup=False),
                TextColumn("{task.fields[rate]}", style="cyan", markup=False),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._id = self._bar.add_task(f"{self._task}: looking", total=None, count="", rate="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, rows: int, total_rows: int, size: int, total_size: int) -> None:
        """Shows the state: rows and bytes done, and in all."""
        now = time.monotonic()
        if rows == 0:
            self._start = now
        seconds = max(now - self._start, 1e-3)
        count = f"{rows:,}/{total_rows:,} {self._unit}"
        rate = f"{size_text(size / seconds)}/s, {rows / seconds:,.0f} {self._unit}/s"
        if self._bar is not None:
            self._bar.update(
                self._id,
                description=self._task,
                completed=size if total_size else rows,
                total=total_size or total_rows,
                count=count,
                rate=rate,
            )
        elif now - self._last >= _PLAIN_SECONDS:
            self._last = now
            print(f"{self._task}: {count}, {rate}", file=sys.stderr, flush=True)
