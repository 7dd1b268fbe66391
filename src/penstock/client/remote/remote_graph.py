"""A graph that is elsewhere: all of it is known but its numbers.

Arguments can be checked by it, and batches put together. What belongs to the graph as a whole, and
splits, are small: they are fetched when somebody looks at them, once. Everything else stays where
it is, and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import GraphFormatError, PenstockError, ServerGone
from penstock.graph import Graph
from penstock.graph.checksum import counts
from penstock.graph.derived import DerivedArrays
from penstock.graph.describe import summary
from penstock.graph.dtypes import dtype_name
from penstock.graph.features import FeatureSource
from penstock.graph.inventory import first_disagreement, key_text
from penstock.graph.layout import array_nbytes
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.graph.shared import SharedArray
from penstock.wire.messages import Outline

Array = npt.NDArray[Any]

_FETCHED: Final = ("graph", "split")


class Fetcher(Protocol):
    """Asks for numbers of the graph."""

    def whole(self, key: ArrayKey) -> Array:
        """An array that belongs to the graph as a whole, or a split."""

    def ends(self, edge_type: EdgeType) -> Array:
        """The edges of a type, [2, edges], in the order of their ids."""

    def rows(self, key: ArrayKey, ids: Array) -> Array:
        """Rows of an attribute."""

    def nodes(self, node_type: str | None) -> Array:
        """The ids of all nodes of a type that are there."""


class FarArray(SharedArray):
    """An array that lies elsewhere. `array` fetches it, where it is small enough for that."""

    def __init__(
        self, dtype: str, shape: Sequence[int], words: str, fetch: Callable[[], Array] | None
    ) -> None:
        self._dtype = dtype_name(dtype)
        self._shape = tuple(shape)
        self._words = words
        self._fetch = fetch
        self._fetched: Array | None = None
        self._fetching = threading.Lock()
        array_nbytes(self._dtype, self._shape)  # complains of a shape there cannot be

    @property
    def array(self) -> Array:
        """The numbers; `PenstockError`, with advice, if they stay where they are."""
        if self._fetch is None:
            self._stay()
        with self._fetching:
            if self._fetched is None:
                self._fetched = self._fetch()
                self._fetched.flags.writeable = False
            return self._fetched

    @property
    def nbytes(self) -> int:
        """Bytes of the array, over there."""
        return array_nbytes(self._dtype, self._shape)

    @property
    def writable(self) -> bool:
        return False

    @property
    def segment(self) -> Any:
        """There is none here."""
        self._stay()

    def close(self) -> None:
        """There is nothing to let go of."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an array of a remote graph cannot be pickled: connect over there")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._dtype}{list(self._shape)}, {self._words}>"

    def _stay(self) -> NoReturn:
        raise PenstockError(
            f"{self._words} lies at the server, and is not copied here as a whole: ask for rows "
            "of it by the dataset's get_node_feature, get_node_label or get_node_attribute"
        )


class RemoteFeatures:
    """Rows of an attribute at a server: fetched, those that are asked for. A `FeatureSource`."""

    def __init__(self, array: SharedArray, fetch: Callable[[Array], Array]) -> None:
        self._array = array
        self._fetch = fetch

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
        """How many rows the server has."""
        return self._array.shape[0]

    def gather(self, ids: Array, out: Array | None = None) -> Array:
        """The rows of these ids: see `FeatureSource`."""
        rows = self._fetch(ids)
        if out is None:
            return rows
        out[...] = rows
        return out


class RemoteGraph(Graph):
    """A graph at a server. Of a part of one, `sizes` has the nodes of the whole, by type: ids are
    always those of the whole, while all else is about the part."""

    def __init__(
        self,
        outline: Outline,
        address: str,
        fetcher: Fetcher,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.address = address
        self._sizes = sizes
        self._fetcher = fetcher
        self._schema = schema = outline.schema
        self._version = outline.version
        self._arrays = {entry.key: self._far(entry) for entry in outline.arrays}
        if (complaint := first_disagreement(schema, self._arrays)) is not None:
            raise GraphFormatError(f"the server at {address} tells of a graph: {complaint}")
        self._num_nodes = {info.name: info.num_nodes for info in schema.nodes}
        self._num_edges = {info.name: info.num_edges for info in schema.edges}
        self._ends: dict[EdgeType, Array] = {}
        self._making = threading.RLock()

    def _far(self, entry: Any) -> FarArray:
        key: ArrayKey = entry.key
        # Nothing of ours, so that a graph is gone as soon as nobody wants it.
        fetch = partial(self._fetcher.whole, key) if key.group in _FETCHED else None
        words = f"{key_text(key)} of the graph at {self.address}"
        return FarArray(entry.dtype, entry.shape, words, fetch)

    @property
    def version(self) -> str:
        """A digest of the content, as far as the server knows it."""
        if self._version is None:
            raise PenstockError(f"the server at {self.address} does not know its graph's version")
        return self._version

    def derived(self, derived: DerivedArrays) -> tuple[SharedArray, ...]:
        """Derived arrays are made where the graph is."""
        raise PenstockError(f"{key_text(derived.keys[0])} is made by the server at {self.address}")

    def coo(self, edge_type: EdgeType | None = None) -> Array:
        """The edges in the order of their ids, [2, edges]: fetched when first asked for."""
        name = self._edge_type(edge_type)
        with self._making:
            if name not in self._ends:
                self._ends[name] = self._fetcher.ends(name)
            return self._ends[name]

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """As `coo`, to change."""
        return self.coo(edge_type).astype(np.int64)

    def end_of_ids(self, node_type: str | None = None) -> int:
        """Above all ids of nodes of a type."""
        return self._sizes.get(self._node_type(node_type), self.num_nodes(node_type))

    def node_ids(self, node_type: str | None = None) -> Array:
        """The ids of all nodes of a type; those of a part are fetched."""
        if not self._sizes:
            return np.arange(self.num_nodes(node_type))
        return self._fetcher.nodes(node_type)

    def _features(self, key: ArrayKey, array: SharedArray) -> FeatureSource:
        return RemoteFeatures(array, partial(self._fetcher.rows, key))

    def close(self) -> None:
        """There is nothing to let go of."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a graph at a server cannot be pickled: send its address, and call "
            "penstock.connect(address) over there"
        )

    def __repr__(self) -> str:
        return f"{summary(self._schema, self._arrays)} at {self.address}"


def end_of_ids(graph: Graph, node_type: str | None) -> int:
    """Above all ids of nodes of a type, wherever the graph is."""
    if isinstance(graph, RemoteGraph):
        return graph.end_of_ids(node_type)
    return graph.num_nodes(node_type)


def check_same(before: Outline, now: Outline, address: str) -> None:
    """`ServerGone` if a server has come back with another graph: batches would be others."""
    known = before.version is not None and now.version is not None
    if before.schema != now.schema:
        what = "with other types, sizes or attributes"
    elif _content(before) != _content(now):
        what = "with other arrays"
    elif known and before.version != now.version:
        what = f"version {now.version}, where it was {before.version}"
    else:
        return
    raise ServerGone(
        f"the server at {address} has come back with another graph ({what}): what was begun cannot "
        "be gone on with. Connect anew, or start the server with the graph it had"
    )


def _content(outline: Outline) -> set[tuple[ArrayKey, str, tuple[int, ...]]]:
    """Without what follows from the rest, and is made when it is needed."""
    return {(each.key, each.dtype, each.shape) for each in outline.arrays if counts(each.key)}
