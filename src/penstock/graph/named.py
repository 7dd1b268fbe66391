"""Named shared memory: files in a memory-backed folder, for systems that have no memfd.

A name outlives a creator that is killed, so leftovers are swept before the first name is made in a
process. Whether a creator lives is asked of the kernel: it holds a lock on its file, and the lock
goes with it. Process ids would not do: they are used again, and another container that shares the
folder has ids of its own. The id in the name is for people. On Windows a file in use cannot be
removed, which answers the same question.

`multiprocessing.shared_memory` is no base for this: its tracker unlinks what others still use, and
names cannot be listed. This module makes, freezes and removes files; mapping is done elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import tempfile
import weakref
from typing import Final

from penstock.graph.handles import MemfdHandle, NamedHandle

if sys.platform != "win32":
    import fcntl

DIRECTORY_VARIABLE: Final = "PENSTOCK_SHARED_MEMORY_DIR"

_MEMORY_FOLDER: Final = "/dev/shm"
_NAME: Final = re.compile(r"penstock-\d+-[0-9a-f]{16}")
# Windows would translate line ends otherwise.
_BINARY: Final = getattr(os, "O_BINARY", 0)

_swept: set[str] = set()


class NamedMemory:
    """The creator's hold on a named segment: its file, locked until it is closed and removed."""

    # The handle tells the path, which is all another process needs.
    descriptors: tuple[int, ...] = ()

    def __init__(self, nbytes: int) -> None:
        self.fd, path = _create_locked(_swept_folder())
        self.close = weakref.finalize(self, _remove, self.fd, path, os.getpid())
        _reserve(self.fd, nbytes, path)
        self.handle = NamedHandle(path, nbytes)

    def forbid_writing(self) -> None:
        """From now on nobody attaches this memory writable; writable mappings made before stay."""
        # On Windows a read-only file could not be removed: there the handle alone tells.
        if sys.platform != "win32":
            os.fchmod(self.fd, 0o400)


class UnlinkedFile:
    """The creator's hold on sparse memory: a file whose name is taken away as soon as it is there.

    Nothing is reserved, so a memory file system that is full shows as a bus error at some write.
    It is found by its descriptor only, like a memfd, and as far as anybody can tell it is one.
    """

    def __init__(self, nbytes: int) -> None:
        self.fd, path = _create_locked(_swept_folder())
        self.close = weakref.finalize(self, os.close, self.fd)
        _unlink(path)
        os.ftruncate(self.fd, nbytes)
        status = os.fstat(self.fd)
        self.handle = MemfdHandle(nbytes, status.st_dev, status.st_ino)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What has to travel with the handle."""
        return (self.fd,)

    def forbid_writing(self) -> None:
        """From now on nobody attaches this memory writable; writable mappings made before stay."""
        os.fchmod(self.fd, 0o400)


def memory_folder() -> str:
    """Where names are made: as the environment says, in memory if there is such a folder, or
    among the temporary files."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    in_memory = os.path.isdir(_MEMORY_FOLDER) and os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK)
    return _MEMORY_FOLDER if in_memory else tempfile.gettempdir()


def sweep(folder: str | None = None) -> list[str]:
    """Removes named segments whose creator is dead, and returns their paths.

    Runs by itself before a process makes its first named segment. Mappings of what is removed stay
    valid. Files of living processes, of other users and of other programs are not touched.
    """
    with os.scandir(folder or memory_folder()) as entries:
        paths = sorted(entry.path for entry in entries if _NAME.fullmatch(entry.name))
    return [path for path in paths if _remove_if_abandoned(path)]


def _swept_folder() -> str:
    folder = memory_folder()
    if folder not in _swept:
        sweep(folder)
        _swept.add(folder)
    return folder


def _create_locked(folder: str) -> tuple[int, str]:
    while True:
        path = os.path.join(folder, f"penstock-{os.getpid()}-{secrets.token_hex(8)}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        # Another process may sweep the file away in the instant before it is locked.
        if _lock(fd) and os.fstat(fd).st_nlink > 0:
            return fd, path
        os.close(fd)


def _lock(fd: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _reserve(fd: int, nbytes: int, path: str) -> None:
    """Makes the file `nbytes` long, with the room to back it.

    A memory file system has a size of its own (64 MB in many containers). Without the reservation
    a full one shows as a bus error at some later write.
    """
    if sys.platform == "linux" and nbytes:
        try:
            os.posix_fallocate(fd, 0, nbytes)
        except OSError as error:
            message = f"{error.strerror}: no room for {nbytes} bytes of shared memory"
            raise OSError(error.errno, message, path) from None
    else:
        os.ftruncate(fd, nbytes)


def _remove(fd: int, path: str, creator: int) -> None:
    os.close(fd)
    # A forked child has inherited this finalizer, but the file is not its to remove.
    if os.getpid() == creator:
        _unlink(path)


def _remove_if_abandoned(path: str) -> bool:
    if sys.platform == "win32":
        return _unlink(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone meanwhile, another user's, or no file at all
        return False
    try:
        status = os.fstat(fd)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return ours and _lock(fd) and _unlink(path)
    finally:
        os.close(fd)


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except (FileNotFoundError, PermissionError):
        # Swept by another process; or, on Windows, still in use: a later sweep will get it.
        return False
    return True
