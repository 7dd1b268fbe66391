"""Answers what samplers ask of a part, whole or not: `store.calls.StoreCalls`.

Everything is looked up or drawn natively from mapped arrays; nothing waits for another server. An
answer is bounded by `max_answer_bytes`; rows that exceed it come in pieces.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.graph.derived import DegreeSizes
from penstock.graph.dtypes import storage_dtype
from penstock.graph.features import FeatureSource
from penstock.graph.lookup import known, pick
from penstock.graph.schema import EdgeType, Side
from penstock.kernels import Adjacency, Exclusion
from penstock.kernels.arrays import Array, Ids, as_ids
from penstock.kernels.hops import draw_hop, edges_within
from penstock.kernels.members import Members
from penstock.rpc.buffer_pool import BufferPool
from penstock.sampling.batches import Batches
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.criteria import chosen_rows
from penstock.sampling.kinds import check, kind_of, prepare
from penstock.sampling.request import Request
from penstock.sampling.spec import Spec
from penstock.store.calls import (
    ColumnName,
    DrawAnswer,
    DrawRequest,
    NeighborCounts,
    RowsAnswer,
    SampledBatch,
    SplitShare,
    StoreCalls,
    WantedBatch,
    WithinAnswer,
    WithinRequest,
)
from penstock.wire.frames import BatchWriter, read
from penstock.wire.requests import ExternalIds

_ID_BYTES: Final = 8
_INT32: Final = 2**31 - 1
_FIRST_BYTES: Final = 1 << 20  # of a batch, which says how many it needs
_KEPT: Final = 16  # buffers
_Chosen = tuple[Adjacency, Array | None, Array | None]


class PartAnswers(StoreCalls):
    """Answers for a graph, whole or a part. Thread-safe."""

    def __init__(self, graph: Graph, max_answer_bytes: int = 1 << 30) -> None:
        self._graph = graph
        self._most_entries = max(1, max_answer_bytes // (4 * _ID_BYTES))
        self._rows: dict[tuple[Any, ...], _Chosen] = {}
        self._shares: dict[EdgeType, Adjacency] = {}
        self._making = threading.Lock()
        self._local = threading.local()
        self._memory = BufferPool(_KEPT)

    # --- draws -------------------------------------------------------------------------------

    def get_draws(self, draws: list[DrawRequest]) -> list[DrawAnswer]:
        return [self._drawn(draw) for draw in draws]

    def _drawn(self, asked: DrawRequest) -> DrawAnswer:
        kind = self._edge_type(asked.edge_type)
        nodes = as_ids(np.asarray(asked.nodes), "nodes")
        if asked.share:
            return self._whole_rows(self._share(kind, asked.side), nodes, asked.skip)
        chosen = self._chosen(kind, asked)
        self._check_here(chosen[0], nodes)
        if _is_whole(asked):
            return self._whole_rows(chosen[0], nodes, asked.skip)
        return self._picked(chosen, nodes, asked)

    def _picked(self, chosen: _Chosen, nodes: Ids, asked: DrawRequest) -> DrawAnswer:
        rows, weights, times = chosen
        count = len(nodes)
        if asked.fanout < 0:
            count = self._that_fit(_degrees(rows, nodes))
        elif asked.fanout:
            count = min(count, max(1, self._most_entries // asked.fanout))
        first = slice(0, count)
        excluded = None if asked.excluded is None else Exclusion(0, *asked.excluded)
        drawn = draw_hop(
            rows,
            nodes[first],
            asked.fanout,
            asked.key,
            replace=asked.replace,
            weights=weights,
            times=times,
            last=asked.last,
            trees=None if asked.trees is None else as_ids(asked.trees[first], "trees"),
            node_times=(
                None if asked.node_times is None else as_ids(asked.node_times[first], "node_times")
            ),
            excluded=excluded,
        )
        return DrawAnswer(counts=drawn.counts, neighbors=drawn.neighbors, edge_ids=drawn.edge_ids)

    def _whole_rows(self, rows: Adjacency, nodes: Ids, skip: int) -> DrawAnswer:
        """Return rows of the first nodes, as many as fit; one that does not fit in pieces."""
        degrees = _degrees(rows, nodes)
        if len(nodes) and degrees[0] - skip > self._most_entries:
            begin = int(_begins(rows, nodes[:1])[0]) + skip
            return _piece(rows, begin, begin + self._most_entries, more=True)
        if skip:
            begin = int(_begins(rows, nodes[:1])[0])
            return _piece(rows, begin + skip, begin + int(degrees[0]))
        drawn = draw_hop(rows, nodes[: self._that_fit(degrees)], -1, 0)
        return DrawAnswer(counts=drawn.counts, neighbors=drawn.neighbors, edge_ids=drawn.edge_ids)

    def _that_fit(self, degrees: Ids) -> int:
        """Return how many nodes, from the first on, can be answered at once: one at least."""
        within = int(np.searchsorted(np.cumsum(degrees), self._most_entries, side="right"))
        return max(1, within)

    def _chosen(self, kind: EdgeType, asked: DrawRequest) -> _Chosen:
        key = kind, asked.side, asked.weight_attr, asked.time_attr
        found = self._rows.get(key)
        if found is None:
            with self._making:
                found = self._rows[key] = chosen_rows(self._graph, *key)
        return found

    def _share(self, kind: EdgeType, side: Side) -> Adjacency:
        """Return this part's share of the rows of the side that it was not cut by."""
        part = self._graph.part
        own: Side = "out" if part is not None and part.edges == "source" else "in"
        if part is None or part.topology == "whole" or part.edges == "both" or side == own:
            return self._graph.rows(kind, side)
        with self._making:
            if kind not in self._shares:
                size = self._graph.num_nodes(kind[0 if side == "out" else 2])
                self._shares[kind] = _turned(self._graph.rows(kind, own), size)
            return self._shares[kind]

    # --- edges among nodes -------------------------------------------------------------------

    def get_edges_within(self, asked: list[WithinRequest]) -> list[WithinAnswer]:
        return [self._within(each) for each in asked]

    def _within(self, asked: WithinRequest) -> WithinAnswer:
        kind = self._edge_type(asked.edge_type)
        rows = self._graph.rows(kind, asked.side)
        heads, tails = as_ids(asked.heads, "heads"), as_ids(asked.tails, "tails")
        self._check_here(rows, heads)
        counts, positions, edge_ids = edges_within(rows, heads, tails)
        return WithinAnswer(counts=counts, positions=positions, edge_ids=edge_ids)

    # --- attributes --------------------------------------------------------------------------

    def get_rows(self, columns: list[ColumnName], ids: Any, *, some: bool = False) -> RowsAnswer:
        wanted = as_ids(np.asarray(ids), "ids")
        here = None
        if some:
            members = self._members(columns)
            if members is not None:
                here = members.rows(wanted) >= 0
                wanted = wanted[here]
                here = None if len(wanted) == len(here) else here
        return RowsAnswer(rows=[self._gathered(each, wanted) for each in columns], here=here)

    def _gathered(self, column: ColumnName, ids: Ids) -> Array:
        """Return rows in memory that is used again once the answer is sent."""
        source = self._features(column)
        kind = np.dtype(storage_dtype(source.dtype))
        shape = (len(ids), *source.row_shape)
        nbytes = kind.itemsize * math.prod(shape)
        out = self._memory.lend(nbytes).view(kind).reshape(shape)
        return source.gather(ids, out)

    def _members(self, columns: Sequence[ColumnName]) -> Members | None:
        if not columns:
            raise ValueError("columns is empty; expected one attribute at least")
        owner = columns[0].type
        if isinstance(owner, str):
            return self._graph.members(owner or None)
        return self._graph.edge_members(owner if any(owner) else None)

    def _features(self, column: ColumnName) -> FeatureSource:
        owner = column.type
        if isinstance(owner, str):
            return self._graph.node_features(column.name, owner or None, stored=True)
        return self._graph.edge_features(column.name, self._edge_type(owner), stored=True)

    # --- what is derived from the whole ------------------------------------------------------

    def get_degree_sizes(self, edge_type: EdgeType, side: Side) -> Array:
        (sizes,) = self._graph.derived(DegreeSizes(self._edge_type(edge_type), side))
        return sizes.array

    def get_degrees(self, edge_type: EdgeType, side: Side, ids: Any) -> Array:
        rows = self._graph.rows(self._edge_type(edge_type), side)
        nodes = as_ids(np.asarray(ids), "ids")
        self._check_here(rows, nodes)
        return _degrees(rows, nodes)

    def get_split_share(self, split: str, node_type: str) -> SplitShare:
        owner = node_type or None
        pick("split", split, owner, self._graph.splits(owner))
        return SplitShare(
            ids=self._graph.split(split, owner),
            positions=self._graph.split_positions(split, owner),
        )

    def get_ids_share(self, node_type: str, nodes: Any) -> ExternalIds:
        owner = self._graph.named_type(node_type or None)
        wanted = as_ids(np.asarray(nodes), "nodes")
        self._graph.node_book(owner or None).partition_of(wanted)  # raises for ids out of range
        some = wanted[: self._most_entries]
        most = self._most_entries * 4 * _ID_BYTES
        ends = np.cumsum(self._graph.id_nbytes(owner, some))
        fit = max(1, int(np.searchsorted(ends, most, side="right")))
        return ExternalIds.of(self._graph.id_keys(owner, some[:fit]))

    def get_nodes_share(self, node_type: str, ids: ExternalIds) -> Array:
        owner, keys = self._graph.named_type(node_type or None), ids.together()
        self._graph.check_keys(owner, keys)
        return self._graph.nodes_of_keys(owner, keys)

    def get_edge_share(self, edge_type: EdgeType, first: int, count: int) -> list[Any]:
        kind = self._edge_type(edge_type)
        part = self._graph.part
        side: Side = "out" if part is not None and part.edges == "source" else "in"
        rows = self._graph.own_rows(kind, side)
        piece = slice(max(first, 0), max(first, 0) + min(max(count, 0), self._most_entries))
        places = np.arange(piece.start, min(piece.stop, len(rows.entries)))
        owners = np.searchsorted(rows.indptr, places, side="right") - 1
        if rows.members is not None:
            owners = rows.members.ids()[owners]
        ends = [rows.neighbors[piece], owners]
        ids = rows.edge_ids_from(piece.start, piece.stop)
        return [*(ends if side == "in" else ends[::-1]), ids]

    def get_neighbor_counts(self, node_type: str, most: int) -> NeighborCounts:
        counts = self._neighbor_counts(node_type)
        ids = np.flatnonzero(counts)
        if len(ids) > most > 0:
            ids = np.sort(ids[np.argpartition(counts[ids], -most)[-most:]])
        narrow = len(counts) <= _INT32
        return NeighborCounts(ids=ids.astype(np.int32) if narrow else ids, counts=counts[ids])

    def _neighbor_counts(self, node_type: str) -> Ids:
        graph = self._graph
        part = graph.part
        side: Side = "out" if part is not None and part.edges == "source" else "in"
        counts = np.zeros(graph.num_nodes(node_type or None), np.int64)
        for kind in graph.edge_types:
            if kind[0 if side == "in" else 2] == node_type:
                neighbors = graph.own_rows(kind, side).neighbors
                counts += np.bincount(neighbors, minlength=len(counts))
        return counts

    # --- batches of a topology that is all here ----------------------------------------------

    def get_batch(self, spec: Spec, batch: WantedBatch) -> SampledBatch:
        part = self._graph.part
        if part is not None and part.topology != "whole":
            raise PenstockError(
                "this server has part of the topology: whoever reads puts batches together"
            )
        if not hasattr(self._local, "sampler"):
            self._local.sampler = _Sampler(self._graph)
        request = Request(
            batch.seed,
            batch.epoch,
            batch.index,
            np.asarray(batch.seeds).astype(np.int64, copy=False),
            as_ids(np.asarray(batch.positions), "positions"),
            batch.node_type,
            batch.edge_type,
            {name: np.asarray(column) for name, column in batch.columns.items()},
            {name: np.asarray(table) for name, table in batch.tables.items()},
        )
        found: SampledBatch = self._local.sampler.sample(spec, request)
        return found

    # --- checks ------------------------------------------------------------------------------

    def _edge_type(self, given: Any) -> EdgeType:
        wanted = tuple(given) if isinstance(given, list) else given
        return known("edge_type", wanted, dict.fromkeys(self._graph.edge_types, 0))

    def _check_here(self, rows: Adjacency, nodes: Ids) -> None:
        """Raise ValueError for a node whose row is not in this part."""
        if rows.members is None:
            return
        there = rows.members.rows(nodes)
        if len(there) and int(there.min()) < 0:
            at = int(np.argmin(there))
            part = self._graph.part
            number = 0 if part is None else part.number
            raise ValueError(
                f"nodes[{at}] is {nodes[at]}, whose edges are in another part than {number}"
            )


