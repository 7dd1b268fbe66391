"""Graphs from sparse matrices, SciPy's and torch's: which entry is which edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.reading import Data, HeteroData, torch

scipy_sparse = pytest.importorskip("scipy.sparse")
utils = pytest.importorskip("torch_geometric.utils")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),  # torch says that its layouts are young
]
SHAPE = (5, 5)
ROWS, COLUMNS = np.array([3, 0, 3, 1, 0]), np.array([1, 2, 0, 4, 2])
VALUES = np.array([0.5, 2.0, 0.0, 1.0, 3.0], np.float32)


def scipys(form: str, values: Any = VALUES) -> Any:
    return scipy_sparse.coo_matrix((values, (ROWS, COLUMNS)), shape=SHAPE).asformat(form)


def torchs(layout: Any, values: Any = VALUES) -> Any:
    ends = torch.from_numpy(np.stack([ROWS, COLUMNS]))
    made = torch.sparse_coo_tensor(ends, torch.from_numpy(values), SHAPE)
    return made if layout == torch.sparse_coo else made.to_sparse(layout=layout)


def found(graph: Any) -> list[tuple[int, int, float]]:
    ends, weights = graph.edge_index().tolist(), graph.edge_attribute("edge_weight").tolist()
    return list(zip(*ends, weights, strict=True))


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "lil"])
def test_an_entry_of_scipys_is_an_edge_from_row_to_column_as_in_pyg(form: str) -> None:
    matrix = scipys(form)
    ends, weights = utils.from_scipy_sparse_matrix(matrix)
    with ps.Graph.from_coo(matrix) as graph:
        assert graph.num_nodes() == 5
        assert found(graph) == list(zip(*ends.tolist(), weights.tolist(), strict=True))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_so_it_is_with_torchs(layout: Any) -> None:
    matrix = torchs(layout)
    ends, weights = utils.to_edge_index(matrix)
    if layout == torch.sparse_coo:  # PyG adds up entries of one place; here they are two edges
        ends, weights = matrix._indices(), matrix._values()
    with ps.Graph.from_coo(matrix) as graph:
        assert graph.num_nodes() == 5
        assert found(graph) == list(zip(*ends.tolist(), weights.tolist(), strict=True))


def test_values_of_one_say_nothing_and_given_weights_come_first() -> None:
    with ps.Graph.from_coo(scipys("coo", np.ones(5))) as graph:
        assert list(graph.edge_attributes()) == []
    with ps.Graph.from_coo(scipys("coo"), edge_weight=np.arange(5.0)) as graph:
        assert graph.edge_attribute("edge_weight").tolist() == [0, 1, 2, 3, 4]


def test_matrices_of_types_have_sizes_of_both_ends() -> None:
    likes = scipy_sparse.csr_matrix((np.ones(2), ([0, 1], [6, 2])), shape=(3, 8))
    with ps.Graph.from_coo({("user", "likes", "film"): likes}) as graph:
        assert (graph.num_nodes("user"), graph.num_nodes("film")) == (3, 8)
        assert graph.edge_index(("user", "likes", "film")).tolist() == [[0, 1], [6, 2]]


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_adj_t_of_data_leads_from_column_to_row(layout: Any) -> None:
    data = Data(x=torch.rand(5, 2), adj_t=torchs(layout))
    with ps.Graph.from_pyg(data) as graph, ps.NeighborLoader(data, [1]) as loader:
        given = loader._source.graph.edge_index()
        np.testing.assert_array_equal(graph.edge_index(), given)
        assert graph.edge_index()[1].tolist() == sorted(graph.edge_index()[1].tolist())
        assert set(graph.edge_index()[1].tolist()) == set(ROWS.tolist())
        assert graph.edge_attribute("edge_weight").sum() == VALUES.sum()


def test_adj_t_of_types_is_read_too() -> None:
    data = HeteroData()
    data["user"].x, data["film"].x = torch.rand(3, 1), torch.rand(8, 1)
    matrix = torch.sparse_coo_tensor(torch.tensor([[6, 2], [0, 1]]), torch.ones(2), (8, 3))
    data["user", "likes", "film"].adj_t = matrix
    with ps.Graph.from_pyg(data) as graph:
        assert graph.edge_index(("user", "likes", "film")).tolist() == [[1, 0], [2, 6]]


def test_other_forms_are_refused_by_name() -> None:
    blocks = torch.eye(4).to_sparse_bsr((2, 2))
    with pytest.raises(
        ValueError, match="edge_index has the layout sparse_bsr; expected sparse_coo"
    ):
        ps.Graph.from_coo(blocks)
    with pytest.raises(ValueError, match=r"edge_index has shape \[2, 2, 2\]; expected a matrix"):
        ps.Graph.from_coo(torch.ones(2, 2, 2).to_sparse())
