"""Payloads: arrays as the bytes that follow a message between hosts, and how they are read.

    packed = pack({"ids": ids})                    # nothing large is copied
    stream.send(Call(…, arrays=packed.arrays), payload=packed.views)

    memory = reserved(arrays, nbytes)              # at the receiver: checked, then allocated
    read(memory, arrays)["ids"]                    # once all bytes have arrived

Arrays follow each other in a payload, each at a multiple of 64. A large array is sent from its own
memory. Small arrays are joined first, because one more buffer costs as much as copying several of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import ProtocolError
from penstock.graph.dtypes import dtype_name
from penstock.graph.layout import align, array_nbytes
from penstock.wire.frames import Bytes, check_inside, private_memory, read
from penstock.wire.messages import ArrayLayout

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
# The most arrays in a payload. Each has a cost that does not depend on its size.
MOST_ARRAYS: Final = 4096
# Arrays up to this many bytes are joined, in buffers of about this size.
SMALL: Final = 64 << 10


@dataclass(frozen=True, eq=False)
class Packed:
    """A payload: `arrays` are the layouts for the message, `views` the bytes in order."""

    arrays: tuple[ArrayLayout, ...]
    views: tuple[memoryview, ...]
    nbytes: int


def pack(arrays: Mapping[str, npt.NDArray[Any]], dtypes: Mapping[str, str] | None = None) -> Packed:
    """Return arrays as a payload; large ones are not copied.

    Args:
        arrays: The arrays by name.
        dtypes: The dtypes, by name, of arrays whose NumPy dtype is not their real one.
    """
    if not arrays:
        return NOTHING
    names = {name: (dtypes or {}).get(name) or dtype_name(arrays[name].dtype) for name in arrays}
    layouts = [ArrayLayout(name, names[name], array.shape, 0) for name, array in arrays.items()]
    flat = [np.ascontiguousarray(array) for array in arrays.values()]
    return _packed(layouts, flat)


def pack_batch(memory: Bytes, layouts: Sequence[ArrayLayout]) -> Packed:
    """Return a batch in `memory` as a payload. Its arrays need not be adjacent."""
    return _packed(layouts, list(read(memory, layouts).values()))


class Memory(Protocol):
    """Lends memory that is used again."""

    def lend(self, nbytes: int) -> Bytes:
        """Return so many bytes."""


def reserved(arrays: Sequence[ArrayLayout], nbytes: int, memory: Memory | None = None) -> Bytes:
    """Return memory for a payload of `nbytes` bytes. The caller must check that size first.

    Args:
        arrays: The arrays of the payload.
        nbytes: Its size.
        memory: Lends the memory; None: it is new.

    Raises:
        ProtocolError: There are too many arrays, or they do not fit.
    """
    if len(arrays) > MOST_ARRAYS:
        raise ProtocolError(f"a payload has {len(arrays)} arrays; at most {MOST_ARRAYS}")
    check_inside(arrays, nbytes)
    return private_memory(nbytes) if memory is None else memory.lend(nbytes)


def _packed(layouts: Sequence[ArrayLayout], arrays: Sequence[npt.NDArray[Any]]) -> Packed:
    moved, end = [], 0
    for each in layouts:
        nbytes = array_nbytes(each.dtype, each.shape)
        # An array without bytes is placed at the beginning, where it always fits.
        offset = align(end) if nbytes else 0
        moved.append(ArrayLayout(each.name, each.dtype, each.shape, offset))
        end = max(end, offset + nbytes)
    spans = [
        (layout.offset, array.reshape(-1).view(np.uint8))
        for layout, array in zip(moved, arrays, strict=True)
        if array.nbytes
    ]
    return Packed(tuple(moved), tuple(_views(spans)), end)


def _views(spans: Sequence[tuple[int, Bytes]]) -> Iterator[memoryview]:
    """Yield the bytes of a payload, including padding between arrays; `spans` are in order."""
    small, end = bytearray(), 0
    for offset, data in spans:
        small += bytes(offset - end)
        end = offset + data.nbytes
        if data.nbytes <= SMALL:
            small += data.data
            if len(small) > SMALL:
                yield memoryview(small)
                small = bytearray()
            continue
        if small:
            yield memoryview(small)
            small = bytearray()
        yield data.data
    if small:
        yield memoryview(small)


NOTHING: Final = Packed((), (), 0)
