"""`zcd verify`: is every byte of a dataset still what was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_SHOWN_PROBLEMS = 50


def verify(
    path: Annotated[Path, typer.Argument(help="A dataset, or a folder with one per split.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only sizes and hashes of the shards.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, show_default="all cores", help="Threads to use.")
    ] = None,
) -> None:
    """Check sizes, hashes, checksums, and that every image decodes. Exit code 1 if anything is bad.

    \b
    Examples:
      zcd verify imagenet.zcd            everything, naming the bad rows
      zcd verify imagenet.zcd --quick       only hash the shards, at the speed of the disk
    """
    from ..format.manifest import MANIFEST_NAME
    from ..format.reader import DatasetReader, find_splits
    from ..format.verify import verify_dataset
    from .progress import Progress, size_text

    splits = [] if (path / MANIFEST_NAME).exists() else find_splits(path)
    bad = 0
    for folder in splits or [path]:
        reader = DatasetReader(folder)
        with Progress(f"verifying {folder.name}", "rows") as bar:
            problems = verify_dataset(reader, quick=quick, threads=jobs, progress=bar.update)
        for problem in problems[:_SHOWN_PROBLEMS]:
            typer.secho("bad: ", fg="red", nl=False)
            typer.echo(str(problem))
        if len(problems) > _SHOWN_PROBLEMS:
            typer.echo(f"and {len(problems) - _SHOWN_PROBLEMS} more")
        bad += len(problems)
        if not problems:
            checked = "shard hashes" if quick else "hashes, checksums and images"
            size = size_text(reader.manifest.bytes)
            typer.echo(f"{folder}: {reader.num_rows:,} rows, {size}: {checked} are sound")
    if bad:
        typer.echo(f"{bad} problem{'s' if bad != 1 else ''} found. Copy the shards again, or pack again.", err=True)
        raise typer.Exit(1)
