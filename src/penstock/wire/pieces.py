"""A batch on its way over the network: packed, and in pieces of a few megabytes.

In a slot the arrays of a batch lie apart, each in room for the largest there could be. What travels
is the arrays alone, one after the other. A large one is sent from where it lies, in pieces that the
other end can receive into memory it has just used: larger ones would be paid for in page faults. Of
small ones several are put together, since a message costs as much as copying some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.graph.layout import align, array_nbytes
from penstock.wire.frames import Bytes, read
from penstock.wire.messages import ArrayLayout

PIECE: Final = 2 << 20
# Arrays up to this many bytes are put together, up to as many in one piece.
SMALL: Final = 256 << 10

Span: TypeAlias = tuple[int, memoryview]


def packed(layouts: Sequence[ArrayLayout]) -> tuple[tuple[ArrayLayout, ...], int]:
    """Where the arrays lie when they are packed, and where the last of them ends.

    Those without any bytes lie at the beginning: there is always room for them.
    """
    moved, end = [], 0
    for each in layouts:
        nbytes = array_nbytes(each.dtype, each.shape)
        offset = align(end) if nbytes else 0
        moved.append(ArrayLayout(each.name, each.dtype, each.shape, offset))
        end = max(end, offset + nbytes)
    return tuple(moved), end


def pieces_of(
    memory: Bytes, layouts: Sequence[ArrayLayout], moved: Sequence[ArrayLayout]
) -> Iterator[Span]:
    """The bytes of a batch that lies in `memory`, with their offsets when it is packed, in order.

    Between two pieces may be bytes that nobody looks at, up to where the next array may begin.
    """
    arrays = read(memory, layouts)
    small: list[tuple[int, Bytes]] = []
    for each in moved:
        data = arrays[each.name].reshape(-1).view(np.uint8)
        if small and each.offset + data.nbytes - small[0][0] > SMALL:
            yield _together(small)
            small = []
        if data.nbytes > SMALL:
            for at in range(0, data.nbytes, PIECE):
                yield each.offset + at, _span(data[at : at + PIECE])
        elif data.nbytes:
            small.append((each.offset, data))
    if small:
        yield _together(small)


def follows(offset: int, end: int) -> bool:
    """Whether a piece may begin at `offset`, after one that reached to `end`."""
    return offset in (end, align(end))


def _together(small: Sequence[tuple[int, Bytes]]) -> Span:
    begin, (last, data) = small[0][0], small[-1]
    joined = np.zeros(last + data.nbytes - begin, np.uint8)
    for offset, each in small:
        joined[offset - begin : offset - begin + each.nbytes] = each
    return begin, _span(joined)


def _span(data: Any) -> memoryview:
    return memoryview(data)
