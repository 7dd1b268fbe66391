"""Finds edges among given nodes: the interface of the subgraph kernels.

Either all edges between the nodes of a list, or given edges and their reverses. Knows relations by
number; nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer
from penstock.kernels.khop import Relation

_DAMAGED: Final = 2
_DAMAGE: Final = (
    "damaged topology: an offset or neighbour points outside the graph; run its validate()"
)


class Edges(NamedTuple):
    """Edges of one relation, as positions: `rows` of the nodes found, `cols` of those expanded.

    `edge_ids` is None if they are not wanted.
    """

    rows: Ids
    cols: Ids
    edge_ids: Ids | None


class InducedEdges:
    """Finds the edges among listed nodes along relations; for one thread at a time.

    Fan-outs of relations are ignored: all edges are read.
    """

    def __init__(self, num_nodes: Sequence[int], relations: Sequence[Relation]) -> None:
        self.num_nodes = [
            check_integer(n, f"num_nodes[{number}]", 0, 2**63) for number, n in enumerate(num_nodes)
        ]
        for number, relation in enumerate(relations):
            for side in (relation.expands, relation.finds):
                if not 0 <= side < len(self.num_nodes):
                    raise ValueError(
                        f"relation {number} names node type {side}, which is not there"
                    )
        self._native = _native.InducedEdges(
            self.num_nodes,
            [relation.adjacency.native for relation in relations],
            [relation.expands for relation in relations],
            [relation.finds for relation in relations],
        )

    def cut(
        self,
        nodes: Sequence[Array],
        trees: Sequence[Array] | None = None,
        *,
        with_edge_ids: bool = True,
    ) -> list[Edges]:
        """Return all edges among `nodes`, for every relation.

        Edges are in the order of the expanded nodes' positions, then of storage. A node listed
        twice counts at its first position. Time grows with all edges of the nodes, memory with the
        edges found.

        Args:
            nodes: The nodes, by node type.
            trees: The tree of each node; only edges within a tree are found.
            with_edge_ids: Whether edge ids are wanted.
        """
        for name, lists in (("nodes", nodes), ("trees", trees)):
            if lists is not None and len(lists) != len(self.num_nodes):
                count = len(self.num_nodes)
                raise ValueError(f"{name} must have one array for each of {count} types")
        listed = [self._checked(ids, type_) for type_, ids in enumerate(nodes)]
        code, made = self._native.cut(listed, _trees(trees, listed), with_edge_ids)
        if code == _DAMAGED:
            raise GraphFormatError(_DAMAGE)
        return [Edges(*edges) for edges in made]

    def _checked(self, nodes: Array, type_: int) -> Ids:
        ids, bound = as_ids(nodes, f"nodes[{type_}]"), self.num_nodes[type_]
        bad = _native.first_outside(ids, bound)
        if bad >= 0:
            raise ValueError(f"nodes[{type_}][{bad}] is {ids[bad]}; expected 0 <= id < {bound}")
        return ids


def induced_edges(
    num_nodes: Sequence[int],
    relations: Sequence[Relation],
    nodes: Sequence[Array],
    trees: Sequence[Array] | None = None,
    *,
    with_edge_ids: bool = True,
) -> list[Edges]:
    """Return all edges among `nodes`, for a single use; see `InducedEdges`."""
    return InducedEdges(num_nodes, relations).cut(nodes, trees, with_edge_ids=with_edge_ids)


def bidirectional(
    rows: Array,
    cols: Array,
    edge_ids: Array | None = None,
    rev_rows: Array | None = None,
    rev_cols: Array | None = None,
    rev_edge_ids: Array | None = None,
) -> Edges:
    """Return edges and reverses of others (by default their own), each once, by (col, row).

    An edge that is given keeps its own id (the first, if it is given several times); an edge that
    is only the reverse of a given edge has the id of that edge.
    """
    if (rev_rows is None) != (rev_cols is None):
        raise ValueError("rev_rows and rev_cols are needed both, or neither")
    if rev_rows is None or rev_cols is None:
        rev_rows, rev_cols, rev_edge_ids = rows, cols, edge_ids
    if (edge_ids is None) != (rev_edge_ids is None):
        raise ValueError("edge_ids and rev_edge_ids are needed both, or neither")
    forth = _places(rows, cols, edge_ids, "")
    back = _places(rev_rows, rev_cols, rev_edge_ids, "rev_")
    return Edges(*_native.bidirectional(*forth, *back))


def _places(
    rows: Array, cols: Array, edge_ids: Array | None, prefix: str
) -> tuple[Ids, Ids, Ids | None]:
    names = [f"{prefix}{name}" for name in ("rows", "cols", "edge_ids")]
    checked = as_ids(rows, names[0]), as_ids(cols, names[1])
    ids = None if edge_ids is None else as_ids(edge_ids, names[2])
    for name, array in zip(names, (*checked, ids), strict=True):
        if array is None:
            continue
        if len(array) != len(checked[0]):
            raise ValueError(f"{name} has {len(array)} entries; {names[0]} has {len(checked[0])}")
        bad = -1 if array is ids else _native.first_outside(array, 2**63 - 1)
        if bad >= 0:
            raise ValueError(f"{name}[{bad}] is {array[bad]}; expected a place, 0 or more")
    return *checked, ids


def _trees(trees: Sequence[Array] | None, nodes: list[Ids]) -> list[Ids] | None:
    if trees is None:
        return None
    checked = [as_ids(ids, f"trees[{type_}]") for type_, ids in enumerate(trees)]
    for type_, (of_type, listed) in enumerate(zip(checked, nodes, strict=True)):
        if len(of_type) != len(listed):
            raise ValueError(
                f"trees[{type_}] has {len(of_type)} entries; there are {len(listed)} nodes"
            )
    return checked
