"""The `zcd` command. Each command has a module of its own and imports what is heavy inside its function."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from ..errors import ZcdError
from . import streams
from .bench import app as bench
from .doctor import doctor
from .info import info
from .pack import pack
from .verify import verify
from .view import view

app = typer.Typer(
    name="zcd",
    help="Pack datasets into mmap-able shards and load them at the decoder's limit.",
    epilog="Start with:  zcd pack path/to/images   (one folder per class, or ImageNet as you have it)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)

_traceback = False
_NO_MEMORY = "there is not enough memory. Use fewer --jobs, or a larger limit (ulimit -v, the container's)."


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        try:
            typer.echo(f"zcd {metadata.version('zerocopy-data')}")
        except metadata.PackageNotFoundError:
            typer.echo("zcd (running from a source tree that is not installed)")
        raise typer.Exit


@app.callback()
def _options(
    traceback: Annotated[bool, typer.Option("--traceback", help="Show Python's traceback of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    global _traceback
    _traceback = traceback


for _command in (pack, info, verify, view, doctor):
    app.command()(_command)
app.add_typer(bench, name="bench")


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    """Entry point of the `zcd` script: errors in plain words, exit code 1; Ctrl-C exits with 130.

    A reader of stdout that has gone, as that of `zcd … | head`, is no error.
    """
    signal.signal(signal.SIGTERM, _stop)  # so that a stopped pack removes its temporary files
    streams.prepare()
    status: int | str | None = 0
    try:
        try:
            app()
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()  # here a full disk can still be reported
    except (ZcdError, OSError, MemoryError) as error:
        if _traceback:
            raise
        typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(_NO_MEMORY if isinstance(error, MemoryError) else str(error), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("stopped.", err=True)
        sys.exit(130)
    sys.exit(status)
