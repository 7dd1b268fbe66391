"""Graphs for tests: drawn by Hypothesis, and what NumPy alone makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.graph import EdgeType

Array = npt.NDArray[Any]

# Every type a feature may have, but bfloat16, which NumPy does not know.
FEATURE_DTYPES = ["float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"]


@dataclass(frozen=True)
class Typed:
    """A heterogeneous graph as `from_coo` takes it."""

    num_nodes: dict[str, int]
    edge_index: dict[EdgeType, Array]


@st.composite
def edge_indices(draw: st.DrawFn, num_sources: int, num_destinations: int) -> Array:
    """Edges with whatever comes: self-loops, parallel ones, hubs, none; odd strides, sorted."""
    most = 40 if num_sources and num_destinations else 0
    size = draw(st.integers(0, most))
    dtype = draw(st.sampled_from(["int32", "int64"]))
    rows = [
        draw(hnp.arrays(dtype, size, elements=st.integers(0, max(bound - 1, 0))))
        for bound in (num_sources, num_destinations)
    ]
    if draw(st.booleans()):
        rows[1].sort()
    return draw(st.sampled_from([_rows, _columns, _backwards, _every_other]))(np.stack(rows))


@st.composite
def homogeneous(draw: st.DrawFn) -> tuple[int, Array]:
    """A number of nodes, and edges among them."""
    num_nodes = draw(st.integers(0, 12))
    return num_nodes, draw(edge_indices(num_nodes, num_nodes))


@st.composite
def heterogeneous(draw: st.DrawFn) -> Typed:
    """Up to three node types and four edge types among them."""
    names = draw(st.lists(st.text("abc→é ", min_size=1), min_size=1, max_size=3, unique=True))
    num_nodes = {name: draw(st.integers(0, 8)) for name in names}
    ends = st.sampled_from(names)
    types = draw(
        st.lists(st.tuples(ends, st.sampled_from(["to", "by"]), ends), max_size=4, unique=True)
    )
    edges = {name: draw(edge_indices(num_nodes[name[0]], num_nodes[name[2]])) for name in types}
    return Typed(num_nodes, edges)


def features(rows: int) -> st.SearchStrategy[Array]:
    """An attribute of any type and width, with so many rows."""
    return st.tuples(
        st.sampled_from(FEATURE_DTYPES), hnp.array_shapes(min_dims=0, max_dims=2, min_side=0)
    ).flatmap(lambda kind: hnp.arrays(kind[0], (rows, *kind[1])))


def sorted_by(keys: Array, others: Array, size: int) -> tuple[Array, Array, Array]:
    """`indptr`, neighbours and edge ids, as NumPy's stable sort gives them."""
    order = np.argsort(keys, kind="stable")
    indptr = np.searchsorted(keys[order], np.arange(size + 1))
    return indptr, others[order], order


def _rows(edges: Array) -> Array:
    return edges


def _columns(edges: Array) -> Array:
    return np.ascontiguousarray(edges.T).T


def _backwards(edges: Array) -> Array:
    return np.ascontiguousarray(edges[::-1, ::-1])[::-1, ::-1]


def _every_other(edges: Array) -> Array:
    return np.repeat(edges, 2, axis=1)[:, ::2]
