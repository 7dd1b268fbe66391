"""`StoreGraph`: a graph in parts, as samplers and loaders see it.

It is sampled here, in whatever process reads it, and its arrays are elsewhere: it knows the types
and sizes of the whole, and asks the parts for edges and rows (`exchange`, `features`). Small things
are fetched once and shared with workers: books, attributes of the whole graph, sizes of degrees.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError, ProtocolError
from penstock.graph import Graph, sharing
from penstock.graph.derived import Coo, DegreeSizes, DerivedArrays, keys_of
from penstock.graph.exchange import Exchange
from penstock.graph.features import FeatureSource
from penstock.graph.layout import array_nbytes
from penstock.graph.lookup import pick
from penstock.graph.partition.book import ArrayBook, HashBook, PartitionBook, RangeBook
from penstock.graph.schema import ArrayKey, Arrays, EdgeType, Side
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import GraphHandle
from penstock.graph.topology import id_dtype
from penstock.graph.user_ids import IdKind, joined, kind_among, pieces_of, taken
from penstock.graph.view import ArrayView, GraphView, OwnIds
from penstock.kernels import Adjacency
from penstock.kernels.id_table import Keys, Text
from penstock.store.cache import Degrees, cached_rows, is_cached
from penstock.store.exchange import StoreExchange
from penstock.store.features import StoreFeatures, shared_out
from penstock.store.meter import Meter
from penstock.store.outline import StoreOutline
from penstock.store.parts import Awaited, Parts
from penstock.store.rows_target import RowsTarget
from penstock.wire.messages import Moved
from penstock.wire.requests import ExternalIds

Array = npt.NDArray[Any]

# Bytes of an attribute that may be fetched as a whole.
MOST_WHOLE_BYTES: Final = 1 << 30
_EDGES_AT_ONCE: Final = 4 << 20
# Nodes whose ids are fetched, and ids that are looked up, by one call.
_IDS_AT_ONCE: Final = 1 << 17
BOOK: Final = "book"


class StoreArray:
    """An array of a graph in parts: its form, and its contents where they are small."""

    def __init__(
        self, dtype: str, shape: Sequence[int], words: str, fetch: Callable[[], Array] | None
    ) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.nbytes = array_nbytes(dtype, self.shape)
        self._words = words
        self._fetch = fetch
        self._fetched: Array | None = None
        self._fetching = threading.Lock()

    @property
    def array(self) -> Array:
        """The values of the whole; `PenstockError`, with advice, if they are too many."""
        if self._fetch is None or self.nbytes > MOST_WHOLE_BYTES:
            _stays(self._words)
        with self._fetching:
            if self._fetched is None:
                self._fetched = self._fetch()
                self._fetched.flags.writeable = False
            return self._fetched


class StoreGraph(Graph):
    """A graph in parts. Ids, types and sizes are those of the whole.

    Args:
        outline: What the graph is as a whole.
        parts: Called when a part is first asked for something.
        arrays: What is here of it: books, attributes of the whole graph, derived arrays.
        handle: How another process finds the parts; None if none can.
    """

    def __init__(
        self,
        outline: StoreOutline,
        parts: Callable[[], Parts],
        arrays: Arrays,
        handle: bytes | None = None,
    ) -> None:
        GraphView.__init__(self, outline.schema)
        self._outline = outline
        self._open_parts = parts
        self._arrays = dict(arrays)
        self._version = outline.note.version
        self._making = threading.RLock()
        self._handle = handle
        self.meter = Meter()
        self.cache_bytes = 0  # for hot rows on this host, in all
        self._caching = threading.Lock()
        self._splits: dict[ArrayKey, SharedArray] = {}

    # --- parts -------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> Parts:
        """Whoever answers for each part."""
        return self._open_parts()

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return self._outline.note.of

    def ask(
        self, part: int, verb: str, into: RowsTarget | None = None, **arguments: Any
    ) -> Awaited:
        """Ask about a part without waiting for the answer; count what is moved.

        Args:
            part: The number of the part.
            verb: The name of the question; see `store.calls`.
            into: Where rows of the answer may be put as they come.
            **arguments: Its arguments.
        """
        return _Counted(self.parts.begin(part, verb, into, **arguments), self.meter)

    @property
    def has_whole_topology(self) -> bool:
        """Whether everybody who has a part has all edges."""
        return self._outline.note.topology == "whole"

    def serves(self, side: Side) -> bool:
        """Return whether somebody has all edges of a node on this side."""
        note = self._outline.note
        return note.topology == "whole" or note.edges == "both" or side == self.owning_side

    @property
    def owning_side(self) -> Side:
        """Along which side of its nodes the attributes of edges go with a part."""
        return "out" if self._outline.note.edges == "source" else "in"

    def check_side(self, side: Side) -> None:
        """Raise ValueError if the rows of this side are spread over all parts."""
        if not self.serves(side):
            cut = self._outline.note.edges
            raise ValueError(
                f"direction (edge_dir) is {side!r}, and the graph was cut by {cut}: no part has "
                f"all {side}-edges of a node. Cut it with edges='both', or sample along the others"
            )

    @property
    def is_in_parts(self) -> bool:
        """Whether the graph is in parts: it is."""
        return True

    @property
    def moved(self) -> Moved:
        """What this process has moved to sample the graph."""
        return self.meter.total()

    def open_exchange(self) -> Exchange:
        """Return what a sampler asks for edges."""
        return StoreExchange(self)

    def node_book(self, node_type: str | None = None) -> PartitionBook:
        """Return the book that says which part has a node.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return self._node_books[self._node_type(node_type)]

    @cached_property
    def _node_books(self) -> dict[str, PartitionBook]:
        return {name: self._book(name) for name in self.node_types}

    def _book(self, name: str) -> PartitionBook:
        note = self._outline.note
        match note.method:
            case "range":
                return RangeBook(note.bounds[name])
            case "hash":
                return HashBook(self.num_nodes(name or None), note.of)
        return ArrayBook(self._arrays[ArrayKey("part", name, BOOK)].array, note.of)

    # --- a graph elsewhere -------------------------------------------------------------------

    @property
    def arrays(self) -> Arrays:
        """The arrays that are here: books, attributes of the whole graph, derived arrays."""
        return MappingProxyType(self._arrays)

    def handle(self) -> GraphHandle:
        """Return what another process needs to sample the same graph."""
        if self._handle is None:
            raise PenstockError("the parts of this graph are open in this process only")
        handle = sharing.handle_of(self._schema, self._arrays, self._version)
        return msgspec.structs.replace(handle, store=self._handle)

    def with_arrays(self, arrays: Arrays) -> StoreGraph:
        """Return this graph with these arrays at hand."""
        other = StoreGraph(self._outline, lambda: self.parts, arrays, self._handle)
        other.meter = self.meter
        return other

    def close(self) -> None:
        """Release connections and memory."""
        if "parts" in vars(self):
            self.parts.close()
        for segment in sharing.segments_of({**self._arrays, **self._splits}):
            segment.close()

    def __reduce__(self) -> tuple[Any, ...]:
        from penstock.store.attach import attach

        if self._handle is None:
            raise TypeError("the parts of this graph are open in this process only")
        bare = msgspec.structs.replace(
            sharing.handle_of(self._schema, {}, self._version), store=self._handle
        )
        return attach, (bare,)

    def __repr__(self) -> str:
        nodes, edges = self.num_nodes(), self.num_edges()
        return f"<graph of {nodes} nodes and {edges} edges in {self.num_parts} parts>"

    # --- ids ---------------------------------------------------------------------------------

    def own_split(self, name: str, node_type: str | None = None) -> OwnIds:
        """Return the nodes of a split, in the order of the whole graph; fetched once."""
        pick("split", name, node_type, self.splits(node_type))
        key = ArrayKey("split", self._node_type(node_type), name)
        with self._making:
            if key not in self._splits:
                self._splits[key] = SharedArray.from_array(self._fetched_split(key))
            found = self._splits[key]
        return OwnIds(found.shape[0], found)

    def _fetched_split(self, key: ArrayKey) -> Array:
        calls = [
            self.ask(part, "get_split_share", split=key.name, node_type=key.type)
            for part in range(self.num_parts)
        ]
        whole = np.empty(self._outline.forms[key].shape, np.int64)
        for call in calls:
            share = call.result()
            whole[share.positions] = share.ids
        return whole

    # --- users' ids --------------------------------------------------------------------------

    def id_kind(self, node_type: str | None = None) -> IdKind | None:
        """Return whether the users' ids of a type are "int64" or "text"; None if it has none.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return kind_among(self._outline.forms, self._node_type(node_type))

    def id_keys(self, node_type: str, nodes: npt.NDArray[np.int64] | None = None) -> Keys:
        """Return the users' ids of nodes, fetched from the parts that have them, in pieces.

        Args:
            node_type: The node type.
            nodes: Which nodes; None for all.
        """
        wanted = self.node_ids(node_type or None) if nodes is None else nodes
        kind = self.id_kind(node_type or None)
        assert kind is not None  # whoever asks has checked
        owned = shared_out(self.node_book(node_type or None), wanted)
        pieces = [
            piece
            for part, places in owned
            for piece in self._keys_of_part(part, node_type, wanted[places])
        ]
        order = np.concatenate([np.empty(0, np.int64), *(places for _, places in owned)])
        return taken(joined(pieces, kind), np.argsort(order))

    def id_nbytes(self, node_type: str, nodes: npt.NDArray[np.int64] | None = None) -> Array:
        """Return how many bytes each of the ids has that `id_keys` returns; fetches them, too.

        Args:
            node_type: The node type.
            nodes: Which nodes; None for all.
        """
        wanted = self.node_ids(node_type or None) if nodes is None else nodes
        found = np.full(len(wanted), np.dtype(np.int64).itemsize)
        if self.id_kind(node_type or None) != "text":
            return found
        for part, places in shared_out(self.node_book(node_type or None), wanted):
            done = 0
            for keys in self._keys_of_part(part, node_type, wanted[places]):
                assert isinstance(keys, Text)
                found[places[done : done + len(keys)]] = np.diff(keys.offsets)
                done += len(keys)
        return found

    def _keys_of_part(self, part: int, node_type: str, nodes: Array) -> Iterator[Keys]:
        done = 0
        while done < len(nodes):
            some = nodes[done : done + _IDS_AT_ONCE]
            share = self.ask(part, "get_ids_share", node_type=node_type, nodes=some).result()
            yield (keys := share.together())
            if len(keys) == 0:
                raise ProtocolError(f"part {part} answered with no ids of {len(some)} nodes")
            done += len(keys)

    def nodes_of_keys(self, node_type: str, keys: Keys) -> npt.NDArray[np.int64]:
        """Return the nodes with these ids, which all parts are asked for; -1 where there is none.

        Args:
            node_type: The node type.
            keys: The ids.
        """
        found = [np.empty(0, np.int64)]
        for piece in pieces_of(keys, _IDS_AT_ONCE):
            ids = ExternalIds.of(piece)
            calls = [
                self.ask(part, "get_nodes_share", node_type=node_type, ids=ids)
                for part in range(self.num_parts)
            ]
            found.append(np.max([call.result() for call in calls], axis=0))
        return np.concatenate(found)

    def _near(self, name: str, wanted: Any) -> str:
        return GraphView._near(self, name, wanted)

    # --- arrays of the whole -----------------------------------------------------------------

    def node_attributes(self, node_type: str | None = None) -> dict[str, Any]:
        """Return the attributes of nodes by name: their form, and their rows by request."""
        return self._views("node", self._node_type(node_type))

    def edge_attributes(self, edge_type: EdgeType | None = None) -> dict[str, Any]:
        """Return the attributes of edges by name: their form, and their rows by request."""
        return self._views("edge", self._edge_type(edge_type))

    def splits(self, node_type: str | None = None) -> dict[str, Any]:
        """Return the splits by name; a split that is read is fetched."""
        return self._views("split", self._node_type(node_type))

    def _views(self, group: str, owner: str | EdgeType) -> dict[str, ArrayView]:
        return {
            key.name: self._view(key)
            for key in self._outline.forms
            if (key.group, key.type) == (group, owner)
        }

    def _view(self, key: ArrayKey) -> StoreArray:
        form = self._outline.forms[key]
        of = f" of {key.type!r}" if any(key.type) else ""
        fetch = partial(self._whole, key)
        return StoreArray(form.dtype, form.shape, f"{key.name!r}{of}", fetch)

    def _whole(self, key: ArrayKey) -> Array:
        if key.group == "split":
            return self.own_split(key.name, key.type or None).array.array  # type: ignore[union-attr,arg-type]
        return self._features(key).gather(np.arange(self._outline.forms[key].shape[0]))

    def _features(self, key: ArrayKey) -> FeatureSource:
        form = self._outline.forms[key]
        owner = key.type
        if isinstance(owner, str):
            cached = cached_rows(self._arrays, owner, key.name)
            book = partial(self.node_book, owner or None)
            return StoreFeatures(self, key, form.dtype, form.shape, book, cached=cached)
        end = 0 if self.owning_side == "out" else 1
        book = partial(self.node_book, owner[2 * end] or None)
        return StoreFeatures(self, key, form.dtype, form.shape, book, end)

    def row_bytes(self, node_type: str, name: str) -> int:
        """Return the bytes of one row of an attribute of nodes.

        Args:
            node_type: The node type.
            name: The name of the attribute.
        """
        form = self._outline.forms[ArrayKey("node", node_type, name)]
        return array_nbytes(form.dtype, form.shape[1:])

    # --- the cache of hot rows ---------------------------------------------------------------

    @property
    def wants_cache(self) -> bool:
        """Whether a cache is to be filled and is not yet."""
        return self.cache_bytes > 0 and not any(map(is_cached, self._arrays))

    @contextmanager
    def making_cache(self) -> Iterator[bool]:
        """Let one thread fill the cache, others wait; yield whether there is still none."""
        with self._caching:
            yield self.wants_cache

    def take_cache(self, arrays: Arrays) -> None:
        """Keep these rows, and share them with workers.

        Args:
            arrays: The arrays of the cache; see `store.cache`.
        """
        with self._making:
            self._arrays = {**self._arrays, **arrays}

    def neighbor_counts(self, node_type: str, most: int) -> Degrees:
        """Return how often nodes of a type are neighbours, of those that are so most often.

        Every part says so of its own rows. A node that is not among the most frequent of a part is
        not counted there, so that few bytes move, however many nodes there are.

        Args:
            node_type: The node type.
            most: How many nodes each part names at most.
        """
        calls = [
            self.ask(part, "get_neighbor_counts", node_type=node_type, most=most)
            for part in range(self.num_parts)
        ]
        found = [call.result() for call in calls]
        ids, places = np.unique(np.concatenate([each.ids for each in found]), return_inverse=True)
        told = np.concatenate([each.counts for each in found]).astype(np.float64)
        counts = np.asarray(np.bincount(places.reshape(-1), told, len(ids)), np.float64)
        return Degrees(ids.astype(np.int64), counts, self.num_nodes(node_type or None))

    # --- derived arrays ----------------------------------------------------------------------

    def prepare(self, needs: Sequence[DerivedArrays]) -> Arrays:
        """Return the needed derived arrays that belong to the whole; parts make their own."""
        wanted = [each for each in needs if isinstance(each, DegreeSizes | Coo)]
        for each in wanted:
            self.derived(each)
        here = {key: array for key, array in self._arrays.items() if is_cached(key)}
        return here | {key: self._arrays[key] for key in keys_of(wanted)}

    def lacking(self, needs: Sequence[DerivedArrays]) -> list[ArrayKey]:
        """Return the keys of needed derived arrays of the whole that are not here."""
        wanted = [each for each in needs if isinstance(each, DegreeSizes | Coo)]
        return [key for key in keys_of(wanted) if key not in self._arrays]

    def _make(self, derived: DerivedArrays) -> None:
        if derived.keys[0] in self._arrays:
            return
        match derived:
            case DegreeSizes():
                made = self._degree_sizes(derived)
            case Coo(edge_type=edge_type):
                made = self._all_edges(edge_type)
            case _:
                _stays(derived.keys[0].name)
        self._arrays = {**self._arrays, derived.keys[0]: SharedArray.from_array(made)}

    def _degree_sizes(self, wanted: DegreeSizes) -> Array:
        self.check_side(wanted.side)
        owner = wanted.owner or None
        calls = [
            self.ask(part, "get_degree_sizes", edge_type=wanted.edge_type, side=wanted.side)
            for part in range(1 if self.has_whole_topology else self.num_parts)
        ]
        if self.has_whole_topology:
            return np.asarray(calls[0].result())
        sizes, book = np.zeros(self.num_nodes(owner), np.uint8), self.node_book(owner)
        for part, call in enumerate(calls):
            sizes[book.ids_of(part)] = call.result()
        return sizes

    def _all_edges(self, edge_type: EdgeType) -> Array:
        """Return the ends of all edges by their ids, fetched in pieces."""
        largest = max(self.num_nodes(end or None) for end in (edge_type[0], edge_type[2]))
        total = self.num_edges(edge_type if any(edge_type) else None)
        whole = np.empty((2, total), id_dtype(largest))
        for part in range(self.num_parts):
            for sources, destinations, ids in self.edges_of_part(part, edge_type):
                whole[0, ids], whole[1, ids] = sources, destinations
        return whole

    def edges_of_part(self, part: int, edge_type: EdgeType) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the edges that belong to a part, in pieces: sources, destinations, edge ids.

        Args:
            part: The number of the part.
            edge_type: The edge type.
        """
        first = 0
        while True:
            sources, destinations, ids = self.ask(
                part, "get_edge_share", edge_type=edge_type, first=first, count=_EDGES_AT_ONCE
            ).result()
            if len(ids) == 0:
                return
            yield sources, destinations, ids
            first += len(ids)

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the edges as given, [2, edges], fetched from all parts.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return self.coo(edge_type).astype(np.int64)

    def in_degrees(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the number of in-edges of each node, fetched from all parts.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        self.check_side("in")
        kind = self._edge_type(edge_type)
        owner, degrees = kind[2] or None, np.zeros(self.num_nodes(kind[2] or None), np.int64)
        book = self.node_book(owner)
        for part in range(self.num_parts):
            ids = book.ids_of(part)
            call = self.ask(part, "get_degrees", edge_type=kind, side="in", ids=ids)
            degrees[ids] = call.result()
        return degrees

    # --- what only a graph with all its arrays has -------------------------------------------

    def csc(self, edge_type: EdgeType | None = None) -> NoReturn:
        """Raise `PenstockError`: rows are in parts."""
        _stays("csc")

    def csr(self, edge_type: EdgeType | None = None) -> NoReturn:
        """Raise `PenstockError`: rows are in parts."""
        _stays("csr")

    def rows(self, edge_type: EdgeType | None = None, side: Side = "in") -> Adjacency:
        """Raise `PenstockError`: rows are in parts; samplers ask for them (`open_exchange`)."""
        _stays("rows")

    def save(self, path: Any, progress: Any = None) -> NoReturn:
        """Raise `PenstockError`: the parts are saved where they are."""
        _stays("the whole, to be saved,")

    def partition(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise `PenstockError`: the graph is in parts already."""
        raise PenstockError("this graph is in parts already: cut the whole graph anew")

    def describe(self) -> NoReturn:
        """Raise `PenstockError`: each part describes itself (`penstock inspect`)."""
        _stays("the description")

    def validate(self) -> None:
        """Do nothing: each part is validated where it is (`penstock inspect --verify`)."""


class _Counted:
    """A question whose waiting is counted."""

    def __init__(self, call: Awaited, meter: Meter) -> None:
        self._call = call
        self._meter = meter

    def result(self) -> Any:
        """Wait for the answer, and return it."""
        began = time.perf_counter()
        answer = self._call.result()
        self._meter.add(calls=1, waited=time.perf_counter() - began)
        return answer

    def abandon(self) -> None:
        """Give the question up."""
        self._call.abandon()


def _stays(words: str) -> NoReturn:
    raise PenstockError(
        f"{words} of a graph in parts is in no single place: sample it, or ask for rows by "
        "node_features(…).gather(ids)"
    )
