"""Which edges a batch must not show: those that it is to predict, by the pair of their ends.

For positives (u, v) of an edge type, "self" excludes all edges from u to v of that type, and
"reverse" also those from v to u in the type that has its reverses. Nothing else is taken out, and
the result is plain arrays for each edge type (`kernels.Exclusion`). This module knows types, and
nothing about how positives come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.graph.schema import EdgeType
from penstock.graph.view import GraphView
from penstock.kernels import Exclusion
from penstock.kernels.arrays import Ids
from penstock.kernels.subgraph import Edges
from penstock.sampling.labels import is_label_type
from penstock.sampling.spec import Direction, Exclude

RevTypes = Sequence[EdgeType | None] | None


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """Edges (u, v) to predict, of one type; `trees` says in which tree each is excluded."""

    kind: EdgeType
    sources: Ids
    destinations: Ids
    trees: Ids | None = None


def exclusions(
    graph: GraphView,
    direction: Direction,
    exclude: Exclude | None,
    positives: Positives,
    reverse: EdgeType | None = None,
) -> list[Exclusion]:
    """Return what is taken out of the rows of a graph; nothing of types that it has not.

    Args:
        graph: The graph.
        direction: Which edges rows have: in-edges ("in") or out-edges ("out").
        exclude: Which edges.
        positives: The edges to predict.
        reverse: The type that has the reverses, if it is given.
    """
    if exclude is None or len(positives.sources) == 0:
        return []
    heads, tails = positives.destinations, positives.sources
    found = [(positives.kind, heads, tails)]
    if exclude == "reverse":
        found.append((reverse_type(graph, positives.kind, reverse), tails, heads))
    return [
        Exclusion(
            graph.edge_types.index(kind),
            *((ends, others) if direction == "in" else (others, ends)),
            positives.trees,
        )
        for kind, ends, others in found
        if kind in graph.edge_types
    ]


def reverse_type(graph: GraphView, kind: EdgeType, given: EdgeType | None = None) -> EdgeType:
    """Return the edge type that has the reverses of another: as given, or as `ToUndirected` names.

    That is `rev_<relation>` with swapped ends (or the relation without `rev_`). Without such a
    type, edges among nodes of one type are their own reverses.

    Raises:
        ValueError: There is none; or the one given is not in the graph, or leads elsewhere.
    """
    source, relation, destination = kind
    choices = [
        other
        for other in graph.edge_types
        if (other[0], other[2]) == (destination, source)
        and not is_label_type(other, graph.edge_types)
    ]
    if given is not None:
        if given in choices:
            return given
        raise ValueError(
            f"rev_edge_types has {given!r} for the reverses of {kind!r}; {_listed(choices)}"
        )
    other = relation[4:] if relation.startswith("rev_") else f"rev_{relation}"
    named = destination, other, source
    if named in choices:
        return named
    if source == destination:
        return kind
    raise ValueError(
        f"exclude is 'reverse', and this graph has no edge type {named!r} with the reverses of "
        f"{kind!r}: name one as rev_edge_types; {_listed(choices)}"
    )


def check_exclude(
    graph: GraphView, exclude: Exclude | None, kinds: Sequence[EdgeType], given: RevTypes
) -> None:
    """Raise `ValueError` unless these types, and their reverses, can be excluded."""
    check_given(exclude, given, len(kinds))
    if exclude == "reverse":
        for kind, reverse in zip(kinds, given or [None] * len(kinds), strict=True):
            reverse_type(graph, kind, reverse)


def check_given(exclude: Exclude | None, given: RevTypes, count: int) -> None:
    """Raise `ValueError` unless reverse types are given where they count, one for each type."""
    if given is None:
        return
    if exclude != "reverse":
        raise ValueError(
            f"rev_edge_types is given, and exclude is {exclude!r}; it is for 'reverse'"
        )
    if len(given) != count:
        raise ValueError(
            f"rev_edge_types has {len(given)} edge types; expected one for each of {count}"
        )


def without(
    edges: Edges, excluded: Sequence[Exclusion], found: Ids, expanded: Ids, trees: Ids | None
) -> Edges:
    """Return edges of a relation but for those excluded.

    Args:
        edges: The edges, by positions.
        excluded: What is excluded of this relation.
        found: The nodes that `edges.rows` are positions of.
        expanded: The nodes that `edges.cols` are positions of.
        trees: The tree of each expanded node, if sampling is disjoint.
    """
    if not excluded or len(edges.rows) == 0:
        return edges
    nodes = np.concatenate([each.nodes for each in excluded])
    # Few edges are of these nodes; the rest need not be compared.
    asked = np.flatnonzero(np.isin(expanded[edges.cols], nodes))
    rows, cols = edges.rows[asked], edges.cols[asked]
    there = _triples(None if trees is None else trees[cols], expanded[cols], found[rows])
    pairs = [_triples(each.trees, each.nodes, each.neighbors) for each in excluded]
    _, numbers = np.unique(np.concatenate([there, *pairs]), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    kept = np.ones(len(edges.rows), np.bool_)
    kept[asked] = ~np.isin(numbers[: len(there)], numbers[len(there) :])
    ids = None if edges.edge_ids is None else edges.edge_ids[kept]
    return Edges(edges.rows[kept], edges.cols[kept], ids)


def _triples(trees: Ids | None, nodes: Ids, neighbors: Ids) -> Ids:
    whose = np.zeros(len(nodes), np.int64) if trees is None else trees
    return np.stack([whose, nodes, neighbors], axis=1)


def _listed(choices: Sequence[EdgeType]) -> str:
    there = ", ".join(map(repr, choices))
    return f"those with these ends swapped are {there}" if there else "no type has its ends swapped"
