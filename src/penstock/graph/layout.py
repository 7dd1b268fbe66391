"""Offsets of arrays that share one segment: arithmetic only, no memory is touched."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, SupportsIndex

from penstock.graph.dtypes import itemsize

# A cache line, and the widest vector load there is.
ALIGNMENT: Final = 64

Shape = SupportsIndex | Sequence[SupportsIndex]


class Layout(NamedTuple):
    """Offsets of the arrays in the order they were given, and their total size in bytes."""

    offsets: tuple[int, ...]
    nbytes: int


def align(offset: int) -> int:
    """Return the first aligned offset that is not before `offset`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def layout(specs: Iterable[tuple[object, Shape]]) -> Layout:
    """Place arrays, given as (dtype, shape), one after the other at aligned offsets."""
    offsets = []
    end = 0
    for dtype, shape in specs:
        offsets.append(end)
        end = align(end + array_nbytes(dtype, shape))
    return Layout(tuple(offsets), end)


def array_nbytes(dtype: object, shape: Shape) -> int:
    """Return the bytes of an array of this dtype and shape."""
    return itemsize(dtype) * math.prod(normal_shape(shape))


def normal_shape(shape: Shape) -> tuple[int, ...]:
    """Return `shape` as a tuple of plain integers; a single integer is the length of a vector."""
    # Called for every array of every batch, mostly with tuples, so these are tested for first.
    sizes = shape if isinstance(shape, (tuple, Sequence)) else (shape,)
    normal = tuple(map(operator.index, sizes))
    if min(normal, default=0) < 0:
        dimension, size = next((at, size) for at, size in enumerate(normal) if size < 0)
        raise ValueError(f"shape[{dimension}] is {size}: a size cannot be negative")
    return normal
