"""Named shared memory: files in a memory-backed folder, for systems without memfd.

A name outlives a creator that is killed, so leftovers are removed before a process creates its
first name. The kernel tells whether a creator lives: it holds a lock on its file, which ends with
the process. Process ids would not do: they are reused, and another container that shares the folder
has its own. The id in the name is for people. On Windows a file in use cannot be removed, which
answers the same question.

`multiprocessing.shared_memory` does not fit: its tracker unlinks memory that others still use, and
names cannot be listed. This module creates, freezes and removes files; mapping is done elsewhere.
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
# Without it Windows would translate line ends.
_BINARY: Final = getattr(os, "O_BINARY", 0)

_swept: set[str] = set()


class NamedMemory:
    """A named segment at its creator: its file, locked until it is closed and removed."""

    # The handle has the path, which is all that another process needs.
    descriptors: tuple[int, ...] = ()

    def __init__(self, nbytes: int) -> None:
        self.fd, path = _create_locked(_swept_folder())
        self.close = weakref.finalize(self, _remove, self.fd, path, os.getpid())
        _reserve(self.fd, nbytes, path)
        self.handle = NamedHandle(path, nbytes)

    def forbid_writing(self) -> None:
        """Forbid attaching this memory writable; existing writable mappings stay."""
        # Windows cannot remove a read-only file, so there only the handle says that it is frozen.
        if sys.platform != "win32":
            os.fchmod(self.fd, 0o400)


class UnlinkedFile:
    """Sparse memory at its creator: a file that is unlinked as soon as it is created.

    Nothing is reserved, so a full memory file system shows as a bus error at some write. Like a
    memfd it can be reached by its descriptor only, and other processes treat it as one.
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
        """The descriptors to send with the handle."""
        return (self.fd,)

    def forbid_writing(self) -> None:
        """Forbid attaching this memory writable; existing writable mappings stay."""
        os.fchmod(self.fd, 0o400)


def memory_folder() -> str:
    """Return where names are created.

    That is the folder the environment variable names, else a memory-backed folder if there is one,
    else the folder for temporary files.
    """
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    in_memory = os.path.isdir(_MEMORY_FOLDER) and os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK)
    return _MEMORY_FOLDER if in_memory else tempfile.gettempdir()


def sweep(folder: str | None = None) -> list[str]:
    """Remove named segments whose creator is dead, and return their paths.

    Called automatically before a process creates its first named segment. Mappings of removed
    segments stay valid. Files of living processes, of other users and of other programs are not
    touched.
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
        # Another process may have removed the file just before it was locked.
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
    """Make the file `nbytes` long and reserve the memory for it.

    A memory file system has its own size limit (64 MB in many containers). Without the reservation
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
    # A forked child inherits this finalizer, but must not remove the file.
    if os.getpid() == creator:
        _unlink(path)


def _remove_if_abandoned(path: str) -> bool:
    if sys.platform == "win32":
        return _unlink(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone meanwhile, of another user, or not a file
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
        # Another process has removed it; or, on Windows, it is still in use and a later sweep
        # removes it.
        return False
    return True