class _Sampler:
    """Samples batches without attributes, in one thread, into memory that grows."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[bytes, Batches] = {}
        self._memory = BufferPool(_KEPT)
        self._most = _FIRST_BYTES  # of a batch so far

    def sample(self, spec: Spec, request: Request) -> SampledBatch:
        """Return a batch; the spec asks for no attributes."""
        batches, memory = self._batches(spec), self._memory.lend(self._most)
        while True:
            try:
                with BatchWriter(memory) as writer:
                    facts = batches.make(request, writer, lambda stage: None)
                    return SampledBatch(arrays=dict(read(memory, writer.commit())), facts=facts)
            except SlotTooSmall as small:
                self._most = max(self._most, small.needed + small.needed // 4)
                memory = self._memory.lend(self._most)

    def _batches(self, spec: Spec) -> Batches:
        key = msgspec.msgpack.encode(spec, order="deterministic")
        if key not in self._made:
            check(spec, self._graph)
            if kind_of(spec).users_code(spec) is not None:
                raise PenstockError("a user's sampler runs where its batches are read")
            prepare(spec, self._graph)
            self._made[key] = kind_of(spec).batches(spec, self._graph)
        return self._made[key]


def _is_whole(asked: DrawRequest) -> bool:
    """Return whether plain rows are asked for, which can come in pieces."""
    chosen = asked.weight_attr, asked.time_attr, asked.excluded, asked.trees
    return asked.fanout < 0 and not asked.replace and all(each is None for each in chosen)


def _begins(rows: Adjacency, nodes: Ids) -> Ids:
    at = nodes if rows.members is None else rows.members.rows(nodes)
    begins: Ids = rows.indptr[at]
    return begins


def _degrees(rows: Adjacency, nodes: Ids) -> Ids:
    """Return the degree of each node; 0 for one without a row."""
    if rows.members is None:
        return np.asarray(rows.indptr[nodes + 1] - rows.indptr[nodes], np.int64)
    at = rows.members.rows(nodes)
    degrees = rows.indptr[at + 1] - rows.indptr[at]
    return np.asarray(np.where(at < 0, 0, degrees), np.int64)


def _piece(rows: Adjacency, begin: int, end: int, *, more: bool = False) -> DrawAnswer:
    """Return consecutive entries of one row."""
    neighbors = rows.neighbors[begin:end]
    return DrawAnswer(
        counts=np.array([len(neighbors)], np.int32),
        neighbors=neighbors,
        edge_ids=rows.edge_ids_from(begin, end),
        more=more,
    )


def _turned(rows: Adjacency, size: int) -> Adjacency:
    """Return the same edges by their other end, in order of edge ids."""
    owners = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    if rows.members is not None:
        owners = rows.members.ids()[owners]
    ids = rows.edge_ids
    order = np.lexsort((ids, rows.neighbors))
    ends = rows.neighbors[order]
    there, counts = np.unique(ends, return_counts=True)
    entries = np.stack([owners[order], ids[order]], axis=1)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    kind = rows.entries.dtype if rows.entries.ndim == 2 else np.int64
    return Adjacency(
        indptr,
        np.ascontiguousarray(entries.astype(kind)),
        Members.of(there.astype(np.int64), size),
    )
