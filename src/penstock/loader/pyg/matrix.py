"""Edges that are given as a matrix: `adj_t`, one of torch's sparse tensors.

Row i has the edges that lead to node i. Edges are numbered row by row, as PyG numbers those of a
`SparseTensor`; other edge attributes must be in that order. Batches have an `adj_t` of the same
layout, with the values of its edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from penstock.loader.pyg.template import Ends

LAYOUTS: Final = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Matrix(Ends):
    """`edges` has the ends of all edges in the order of their ids, `values` their values."""

    layout: torch.layout
    edges: Tensor
    values: Tensor

    @classmethod
    def of(cls, given: Tensor) -> Matrix:
        """Read a sparse matrix [destinations, sources] of any layout in `LAYOUTS`."""
        rows, columns, values = _entries(given)
        order = rows.argsort(stable=True)
        edges = torch.stack([columns[order], rows[order]])
        device = None if given.device.type == "cpu" else given.device
        return cls(
            dtype=edges.dtype,
            device=device,
            layout=given.layout,
            edges=edges,
            values=values[order],
        )

    def put(
        self, store: Any, ends: Tensor | None, ids: Tensor | None, nodes: tuple[int, int]
    ) -> None:
        """Set the matrix of a batch; `nodes` are its numbers of sources and destinations."""
        if ends is None or ids is None:
            store["adj_t"] = None
            return
        sources, destinations = self.like(ends)
        values = self.values[ids.to(self.values.device, torch.int64)]
        store["adj_t"] = _matrix(self.layout, destinations, sources, values, nodes[::-1])


def is_sparse(value: Any) -> bool:
    """Return whether the value is a matrix that can be read here."""
    return isinstance(value, Tensor) and value.layout in LAYOUTS and value.sparse_dim() == 2


def _entries(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, column and value of each entry; duplicate entries are kept."""
    if matrix.layout == torch.sparse_coo:
        rows, columns = matrix._indices()
        return rows, columns, matrix._values()
    if matrix.layout == torch.sparse_csr:
        columns = matrix.col_indices()
        return _spelt_out(matrix.crow_indices()), columns, matrix.values()
    rows = matrix.row_indices()
    return rows, _spelt_out(matrix.ccol_indices()), matrix.values()


def _spelt_out(pointers: Tensor) -> Tensor:
    places = torch.arange(len(pointers) - 1, dtype=pointers.dtype, device=pointers.device)
    return places.repeat_interleave(pointers.diff())


def _matrix(
    layout: torch.layout, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    size = (*shape, *values.shape[1:])
    if layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, size)
    by_row = layout == torch.sparse_csr
    major, minor = (rows, columns) if by_row else (columns, rows)
    order = minor.argsort(stable=True)
    order = order[major[order].argsort(stable=True)]
    counts = torch.bincount(major, minlength=shape[0 if by_row else 1])
    pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(rows.dtype)
    make = torch.sparse_csr_tensor if by_row else torch.sparse_csc_tensor
    return make(pointers, minor[order], values[order], size)
