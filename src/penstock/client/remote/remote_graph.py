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
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.client.dist_calls import Array, DistQueries, Shape
from penstock.errors import GraphFormatError, PenstockError, ServerGone
from penstock.graph import Graph
from penstock.graph.checksum import counts
from penstock.graph.derived import DerivedArrays
from penstock.graph.describe import summary
from penstock.graph.dtypes import dtype_name
from penstock.graph.features import FeatureSource
from penstock.graph.inventory import first_disagreement, key_text
from penstock.graph.layout import array_nbytes
from penstock.graph.lookup import pick
from penstock.graph.schema import ArrayKey, Arrays, EdgeType
from penstock.graph.view import ArrayView, GraphView, OwnIds
from penstock.wire.messages import Outline

_FETCHED: Final = ("graph", "split")


class FarArray:
    """An array that lies elsewhere. `array` fetches it, where it is small enough for that."""

    def __init__(
        self, dtype: str, shape: Sequence[int], words: str, fetch: Callable[[], Array] | None
    ) -> None:
        self.dtype = dtype_name(dtype)
        self.shape = tuple(shape)
        self.nbytes = array_nbytes(self.dtype, self.shape)  # complains of one there cannot be
        self._words = words
        self._fetch = fetch
        self._fetched: Array | None = None
        self._fetching = threading.Lock()

    @property
    def array(self) -> Array:
        """The numbers; `PenstockError`, with advice, if they stay where they are."""
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
    """Rows of an attribute at a server: fetched, those that are asked for. A `FeatureSource`."""

    def __init__(self, server: DistQueries[Array, Shape], key: ArrayKey, array: ArrayView) -> None:
        self._server = server
        self._key = key
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
        """How many rows the server has."""
        return self._array.shape[0]

    def gather(self, ids: Array, out: Array | None = None) -> Array:
        """The rows of these ids: see `FeatureSource`."""
        rows = self._fetched(ids)
        if out is None:
            return rows
        out[...] = rows
        return out

    def _fetched(self, ids: Array) -> Array:
        name, owner = self._key.name, self._key.type
        if isinstance(owner, str):
            return self._server.get_node_attribute(name, owner or None, ids)
        return self._server.get_edge_attribute(name, _told(owner), ids)


class RemoteGraph(GraphView):
    """A graph at a server. Of a part of one, `sizes` has the nodes of the whole, by type: ids are
    always those of the whole, while all else is about the part."""

    def __init__(
        self,
        outline: Outline,
        address: str,
        server: DistQueries[Array, Shape],
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(outline.schema)
        self._address = address
        self._sizes = sizes
        self._server = server
        self._version = outline.version
        self._arrays = {entry.key: self._far(entry) for entry in outline.arrays}
        if (complaint := first_disagreement(self.schema, self._arrays)) is not None:
            raise GraphFormatError(f"the server at {address} tells of a graph: {complaint}")
        self._ends: dict[EdgeType, Array] = {}
        self._making = threading.RLock()

    def _far(self, entry: Any) -> FarArray:
        key: ArrayKey = entry.key
        # Nothing of ours, so that a graph is gone as soon as nobody wants it.
        fetch = partial(_whole, self._server, key) if key.group in _FETCHED else None
        words = f"{key_text(key)} of the graph at {self.address}"
        return FarArray(entry.dtype, entry.shape, words, fetch)

    # --- where it is ---

    @property
    def address(self) -> str:
        """The server's."""
        return self._address

    def here(self, complaint: str) -> NoReturn:
        """It is not."""
        raise ValueError(complaint)

    @property
    def version(self) -> str:
        """A digest of the content, as far as the server knows it."""
        if self._version is None:
            raise PenstockError(f"the server at {self.address} does not know its graph's version")
        return self._version

    def close(self) -> None:
        """There is nothing to let go of."""

    # --- ids ---

    def end_of_ids(self, node_type: str | None = None) -> int:
        """Above all ids of nodes of a type."""
        return self._sizes.get(self._node_type(node_type), self.num_nodes(node_type))

    def node_ids(self, node_type: str | None = None) -> Array:
        """The ids of all nodes of a type; those of a part are fetched."""
        if not self._sizes:
            return super().node_ids(node_type)
        return self._server.get_node_ids(node_type=node_type)

    def own_nodes(self, node_type: str | None = None) -> OwnIds:
        """All nodes of a type, which the server knows."""
        return OwnIds(self.num_nodes(node_type), is_away=True)

    def own_split(self, name: str, node_type: str | None = None) -> OwnIds:
        """The nodes of a split, which the server looks up."""
        found = pick("split", name, node_type, self.splits(node_type))
        return OwnIds(found.shape[0], is_away=True, split=name)

    def own_edges(self, edge_type: EdgeType | None = None) -> OwnIds:
        """All edges of a type, which the server knows."""
        return OwnIds(self.num_edges(edge_type), is_away=True)

    # --- numbers ---

    @property
    def arrays(self) -> Mapping[ArrayKey, ArrayView]:
        """All arrays of the graph, over there."""
        return MappingProxyType(self._arrays)

    def coo(self, edge_type: EdgeType | None = None) -> Array:
        """The edges in the order of their ids, [2, edges]: fetched when first asked for."""
        name = self._edge_type(edge_type)
        with self._making:
            if name not in self._ends:
                self._ends[name] = self._server.get_edge_index(_told(name))
            return self._ends[name]

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """As `coo`, to change."""
        return self.coo(edge_type).astype(np.int64)

    def _features(self, key: ArrayKey) -> FeatureSource:
        return RemoteFeatures(self._server, key, self._arrays[key])

    def prepare(self, needs: Sequence[DerivedArrays]) -> Arrays:
        """Nothing: derived arrays are made where the graph is."""
        return {}

    def lacking(self, needs: Sequence[DerivedArrays]) -> list[ArrayKey]:
        """None: the server makes what is needed."""
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
            """What only a `Graph` has needs its arrays: whoever asks for it is told so."""
            if not name.startswith("_") and name in vars(Graph):
                _stay(f"{name} of the graph at {self.address}")
            raise AttributeError(f"a graph at a server has no attribute {name!r}")


def _whole(server: DistQueries[Array, Shape], key: ArrayKey) -> Array:
    """An array that belongs to the graph as a whole, or a split."""
    if isinstance(key.type, str) and key.group == "split":
        return server.get_node_ids(key.name, key.type or None)
    owner = key.type if any(key.type) else None
    return np.asarray(server.get_graph_attribute(key.name, owner))


def _told(edge_type: EdgeType) -> EdgeType | None:
    """The nameless type of a homogeneous graph is not named to a server."""
    return edge_type if any(edge_type) else None


def _stay(words: str) -> NoReturn:
    raise PenstockError(
        f"{words} lies at the server, and is not copied here as a whole: ask for rows "
        "of it by the dataset's get_node_feature, get_node_label or get_node_attribute"
    )


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
