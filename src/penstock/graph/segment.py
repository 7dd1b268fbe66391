"""A segment: one mapping of a file or of shared memory, which contains any number of arrays.

A segment under construction is writable by its creator; `freeze()` makes it read-only for
everybody, permanently. An opened segment is read-only; so is an attached one, unless it is not
frozen and was attached writable.

Ownership: the creator of anonymous memory keeps one descriptor, to send with the handle: to a fresh
interpreter (`subprocess.Popen(..., pass_fds=segment.descriptors)`) or over a unix socket
(`socket.send_fds(sock, [message], segment.descriptors)`). `Segment.attach(handle, fd)` takes the
descriptor over and closes it, also when it fails. Mappings hold no descriptor, and live as long as
any NumPy view of them: closing a segment that has views is safe.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import weakref
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from penstock.graph.dtypes import dtype_name, itemsize, storage_dtype
from penstock.graph.handles import (
    DescriptorHandle,
    FileHandle,
    MemfdHandle,
    NamedHandle,
    SegmentHandle,
)
from penstock.graph.layout import Shape, array_nbytes, normal_shape
from penstock.graph.mapping import Bytes, ask_for_huge_pages, map_bytes
from penstock.graph.memfd import Memfd, memfd_works
from penstock.graph.named import NamedMemory, UnlinkedFile

KIND_VARIABLE: Final = "PENSTOCK_SHARED_MEMORY"
KINDS: Final = ("auto", "memfd", "named")
# Where Linux shows the descriptors of a process.
_DESCRIPTORS: Final = "/proc/{}/fd/{}"

StrPath = str | os.PathLike[str]
CreatorsHold = Memfd | NamedMemory | UnlinkedFile


class Segment:
    """One mapping. Made by `create`, `open` or `attach`; a context manager that closes itself."""

    def __init__(
        self, handle: SegmentHandle, data: Bytes, memory: CreatorsHold | None = None
    ) -> None:
        self._handle = handle
        self._data: Bytes | None = data
        self._memory = memory  # only at the creator

    @classmethod
    def create(cls, nbytes: int, *, kind: str | None = None, sparse: bool = False) -> Self:
        """Create shared memory, zeroed and writable.

        Args:
            nbytes: Its size.
            kind: "memfd", "named" (the portable fallback) or "auto" (memfd where it works). If
                None, the environment variable PENSTOCK_SHARED_MEMORY decides, and without it
                "auto".
            sparse: Only a part of the memory will be written. Pages are not reserved before they
                are touched, huge pages are not asked for, and other processes attach by descriptor,
                whatever the kind.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes is {nbytes}: a segment cannot have a negative size")
        if nbytes > sys.maxsize:
            raise ValueError(f"nbytes is {nbytes}: no system can map more than {sys.maxsize}")
        memory = _create_memory(nbytes, _resolve(kind), sparse=sparse)
        try:
            data = map_bytes(memory.fd, nbytes, writable=True)
        except BaseException:
            memory.close()
            raise
        if not sparse:
            ask_for_huge_pages(data)
        return cls(memory.handle, data, memory)

    @classmethod
    def open(cls, path: StrPath) -> Self:
        """Map the file at `path`, whole and read-only.

        It must not shrink while it is mapped: replace such files, never rewrite them.
        """
        return cls.attach(FileHandle(os.path.abspath(path)))

    @classmethod
    def attach(
        cls,
        handle: SegmentHandle,
        fd: int | None = None,
        *,
        writable: bool = False,
        sparse: bool = False,
    ) -> Self:
        """Map what another process described by `handle`.

        Args:
            handle: The handle of the segment.
            fd: The descriptor that a memfd's handle needs. It is taken over, and closed in any
                case.
            writable: Map it writable, which is refused if it is frozen.
            sparse: As it was created.
        """
        descriptor = _descriptor_for(handle, fd, writable=writable)
        try:
            if writable:
                _check_writable(handle, descriptor)
            nbytes = _size_behind(handle, descriptor)
            data = map_bytes(descriptor, nbytes, writable=writable)
        finally:
            os.close(descriptor)
        if not sparse and not isinstance(handle, FileHandle):
            ask_for_huge_pages(data)
        return cls(handle, data)

    @property
    def nbytes(self) -> int:
        """The number of mapped bytes."""
        return self._mapped().nbytes

    @property
    def writable(self) -> bool:
        """Whether views are writable."""
        return self._mapped().flags.writeable

    @property
    def closed(self) -> bool:
        """Whether the segment has been closed."""
        return self._data is None

    @property
    def handle(self) -> SegmentHandle:
        """What another process needs to attach; for a memfd, together with `descriptors`."""
        return self._handle

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to send with the handle: a memfd's at its creator, else none."""
        return self._memory.descriptors if self._memory else ()

    def path_handle(self) -> SegmentHandle:
        """Return a handle that needs no descriptor, for other processes of this user and host.

        Memory without a name is found by the path of its creator's descriptor, as long as that
        process keeps it.

        Raises:
            TypeError: It was attached here by a descriptor, or the system has no such paths.
        """
        self._mapped()  # raises if it is closed
        handle = self._handle
        if not isinstance(handle, MemfdHandle):
            return handle
        if not self.descriptors or not os.path.exists(_DESCRIPTORS.format("self", "")):
            raise TypeError(
                "shared memory without a name, which belongs to another process, cannot be pickled "
                "here: do so in the process that made it; or let that process send its .handle, "
                "and the .descriptors by subprocess's pass_fds or socket.send_fds"
            )
        return DescriptorHandle(
            _DESCRIPTORS.format(os.getpid(), self.descriptors[0]),
            handle.nbytes,
            handle.device,
            handle.inode,
            handle.frozen,
        )

    def fileno(self) -> int:
        """Return the descriptor that a memfd's creator keeps. The segment owns and closes it."""
        if not self.descriptors:
            raise ValueError(f"{self._name()} has no descriptor here: only the creator keeps one")
        return self.descriptors[0]

    def view(self, dtype: object, shape: Shape, offset: int = 0) -> npt.NDArray[Any]:
        """Return the array at `offset`, in its storage dtype, without copying."""
        data, sizes = self._mapped(), normal_shape(shape)
        width, needed = itemsize(dtype), array_nbytes(dtype, sizes)
        if offset < 0 or offset % width:
            raise ValueError(f"offset is {offset}: it must be a multiple of {width}, not negative")
        if offset + needed > data.nbytes:
            what = f"{dtype_name(dtype)}{list(sizes)} at offset {offset}"
            raise ValueError(
                f"{self._name()} is too short: {what} needs {offset + needed} bytes, "
                f"there are {data.nbytes}"
            )
        return np.ndarray(sizes, storage_dtype(dtype), buffer=data, offset=offset)

    def freeze(self) -> None:
        """Make the segment read-only permanently, here and for all who attach from now on.

        Refused while this process has writable views of it: they could still write.
        """
        if not self.writable:
            return
        if self._memory is None:
            raise ValueError(f"only its creator can freeze {self._name()}")
        frozen = map_bytes(self._memory.fd, self.nbytes, writable=False)
        self._let_go_of_writable_mapping()
        self._data = frozen
        ask_for_huge_pages(frozen)
        self._memory.forbid_writing()
        self._handle = msgspec.structs.replace(self._handle, frozen=True)

    def close(self) -> None:
        """Release the mapping and the creator's descriptor or file. Existing views stay valid."""
        self._data = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).attach, (self.path_handle(),)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.nbytes} bytes"
        return f"<{type(self).__name__} of {self._name()}, {state}>"

    def _mapped(self) -> Bytes:
        if self._data is None:
            raise ValueError(f"{self._name()} has been closed")
        return self._data

    def _let_go_of_writable_mapping(self) -> None:
        # Every view refers to the flat array, so the array dies with the last of them.
        watched = weakref.ref(self._mapped())
        self._data = None
        self._data = watched()
        if self._data is not None:
            raise BufferError(
                f"cannot freeze {self._name()}: writable views of it are still in use; "
                "delete them first"
            )

    def _name(self) -> str:
        match self._handle:
            case FileHandle(path=path):
                return path
            case NamedHandle(path=path):
                return f"shared memory {path}"
            case MemfdHandle() | DescriptorHandle():
                return "anonymous shared memory"


