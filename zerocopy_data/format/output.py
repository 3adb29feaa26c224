"""The output folder of a pack: who may write into it, what is already there, and clearing what was left."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import OutputExistsError, PackError
from .manifest import MANIFEST_NAME, sync_folder
from .shard_writer import TEMPORARY_PREFIX, TEMPORARY_SUFFIX

LOCK_NAME = f"{TEMPORARY_PREFIX}pack.lock"

_OWN_FILE = re.compile(
    rf"{re.escape(MANIFEST_NAME)}|{re.escape(LOCK_NAME)}|shard-\d{{5,}}\.arrow"
    rf"|{re.escape(TEMPORARY_PREFIX)}.*{re.escape(TEMPORARY_SUFFIX)}"
)
_SPLITS = ("train", "val", "valid", "validation", "test")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>


def _staging_path(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.zcd-new"


# What killed packs into OUT/train and so on may leave in OUT.
_SPLIT_NAMES = frozenset({*_SPLITS, *(_staging_path(Path(name)).name for name in _SPLITS)})


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
    pack the lock file stays, so that its shards are known for what they are; without any, nothing stays.

    Args:
        keep_old: Leave a dataset that is replaced where it is until `release(finished=True)`: `work` is then
            a folder beside it that takes its place as a whole.

    Attributes:
        work: The folder to write into, once claimed.
    """

    def __init__(self, path: Path, *, overwrite: bool, keep_old: bool = False) -> None:
        self.path = path
        self.overwrite = overwrite
        self.work = path
        self._keep_old = keep_old
        self._staging: OutputFolder | None = None
        self._lock: int | None = None
        self._lock_was_there = False
        self._made = False

    def busy(self) -> bool:
        """Whether a lock file is there: another pack is at work, or was interrupted."""
        lock = self.path / LOCK_NAME
        return lock.exists() and not lock.is_symlink()

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
        self._refuse_other_packs(self.path.absolute().parent)
        if self.busy():
            self._lock_was_there = True
            self._take_lock()  # first, to tell another pack at work from one that was interrupted
        try:
            self.check()
            self._made = not self.path.exists()
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PackError(f"{self.path} cannot be made: {error.strerror or error}.") from error
            if self._lock is None:
                self._take_lock()
                self.check()
            # After taking our lock: of two packs that start together, one sees the other.
            self._refuse_other_packs(self.path.absolute().parent, *_splits(self.path))
            if self._keep_old and _holds_dataset(self.path):
                self._stage()
            else:
                self._clear()
        except BaseException:
            self._drop_lock(remove=not self._lock_was_there)
            raise

    def release(self, *, finished: bool) -> None:
        """Gives the folder up; removes temporary files, and the lock file when the pack has finished.

        Raises:
            PackError: the new dataset could not take the old one's place, or the old one not be removed.
        """
        if self._staging is not None:
            self._release_staging(self._staging, finished)
            return
        for folder in (self.path, *_splits(self.path)):
            for name in _names(folder):
                if name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX):
                    with contextlib.suppress(OSError):
                        (folder / name).unlink()
        untouched = _names(self.path) == [LOCK_NAME] and not self._lock_was_there
        self._drop_lock(remove=finished or untouched)
        if untouched and self._made and not finished:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def _stage(self) -> None:
        real = self.path.resolve()
        if os.path.ismount(real):
            raise OutputExistsError(
                f"{self.path} is a mount point, whose dataset cannot be replaced as a whole. "
                "Choose a folder inside it, or remove the dataset by hand."
            )
        staging = OutputFolder(_staging_path(real), overwrite=True)
        staging.claim()
        self._staging, self.work = staging, staging.path
        with contextlib.suppress(OSError):
            shutil.copymode(real, staging.path)

    def _release_staging(self, staging: OutputFolder, finished: bool) -> None:
        self._staging, self.work = None, self.path
        try:
            if finished:
                real = self.path.resolve()
                try:
                    _exchange(staging.path, real)
                except OSError as error:
                    raise PackError(
                        f"the new dataset could not take the place of {self.path}, which is as it was: "
                        f"{error.strerror or error}."
                    ) from error
                self._lock, staging._lock = staging._lock, self._lock  # the files have changed places
                with contextlib.suppress(OSError):
                    sync_folder(real.parent)
        finally:
            try:
                staging._discard()
            finally:
                self._drop_lock(remove=finished or not self._lock_was_there)

    def _discard(self) -> None:
        """Removes the folder with all that packs made in it."""
        try:
            self._clear()
        finally:
            self._drop_lock(remove=True)
        try:
            self.path.rmdir()
        except OSError as error:
            raise PackError(f"{self.path} is left over and cannot be removed: {error.strerror or error}.") from error

    def _refuse_other_packs(self, *folders: Path) -> None:
        """Raises OutputExistsError when a pack is at work in a folder that holds this one or lies in it."""
        for folder in folders:
            try:
                descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise _taken(folder, descriptor) from error
            finally:
                os.close(descriptor)

    def _take_lock(self) -> None:
        path = self.path / LOCK_NAME
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                raise PackError(f"{self.path} cannot be written to: {error.strerror or error}.") from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                taken = _taken(self.path, descriptor)
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise taken from error
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


def _taken(folder: Path, lock: int) -> OutputExistsError:
    owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
    return OutputExistsError(
        f"another pack (process {owner or 'unknown'}) is writing into {folder}. "
        "Wait for it to end, or choose another OUT."
    )


def _exchange(first: Path, second: Path) -> None:
    """Two folders change places: at once where the file system can, else by three renames."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an old libc
        pass
    else:
        if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(code, os.strerror(code))
    aside = first.parent / f"{first.name}.swap"
    second.rename(aside)
    try:
        first.rename(second)
    except BaseException:
        aside.rename(second)
        raise
    aside.rename(first)


def _splits(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder) if name in _SPLIT_NAMES and _is_folder(folder / name)]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _holds_dataset(folder: Path) -> bool:
    """Whether there is anything in it that a pack has finished."""
    return any((place / MANIFEST_NAME).is_file() for place in (folder, *_splits(folder)))


def _foreign(folder: Path) -> Iterator[str]:
    """Names inside `folder` that no pack makes; links are none of ours, whatever their names."""

    def own(path: Path) -> bool:
        return _OWN_FILE.fullmatch(path.name) is not None and _is_file(path)

    for name in _names(folder):
        if name in _SPLIT_NAMES and _is_folder(folder / name):
            for inner in _names(folder / name):
                if not own(folder / name / inner):
                    yield f"{name}/{inner}"
        elif not own(folder / name):
            yield name
