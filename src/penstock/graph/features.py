"""Rows of attributes, by the ids of nodes or edges: the one place where they are cut.

Workers, loaders and servers ask a `FeatureSource`, which a graph hands out for each attribute, and
do not know where the rows lie: in shared memory or a file (`LocalFeatures`), or at a server.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from penstock.graph.shared import SharedArray
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.gather import Rows


class FeatureSource(Protocol):
    """One attribute: a row for each node, or for each edge, of a type. Any thread may ask."""

    @property
    def dtype(self) -> str:
        """The name of the element type."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """The rows of these ids, in their order.

        Args:
            ids: Which rows; the same may be asked for twice.
            out: Where they are written, in the storage dtype; in new memory if it is None.

        Returns:
            `out`, or the new memory.

        Raises:
            ValueError: An id has no row, or `out` has another form.
        """


class LocalFeatures:
    """Rows that this process has mapped. They are looked at when some are first asked for."""

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
        """How many rows there are."""
        return self._array.shape[0]

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """The rows of these ids: see `FeatureSource`."""
        return self._rows.gather(ids, out)

    @cached_property
    def _rows(self) -> Rows:
        return Rows(self._array.array)
