"""The output folder of a pack: who may write into it, what is already there, and clearing what was left."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import OutputExistsError, PackError
from .manifest import MANIFEST_NAME
from .shard_writer import TEMPORARY_PREFIX, TEMPORARY_SUFFIX

LOCK_NAME = f"{TEMPORARY_PREFIX}pack.lock"

_OWN_FILE = re.compile(
    rf"{re.escape(MANIFEST_NAME)}|{re.escape(LOCK_NAME)}|shard-\d{{5,}}\.arrow"
    rf"|{re.escape(TEMPORARY_PREFIX)}.*{re.escape(TEMPORARY_SUFFIX)}"
)
_SPLIT_NAMES = frozenset({"train", "val", "valid", "validation", "test"})


def unfinished(folder: Path) -> bool:
    """Whether the folder holds what an interrupted pack leaves: shards, temporary files, a lock."""
    if (folder / MANIFEST_NAME).exists():
        return False
    return any(_OWN_FILE.fullmatch(name) for name in _names(folder))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


class OutputFolder:
    """Claims a folder for one pack, by flock on a file inside it, which dies with the process that holds it.

    `claim` makes the folder (or clears it, with `overwrite`), `release` gives it up. After an unfinished
    pack the lock file stays, so that even a folder without one whole shard is known for what it is.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self.path = path
        self.overwrite = overwrite
        self._lock: int | None = None
        self._lock_was_there = False

    def busy(self) -> bool:
        """Whether a lock file is there: another pack is at work, or was interrupted."""
        return (self.path / LOCK_NAME).exists()

    def check(self) -> None:
        """Raises OutputExistsError when `claim` would, without touching anything; locks are not looked at."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"{self.path} exists and is no folder. Choose another OUT.")
        names = _names(self.path)
        if not names or (names == [LOCK_NAME] and self._lock is not None and not self._lock_was_there):
            return
        foreign = next(_foreign(self.path), None)
        if foreign is not None:
            raise OutputExistsError(
                f"{self.path} exists and holds {foreign}, which no pack made. "
                "Choose another OUT; --overwrite replaces datasets only."
            )
        if self.overwrite:
            return
        if unfinished(self.path) or any(unfinished(folder) for folder in _splits(self.path)):
            raise OutputExistsError(
                f"{self.path} holds an unfinished pack. Start afresh with --overwrite, or choose another OUT."
            )
        raise OutputExistsError(
            f"{self.path} holds a dataset already. Replace it with --overwrite, or choose another OUT."
        )

    def claim(self) -> None:
        """Takes the folder.

        Raises:
            OutputExistsError: it is taken, or another pack is at work in it.
            PackError: it cannot be made.
        """
        if self.busy():
            self._lock_was_there = True
            self._take_lock()  # first, to tell another pack at work from one that was interrupted
        try:
            self.check()
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PackError(f"{self.path} cannot be made: {error.strerror or error}.") from error
            if self._lock is None:
                self._take_lock()
                self.check()
            self._clear()
        except BaseException:
            self._drop_lock(remove=not self._lock_was_there)
            raise

    def release(self, *, finished: bool) -> None:
        """Gives the folder up; removes temporary files, and the lock file when the pack has finished."""
        for folder in (self.path, *_splits(self.path)):
            for name in _names(folder):
                if name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX):
                    with contextlib.suppress(OSError):
                        (folder / name).unlink()
        self._drop_lock(remove=finished)

    def _take_lock(self) -> None:
        path = self.path / LOCK_NAME
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise PackError(f"{self.path} cannot be written to: {error.strerror or error}.") from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise OutputExistsError(
                        f"another pack (process {owner or 'unknown'}) is writing into {self.path}. "
                        "Wait for it to end, or choose another OUT."
                    ) from error
                raise PackError(f"{path} cannot be locked: {error.strerror or error}.") from error
            # A pack that has just finished may have removed the file between our open and our lock.
            try:
                same = path.stat().st_ino == os.fstat(descriptor).st_ino
            except FileNotFoundError:
                same = False
            if same:
                break
            os.close(descriptor)
        with contextlib.suppress(OSError):  # the number is a courtesy, a full disk must not stop us here
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def _drop_lock(self, *, remove: bool) -> None:
        if self._lock is None:
            return
        if remove:
            with contextlib.suppress(OSError):
                (self.path / LOCK_NAME).unlink()
        os.close(self._lock)
        self._lock = None

    def _clear(self) -> None:
        """Removes what earlier packs left, manifests first: half-cleared datasets must read as unfinished."""
        folders = [self.path, *_splits(self.path)]
        try:
            for folder in folders:
                (folder / MANIFEST_NAME).unlink(missing_ok=True)
            for folder in folders:
                for name in _names(folder):
                    if _OWN_FILE.fullmatch(name) and name != LOCK_NAME:
                        (folder / name).unlink()
            for folder in folders[1:]:
                (folder / LOCK_NAME).unlink(missing_ok=True)
                folder.rmdir()
        except OSError as error:
            raise PackError(f"{self.path} cannot be cleared: {error.strerror or error}.") from error


def _splits(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder) if name in _SPLIT_NAMES and (folder / name).is_dir()]


def _foreign(folder: Path) -> Iterator[str]:
    """Names inside `folder` that no pack makes."""
    for name in _names(folder):
        if name in _SPLIT_NAMES and (folder / name).is_dir():
            for inner in _names(folder / name):
                if not _OWN_FILE.fullmatch(inner):
                    yield f"{name}/{inner}"
        elif not _OWN_FILE.fullmatch(name):
            yield name
