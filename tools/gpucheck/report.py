"""What the rows of a check say, as a table and as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


class NotAvailableError(Exception):
    """A row can't be run here, for a reason that is no fault: a library or a part of ours is not there."""


@dataclass
class Measure:
    """One line of a row.

    Attributes:
        what: What was measured or checked.
        value: The figure, if there is one.
        unit: Its unit.
        ok: Whether a check holds; None where nothing is checked.
        note: What else is to be said.
    """

    what: str
    value: float | None = None
    unit: str = ""
    ok: bool | None = None
    note: str = ""


@dataclass
class Row:
    """One row: a part of the check that ran in a process of its own.

    Attributes:
        name: Which.
        status: 'ok', 'failed' (a check does not hold, it crashed or took too long) or 'not available'.
        reason: Why, unless it is 'ok'.
        seconds: How long it took.
        measures: What it found until then.
    """

    name: str
    status: str = "ok"
    reason: str = ""
    seconds: float = 0.0
    measures: list[Measure] = field(default_factory=list)


class Notes:
    """Takes a row's measures and writes each down at once: what hangs later has said this much.

    Args:
        path: Where the lines go, one JSON object each.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def measure(self, what: str, value: float, unit: str, note: str = "") -> None:
        """A figure."""
        self._write(Measure(what, float(value), unit, None, note))

    def check(self, what: str, holds: bool, note: str = "") -> None:
        """Something that must hold."""
        self._write(Measure(what, ok=bool(holds), note=note))

    def _write(self, measure: Measure) -> None:
        self.line({"measure": asdict(measure)})

    def line(self, entry: dict[str, Any]) -> None:
        """Any other entry."""
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def write_json(path: Path, machine: dict[str, Any], rows: list[Row], complete: bool) -> None:
    """The whole report; what was there is replaced at once."""
    content = {"check": "zerocopy_data gpu_check", "machine": machine, "complete": complete}
    content["rows"] = [asdict(row) for row in rows]
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content, indent=2) + "\n")
    fresh.replace(path)


def print_table(title: str, rows: list[Row], figures: bool = True) -> None:
    """One table, with rich where it is there. Without `figures`, which mean nothing where no device was measured."""
    lines = [line for row in rows for line in _lines(row, figures)]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(title)
        for line in lines:
            print("  ".join(part for part in line if part))
        return
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for heading in ("row", "what", "figure", "result"):
        table.add_column(heading, justify="right" if heading == "figure" else "left", overflow="fold")
    for number, line in enumerate(lines):
        if number and line[0]:
            table.add_section()
        table.add_row(*map(Text, line))
    console = Console()
    Console(width=None if console.is_terminal else 120).print(table)


def _lines(row: Row, figures: bool) -> list[tuple[str, str, str, str]]:
    verdict = row.status if not row.reason else f"{row.status}: {row.reason}"
    lines = [(row.name, f"{row.seconds:.1f} s", "", verdict)]
    for each in row.measures:
        result = each.note if each.ok is None else ("holds" if each.ok else "DOES NOT HOLD")
        if each.ok is not None and each.note:
            result += f" ({each.note})"
        if not figures and each.value is not None:
            lines.append(("", each.what, "", "ran"))
            continue
        figure = "" if each.value is None else f"{_rounded(each.value)} {each.unit}"
        lines.append(("", each.what, figure, result))
    return lines


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
