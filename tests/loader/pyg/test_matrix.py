"""Edges given as a sparse matrix: batches are those of the same edges, with a matrix in them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import Data, everyday, small_data, torch, typed_data

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
]

LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]
CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")


def without_twins(edge_index: Any) -> Any:
    """Edges by destination, then source, each once: as a matrix has them."""
    return edge_index.flip(0).unique(dim=1).flip(0)


def matrix_of(edge_index: Any, size: tuple[int, int], layout: Any) -> Any:
    """[destinations, sources], worth 0, 1, 2 … in the order of the edges."""
    worth = torch.arange(edge_index.shape[1]).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coo = torch.sparse_coo_tensor(edge_index.flip(0), worth, size).coalesce()
        return coo if layout == torch.sparse_coo else coo.to_sparse(layout=layout)


def pair(layout: Any) -> tuple[Any, Any]:
    """The same graph by its edges, and by a matrix."""
    small = small_data()
    edge_index = without_twins(small.edge_index)
    size = (small.num_nodes, small.num_nodes)
    common = {"x": small.x, "train_mask": small.train_mask}
    by_edges = Data(**common, edge_index=edge_index)
    return by_edges, Data(**common, adj_t=matrix_of(edge_index, size, layout))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("options", [{}, {"filter_per_worker": False}], ids=["", "apart"])
def test_batches_are_those_of_the_edges_with_a_matrix(layout: Any, options: Any) -> None:
    by_edges, by_matrix = pair(layout)
    with everyday(by_edges, **options) as one, everyday(by_matrix, **options) as other:
        for expected, batch in zip(one, other, strict=True):
            assert torch.equal(batch.n_id, expected.n_id)
            assert torch.equal(batch.e_id, expected.e_id)
            assert torch.equal(batch.x, expected.x)
            assert "edge_index" not in batch
            assert batch.adj_t.layout == layout
            dense = torch.zeros(len(batch.n_id), len(batch.n_id))
            dense[expected.edge_index[1], expected.edge_index[0]] = expected.e_id.float()
            assert torch.equal(batch.adj_t.to_dense(), dense)


def test_a_model_takes_the_matrix_of_a_batch() -> None:
    from torch_geometric.nn import GraphConv

    by_edges, by_matrix = pair(torch.sparse_csr)
    layer = GraphConv(6, 4)
    with everyday(by_edges) as one, everyday(by_matrix) as other:
        for expected, batch in zip(one, other, strict=True):
            weight = expected.e_id.float()
            found = layer(batch.x, batch.adj_t)
            assert torch.allclose(found, layer(expected.x, expected.edge_index, weight), atol=1e-2)


def test_each_edge_type_may_have_a_matrix() -> None:
    by_edges, by_matrix = typed_data(), typed_data()
    for kind in (CITES, WRITES):
        edge_index = without_twins(by_edges[kind].edge_index)
        by_edges[kind].edge_index = edge_index
        size = by_edges[kind[2]].num_nodes, by_edges[kind[0]].num_nodes
        del by_matrix[kind].edge_index
        by_matrix[kind].adj_t = matrix_of(edge_index, size, torch.sparse_csr)
    options = {"input_nodes": "paper"}
    with everyday(by_edges, **options) as one, everyday(by_matrix, **options) as other:
        for expected, batch in zip(one, other, strict=True):
            rows, columns = expected[WRITES].edge_index.flip(0)
            dense = torch.zeros(batch["paper"].num_nodes, batch["author"].num_nodes)
            dense[rows, columns] = expected[WRITES].e_id.float()
            assert torch.equal(batch[WRITES].adj_t.to_dense(), dense)
            about = ("paper", "about", "topic")
            assert torch.equal(batch[about].edge_index, expected[about].edge_index)


def test_links_may_be_those_of_a_matrix() -> None:
    by_edges, by_matrix = pair(torch.sparse_csr)
    options = {"num_neighbors": [2], "batch_size": 32, "seed": 1}
    with (
        ps.LinkNeighborLoader(by_edges, **options) as one,
        ps.LinkNeighborLoader(by_matrix, **options) as other,
    ):
        expected, batch = next(iter(one)), next(iter(other))
        assert torch.equal(batch.n_id, expected.n_id)
        assert torch.equal(batch.edge_label_index, expected.edge_label_index)


def test_with_replacement_an_edge_may_be_there_twice() -> None:
    by_edges, by_matrix = pair(torch.sparse_coo)
    options = {"replace": True, "num_neighbors": [12]}
    with everyday(by_edges, **options) as one, everyday(by_matrix, **options) as other:
        expected, batch = next(iter(one)), next(iter(other))
        assert batch.adj_t._nnz() == expected.edge_index.shape[1]


def test_workers_make_the_same() -> None:
    _, by_matrix = pair(torch.sparse_csr)
    with everyday(by_matrix) as one, everyday(by_matrix, num_workers=1) as other:
        for expected, batch in zip(one, other, strict=True):
            assert torch.equal(batch.adj_t.to_dense(), expected.adj_t.to_dense())
