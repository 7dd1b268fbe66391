"""Asks the parts of a graph for what a sampler needs: the `graph.exchange.Exchange` of a store.

Nodes are shared out by who has their rows, all parts are asked at once, and the answers are put
back in the order of the nodes. Nothing is drawn here, with one exception: which edges are early
enough by the times of *nodes* is not known to whoever has a row, since its neighbours lie in other
parts; so such rows, and the times, are fetched, and drawn from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from penstock.graph.exchange import Draw, Found, Within
from penstock.graph.schema import EdgeType, Side
from penstock.kernels import Adjacency, Exclusion
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.fetched import FetchedRows
from penstock.kernels.hops import Drawn, draw_hop
from penstock.kernels.members import Members
from penstock.kernels.merge import merge_rows
from penstock.kernels.prepare import order_by_time, weight_sums
from penstock.store.calls import DrawAnswer, DrawRequest, WithinAnswer, WithinRequest
from penstock.store.features import shared_out
from penstock.store.meter import Meter
from penstock.store.parts import Awaited

if TYPE_CHECKING:
    from penstock.store.graph import StoreGraph

_Result = TypeVar("_Result")

# Bytes of rows that a sampler keeps for its next batches.
_KEPT_BYTES: Final = 64 << 20
_INT32: Final = 2**31 - 1


class StoreExchange:
    """The exchange of one sampler; for one thread at a time."""

    def __init__(self, graph: StoreGraph) -> None:
        self._graph = graph
        self._fetched: dict[tuple[EdgeType, Side], FetchedRows] = {}

    # --- draws -------------------------------------------------------------------------------

    def draw(self, draws: Sequence[Draw]) -> list[Drawn]:
        """Return the drawn edges of each draw, in the order of its nodes."""
        here = [self._draws_here(draw) for draw in draws]
        begun = [
            None if local else self._begin(draw) for draw, local in zip(draws, here, strict=True)
        ]
        return [
            self._drawn_here(draw) if asked is None else _merged(len(draw.nodes), asked)
            for draw, asked in zip(draws, begun, strict=True)
        ]

    def _draws_here(self, draw: Draw) -> bool:
        """Return whether those who have the rows lack what edges are chosen by.

        These are the times of neighbours, which lie in other parts, and attributes of edges along
        the side that these do not go with.
        """
        if draw.time_attr is not None and draw.of_nodes:
            return True
        chosen = draw.time_attr or draw.weight_attr
        return chosen is not None and draw.side != self._graph.owning_side

    def _begin(self, draw: Draw) -> list[_Asked]:
        self._graph.check_side(draw.side)
        owner = draw.edge_type[2 if draw.side == "in" else 0]
        return [
            _Asked(self._graph, part, positions, _request(draw, positions, self._narrow(owner)))
            for part, positions in shared_out(self._graph.node_book(owner or None), draw.nodes)
        ]

    def _narrow(self, node_type: str) -> bool:
        return self._graph.num_nodes(node_type or None) <= _INT32

    def _drawn_here(self, draw: Draw) -> Drawn:
        """Draw from rows that are fetched, by attributes that are fetched for them."""
        nodes = np.unique(draw.nodes)
        rows = self._begin_rows(draw.edge_type, draw.side, nodes)()
        indptr = np.concatenate(([0], np.cumsum(rows.counts, dtype=np.int64)))
        weights = times = None
        if draw.time_attr is not None:
            entries, times = self._by_time(draw, rows, indptr)
        else:
            entries = np.stack([rows.neighbors, rows.edge_ids], axis=1).astype(np.int64)
            weights = self._weight_sums(draw, rows, indptr)
        size = self._graph.num_nodes(draw.edge_type[2 if draw.side == "in" else 0] or None)
        return draw_hop(
            Adjacency(indptr, entries, Members.of(nodes, size)),
            draw.nodes,
            draw.fanout,
            draw.key,
            replace=draw.replace,
            weights=weights,
            times=times,
            last=draw.last,
            trees=draw.trees,
            node_times=draw.node_times,
            excluded=draw.excluded,
        )

    def _by_time(self, draw: Draw, rows: Drawn, indptr: Ids) -> tuple[Ids, Ids]:
        """Return the entries of rows in order of time, and their times."""
        assert draw.time_attr is not None
        places = np.arange(len(rows.neighbors))
        if draw.of_nodes:
            found = draw.edge_type[0 if draw.side == "in" else 2]
            neighbors, local = np.unique(rows.neighbors, return_inverse=True)
            source = self._graph.node_features(draw.time_attr, found or None)
            times, heads = source.gather(neighbors.astype(np.int64)), local.reshape(-1)
        else:
            times, heads = self._of_edges(draw.time_attr, draw, rows), places
        # The kernel knows positions: of neighbours, and of entries in these rows.
        entries = np.stack([heads, places], axis=1).astype(np.int64)
        ordered, in_order = np.empty_like(entries), np.empty(len(entries), np.int64)
        order_by_time(
            Adjacency(indptr, entries),
            times.astype(np.int64, copy=False),
            of_nodes=draw.of_nodes,
            out_entries=ordered,
            out_times=in_order,
        )
        at = ordered[:, 1]
        found_entries = np.stack([rows.neighbors[at], rows.edge_ids[at]], axis=1)
        return found_entries.astype(np.int64), in_order

    def _weight_sums(self, draw: Draw, rows: Drawn, indptr: Ids) -> Ids:
        """Return running sums of weights within rows, as those who have both compute them."""
        assert draw.weight_attr is not None
        weights = self._of_edges(draw.weight_attr, draw, rows)
        source = self._graph.edge_features(draw.weight_attr, _told(draw.edge_type))
        places = np.arange(len(rows.neighbors))
        sums = np.empty(len(places), np.int64)
        entries = np.stack([np.zeros_like(places), places], axis=1)
        weight_sums(Adjacency(indptr, entries), weights, sums, dtype=source.dtype)
        return sums

    def _of_edges(self, name: str, draw: Draw, rows: Drawn) -> Array:
        source = self._graph.edge_features(name, _told(draw.edge_type))
        return source.gather(rows.edge_ids.astype(np.int64))

    # --- rows --------------------------------------------------------------------------------

    def rows(self, edge_type: EdgeType, side: Side) -> FetchedRows:
        """Return the rows of an edge type that have been fetched so far."""
        key = edge_type, side
        if key not in self._fetched:
            owner = edge_type[2 if side == "in" else 0]
            self._fetched[key] = FetchedRows(
                self._graph.num_nodes(owner or None),
                self._graph.num_edges(edge_type if any(edge_type) else None),
            )
        return self._fetched[key]

    def complete(self, run: Callable[[], _Result]) -> _Result:
        """Call `run` until it misses no row, and return its last result."""
        if sum(rows.nbytes for rows in self._fetched.values()) > _KEPT_BYTES:
            for rows in self._fetched.values():
                rows.clear()
        while True:
            result = run()
            missing = {key: rows.take_missing() for key, rows in self._fetched.items()}
            wanted = {key: nodes for key, nodes in missing.items() if len(nodes)}
            if not wanted:
                return result
            begun = [(key, nodes, self._begin_rows(*key, nodes)) for key, nodes in wanted.items()]
            for key, nodes, finish in begun:
                self._fetched[key].add(nodes, *finish())

    def _begin_rows(self, edge_type: EdgeType, side: Side, nodes: Ids) -> Callable[[], Drawn]:
        """Ask for all edges of nodes, in the order of storage; return what waits for them."""
        if self._graph.serves(side):
            return partial(_merged, len(nodes), self._begin(Draw(edge_type, side, nodes)))
        everywhere = np.arange(len(nodes))
        request = DrawRequest(edge_type=edge_type, side=side, nodes=nodes, share=True)
        asked = [
            _Asked(self._graph, part, everywhere, request) for part in range(self._graph.num_parts)
        ]
        return partial(_joined_shares, len(nodes), asked)

    # --- edges among nodes -------------------------------------------------------------------

    def within(self, asked: Sequence[Within]) -> list[Found]:
        """Return the edges that end in a set of nodes, in the order of their heads."""
        begun = [self._begin_within(each) for each in asked]
        return [
            _found(len(each.heads), calls, self._graph.meter)
            for each, calls in zip(asked, begun, strict=True)
        ]

    def _begin_within(self, asked: Within) -> list[tuple[Ids, Awaited]]:
        self._graph.check_side(asked.side)
        owner = asked.edge_type[2 if asked.side == "in" else 0]
        found = asked.edge_type[0 if asked.side == "in" else 2]
        tails = _sent(asked.tails, narrow=self._narrow(found))
        owners = shared_out(self._graph.node_book(owner or None), asked.heads)
        heads = 4 if self._narrow(owner) else 8
        self._graph.meter.add(bytes_out=len(owners) * tails.nbytes + heads * len(asked.heads))
        return [
            (
                positions,
                self._graph.ask(
                    part,
                    "get_edges_within",
                    asked=[
                        WithinRequest(
                            edge_type=asked.edge_type,
                            side=asked.side,
                            heads=_sent(asked.heads[positions], narrow=self._narrow(owner)),
                            tails=tails,
                        )
                    ],
                ),
            )
            for part, positions in owners
        ]


class _Asked:
    """A draw that a part was asked for, of the nodes at these positions."""

    def __init__(self, graph: StoreGraph, part: int, positions: Ids, request: DrawRequest) -> None:
        self.positions = positions
        self._graph = graph
        self._part = part
        self._request = request
        self._call = self._begin(request)

    def _begin(self, request: DrawRequest) -> Awaited:
        sent = (request.nodes, request.trees, request.node_times)
        self._graph.meter.add(bytes_out=sum(each.nbytes for each in sent if each is not None))
        return self._graph.ask(self._part, "get_draws", draws=[request])

    def _count(self, answer: DrawAnswer) -> None:
        came = (answer.counts, answer.neighbors, answer.edge_ids)
        self._graph.meter.add(bytes_in=sum(each.nbytes for each in came))

    def answer(self) -> Drawn:
        """Wait for the answer; ask for the rest of one that came in pieces."""
        (first,) = self._call.result()
        self._count(first)
        if len(first.counts) == len(self._request.nodes) and not first.more:
            return Drawn(first.counts, first.neighbors, first.edge_ids)
        return _joined(self._pieces(first))

    def _pieces(self, first: DrawAnswer) -> list[DrawAnswer]:
        answers, done, skipped, total = [first], 0, 0, len(self._request.nodes)
        while True:
            last = answers[-1]
            done += len(last.counts) - (1 if last.more else 0)
            skipped = skipped + int(last.counts[-1]) if last.more else 0
            if done >= total:
                return answers
            rest = _rest(self._request, done, skipped)
            (answer,) = self._begin(rest).result()
            self._count(answer)
            answers.append(answer)


def _request(draw: Draw, positions: Ids, narrow: bool) -> DrawRequest:
    """Return a draw for the nodes at these positions."""
    nodes = draw.nodes[positions]
    excluded = None
    if draw.excluded is not None:
        excluded = _excluded_of(draw.excluded, nodes)
    return DrawRequest(
        edge_type=draw.edge_type,
        side=draw.side,
        nodes=_sent(nodes, narrow=narrow),
        fanout=draw.fanout,
        key=draw.key,
        replace=draw.replace,
        weight_attr=draw.weight_attr,
        time_attr=draw.time_attr,
        last=draw.last,
        trees=None if draw.trees is None else draw.trees[positions],
        node_times=None if draw.node_times is None else draw.node_times[positions],
        excluded=excluded,
    )


def _excluded_of(excluded: Exclusion, nodes: Ids) -> tuple[Ids, Ids, Ids | None] | None:
    """Return the excluded edges of these nodes; None if there are none."""
    of = np.isin(excluded.nodes, nodes)
    if not of.any():
        return None
    trees = None if excluded.trees is None else excluded.trees[of]
    return excluded.nodes[of], excluded.neighbors[of], trees


def _rest(request: DrawRequest, done: int, skip: int) -> DrawRequest:
    def cut(array: Any) -> Any:
        return None if array is None else array[done:]

    return DrawRequest(
        **{
            **{name: getattr(request, name) for name in request.__struct_fields__},
            "nodes": request.nodes[done:],
            "trees": cut(request.trees),
            "node_times": cut(request.node_times),
            "skip": skip,
        }
    )


def _joined(answers: Sequence[DrawAnswer]) -> Drawn:
    """Return pieces as one answer; a row that was cut gets its pieces' counts together."""
    counts: list[int] = []
    is_open = False
    for answer in answers:
        some = np.asarray(answer.counts).tolist()
        if is_open and some:
            counts[-1] += some.pop(0)
        counts.extend(some)
        is_open = answer.more
    return Drawn(
        np.array(counts, np.int32),
        np.concatenate([answer.neighbors for answer in answers]),
        np.concatenate([answer.edge_ids for answer in answers]),
    )


