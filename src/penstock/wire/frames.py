"""A batch as aligned bytes: written into memory once, and read in place.

    with BatchWriter(memory) as writer:              # a slot, or any bytes
        writer.array("n_id", "int64", 1000)[:] = …   # each at an offset that is a multiple of 64
        writer.reshape("n_id", 617)                  # fewer than the array has room for
        layouts = writer.commit()
    arrays = read(memory, layouts)                   # in the other process: views, no copies

A batch is begun, written, and committed or aborted. Its bytes must not be read before the message
with its layouts has arrived. Memory is not cleared in between, so the writer must fill every array
completely. Layouts from another process are not trusted: a view never reaches outside the memory.

This module must not know slots, processes or the contents of batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, NoReturn, Self

import numpy as np
import numpy.typing as npt

from penstock.errors import ProtocolError
from penstock.graph.dtypes import STORAGE, dtype_name, storage_dtype
from penstock.graph.layout import ALIGNMENT, Shape, array_nbytes, layout, normal_shape
from penstock.sampling.buffer import SlotTooSmall
from penstock.wire.messages import ArrayLayout

Bytes = npt.NDArray[np.uint8]
Arrays = dict[str, npt.NDArray[Any]]

# The limit of NumPy 1.
_MOST_DIMENSIONS: Final = 32


class _State(Enum):
    BEGUN = "begun"
    COMMITTED = "committed"
    ABORTED = "aborted"


class BatchWriter:
    """Places the arrays of one batch in `memory`, one after the other.

    As a context manager it aborts a batch that was not committed.
    """

    def __init__(self, memory: Bytes) -> None:
        self._memory = _flat_bytes(memory)
        self.room = memory.nbytes
        self._layouts: dict[str, ArrayLayout] = {}
        self._ends: dict[str, int] = {}  # the end of each array in its current shape
        self._limits: dict[str, int] = {}  # the end of each array in its first shape
        self._end = 0
        self._state = _State.BEGUN

    @property
    def nbytes(self) -> int:
        """The end of the batch in the memory, in bytes."""
        return max(self._ends.values(), default=0)

    def array(self, name: str, dtype: object, shape: Shape) -> npt.NDArray[Any]:
        """Return the next array, in its storage dtype, for the caller to fill.

        Args:
            name: A name that the batch does not have yet.
            dtype: The dtype of the array.
            shape: The shape; `reshape` can make it smaller later.

        Raises:
            SlotTooSmall: It does not fit. The caller may then ask for a smaller one.
        """
        if self._state is not _State.BEGUN:
            self._refuse()
        if name in self._layouts:
            raise ValueError(f"name is {name!r}: the batch has such an array already")
        storage, offset = storage_dtype(dtype), self._end
        try:
            array = np.ndarray(shape, storage, self._memory, offset)
        except (TypeError, ValueError, OverflowError):
            self._check_fits(name, storage, shape)
            raise
        if array.shape != shape or array.ndim > _MOST_DIMENSIONS:  # NumPy takes -1 for the rest
            self._check_fits(name, storage, shape)
        end = offset + array.nbytes
        self._layouts[name] = ArrayLayout(name, dtype_name(dtype), array.shape, offset)
        self._ends[name] = self._limits[name] = end
        self._end = -(-end // ALIGNMENT) * ALIGNMENT
        return array

    def reshape(self, name: str, shape: Shape) -> npt.NDArray[Any]:
        """Give an array another shape: the first elements of its memory, in C order.

        Its memory stays reserved, so the shape may grow again up to that size.
        """
        if self._state is not _State.BEGUN:
            self._refuse()
        if (now := self._layouts.get(name)) is None:
            raise ValueError(f"name is {name!r}: the batch has no such array")
        storage, sizes, offset = storage_dtype(now.dtype), normal_shape(shape), now.offset
        end = offset + storage.itemsize * math.prod(sizes)
        if end > self._limits[name]:
            room = self._limits[name] - offset
            raise ValueError(f"shape is {list(sizes)}: {name!r} has room for {room} bytes")
        self._layouts[name] = ArrayLayout(name, now.dtype, sizes, offset)
        self._ends[name] = end
        return np.ndarray(sizes, storage, self._memory, offset)

    def _check_fits(self, name: str, storage: np.dtype[Any], shape: Shape) -> None:
        """Raise what is wrong with the next array. NumPy checks the same, and says less."""
        sizes = normal_shape(shape)
        if len(sizes) > _MOST_DIMENSIONS:
            raise ValueError(
                f"{name!r} has {len(sizes)} dimensions: at most {_MOST_DIMENSIONS} are read"
            )
        end = self._end + storage.itemsize * math.prod(sizes)
        if end > self.room:
            raise SlotTooSmall(end, self.room)

    def clear(self) -> None:
        """Start again without arrays; those returned so far are not part of the batch."""
        if self._state is not _State.BEGUN:
            self._refuse()
        self._layouts.clear()
        self._ends.clear()
        self._limits.clear()
        self._end = 0

    def commit(self) -> tuple[ArrayLayout, ...]:
        """End the writing, once, and return the layouts that `read` needs."""
        if self._state is not _State.BEGUN:
            self._refuse()
        self._state = _State.COMMITTED
        return tuple(self._layouts.values())

    def abort(self) -> None:
        """End the writing, once; the contents of the memory are then undefined."""
        if self._state is not _State.BEGUN:
            self._refuse()
        self._state = _State.ABORTED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._state is _State.BEGUN:
            self.abort()

    def _refuse(self) -> NoReturn:
        raise ValueError(f"this batch has been {self._state.value} already")


def read(memory: Bytes, layouts: Iterable[ArrayLayout]) -> Arrays:
    """Return the arrays of a batch by name: views that keep `memory` alive, writable if it is.

    Raises:
        ProtocolError: A layout reaches outside the memory, or its dtype or shape is not valid.
    """
    arrays: Arrays = {}
    room = memory.nbytes
    # The checks are inlined, because this runs for every array of every batch.
    for planned in layouts:
        name, shape, offset = planned.name, planned.shape, planned.offset
        if name in arrays:
            raise ProtocolError(f"two arrays of the batch are called {name!r}")
        storage = STORAGE.get(planned.dtype)
        if (
            storage is None
            or len(shape) > _MOST_DIMENSIONS
            or offset < 0  # which NumPy takes
            or offset % ALIGNMENT
        ):
            _check_place(planned, room)  # says what is wrong
        try:
            # NumPy checks that it lies inside the memory.
            arrays[name] = array = np.ndarray(shape, storage, memory, offset)
        except (TypeError, ValueError, OverflowError) as error:
            _check_place(planned, room)
            raise ProtocolError(f"{_told(planned)} cannot be: {error}") from None
        if array.shape != shape:  # NumPy takes -1 for the rest of the memory
            _check_place(planned, room)
    return arrays


def check_inside(layouts: Iterable[ArrayLayout], nbytes: int) -> None:
    """Raise `ProtocolError` as `read` would with memory of `nbytes` bytes, without that memory."""
    names: set[str] = set()
    for planned in layouts:
        if planned.name in names:
            raise ProtocolError(f"two arrays are called {planned.name!r}")
        names.add(planned.name)
        _check_place(planned, nbytes)


def private_copy(memory: Bytes, layouts: Iterable[ArrayLayout]) -> Arrays:
    """Return packed copies of the arrays that `read` returns, so `memory` can be reused at once."""
    layouts = tuple(layouts)
    arrays = read(memory, layouts)
    offsets, nbytes = layout((planned.dtype, planned.shape) for planned in layouts)
    room = private_memory(nbytes)
    moved = (
        ArrayLayout(planned.name, planned.dtype, planned.shape, offset)
        for planned, offset in zip(layouts, offsets, strict=True)
    )
    copies = read(room, moved)
    for name, array in arrays.items():
        copies[name][...] = array
    return copies


def private_memory(nbytes: int) -> Bytes:
    """Return new private memory, aligned like a slot and not cleared."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]


