"""`zcd view`: a contact sheet of a dataset's images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BadSampleError, ConfigError, OutputExistsError

if TYPE_CHECKING:
    from .sheet import Pixels


def parse_rows(text: str, total: int) -> list[int]:
    """Row numbers from '0,5,9', '100:124' or a mixture; a negative number counts from the end.

    Raises:
        ConfigError: Not row numbers, or rows that the dataset does not have.
    """
    rows: list[int] = []
    for part in text.split(","):
        try:
            if ":" in part:
                start, _, stop = part.partition(":")
                rows += range(total)[int(start) if start.strip() else None : int(stop) if stop.strip() else None]
            else:
                rows.append(range(total)[int(part)])
        except ValueError:
            raise ConfigError(f"--rows {text}: '{part}' is neither a row number nor a range a:b") from None
        except IndexError:
            raise ConfigError(f"--rows {text}: there is no row {part.strip()}, the dataset has {total}") from None
    if not rows:
        raise ConfigError(f"--rows {text}: no row of the dataset's {total} is in it")
    return rows


def choose_rows(total: int, count: int, rows: str | None, seed: int | None) -> list[int]:
    """The rows to show: those named, random ones (sorted), or `count` spread evenly over the dataset."""
    if rows is not None:
        return parse_rows(rows, total)
    count = min(count, total)
    if seed is not None:
        import numpy as np

        return sorted(int(row) for row in np.random.default_rng(seed).choice(total, count, replace=False))
    return [index * total // count for index in range(count)]


def view(
    path: Annotated[Path, typer.Argument(help="A dataset (the folder that holds dataset.json).")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Images on the sheet.")] = 24,
    rows: Annotated[str | None, typer.Option(help="Show these rows: 0,5,9 or 100:124.")] = None,
    random: Annotated[int | None, typer.Option(metavar="SEED", help="Show random rows.")] = None,
    columns: Annotated[int, typer.Option(min=1, help="Images in a row of the sheet.")] = 6,
    tile: Annotated[int, typer.Option(min=16, max=4096, help="Size of an image on the sheet, pixels.")] = 160,
    out: Annotated[Path, typer.Option(help="The file to write; its name says the format.")] = Path("sheet.png"),
    force: Annotated[bool, typer.Option(help="Overwrite the file.")] = False,
) -> None:
    """Write a contact sheet of a dataset's images, and draw it in terminals that can.

    Without --rows or --random, the rows are spread evenly over the dataset.
    """
    if rows is not None and random is not None:
        raise ConfigError("give --rows or --random, not both")
    import zerocopy_data

    from . import terminal
    from .sheet import contact_sheet

    dataset = zerocopy_data.open(path)
    if len(dataset) == 0:
        raise ConfigError(f"{path} has no rows to show")
    chosen = choose_rows(len(dataset), count, rows, random)
    if out.exists() and not force:
        raise OutputExistsError(f"{out} exists: give --out another name, or --force to overwrite it")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}")
    images, captions = _tiles(dataset, path, chosen)
    sheet = contact_sheet(images, captions, columns, tile)
    try:
        sheet.save(out)
    except ValueError as error:  # Pillow: unknown file extension
        raise ConfigError(f"--out {out}: {error}") from None
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror or error}") from error
    terminal.draw(sheet)
    unreadable = sum(image is None for image in images)
    print(f"{out}: {len(chosen)} images" + (f", {unreadable} of them unreadable" if unreadable else ""))


def _tiles(dataset: Any, path: Path, rows: list[int]) -> tuple[list[Pixels | None], list[str]]:
    """Pixels and captions of these rows."""
    from ..format import fields

    column = next((name for name, field in dataset.fields.items() if isinstance(field, fields.Image)), None)
    if column is None:
        raise ConfigError(f"{path} has no image field: its fields are {', '.join(dataset.fields)}")
    labels = next((name for name in dataset.fields if _class_names(dataset, name)), None)
    shown = dataset.select([column] if labels is None else [column, labels])

    images: list[Pixels | None] = []
    captions = []
    for row in rows:
        try:
            sample = shown[row]
        except BadSampleError:
            images.append(None)
            captions.append(f"row {row}: unreadable")
            continue
        images.append(sample[column].permute(1, 2, 0).contiguous().numpy())
        captions.append(f"{row}" if labels is None else f"{row} {_class(dataset.classes(labels), sample[labels])}")
    return images, captions


def _class(names: Sequence[str], label: Any) -> str:
    """The name of a class, or the label itself where it has none."""
    number = int(label)
    return names[number] if 0 <= number < len(names) else str(number)


def _class_names(dataset: Any, name: str) -> tuple[str, ...] | None:
    """The class names of a field, if it is one with names."""
    from ..format import fields

    return dataset.fields[name].classes if isinstance(dataset.fields[name], fields.Scalar) else None
