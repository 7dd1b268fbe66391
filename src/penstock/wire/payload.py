"""Arrays on their way between hosts: the payload of a message, and how it is read again.

    packed = pack({"ids": ids})                    # nothing large is copied
    stream.send(Call(…, arrays=packed.arrays), payload=packed.views)

    memory = reserved(arrays, nbytes)              # over there: checked before memory is taken
    read(memory, arrays)["ids"]                    # once all bytes have come

In a payload arrays lie one after the other, each at a multiple of 64. A large one is sent from
where it lies. Small ones are put together first, since a buffer costs as much as copying some of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import ProtocolError
from penstock.graph.dtypes import dtype_name
from penstock.graph.layout import align, array_nbytes
from penstock.wire.frames import Bytes, check_inside, private_memory, read
from penstock.wire.messages import ArrayLayout

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
# Of arrays in a payload: each costs some bookkeeping, whatever its size.
MOST_ARRAYS: Final = 4096
# Arrays up to this many bytes are put together, up to as many in one buffer.
SMALL: Final = 64 << 10


@dataclass(frozen=True, eq=False)
class Packed:
    """Arrays where they lie: `arrays` announces them, `views` are their bytes in order."""

    arrays: tuple[ArrayLayout, ...]
    views: tuple[memoryview, ...]
    nbytes: int


def pack(arrays: Mapping[str, npt.NDArray[Any]], dtypes: Mapping[str, str] | None = None) -> Packed:
    """Packs arrays; `dtypes` tells of those that are not what NumPy takes them for."""
    if not arrays:
        return NOTHING
    names = {name: (dtypes or {}).get(name) or dtype_name(arrays[name].dtype) for name in arrays}
    layouts = [ArrayLayout(name, names[name], array.shape, 0) for name, array in arrays.items()]
    flat = [np.ascontiguousarray(array) for array in arrays.values()]
    return _packed(layouts, flat)


def pack_batch(memory: Bytes, layouts: Sequence[ArrayLayout]) -> Packed:
    """Packs a batch that lies in `memory`, where its arrays may lie apart."""
    return _packed(layouts, list(read(memory, layouts).values()))


def reserved(arrays: Sequence[ArrayLayout], nbytes: int) -> Bytes:
    """Memory for a payload of `nbytes` bytes. ProtocolError if the arrays do not fit it.

    How large it may be, the caller looks at first.
    """
    if len(arrays) > MOST_ARRAYS:
        raise ProtocolError(f"a payload has {len(arrays)} arrays; at most {MOST_ARRAYS}")
    check_inside(arrays, nbytes)
    return private_memory(nbytes)


def _packed(layouts: Sequence[ArrayLayout], arrays: Sequence[npt.NDArray[Any]]) -> Packed:
    moved, end = [], 0
    for each in layouts:
        nbytes = array_nbytes(each.dtype, each.shape)
        # One without bytes lies at the beginning: there is always room for it.
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
    """The bytes of a payload, what lies between arrays included; `spans` are in order."""
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