def _check_place(planned: ArrayLayout, nbytes: int) -> None:
    if len(planned.shape) > _MOST_DIMENSIONS:
        raise ProtocolError(f"array {planned.name!r} has {len(planned.shape)} dimensions")
    if planned.offset < 0 or planned.offset % ALIGNMENT:
        raise ProtocolError(f"{_told(planned)} does not begin at a multiple of {ALIGNMENT}")
    try:
        storage_dtype(planned.dtype)
        end = _end_of(planned)
    except (ValueError, OverflowError) as error:  # a dtype or a shape that is not valid
        raise ProtocolError(f"{_told(planned)} cannot be: {error}") from None
    if end > nbytes:
        raise ProtocolError(f"{_told(planned)} ends at {end}, the memory at {nbytes}")


def _told(planned: ArrayLayout) -> str:
    shape = list(planned.shape)
    return f"array {planned.name!r} ({planned.dtype}{shape} at {planned.offset})"


def _end_of(planned: ArrayLayout) -> int:
    return planned.offset + array_nbytes(planned.dtype, planned.shape)


def _flat_bytes(memory: Bytes) -> Bytes:
    if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.c_contiguous:
        raise ValueError(f"memory is {memory.dtype}{list(memory.shape)}: it must be flat bytes")
    if not memory.flags.writeable:
        raise ValueError("memory is read-only: a batch cannot be written to it")
    return memory
