"""Rows of attributes by the ids of nodes or edges: the only place where rows are gathered.

Workers, loaders and servers ask a `FeatureSource`, which a graph returns for each attribute. They
do not know where the rows are: in shared memory or a file (`LocalFeatures`), or at a server.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from penstock.graph.shared import SharedArray
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.gather import Rows


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
