"""Generates an RMAT graph: few nodes have huge degrees, as in graphs that people train on.

An RMAT generator draws one bit of an edge's two ends at a time. This one draws three, from a table,
so that it is done in a moment.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph

_QUADRANTS: Final = (0.57, 0.19, 0.19, 0.05)
_BITS: Final = 3
_TABLE: Final = 1 << 16


def rmat_graph(num_nodes: int, num_edges: int, width: int) -> Graph:
    """Return a graph in shared memory, with rows of `width` floats as `x`.

    Nodes have scrambled ids, so that those of high degree lie anywhere.
    """
    draw = np.random.default_rng(0)
    ends = _ends(num_nodes, num_edges, draw)
    names = draw.permutation(int(ends.max()) + 1).astype(np.int32) % num_nodes
    x = np.full((num_nodes, width), 0.5, np.float32)
    return Graph.from_coo(names[ends], num_nodes=num_nodes, x=x, progress=False)


def _ends(num_nodes: int, num_edges: int, draw: np.random.Generator) -> npt.NDArray[np.int32]:
    """Return the two ends of all edges, within the next power of two or more."""
    first, second = _table()
    ends = np.zeros((2, num_edges), np.int32)
    for _ in range(-(-(num_nodes - 1).bit_length() // _BITS)):
        toss = draw.integers(_TABLE, size=num_edges, dtype=np.uint16)
        ends <<= _BITS
        ends[0] |= first[toss]
        ends[1] |= second[toss]
    return ends


def _table() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return three bits of each end for every number that may be drawn."""
    chances: Any = np.ones(1)
    for _ in range(_BITS):
        chances = np.outer(chances, _QUADRANTS).ravel()
    drawn = (np.arange(_TABLE) + 0.5) / _TABLE
    outcome = np.searchsorted(np.cumsum(chances)[:-1], drawn, side="right")
    return _every_other_bit(outcome >> 1), _every_other_bit(outcome)


def _every_other_bit(outcome: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return bits 0, 2 and 4 as a number of three bits."""
    bits = [(outcome >> 2 * at & 1) << at for at in range(_BITS)]
    number: npt.NDArray[np.int32] = np.bitwise_or.reduce(bits).astype(np.int32)
    return number