def _merged(count: int, asked: Sequence[_Asked]) -> Drawn:
    """Return the answers of several parts in the order of all nodes."""
    return merge_rows(count, [(each.positions, each.answer()) for each in asked])


def _joined_shares(count: int, asked: Sequence[_Asked]) -> Drawn:
    """Return rows of which every part has a share; such rows are in order of edge ids."""
    answers = [each.answer() for each in asked]
    counts = np.sum([answer.counts for answer in answers], axis=0, dtype=np.int64)
    heads = np.concatenate([np.repeat(np.arange(count), answer.counts) for answer in answers])
    edge_ids = np.concatenate([answer.edge_ids for answer in answers])
    neighbors = np.concatenate([answer.neighbors for answer in answers])
    order = np.lexsort((edge_ids, heads))
    return Drawn(np.asarray(counts, np.int32), neighbors[order], edge_ids[order])


def _found(count: int, calls: Sequence[tuple[Ids, Awaited]], meter: Meter) -> Found:
    answers: list[tuple[Ids, Drawn]] = []
    for positions, call in calls:
        (answer,) = call.result()
        assert isinstance(answer, WithinAnswer)
        meter.add(
            bytes_in=sum(each.nbytes for each in (answer.counts, answer.positions, answer.edge_ids))
        )
        answers.append((positions, Drawn(answer.counts, answer.positions, answer.edge_ids)))
    merged = merge_rows(count, answers)
    return Found(
        merged.counts.astype(np.int64),
        merged.neighbors.astype(np.int64, copy=False),
        merged.edge_ids.astype(np.int64, copy=False),
    )


def _sent(ids: Ids, *, narrow: bool) -> Ids:
    """Return ids as they are sent: in 32 bits where all ids of their type fit."""
    return ids.astype(np.int32) if narrow else ids


def _told(edge_type: EdgeType) -> EdgeType | None:
    """Return an edge type as a graph is asked for it: None for that of a homogeneous graph."""
    return edge_type if any(edge_type) else None
