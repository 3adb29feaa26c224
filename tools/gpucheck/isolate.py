"""Runs a row in a process of its own, under a limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .report import Measure, NotAvailableError, Notes, Row

Work = Callable[[Notes], None]
_GRACE = 0.5  # seconds between SIGTERM and SIGKILL


def run_row(name: str, work: Work, limit: float, folder: Path) -> tuple[Row, dict[str, Any]]:
    """Runs the work in a fork of this process, which must not have touched a device yet.

    The fork is quick: it has torch imported already. It leads a process group, all of which ends with it.

    Args:
        name: The row's.
        work: What to do; raises NotAvailableError where it can't be done here.
        limit: Seconds.
        folder: For its notes and what it prints.

    Returns:
        The row, and what else the work noted with `Notes.line`.
    """
    notes, said = folder / f"{name}.jsonl", folder / f"{name}.txt"
    sys.stdout.flush()
    sys.stderr.flush()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _be_the_row(work, notes, said)
    late = True
    try:
        late = not _ends(pid, start + limit)
    finally:
        _end_group(pid, gently=late)
        _, status = os.waitpid(pid, 0)
    row = Row(name, seconds=time.monotonic() - start)
    extra = _read(notes, row)
    if late:
        row.status, row.reason = "failed", f"took longer than its {limit:.0f} s and was ended"
    elif "not_available" in extra:
        row.status, row.reason = "not available", extra["not_available"]
    elif "error" in extra:
        row.status, row.reason = "failed", extra["error"]
    elif not extra.get("done"):
        row.status, row.reason = "failed", _crash(status, said)
    else:
        wrong = [each.what for each in row.measures if each.ok is False]
        if wrong:
            row.status, row.reason = "failed", "does not hold: " + "; ".join(wrong)
    return row, extra


def _be_the_row(work: Work, notes: Path, said: Path) -> None:
    """In the child; never returns."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        book = Notes(notes)
        try:
            work(book)
            book.line({"done": True})
            code = 0
        except NotAvailableError as error:
            book.line({"not_available": str(error)})
        except ImportError as error:
            traceback.print_exc()
            book.line({"not_available": f"{error}"})
        except BaseException as error:
            traceback.print_exc()
            book.line({"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"})
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # not through the interpreter's end: what a library does there is no part of the row


def _ends(pid: int, limit: float) -> bool:
    """Waits for the row's process, which stays a zombie: until it is reaped nobody else gets its number."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= limit:
            return False
        time.sleep(0.02)
    return True


def _end_group(pid: int, gently: bool) -> None:
    """Ends what is left of a row: the group that its process leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if gently:
            os.killpg(pid, signal.SIGTERM)
            _ends(pid, time.monotonic() + _GRACE)
        os.killpg(pid, signal.SIGKILL)


def _read(notes: Path, row: Row) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if notes.exists():
        for line in notes.read_text().splitlines():
            with contextlib.suppress(ValueError):  # cut short
                entry = json.loads(line)
                if "measure" in entry:
                    row.measures.append(Measure(**entry["measure"]))
                else:
                    extra.update(entry)
    return extra


def _crash(status: int, said: Path) -> str:
    code = os.waitstatus_to_exitcode(status)
    how = f"exit status {code}"
    if code < 0:
        how = f"signal {-code} ({signal.Signals(-code).name})"
    lines = said.read_text(errors="replace").strip().splitlines() if said.exists() else []
    return f"its process ended with {how}" + (f": {lines[-1][:200]}" if lines else "")