def check_room(nbytes: int, *, kind: str | None) -> None:
    """Raise `MemoryError` if shared memory of which every byte will be written cannot fit.

    Otherwise the system would promise the memory and kill some process later. Named memory is
    reserved when it is created. Not for memory that stays sparse.
    """
    available = psutil.virtual_memory().available
    if _resolve(kind) == "memfd" and nbytes > available:
        raise MemoryError(
            f"{nbytes} bytes of shared memory are needed, {available} are available: "
            "is a number of nodes, or an id, too large?"
        )


def _create_memory(nbytes: int, kind: str, *, sparse: bool) -> CreatorsHold:
    if kind == "memfd":
        return Memfd(nbytes)
    return UnlinkedFile(nbytes) if sparse else NamedMemory(nbytes)


def _resolve(kind: str | None) -> str:
    source = "kind" if kind else KIND_VARIABLE
    chosen = kind or os.environ.get(KIND_VARIABLE) or "auto"
    if chosen not in KINDS:
        raise ValueError(f"{source} is {chosen!r}: use one of {', '.join(KINDS)}")
    if chosen == "auto":
        return "memfd" if memfd_works() else "named"
    if chosen == "memfd" and not memfd_works():
        raise ValueError(f"{source} is 'memfd', which does not work on this system")
    return chosen


