"""Arrays on their way between hosts: announced as a `Bulk`, sent in parts, put together again.

    packed = pack({"ids": ids})                    # nothing is copied
    for offset, data in packed.parts(): …          # each a `Part` with its bytes

    assembly = Assembly(bulk)                      # checked before memory is reserved
    assembly.add(offset, data)                     # until assembly.complete
    assembly.arrays()["ids"]

Each array begins at a multiple of 64, and `nbytes` is where the last one ends. Parts come in order;
what lies between two arrays is not sent. All has come when a part has ended at `nbytes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import ProtocolError
from penstock.graph.dtypes import dtype_name
from penstock.graph.layout import ALIGNMENT, layout
from penstock.wire.frames import Bytes, private_memory, read
from penstock.wire.messages import ArrayLayout
from penstock.wire.remote import PIECE, ArrayInfo, Bulk

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
# Of arrays in a bulk: each costs some bookkeeping, whatever its size.
MOST_ARRAYS: Final = 4096


@dataclass(frozen=True, eq=False)
class Packed:
    """Arrays where they lie, and what announces them."""

    bulk: Bulk
    data: tuple[memoryview, ...]

    def parts(self, piece: int = PIECE) -> Iterator[tuple[int, memoryview]]:
        """The bytes in order, each with its place; at most `piece` at a time."""
        for info, data in zip(self.bulk.arrays, self.data, strict=True):
            for begin in range(0, data.nbytes, piece):
                yield info.offset + begin, data[begin : begin + piece]


def pack(arrays: Mapping[str, npt.NDArray[Any]], dtypes: Mapping[str, str] | None = None) -> Packed:
    """Announces arrays; `dtypes` tells of those that are not what NumPy takes them for."""
    names = {name: (dtypes or {}).get(name) or dtype_name(arrays[name].dtype) for name in arrays}
    offsets, _ = layout((names[name], array.shape) for name, array in arrays.items())
    infos, data, end = [], [], 0
    for offset, (name, array) in zip(offsets, arrays.items(), strict=True):
        # One without bytes lies nowhere: no part would ever reach it.
        infos.append(ArrayInfo(name, names[name], array.shape, offset if array.nbytes else 0))
        data.append(_bytes(array))
        end = offset + array.nbytes if array.nbytes else end
    return Packed(Bulk(arrays=tuple(infos), nbytes=end), tuple(data))


class Assembly:
    """A bulk that is coming in. ProtocolError for one that makes no sense.

    How large it may be, the caller looks at first: its memory is reserved here.
    """

    def __init__(self, bulk: Bulk) -> None:
        if len(bulk.arrays) > MOST_ARRAYS:
            raise ProtocolError(f"a bulk has {len(bulk.arrays)} arrays; at most {MOST_ARRAYS}")
        if bulk.nbytes < 0:
            raise ProtocolError(f"a bulk has {bulk.nbytes} bytes")
        self._layouts = [ArrayLayout(i.name, i.dtype, i.shape, i.offset) for i in bulk.arrays]
        self._nbytes = bulk.nbytes
        self._memory = private_memory(bulk.nbytes)
        self._end = 0
        read(self._memory, self._layouts)  # complains of arrays that lie elsewhere

    @property
    def complete(self) -> bool:
        """Whether all bytes are here."""
        return self._end == self._nbytes

    def add(self, offset: int, data: Any) -> None:
        """The next part."""
        end = offset + (nbytes := memoryview(data).nbytes)
        if not 0 <= offset - self._end < ALIGNMENT or not offset < end <= self._nbytes:
            raise ProtocolError(
                f"a part of {nbytes} bytes goes from {offset} to {end}, after {self._end} of "
                f"{self._nbytes}"
            )
        self._memory[self._end : offset] = 0
        self._memory[offset:end] = np.frombuffer(data, np.uint8)
        self._end = end

    def arrays(self) -> Arrays:
        """The arrays, in private memory."""
        if not self.complete:
            raise ProtocolError(f"{self._end} of {self._nbytes} bytes of a bulk have come")
        return read(self._memory, self._layouts)


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    flat: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat.data
