"""Turns SciPy's sparse matrices into the arguments of `Graph.from_coo`, with their types.

SciPy is not imported here: only a program that has imported it can pass a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.graph import check
from penstock.graph.schema import EdgeType
from penstock.graph.sparse import MatrixEdges, matrix_edges
from penstock.graph.tensors import is_sparse, is_tensor


class MatrixArguments(NamedTuple):
    """What matrices are for `Graph.from_coo`: plain values, or mappings by type."""

    edge_index: Any
    num_nodes: Any
    values: Any


def matrix_arguments(matrix: Any, edge_type: Any, reverse: bool) -> MatrixArguments:
    """Return the edges, sizes and values of one matrix, or of several by edge type.

    Args:
        matrix: A matrix, or a mapping from edge type to matrix.
        edge_type: The type of the edges of a single matrix. None: the graph has one node type.
        reverse: Whether every entry is an edge back, too.
    """
    if isinstance(matrix, Mapping) and not is_sparse(matrix):  # a matrix of keys is both
        if edge_type is not None:
            raise ValueError("edge_type is given, but matrix has the types already: leave it out")
        return _typed(matrix, reverse)
    if edge_type is not None:
        return _typed({edge_type: matrix}, reverse)
    found = _entries("matrix", matrix)
    rows, columns = found.shape
    if rows != columns:
        raise ValueError(
            f"matrix is {rows} x {columns}: rows and columns are nodes of two types. Give them as "
            "edge_type=('user', 'buys', 'item'), or num_nodes by from_coo"
        )
    if reverse:
        found = _both_ways(found)
    values = None if found.values is None else found.values.array
    return MatrixArguments((found.rows, found.columns), rows, values)


def _typed(matrices: Mapping[Any, Any], reverse: bool) -> MatrixArguments:
    edges: dict[EdgeType, Any] = {}
    sizes: dict[str, int] = {}
    values: dict[EdgeType, Any] = {}
    for given, matrix in matrices.items():
        name = check.edge_type("edge_type", given)
        found = _entries("matrix" if len(matrices) == 1 else f"matrix[{name!r}]", matrix)
        for node_type, size in zip((name[0], name[2]), found.shape, strict=True):
            sizes[node_type] = max(size, sizes.get(node_type, 0))
        _add(name, found, edges, values)
        if reverse:
            _add((name[2], f"rev_{name[1]}", name[0]), found.transposed(), edges, values)
    return MatrixArguments(edges, sizes, values or None)


def _add(
    name: EdgeType, found: MatrixEdges, edges: dict[EdgeType, Any], values: dict[EdgeType, Any]
) -> None:
    if name in edges:
        raise ValueError(f"matrix has the type {name!r}, which is the reverse of another, too")
    edges[name] = found.rows, found.columns
    if found.values is not None:
        values[name] = found.values.array


def _entries(label: str, matrix: Any) -> MatrixEdges:
    if not is_sparse(matrix) or is_tensor(matrix):
        raise ValueError(
            f"{label} is {type(matrix).__module__}.{type(matrix).__qualname__}; expected a sparse "
            "matrix of SciPy (from_coo takes torch's, too)"
        )
    return matrix_edges(label, matrix)


def _both_ways(found: MatrixEdges) -> MatrixEdges:
    """Return every entry, and then those that are no loops, back."""
    back = np.flatnonzero(found.rows != found.columns)
    values = found.values
    if values is not None:
        both = np.concatenate([values.array, values.array[back]])
        values = type(values)(values.label, both, values.dtype)
    return MatrixEdges(
        _joined(found.rows, found.columns[back]),
        _joined(found.columns, found.rows[back]),
        values,
        found.shape,
    )


def _joined(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([first, second])


def with_values(given: dict[str, Any], name: str, values: Any) -> dict[str, Any]:
    """Return the arguments of `from_coo` with the values of matrices as an attribute of edges.

    Args:
        given: The arguments.
        name: The attribute's name.
        values: The values, or a mapping of them by edge type.
    """
    if given.get(name) is not None:
        return given
    if not isinstance(values, dict):
        return {**given, "edge_attrs": {name: values, **(given.get("edge_attrs") or {})}}
    others = given.get("edge_attrs") or {}
    both = {
        kind: {**({name: values[kind]} if kind in values else {}), **others.get(kind, {})}
        for kind in {**values, **others}
    }
    return {**given, "edge_attrs": both}
