"""A batch as aligned bytes: written into memory once, read where it lies.

    with BatchWriter(memory) as writer:              # a slot, or any bytes
        writer.array("n_id", "int64", 1000)[:] = …   # each at an offset that is a multiple of 64
        writer.reshape("n_id", 617)                  # fewer than there was room for
        layouts = writer.commit()
    arrays = read(memory, layouts)                   # over there: views, nothing is copied

A batch is begun, written, and committed or aborted; nobody may look at its bytes before the message
that carries its layouts. Memory is not cleared in between: who asks for an array fills all of it.
A layout that comes from elsewhere is not trusted, and can never reach outside the memory.

This module knows neither slots nor processes, and no batch by its contents.
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

# NumPy 1 has no more either.
_MOST_DIMENSIONS: Final = 32


class _State(Enum):
    BEGUN = "begun"
    COMMITTED = "committed"
    ABORTED = "aborted"


class BatchWriter:
    """Lays the arrays of one batch into `memory`, one after the other.

    As a context manager it aborts what was not committed.
    """

    def __init__(self, memory: Bytes) -> None:
        self._memory = _flat_bytes(memory)
        self.room = memory.nbytes
        self._layouts: dict[str, ArrayLayout] = {}
        self._ends: dict[str, int] = {}  # of each array as it is
        self._limits: dict[str, int] = {}  # of each array as it was given, whatever it shrank to
        self._end = 0
        self._state = _State.BEGUN

    @property
    def nbytes(self) -> int:
        """How far into the memory the batch reaches."""
        return max(self._ends.values(), default=0)

    def array(self, name: str, dtype: object, shape: Shape) -> npt.NDArray[Any]:
        """The next array, to be filled by the caller; in its storage dtype.

        Raises `SlotTooSmall` if it does not fit, and may then be asked for a smaller one.
        """
        if self._state is not _State.BEGUN:
            self._refuse()
        if name in self._layouts:
            raise ValueError(f"name is {name!r}: the batch has such an array already")
        storage, sizes, offset = storage_dtype(dtype), normal_shape(shape), self._end
        if len(sizes) > _MOST_DIMENSIONS:
            raise ValueError(
                f"{name!r} has {len(sizes)} dimensions: at most {_MOST_DIMENSIONS} are read"
            )
        end = offset + storage.itemsize * math.prod(sizes)
        if end > self._memory.nbytes:
            raise SlotTooSmall(end, self._memory.nbytes)
        array = np.ndarray(sizes, storage, self._memory, offset)
        self._layouts[name] = ArrayLayout(name, dtype_name(dtype), sizes, offset)
        self._ends[name] = self._limits[name] = end
        self._end = -(-end // ALIGNMENT) * ALIGNMENT
        return array

    def reshape(self, name: str, shape: Shape) -> npt.NDArray[Any]:
        """The array is the first elements of its room, in C order, in another shape.

        It keeps its room.
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

    def clear(self) -> None:
        """Begins anew: what was handed out so far means nothing."""
        if self._state is not _State.BEGUN:
            self._refuse()
        self._layouts.clear()
        self._ends.clear()
        self._limits.clear()
        self._end = 0

    def commit(self) -> tuple[ArrayLayout, ...]:
        """Ends the writing, once; the layouts are what `read` needs."""
        if self._state is not _State.BEGUN:
            self._refuse()
        self._state = _State.COMMITTED
        return tuple(self._layouts.values())

    def abort(self) -> None:
        """Ends the writing, once; what lies in the memory means nothing."""
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
    """The arrays of a batch by name: views that keep `memory` alive, writable if it is.

    Raises `ProtocolError` if any of them does not lie inside, or is no array we know.
    """
    arrays: Arrays = {}
    room = memory.nbytes
    # Written out, because this is done for every array of every batch.
    for planned in layouts:
        name, shape, offset = planned.name, planned.shape, planned.offset
        if name in arrays:
            raise ProtocolError(f"two arrays of the batch are called {name!r}")
        storage = STORAGE.get(planned.dtype)
        if (
            storage is None
            or len(shape) > _MOST_DIMENSIONS
            or min(shape, default=0) < 0
            or offset < 0
            or offset % ALIGNMENT
            or offset + storage.itemsize * math.prod(shape) > room
        ):
            _check_place(planned, room)  # says what is wrong
        try:
            arrays[name] = np.ndarray(shape, storage, memory, offset)
        except (ValueError, OverflowError) as error:  # sizes that NumPy has no arrays of
            raise ProtocolError(f"{_told(planned)} cannot be: {error}") from None
    return arrays


def check_inside(layouts: Iterable[ArrayLayout], nbytes: int) -> None:
    """Raises `ProtocolError` as `read` would of memory of so many bytes, before there is any."""
    names: set[str] = set()
    for planned in layouts:
        if planned.name in names:
            raise ProtocolError(f"two arrays are called {planned.name!r}")
        names.add(planned.name)
        _check_place(planned, nbytes)


def private_copy(memory: Bytes, layouts: Iterable[ArrayLayout]) -> Arrays:
    """As `read`, in memory of its own, packed: `memory` may be used for something else at once."""
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
    """Fresh bytes of this process's own, aligned as a slot is; not cleared."""
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
    except (ValueError, OverflowError) as error:  # a dtype or a shape there cannot be
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
