"""A graph at a server: this process knows its types and sizes, and holds none of its arrays.

That is enough to check arguments and to put batches together. Attributes of the whole graph and
splits are small: they are fetched once, when somebody first reads them. All other arrays stay at
the server, and reading them raises an error that says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.client.dist_calls import Array, DistQueries, Shape
from penstock.errors import GraphFormatError, PenstockError
from penstock.graph import Graph
from penstock.graph.derived import DerivedArrays
from penstock.graph.describe import summary
from penstock.graph.dtypes import dtype_name
from penstock.graph.features import FeatureSource
from penstock.graph.inventory import first_disagreement, key_text
from penstock.graph.layout import array_nbytes
from penstock.graph.lookup import pick
from penstock.graph.schema import ArrayKey, Arrays, EdgeType
from penstock.graph.user_ids import joined, pieces_of
from penstock.graph.view import ArrayView, GraphView, OwnIds
from penstock.kernels.id_table import Keys
from penstock.wire.messages import Outline
from penstock.wire.requests import ExternalIds

_FETCHED: Final = ("graph", "split")
# Nodes whose ids are fetched, and ids that are looked up, by one call.
_IDS_AT_ONCE: Final = 1 << 17


class FarArray:
    """An array at a server. `array` fetches it, if it is small enough for that."""

    def __init__(
        self, dtype: str, shape: Sequence[int], words: str, fetch: Callable[[], Array] | None
    ) -> None:
        self.dtype = dtype_name(dtype)
        self.shape = tuple(shape)
        self.nbytes = array_nbytes(self.dtype, self.shape)  # raises if there can be no such array
        self._words = words
        self._fetch = fetch
        self._fetched: Array | None = None
        self._fetching = threading.Lock()

    @property
    def array(self) -> Array:
        """The values; `PenstockError`, with advice, if they stay at the server."""
        if self._fetch is None:
            _stay(self._words)
        with self._fetching:
            if self._fetched is None:
                self._fetched = self._fetch()
                self._fetched.flags.writeable = False
            return self._fetched

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an array of a remote graph cannot be pickled: connect over there")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)}, {self._words}>"


class RemoteFeatures:
    """A `FeatureSource` for an attribute at a server: fetches the rows that are asked for."""

    def __init__(self, array: ArrayView, fetch: Callable[[Array], Array]) -> None:
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
        """Return the rows of these ids; see `FeatureSource`."""
        rows = self._fetch(ids)
        if out is None:
            return rows
        out[...] = rows
        return out


class RemoteGraph(GraphView):
    """A graph, or a part of one, at a server.

    Ids, types and sizes are those of the whole graph; rows are those that the server has.
    """

    def __init__(
        self,
        outline: Outline,
        address: str,
        server: DistQueries[Array, Shape],
    ) -> None:
        super().__init__(outline.schema)
        self._address = address
        self._server = server
        self._version = outline.version
        self._arrays = {entry.key: self._far(entry) for entry in outline.arrays}
        if (complaint := first_disagreement(self.schema, self._arrays)) is not None:
            raise GraphFormatError(
                f"the server at {address} describes an invalid graph: {complaint}"
            )
        self._ends: dict[EdgeType, Array] = {}
        self._making = threading.RLock()

    def _far(self, entry: Any) -> FarArray:
        key: ArrayKey = entry.key
        # `fetch` must not refer to `self`, so that the graph is freed with its last reference.
        fetch = partial(_whole, self._server, key) if key.group in _FETCHED else None
        words = f"{key_text(key)} of the graph at {self.address}"
        return FarArray(entry.dtype, entry.shape, words, fetch)

    # --- location ---

    @property
    def address(self) -> str:
        """The server's address."""
        return self._address

    def here(self, complaint: str) -> NoReturn:
        """Raise ValueError: the graph is not in this process."""
        raise ValueError(complaint)

    @property
    def version(self) -> str:
        """A digest of the content; `PenstockError` if the server does not know it."""
        if self._version is None:
            raise PenstockError(f"the server at {self.address} does not know its graph's version")
        return self._version

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    # --- ids ---

    def node_ids(self, node_type: str | None = None) -> Array:
        """Return the ids of all nodes of a type; those of a part are fetched."""
        if self.part is None:
            return super().node_ids(node_type)
        return self._server.get_node_ids(node_type=node_type)

    def own_nodes(self, node_type: str | None = None) -> OwnIds:
        """Return all nodes of a type, or those of a part; the server knows their ids."""
        return OwnIds(self.num_own_nodes(self._node_type(node_type)), is_away=True)

    def own_split(self, name: str, node_type: str | None = None) -> OwnIds:
        """Return the nodes of a split, which the server looks up."""
        found = pick("split", name, node_type, self.splits(node_type))
        return OwnIds(found.shape[0], is_away=True, split=name)

    def own_edges(self, edge_type: EdgeType | None = None) -> OwnIds:
        """Return all edges of a type, which the server knows."""
        return OwnIds(self.num_own_edges(self._edge_type(edge_type)), is_away=True)

    # --- users' ids ---

    def id_keys(self, node_type: str, nodes: npt.NDArray[np.int64] | None = None) -> Keys:
        """Return the users' ids of nodes, fetched in pieces; see `Graph.id_keys`."""
        wanted = self.node_ids(node_type or None) if nodes is None else nodes
        kind = self.id_kind(node_type or None)
        assert kind is not None  # whoever asks has checked
        pieces = (
            self._server.get_external_ids(node_type or None, wanted[at : at + _IDS_AT_ONCE])
            for at in range(0, len(wanted), _IDS_AT_ONCE)
        )
        return joined([piece.together() for piece in pieces], kind)

    def nodes_of_keys(self, node_type: str, keys: Keys) -> npt.NDArray[np.int64]:
        """Return the nodes with these ids, which the server looks up; -1 where there is none."""
        found = [
            self._server.look_up_ids(node_type or None, ExternalIds.of(piece))
            for piece in pieces_of(keys, _IDS_AT_ONCE)
        ]
        return np.concatenate([np.empty(0, np.int64), *found])

    # --- arrays ---

    @property
    def arrays(self) -> Mapping[ArrayKey, ArrayView]:
        """All arrays of the graph at the server."""
        return MappingProxyType(self._arrays)

    def coo(self, edge_type: EdgeType | None = None) -> Array:
        """Return the edges in order of ids, [2, edges]; they are fetched once."""
        name = self._edge_type(edge_type)
        with self._making:
            if name not in self._ends:
                self._ends[name] = self._within(name, self._server.get_edge_index(_told(name)))
            return self._ends[name]

    def _within(self, name: EdgeType, ends: Array) -> Array:
        """Return those edges of a part with both ends in it, if the server samples among these."""
        part = self.part
        if part is None or not part.alone:
            return ends
        here = np.ones(ends.shape[1], np.bool_)
        for end, node_type in zip(ends, (name[0], name[2]), strict=True):
            book = self._server.get_node_partition_book(node_type or None)
            here &= book.partition_of(end) == part.number
        return ends[:, here]

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return a copy of `coo` that the caller may change."""
        return self.coo(edge_type).astype(np.int64)

    def _features(self, key: ArrayKey) -> FeatureSource:
        return RemoteFeatures(self._arrays[key], partial(_rows, self._server, key))

    def prepare(self, needs: Sequence[DerivedArrays]) -> Arrays:
        """Return nothing: derived arrays are computed where the graph is."""
        return {}

    def lacking(self, needs: Sequence[DerivedArrays]) -> list[ArrayKey]:
        """Return an empty list: the server computes what is needed."""
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a graph at a server cannot be pickled: send its address, and call "
            "penstock.connect(address) over there"
        )

    def __repr__(self) -> str:
        return f"{summary(self._schema, self._arrays)} at {self.address}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise an error that explains that what only a `Graph` has needs its arrays."""
            if not name.startswith("_") and name in vars(Graph):
                _stay(f"{name} of the graph at {self.address}")
            raise AttributeError(f"a graph at a server has no attribute {name!r}")


def _whole(server: DistQueries[Array, Shape], key: ArrayKey) -> Array:
    """Fetch a split, or an array that belongs to the graph as a whole."""
    if isinstance(key.type, str) and key.group == "split":
        return server.get_node_ids(key.name, key.type or None)
    owner = key.type if any(key.type) else None
    return np.asarray(server.get_graph_attribute(key.name, owner))


def _rows(server: DistQueries[Array, Shape], key: ArrayKey, ids: Array) -> Array:
    """Rows of an attribute of nodes or edges, as they are stored."""
    if isinstance(key.type, str):
        return server.get_node_attribute(key.name, key.type or None, ids, stored=True)
    return server.get_edge_attribute(key.name, _told(key.type), ids, stored=True)


def _told(edge_type: EdgeType) -> EdgeType | None:
    """Return an edge type as a server is told it: None for that of a homogeneous graph."""
    return edge_type if any(edge_type) else None


def _stay(words: str) -> NoReturn:
    raise PenstockError(
        f"{words} lies at the server, and is not copied here as a whole: ask for rows "
        "of it by the dataset's get_node_feature, get_node_label or get_node_attribute"
    )