def _descriptor_for(handle: SegmentHandle, fd: int | None, *, writable: bool) -> int:
    """Return the descriptor to map, which the caller closes; `fd` is taken over."""
    if isinstance(handle, MemfdHandle):
        if fd is None:
            raise ValueError("fd is missing: anonymous shared memory travels with its descriptor")
        return fd
    if fd is not None:
        os.close(fd)
        raise ValueError(f"fd is {fd}: {handle.path} is found by its path, without a descriptor")
    # Do not block: a path is not trusted, and opening a pipe would wait for its writer.
    flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(handle.path, flags | (os.O_RDWR if writable else os.O_RDONLY))
    except FileNotFoundError:
        if isinstance(handle, FileHandle):
            raise
        raise _gone(handle) from None


def _gone(handle: NamedHandle | DescriptorHandle) -> OSError:
    message = "this shared memory is gone: the process that made it has ended, or has closed it"
    return FileNotFoundError(errno.ENOENT, message, handle.path)


def _check_writable(handle: SegmentHandle, descriptor: int) -> None:
    if isinstance(handle, FileHandle):
        raise ValueError(f"writable is True: {handle.path} is a file, always mapped read-only")
    # The handle may have been made before the freezing, so the memory is checked, too. Its mode is
    # reliable even where the kernel has no seal for it, or lets root pass.
    if handle.frozen or not os.fstat(descriptor).st_mode & stat.S_IWUSR:
        raise PermissionError(errno.EACCES, "this shared memory is frozen: attach it read-only")


def _check_identity(handle: MemfdHandle | DescriptorHandle, status: os.stat_result) -> None:
    """Check that the descriptor is the handle's: descriptors are numbers, and easily swapped."""
    if (handle.device, handle.inode) != (status.st_dev, status.st_ino):
        if isinstance(handle, DescriptorHandle):
            raise _gone(handle)  # and the process, or another one, has something else by now
        raise ValueError(
            "the descriptor is not that of the shared memory the handle speaks of: "
            "hand descriptors on in the order they were given"
        )


def _size_behind(handle: SegmentHandle, descriptor: int) -> int:
    """Return the number of bytes to map, after checking that they exist."""
    status = os.fstat(descriptor)
    if isinstance(handle, FileHandle):
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{handle.path} is not a regular file")
        return status.st_size
    if isinstance(handle, MemfdHandle | DescriptorHandle):
        _check_identity(handle, status)
    if handle.nbytes != status.st_size:
        raise ValueError(
            f"the handle speaks of {handle.nbytes} bytes of shared memory, "
            f"its descriptor of {status.st_size}"
        )
    return handle.nbytes
