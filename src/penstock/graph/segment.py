"""A segment: one mapping of a file or of shared memory, in which any number of arrays lie.

A segment under construction is writable by its creator; `freeze()` ends that, for everybody and for
good. One that was opened is read-only; so is one that was attached, unless asked for writable
while it is not frozen.

Ownership. The creator of anonymous memory keeps one descriptor, to hand on with the handle: to a
fresh interpreter (`subprocess.Popen(..., pass_fds=segment.descriptors)`) or over a unix socket
(`socket.send_fds(sock, [message], segment.descriptors)`). `Segment.attach(handle, fd)` takes the
descriptor over and closes it, also when it fails. Mappings hold no descriptor, and live as long as
any NumPy view of them: closing a segment under live views is safe.
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
from penstock.graph.handles import FileHandle, MemfdHandle, NamedHandle, SegmentHandle
from penstock.graph.layout import Shape, array_nbytes, normal_shape
from penstock.graph.mapping import Bytes, ask_for_huge_pages, map_bytes
from penstock.graph.memfd import Memfd, memfd_works
from penstock.graph.named import NamedMemory, UnlinkedFile

KIND_VARIABLE: Final = "PENSTOCK_SHARED_MEMORY"
KINDS: Final = ("auto", "memfd", "named")

StrPath = str | os.PathLike[str]
CreatorsHold = Memfd | NamedMemory | UnlinkedFile


class Segment:
    """One mapping. Made by `create`, `open` or `attach`; a context manager that closes itself."""

    def __init__(
        self, handle: SegmentHandle, data: Bytes, memory: CreatorsHold | None = None
    ) -> None:
        self._handle = handle
        self._data: Bytes | None = data
        self._memory = memory  # the creator's hold on it; nobody else has one

    @classmethod
    def create(cls, nbytes: int, *, kind: str | None = None, sparse: bool = False) -> Self:
        """New shared memory, zeroed and writable.

        `kind` is "memfd", "named" (the portable fallback) or "auto" (memfd where it works); without
        it the environment variable PENSTOCK_SHARED_MEMORY decides, and without that "auto".

        `sparse` memory is larger than what will be written: no page is reserved before it is
        touched, huge ones are not asked for, and it travels by descriptor, whatever the kind.
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
        """The file at `path`, mapped whole and read-only.

        Its length must not shrink while it is mapped: replace such files, never rewrite them.
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
        """Maps what another process described by `handle`; `sparse` as it was created.

        A memfd's handle needs its descriptor `fd`, which is taken over: closed in any case.
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
        """Bytes that are mapped."""
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
        """What must travel with the handle: a memfd's descriptor in its creator, else nothing."""
        return self._memory.descriptors if self._memory else ()

    def fileno(self) -> int:
        """The descriptor the creator of a memfd keeps. It stays the segment's: do not close it."""
        if not self.descriptors:
            raise ValueError(f"{self._name()} has no descriptor here: only the creator keeps one")
        return self.descriptors[0]

    def view(self, dtype: object, shape: Shape, offset: int = 0) -> npt.NDArray[Any]:
        """The array that lies at `offset`, in its storage dtype, without copying."""
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
        """Makes the segment read-only for good, here and for all who attach from now on.

        Refused while writable views of it live in this process: they could still write.
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
        """Lets go of the mapping and of what the creator holds. Views that live stay valid."""
        self._data = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._handle, FileHandle):
            return type(self).attach, (self._handle,)
        raise cannot_pickle(type(self).__name__)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.nbytes} bytes"
        return f"<{type(self).__name__} of {self._name()}, {state}>"

    def _mapped(self) -> Bytes:
        if self._data is None:
            raise ValueError(f"{self._name()} has been closed")
        return self._data

    def _let_go_of_writable_mapping(self) -> None:
        # Every view holds on to the flat array, so that it dies with the last of them.
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
            case MemfdHandle():
                return "anonymous shared memory"


def cannot_pickle(what: str) -> TypeError:
    """Says what to do instead of pickling something that lies in shared memory."""
    return TypeError(
        f"a {what} in shared memory cannot be pickled: send its .handle, and the segment's "
        f".descriptors by subprocess's pass_fds or socket.send_fds, "
        f"and call {what}.attach(handle, fd) over there"
    )


def check_room(nbytes: int, *, kind: str | None) -> None:
    """Complains if shared memory of which every byte will be written cannot fit.

    The system would promise it, and kill somebody later. Named memory is reserved when it is made.
    Not for memory that is to stay sparse.
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
    """The descriptor to map by, which the caller closes; `fd` is taken over."""
    if isinstance(handle, MemfdHandle):
        if fd is None:
            raise ValueError("fd is missing: anonymous shared memory travels with its descriptor")
        return fd
    if fd is not None:
        os.close(fd)
        raise ValueError(f"fd is {fd}: {handle.path} is found by its path, without a descriptor")
    # Without blocking: a path is not trusted, and opening a pipe would wait for who writes to it.
    flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(handle.path, flags | (os.O_RDWR if writable else os.O_RDONLY))


def _check_writable(handle: SegmentHandle, descriptor: int) -> None:
    if isinstance(handle, FileHandle):
        raise ValueError(f"writable is True: {handle.path} is a file, always mapped read-only")
    # The handle may be older than the freezing, so the memory is asked too. Its mode tells, even
    # where the kernel knows no seal for it, or lets root pass.
    if handle.frozen or not os.fstat(descriptor).st_mode & stat.S_IWUSR:
        raise PermissionError(errno.EACCES, "this shared memory is frozen: attach it read-only")


def _check_identity(handle: MemfdHandle, status: os.stat_result) -> None:
    """Descriptors are but numbers, and easily swapped on the way."""
    if (handle.device, handle.inode) != (status.st_dev, status.st_ino):
        raise ValueError(
            "the descriptor is not that of the shared memory the handle speaks of: "
            "hand descriptors on in the order they were given"
        )


def _size_behind(handle: SegmentHandle, descriptor: int) -> int:
    """The bytes to map, having made sure that they are there."""
    status = os.fstat(descriptor)
    if isinstance(handle, FileHandle):
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{handle.path} is not a regular file")
        return status.st_size
    if isinstance(handle, MemfdHandle):
        _check_identity(handle, status)
    if handle.nbytes != status.st_size:
        raise ValueError(
            f"the handle speaks of {handle.nbytes} bytes of shared memory, "
            f"its descriptor of {status.st_size}"
        )
    return handle.nbytes
