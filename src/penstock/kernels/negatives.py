"""Pairs that stand against edges: the face of the kernels that draw negatives.

Checks what comes in and turns the kernels' answers into errors. What is drawn, to the word, is in
docs/random.md; what negatives are for is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer, check_word
from penstock.kernels.topology import Adjacency

# How often each end of a negative is drawn, and how many nodes are then looked at one by one,
# before whatever there is will do.
DRAWS: Final[int] = _native.NEGATIVE_DRAWS
SCAN: Final[int] = _native.NEGATIVE_SCAN
_DAMAGED: Final = 2
_DAMAGE: Final = "damaged topology: an offset or neighbour points outside the graph"


def sort_rows(adjacency: Adjacency, out: Array) -> None:
    """The neighbours of every row, ascending, into `out` [E], in which an edge is quickly found."""
    if out.dtype.itemsize < adjacency.entries.dtype.itemsize:
        raise ValueError(f"out is {out.dtype}; the neighbours are {adjacency.entries.dtype}")
    if not _native.sort_rows(adjacency.native, out):
        raise GraphFormatError(f"{_DAMAGE}; run its validate()")


class SortedRows:
    """The in-neighbours of every destination: `indptr` [n + 1], and what `sort_rows` made."""

    __slots__ = ("indptr", "native", "neighbors")

    def __init__(self, indptr: Array, neighbors: Array) -> None:
        if indptr.dtype != np.int64 or neighbors.dtype not in (np.int32, np.int64):
            raise ValueError(
                f"indptr is {indptr.dtype}, neighbors are {neighbors.dtype}; "
                "expected int64, and int32 or int64"
            )
        self.indptr = indptr
        self.neighbors = neighbors
        self.native = _native.SortedRows(indptr, neighbors)


class Candidates:
    """The nodes that one end of a negative is drawn from: 0 to `num_nodes` - 1.

    By `sums` [n], running sums of integer weights, where given (a node of weight 0 is never drawn),
    else all alike. With `times` [n] those later than the edge they stand against are not wanted.
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
        """The first node of the least time, among those that can be drawn."""
        return self.native.earliest


@dataclass(frozen=True, slots=True, eq=False)
class Negatives:
    """What was drawn. `sources` is None where only destinations were asked for.

    `num_false` are edges after all, which is known only where edges were looked up; `num_late` have
    an end that is later than it should be.
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
    """`count` negatives for the edges from `sources` to `destinations`, of the batch of this key.

    Negative k stands against edge k modulo their number: it is no later than that one's time, and,
    with `edges`, neither that one nor one of those; without `source` it keeps that one's source.
    Where `DRAWS` draws of each end and a search of `SCAN` nodes find nothing of the kind, it is
    what there is, and counted.
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
