"""`SharedArray`: one array that many processes read without a copy.

It is part of a `Segment`: a file, or shared memory that is freed with its last user. An array is
passed to another process like this:

    array = SharedArray.from_array(numbers)
    Popen([...], pass_fds=array.segment.descriptors)        # or socket.send_fds(...)
    # there, after receiving the handle by any message and the descriptor:
    numbers = SharedArray.attach(handle, fd).array

Many arrays share one segment, hence one descriptor: `layout()` gives their offsets, and
`SharedArray(segment, dtype, shape, offset)` is the array at an offset. This module knows nothing
about graphs, or about the wire that carries handles.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from penstock.graph.dtypes import dtype_name, storage_dtype
from penstock.graph.handles import (
    ArrayHandle,
    DescriptorHandle,
    FileHandle,
    MemfdHandle,
    NamedHandle,
    SegmentHandle,
)
from penstock.graph.layout import ALIGNMENT, Layout, Shape, array_nbytes, layout, normal_shape
from penstock.graph.named import sweep
from penstock.graph.segment import Segment, StrPath

__all__ = [
    "ALIGNMENT",
    "ArrayHandle",
    "DescriptorHandle",
    "FileHandle",
    "Layout",
    "MemfdHandle",
    "NamedHandle",
    "Segment",
    "SegmentHandle",
    "SharedArray",
    "layout",
    "sweep",
]


class SharedArray:
    """An array at an offset of a segment.

    `array` is made anew at each access, so that it matches the segment's state: writable under
    construction, read-only after `freeze()`. Views keep the memory alive, also after `close()`.

    Args:
        segment: The mapping that contains the array.
        dtype: The element type.
        shape: The sizes of the dimensions.
        offset: Where the array begins in the segment, in bytes.

    Raises:
        ValueError: The array is not inside the segment.

    Examples:
        >>> import numpy as np
        >>> import penstock as ps
        >>> with ps.SharedArray.from_array(np.arange(3)) as shared:
        ...     print(shared.array, shared.dtype, shared.shape, shared.writable)
        [0 1 2] int64 (3,) False
    """

    def __init__(self, segment: Segment, dtype: object, shape: Shape, offset: int = 0) -> None:
        segment.view(dtype, shape, offset)  # raises if the array is not inside
        self._segment = segment
        self._dtype = dtype_name(dtype)
        self._shape = normal_shape(shape)
        self._offset = offset
        self._segment_is_ours = False

    @classmethod
    def create(cls, shape: Shape, dtype: object, *, kind: str | None = None) -> Self:
        """Create an array of zeros in shared memory, writable until frozen; see `Segment`.

        Args:
            shape: The sizes of the dimensions.
            dtype: The element type.
            kind: The kind of shared memory, "memfd" or "named". None: PENSTOCK_SHARED_MEMORY
                decides.
        """
        return cls._alone_in(Segment.create(array_nbytes(dtype, shape), kind=kind), dtype, shape)

    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        dtype: object = None,
        *,
        writable: bool = False,
        kind: str | None = None,
    ) -> Self:
        """Copy `array` to shared memory.

        Args:
            array: What to copy.
            dtype: The element type, where NumPy cannot say it: "bfloat16" for 16-bit integers.
            writable: Whether it can still be written to; else it is frozen.
            kind: The kind of shared memory; see `Segment.create`.

        Raises:
            ValueError: `dtype` does not fit the array.
        """
        source = np.asarray(array)
        name = dtype_name(source.dtype if dtype is None else dtype)
        if source.dtype != storage_dtype(name):
            raise ValueError(f"array has dtype {source.dtype}: {name} is {storage_dtype(name)}")
        shared = cls.create(source.shape, name, kind=kind)
        shared.array[...] = source
        if not writable:
            shared.freeze()
        return shared

    @classmethod
    def open(cls, path: StrPath, dtype: object, shape: Shape, offset: int = 0) -> Self:
        """Map the array in the file `path`, read-only.

        Args:
            path: The file.
            dtype: The element type.
            shape: The sizes of the dimensions.
            offset: Where the array begins, in bytes.
        """
        return cls._alone_in(Segment.open(path), dtype, shape, offset)

    @classmethod
    def attach(cls, handle: ArrayHandle, fd: int | None = None, *, writable: bool = False) -> Self:
        """Map the array that another process described. Takes `fd` over and closes it.

        Args:
            handle: The other process's `handle`.
            fd: Its descriptor, as it arrived here; taken over and closed.
            writable: Whether it is mapped to be written to.
        """
        segment = Segment.attach(handle.segment, fd, writable=writable)
        return cls._alone_in(segment, handle.dtype, handle.shape, handle.offset)

    @property
    def array(self) -> npt.NDArray[Any]:
        """A NumPy view in the storage dtype (uint16 for bfloat16), read-only unless `writable`."""
        return self._segment.view(self._dtype, self._shape, self._offset)

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._shape

    @property
    def offset(self) -> int:
        """Where the array begins in the segment, in bytes."""
        return self._offset

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return array_nbytes(self._dtype, self._shape)

    @property
    def segment(self) -> Segment:
        """The mapping that contains the array."""
        return self._segment

    @property
    def writable(self) -> bool:
        """Whether `array` can be written to."""
        return self._segment.writable

    @property
    def handle(self) -> ArrayHandle:
        """What another process needs to attach; for a memfd, with `segment.descriptors`."""
        return ArrayHandle(self._segment.handle, self._dtype, self._shape, self._offset)

    def path_handle(self) -> ArrayHandle:
        """Return a handle that needs no descriptor: see `Segment.path_handle`."""
        return ArrayHandle(self._segment.path_handle(), self._dtype, self._shape, self._offset)

    def freeze(self) -> None:
        """Make the whole segment read-only permanently; see `Segment.freeze`."""
        self._segment.freeze()

    def close(self) -> None:
        """Close the segment, if it was made for this array alone. Existing views stay valid."""
        if self._segment_is_ours:
            self._segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).attach, (self.path_handle(),)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._dtype}{list(self._shape)} in {self._segment!r}>"

    @classmethod
    def _alone_in(cls, segment: Segment, dtype: object, shape: Shape, offset: int = 0) -> Self:
        try:
            shared = cls(segment, dtype, shape, offset)
        except BaseException:
            segment.close()
            raise
        shared._segment_is_ours = True
        return shared
