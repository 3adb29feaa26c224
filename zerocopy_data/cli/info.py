"""`zcd info`: what a dataset holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..format.reader import DatasetReader

_SHOWN_CLASSES = 12


def info(
    path: Annotated[Path, typer.Argument(help="A dataset, or a folder with one per split.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show fields, rows, shards, sizes and class balance.

    \b
    Examples:
      zcd info imagenet.zcd
      zcd info imagenet.zcd/train --json
    """
    import json
    import sys

    from ..format.manifest import MANIFEST_NAME
    from ..format.reader import DatasetReader, find_splits

    splits = [] if (path / MANIFEST_NAME).exists() else find_splits(path)
    described = [describe(DatasetReader(folder)) for folder in splits or [path]]
    if as_json:
        shown = described if splits else described[0]
        # Elsewhere escapes: what stdout cannot show is replaced, and JSON must stay what it says.
        plain = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
        typer.echo(json.dumps(shown, indent=1, ensure_ascii=not plain))
    else:
        _print(described)


def describe(reader: DatasetReader) -> dict[str, Any]:
    """Everything that `zcd info` knows of one dataset, ready for JSON."""
    import numpy as np

    from ..format.fields import Scalar, field_to_json

    balance = {}
    for name, field in reader.fields.items():
        if not isinstance(field, Scalar) or field.classes is None:
            continue
        counts = np.zeros(len(field.classes), np.int64)
        for index in range(reader.num_shards):
            for chunk in reader.shard(index).chunks(name):
                labels = np.frombuffer(chunk.data, field.dtype)
                known = labels[(labels >= 0) & (labels < len(counts))]
                counts += np.bincount(known.astype(np.int64), minlength=len(counts))
        balance[name] = dict(zip(field.classes, counts.tolist(), strict=True))
    manifest = reader.manifest
    return {
        "path": str(reader.path),
        "rows": reader.num_rows,
        "bytes": manifest.bytes,
        "shards": [vars(shard) for shard in manifest.shards],
        "fields": {name: field_to_json(field) for name, field in reader.fields.items()},
        "provenance": dict(manifest.provenance),
        "skipped": [dict(entry) for entry in manifest.skipped],
        "class_balance": balance,
    }


def _print(described: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .progress import size_text

    console = Console(highlight=False, markup=False, emoji=False)  # all of it is data
    for entry in described:
        console.print(entry["path"], style="bold", soft_wrap=True)
        shards = len(entry["shards"])
        plural = "" if shards == 1 else "s"
        console.print(f"  {entry['rows']:,} rows in {shards:,} shard{plural}, {size_text(entry['bytes'])}")
        source = entry["provenance"]
        options = ", ".join(f"{name} {value}" for name, value in source.get("options", {}).items())
        console.print(f"  from {source.get('source', 'unknown')}{f' ({options})' if options else ''}")
        if entry["skipped"]:
            console.print(f"  {len(entry['skipped'])} files were skipped when packing", style="yellow")
            for sample in entry["skipped"][:5]:
                console.print(f"    {sample.get('file')}: {sample.get('reason')}")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for title in ("field", "kind", "details"):
            table.add_column(title, style="cyan" if title == "field" else None)
        for name, field in entry["fields"].items():
            details = [f"{k} {v}" for k, v in field.items() if k not in ("kind", "classes")]
            if "classes" in field:
                details.append(f"{len(field['classes']):,} classes")
            table.add_row(*map(Text, (name, field["kind"], ", ".join(details))))
        console.print(table)
        for name, counts in entry["class_balance"].items():
            _print_balance(console, name, counts)


def _print_balance(console: Any, name: str, counts: dict[str, int]) -> None:
    """A bar per class; of many classes only the largest and the smallest."""
    from rich.text import Text

    if not counts:
        return
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    most = max(ordered[0][1], 1)
    fewest = ordered[-1][1]
    if fewest == ordered[0][1]:
        console.print(f"  {name}: {fewest:,} row{'' if fewest == 1 else 's'} in each of {len(counts):,} classes")
        return
    console.print(f"  {name}: {fewest:,} to {most:,} rows per class")
    half = _SHOWN_CLASSES // 2
    shown = ordered if len(ordered) <= _SHOWN_CLASSES else [*ordered[:half], None, *ordered[-half:]]
    width = max(len(item[0]) for item in shown if item is not None)
    for item in shown:
        if item is None:
            console.print(f"    … {len(ordered) - _SHOWN_CLASSES:,} more classes …")
            continue
        bar = "█" * max(round(30 * item[1] / most), 1 if item[1] else 0)
        name = " ".join(item[0].splitlines()).ljust(width)
        console.print(Text.assemble(f"    {name}  ", (f"{bar:<30}", "cyan"), f" {item[1]:,}"))
