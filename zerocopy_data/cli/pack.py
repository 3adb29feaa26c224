"""`zcd pack`: a folder of images becomes mmap-able shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..pack import PackSummary

_SHOWN_SKIPPED = 20


class OnError(StrEnum):
    """What to do about a file that is no usable image."""

    RAISE = "raise"
    SKIP = "skip"


def pack(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="Folder with one folder per class, or with train/ val/ test/ over such, or an ImageNet tree.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="[OUT]", show_default=False, help="Output folder. Default: SRC.zcd beside SRC."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            show_default="all cores",
            help="Processes to use. The result does not depend on it.",
        ),
    ] = None,
    shard_size: Annotated[str, typer.Option(help="Source bytes per shard: 256MB, 64MiB, 1GB.")] = "256MB",
    shuffle: Annotated[
        int | None,
        typer.Option(metavar="SEED", show_default="keep the order", help="Shuffle the images of each split."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default="all", help="Pack only N images per split, after --shuffle."),
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="An unusable file: stop, or leave it out and list it.")
    ] = OnError.RAISE,
    max_side: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default="bytes unchanged", help="Re-encode larger images, longer side N."
        ),
    ] = None,
    quality: Annotated[
        int | None, typer.Option(min=1, max=100, help="JPEG quality for --max-side.  [default: 90]")
    ] = None,
    raw: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="keep encoded",
            help="Store pixels: shorter side N, centre N x N, uint8.",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a dataset or an unfinished pack at OUT. A dataset stays until the new one is whole.",
        ),
    ] = False,
) -> None:
    """Pack a folder of images into mmap-able shards.

    \b
    Examples:
      zcd pack imagenet                            bytes unchanged, to imagenet.zcd
      zcd pack imagenet /fast/in400 --max-side 400 smaller, faster to decode
      zcd pack imagenet /fast/raw256 --raw 256     no decoding while training
      zcd pack photos --limit 1000 --shuffle 0     a random thousand, to try it

    What is in SRC is recognised by itself: class/*.jpg, train/ val/ test/ over that, ImageNet with val/
    sorted or flat, and the Kaggle tree (ILSVRC/Data/CLS-LOC with LOC_val_solution.csv). Classes are
    numbered as torchvision's ImageFolder numbers them.
    """
    from ..pack import PackProgress
    from ..pack import pack as run
    from .progress import Progress

    with _say_how_to_go_on(source, out), Progress("packing", "images") as bar:

        def show(state: PackProgress) -> None:
            bar.update(state.rows, state.total_rows, state.bytes, state.total_bytes)

        summary = run(
            source,
            out,
            jobs=jobs,
            shard_size=shard_size,
            shuffle=shuffle,
            limit=limit,
            on_error=on_error.value,
            max_side=max_side,
            quality=quality,
            raw=raw,
            overwrite=overwrite,
            progress=show,
        )
    typer.echo(summary_text(summary))


@contextmanager
def _say_how_to_go_on(source: Path, out: Path | None) -> Iterator[None]:
    """On Ctrl-C or a signal that ends the pack, says what has become of OUT."""
    from ..format.output import unfinished
    from ..pack.packer import default_output

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        target = default_output(source) if out is None else out
        if unfinished(target):
            typer.echo(f"{target} is unfinished. Pack again with --overwrite, or remove it.", err=True)
        elif target.exists():
            typer.echo(f"{target} is as it was before.", err=True)
        else:
            typer.echo(f"nothing was written to {target}.", err=True)
        raise


def summary_text(summary: PackSummary) -> str:
    """What was packed, how fast, what was left out, and the line of Python that opens it."""
    from .progress import size_text

    lines = [f"packed {summary.kind} into {summary.path}"]
    for split in summary.splits:
        classes = "no labels" if split.classes is None else f"{split.classes:,} classes"
        lines.append(
            f"  {split.name or 'images':<10} {split.rows:>9,} images, {classes}, "
            f"{split.shards:,} shard{'s' if split.shards != 1 else ''}, {size_text(split.bytes)}"
        )
    seconds = max(summary.seconds, 1e-3)
    lines.append(
        f"  {summary.seconds:.1f} s: {size_text(summary.source_bytes / seconds)}/s, "
        f"{summary.rows / seconds:,.0f} images/s"
    )
    if summary.ignored:
        count = sum(summary.ignored.values())
        kinds = ", ".join(f"{extension or 'without extension'} {n}" for extension, n in sorted(summary.ignored.items()))
        lines.append(f"{count:,} file{'s' if count != 1 else ''} ignored: {kinds} (no known image extension)")
    if summary.skipped:
        lines.append(f"skipped {len(summary.skipped)} unusable files (listed in dataset.json):")
        for sample in summary.skipped[:_SHOWN_SKIPPED]:
            place = f"{sample.split}/{sample.file}" if sample.split else sample.file
            lines.append(f"  {place}: {sample.reason}")
        if len(summary.skipped) > _SHOWN_SKIPPED:
            lines.append(f"  and {len(summary.skipped) - _SHOWN_SKIPPED} more")
    lines.append(f'open it with:  ds = zerocopy_data.open("{summary.splits[0].path}")')
    return "\n".join(lines)
