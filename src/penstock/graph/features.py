"""Rows of attributes by the ids of nodes or edges: the only place where rows are gathered.

Workers, loaders and servers ask a `FeatureSource`, which a graph returns for each attribute. They
do not know where the rows are: in shared memory or a file (`LocalFeatures`), also where only some
ids have one (`PartFeatures`), or at a server.

A source gives rows as they are stored. What a user asks for, and is stored in a smaller type, comes
from a source over it (`DecodedFeatures`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from penstock.graph.codec import Codec
from penstock.graph.shared import SharedArray
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.gather import Rows
from penstock.kernels.members import Members


class FeatureSource(Protocol):
    """One attribute: a row for each node, or for each edge, of a type. Thread-safe."""

    @property
    def dtype(self) -> str:
        """The name of the element type."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return the rows of these ids, in their order.

        Args:
            ids: Which rows; an id may occur more than once.
            out: Where rows are written, in the storage dtype; None allocates memory.

        Returns:
            `out`, or the allocated array.

        Raises:
            ValueError: An id has no row, or `out` has another dtype or shape.
        """


class LocalFeatures:
    """Rows that this process has mapped. The array is viewed when rows are first asked for."""

    def __init__(self, array: SharedArray) -> None:
        self._array = array

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return self._array.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self._array.shape[1:]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._array.shape[0]

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return the rows of these ids; see `FeatureSource`."""
        return self._rows.gather(ids, out)

    @cached_property
    def _rows(self) -> Rows:
        return Rows(self._array.array)


class PartFeatures(LocalFeatures):
    """Rows of a part of a graph, found by the ids of the whole graph.

    Args:
        array: A row for each id that is here, in the order of ids.
        members: Which ids these are.
        foreign: Says, in words, where an id is that is not here.
    """

    def __init__(self, array: SharedArray, members: Members, foreign: Callable[[int], str]) -> None:
        super().__init__(array)
        self._members = members
        self._foreign = foreign

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return the rows of these ids; an error names an id of another part, and that part."""
        return super().gather(rows_here(self._members, ids, self._foreign), out)


class DecodedFeatures:
    """Rows of an attribute as they are read.

    Args:
        stored: Rows as they are stored.
        codec: How they are read.
    """

    def __init__(self, stored: FeatureSource, codec: Codec) -> None:
        self._stored = stored
        self._codec = codec

    @property
    def dtype(self) -> str:
        """The name of the element type that is read."""
        return self._codec.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self._stored.row_shape

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._stored.num_rows

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return the rows of these ids; see `FeatureSource`."""
        rows = self._stored.gather(ids)
        if out is not None and (out.shape != rows.shape or out.dtype != np.float32):
            raise ValueError(
                f"out must be float32 of shape {list(rows.shape)}, "
                f"not {out.dtype} {list(out.shape)}"
            )
        return self._codec.decode(rows, out)


def rows_here(members: Members, ids: Ids, foreign: Callable[[int], str], label: str = "ids") -> Ids:
    """Return the rows of ids.

    Args:
        members: Which ids have a row.
        ids: The ids.
        foreign: Says, in words, where an id is that has none.
        label: How the ids are called in errors.

    Raises:
        ValueError: An id has no row; the error names it.
    """
    rows = members.rows(ids)
    if len(rows) and rows.min() < 0:
        at = int(np.argmax(rows < 0))
        raise ValueError(f"{label}[{at}] is {ids[at]}, {foreign(int(ids[at]))}")
    return rows
