"""Draws negatives, pairs of nodes that are no edges: the interface of those kernels.

Checks arguments and turns the kernels' results into errors. docs/random.md specifies every draw.
This module does not know what negatives are used for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer, check_word
from penstock.kernels.topology import Adjacency

# How often each end of a negative is drawn, and how many nodes are then tried one by one, before an
# unsuitable one is accepted.
DRAWS: Final[int] = _native.NEGATIVE_DRAWS
SCAN: Final[int] = _native.NEGATIVE_SCAN
_DAMAGED: Final = 2
_DAMAGE: Final = "damaged topology: an offset or neighbour points outside the graph"


def sort_rows(adjacency: Adjacency, out: Array) -> None:
    """Write the neighbours of every row, ascending, to `out` [E], for fast lookup of edges."""
    if out.dtype.itemsize < adjacency.entries.dtype.itemsize:
        raise ValueError(f"out is {out.dtype}; the neighbours are {adjacency.entries.dtype}")
    if not _native.sort_rows(adjacency.native, out):
        raise GraphFormatError(f"{_DAMAGE}; run its validate()")


class SortedRows:
    """The in-neighbours of every destination: `indptr` [n + 1], and the result of `sort_rows`."""

    __slots__ = ("native",)

    def __init__(self, indptr: Array, neighbors: Array) -> None:
        if indptr.dtype != np.int64 or neighbors.dtype not in (np.int32, np.int64):
            raise ValueError(
                f"indptr is {indptr.dtype}, neighbors are {neighbors.dtype}; "
                "expected int64, and int32 or int64"
            )
        if neighbors.ndim != 1:
            raise ValueError(f"neighbors must have one dimension, not {neighbors.ndim}")
        self.native = Adjacency(indptr, neighbors).native

    @classmethod
    def over(cls, rows: Adjacency) -> SortedRows:
        """Return the same over an adjacency of bare neighbours that rise within each row.

        It may have the rows of some nodes only; those of others are read as empty.
        """
        if rows.entries.ndim != 1:
            raise ValueError("edges are looked up in rows of bare neighbours")
        made = cls.__new__(cls)
        made.native = rows.native
        return made


class Candidates:
    """The nodes that one end of a negative is drawn from: 0 to `num_nodes` - 1.

    With `sums` [n], running sums of integer weights, nodes are drawn by weight (a node of weight 0
    never), else uniformly. With `times` [n], nodes later than the edge that a negative belongs to
    are rejected.
    """

    __slots__ = ("native", "num_nodes", "sums", "times")

    def __init__(
        self, num_nodes: int, sums: Array | None = None, times: Array | None = None
    ) -> None:
        self.num_nodes = check_integer(num_nodes, "num_nodes", 0, 2**63)
        self.sums = None if sums is None else _column(sums, "sums", num_nodes)
        self.times = None if times is None else _column(times, "times", num_nodes)
        if self.sums is not None and num_nodes:
            _check_sums(self.sums)
        self.native = _native.Candidates(self.num_nodes, self.sums, self.times)

    @property
    def earliest(self) -> int:
        """The first node with the smallest time, among those that can be drawn."""
        return self.native.earliest


@dataclass(frozen=True, slots=True, eq=False)
class Negatives:
    """Drawn negatives. `sources` is None if only destinations were asked for.

    `num_false` of them are edges after all, which is known only if edges were looked up; `num_late`
    have an end that is too late.
    """

    sources: Ids | None
    destinations: Ids
    num_false: int
    num_late: int


def draw_negatives(
    key: int,
    sources: Array,
    destinations: Array,
    count: int,
    *,
    source: Candidates | None,
    destination: Candidates,
    times: Array | None = None,
    edges: SortedRows | None = None,
) -> Negatives:
    """Draw `count` negatives for the edges from `sources` to `destinations`.

    Negative k belongs to edge k modulo their number: it is not later than that edge's time, and
    with `edges` it is neither that edge nor one of `edges`. If `DRAWS` draws of each end and a
    search of `SCAN` nodes find no such pair, an unsuitable one is returned, and counted.

    Args:
        key: The batch's key.
        sources: The sources of the edges.
        destinations: The destinations of the edges.
        count: How many negatives to draw.
        source: What sources are drawn from; None keeps the edge's source.
        destination: What destinations are drawn from.
        times: The time of each edge.
        edges: All edges of the graph, to look up false negatives.
    """
    key, count = check_word(key, "key"), check_integer(count, "count", 0, 2**62)
    ends = as_ids(sources, "sources"), as_ids(destinations, "destinations")
    _check_ends(ends, source, destination)
    limits = None if times is None else as_ids(times, "times")
    out_sources = None if source is None else np.empty(count, np.int64)
    out = np.empty(count, np.int64)
    code, num_false, num_late = _native.draw_negatives(
        key,
        *ends,
        (source or destination).native,
        destination.native,
        limits,
        None if edges is None else edges.native,
        out_sources,
        out,
    )
    if code == _DAMAGED:
        raise GraphFormatError(f"{_DAMAGE}; run its validate()")
    return Negatives(out_sources, out, num_false, num_late)


def _check_ends(ends: tuple[Ids, Ids], source: Candidates | None, destination: Candidates) -> None:
    for name, ids, nodes in (
        ("sources", ends[0], source),
        ("destinations", ends[1], destination),
    ):
        if nodes is None:
            continue
        bad = _native.first_outside(ids, nodes.num_nodes)
        if bad >= 0:
            raise ValueError(f"{name}[{bad}] is {ids[bad]}; expected 0 <= id < {nodes.num_nodes}")


def _column(values: Array, name: str, num_nodes: int) -> Ids:
    if values.dtype != np.int64 or values.shape != (num_nodes,):
        raise ValueError(
            f"{name} must be int64 of shape [{num_nodes}], not {values.dtype} {list(values.shape)}"
        )
    return np.require(values, np.int64, ["C", "A"])


def _check_sums(sums: Ids) -> None:
    if sums[0] < 0 or not _native.is_sorted(sums):
        raise ValueError("sums must be running sums of weights that are not negative")
    if sums[-1] == 0:
        raise ValueError("sums end with 0: no node has a weight, and none can be drawn")
