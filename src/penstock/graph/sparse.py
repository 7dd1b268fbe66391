"""Edges that are given as a sparse matrix, SciPy's or torch's.

Entry [i, j] is an edge from i to j, as in PyG's `from_scipy_sparse_matrix` and `to_edge_index`; of
PyG's `adj_t` it is an edge from j to i. Explicit zeros and repeated entries are edges, too. Neither
library is imported here: only a program that has imported it can pass a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.tensors import PlainArray, is_tensor, plain

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class MatrixEdges:
    """The entries of a matrix, in the order stored.

    Attributes:
        rows: The row of each entry.
        columns: The column of each entry.
        values: Its values; None if all are 1, which says nothing.
        shape: The numbers of rows and columns.
    """

    rows: Array
    columns: Array
    values: PlainArray | None
    shape: tuple[int, int]

    def by_row(self) -> MatrixEdges:
        """Return the entries row by row, which is how PyG numbers those of `adj_t`."""
        order = np.argsort(self.rows, kind="stable")
        values = self.values
        if values is not None:
            values = PlainArray(values.label, values.array[order], values.dtype)
        return MatrixEdges(self.rows[order], self.columns[order], values, self.shape)

    def transposed(self) -> MatrixEdges:
        """Return the entries with rows for columns."""
        return MatrixEdges(self.columns, self.rows, self.values, self.shape[::-1])


def matrix_edges(label: str, matrix: Any) -> MatrixEdges:
    """Return the entries of a sparse matrix; `ValueError` for a form that is not read."""
    if is_tensor(matrix):
        rows, columns, values = _of_tensor(label, matrix)
    elif hasattr(matrix, "tocoo") and len(matrix.shape) == 2:
        found = matrix.tocoo()
        rows, columns, values = found.row, found.col, found.data
    else:
        raise ValueError(
            f"{label} is a {type(matrix).__qualname__} of shape {list(matrix.shape)}; expected a "
            "sparse matrix of SciPy or torch, or [2, edges]"
        )
    weights = plain(f"the values of {label}", values)
    is_plain = weights.array.ndim == 1 and bool((weights.array == 1).all())
    shape = int(matrix.shape[0]), int(matrix.shape[1])
    return MatrixEdges(_ids(rows), _ids(columns), None if is_plain else weights, shape)


def _of_tensor(label: str, matrix: Any) -> tuple[Any, Any, Any]:
    layout = str(matrix.layout).removeprefix("torch.")
    if matrix.sparse_dim() != 2 if layout == "sparse_coo" else matrix.ndim != 2:
        raise ValueError(f"{label} has shape {list(matrix.shape)}; expected a matrix")
    matrix = matrix.detach().cpu()
    match layout:
        case "sparse_coo":  # as stored, without adding up repeated entries
            rows, columns = matrix._indices()
            return rows, columns, matrix._values()
        case "sparse_csr":
            return _spelt_out(matrix.crow_indices()), matrix.col_indices(), matrix.values()
        case "sparse_csc":
            return matrix.row_indices(), _spelt_out(matrix.ccol_indices()), matrix.values()
    raise ValueError(
        f"{label} has the layout {layout}; expected sparse_coo, sparse_csr, sparse_csc"
    )


def _spelt_out(pointers: Any) -> Array:
    counts = np.diff(pointers.numpy())
    return np.repeat(np.arange(len(counts), dtype=counts.dtype), counts)


def _ids(given: Any) -> Array:
    return np.ascontiguousarray(given.numpy() if is_tensor(given) else given)
