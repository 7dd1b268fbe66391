"""Embeddings of all nodes are those of a forward pass over the whole graph."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.server.serving import serve
from tests.examples.running import planetoid
from tests.loader.embedding.models import (
    COUNTS,
    NODES,
    WIDTH,
    WRITES,
    Layered,
    TypedLayers,
    basic,
    nn,
    plain_graph,
    tensor,
    typed_graph,
    whole,
    whole_typed,
)
from tests.loader.epochs import pyg, torch

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
# Threads that pyarrow starts for itself stay, and would pass for leaks.
pq.write_table(pa.table({"id": [1]}), memory := io.BytesIO())
pq.read_table(memory)

pytestmark = pytest.mark.usefixtures("no_leaks")

CORA = Path(__file__).parents[3].parent / "shared" / "data" / "cora.npz"


@pytest.fixture
def graph() -> Iterator[ps.Graph]:
    with plain_graph() as graph:
        yield graph


def embedded(model: Any, data: Any, folder: Path, **options: Any) -> Any:
    """What `embed` writes, which leaves nothing else behind."""
    folder.mkdir(exist_ok=True)
    path = ps.embed(model, data, folder / "out.npy", **{"batch_size": 64, **options})
    assert [each.name for each in folder.iterdir()] == ["out.npy"]
    return np.load(path)


MODELS: Any = [
    ("GraphSAGE", {}),
    ("GraphSAGE", {"jk": "cat", "norm": "batch"}),
    ("GraphSAGE", {"jk": "lstm", "act_first": True, "norm": "batch"}),
    ("GCN", {}),
    ("GCN", {"jk": "last", "improved": True}),
    ("GCN", {"add_self_loops": False}),
    ("GCN", {"normalize": False, "act": None}),
    ("GAT", {"heads": 2}),
    ("GIN", {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}),
    ("PNA", {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.ones(9)}),
    ("EdgeCNN", {"jk": "max"}),
]


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_they_are_those_of_a_forward_pass(
    name: str, options: Any, graph: ps.Graph, tmp_path: Path
) -> None:
    model = basic(name, **options)
    found = embedded(model, graph, tmp_path)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, whole(model, graph), atol=1e-5)


@pytest.mark.skipif(not CORA.exists(), reason="cora.npz is not in ../shared/data")
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GAT"])
def test_on_cora_too(name: str, tmp_path: Path) -> None:
    data = planetoid(CORA)
    torch.manual_seed(0)
    model = getattr(nn, name)(data.num_features, 16, num_layers=2, out_channels=7).eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index).numpy()
    found = embedded(model, data, tmp_path, batch_size=500)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"improved": True}, {"add_self_loops": False}])
def test_a_gcn_weighs_edges_by_their_weights_and_degrees(
    options: Any, graph: ps.Graph, tmp_path: Path
) -> None:
    model = basic("GCN", **options)
    found = embedded(model, graph, tmp_path, edge_weight="edge_weight")
    expected = whole(model, graph, edge_weight="edge_weight")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not np.allclose(found, whole(model, graph), atol=1e-3)
    assert all(each.normalize and not each._forward_pre_hooks for each in model.convs)


def test_layers_of_a_model_get_what_they_ask_for(graph: ps.Graph, tmp_path: Path) -> None:
    model = Layered()
    names = {"edge_weight": "edge_weight", "edge_attr": "edge_attr"}
    found = embedded(model, graph, tmp_path, **names)
    np.testing.assert_allclose(found, whole(model, graph, **names), atol=1e-5)


def test_any_other_model_sees_all_neighbours_within_its_hops(
    graph: ps.Graph, tmp_path: Path
) -> None:
    model = nn.Sequential(
        "x, edge_index",
        [
            (nn.GCNConv(WIDTH, 8), "x, edge_index -> x"),
            torch.nn.ReLU(),
            (nn.SAGEConv(8, 4), "x, edge_index -> x"),
        ],
    )
    with pytest.raises(ValueError, match=r"does not say how far it sees: .*inference_layers"):
        ps.embed(model, graph, tmp_path / "out.npy")
    found = embedded(model, graph, tmp_path / "by hops", hops=2)
    np.testing.assert_allclose(found, whole(model, graph), atol=1e-5)


@pytest.mark.parametrize("node_type", ["paper", "author"])
def test_types_have_layers_together(node_type: str, tmp_path: Path) -> None:
    model = TypedLayers()
    with typed_graph() as graph:
        found = embedded(model, graph, tmp_path, node_type=node_type, batch_size=16)
        np.testing.assert_allclose(found, whole_typed(model, graph)[node_type], atol=1e-5)


def test_a_model_that_was_made_for_types_sees_all_neighbours(tmp_path: Path) -> None:
    with typed_graph() as graph:
        torch.manual_seed(2)
        model = nn.to_hetero(nn.GraphSAGE((-1, -1), 8, 2, out_channels=4), graph.metadata())
        with pytest.raises(ValueError, match="has no size yet: call the model once"):
            ps.embed(model, graph, tmp_path / "out.npy", node_type="paper")
        expected = whole_typed(model, graph)["paper"]
        found = embedded(model, graph, tmp_path, node_type="paper")
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_type_without_features_may_be_there(tmp_path: Path) -> None:
    class Papers(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.names = torch.nn.Embedding(COUNTS["author"], 4)
            self.conv = nn.SAGEConv((4, 5), 4)

        def layer(self, x: Any, edge_index: Any, n_id: Any) -> Any:
            authors = self.names(n_id["author"])
            return {"paper": self.conv((authors, x["paper"]), edge_index[WRITES])}

        def inference_layers(self) -> Any:
            return [self.layer]

    with typed_graph() as full:
        papers, writes = full.node_attribute("x", "paper"), full.edge_index(WRITES)
    model = Papers()
    with ps.Graph.from_coo({WRITES: writes}, COUNTS, x={"paper": papers}) as graph:
        found = embedded(model, graph, tmp_path, node_type="paper")
    with torch.no_grad():
        expected = model.conv((model.names.weight, tensor(papers)), tensor(writes)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_they_are_the_same_from_every_source(graph: ps.Graph, tmp_path: Path) -> None:
    model = basic("GCN")
    expected = embedded(model, graph, tmp_path / "graph")
    graph.save(tmp_path / "plain.graph")
    data = pyg.data.Data(
        x=torch.from_numpy(graph.node_attribute("x").copy()),
        edge_index=torch.from_numpy(graph.edge_index().copy()),
    )
    pooled = embedded(model, tmp_path / "plain.graph", tmp_path / "path", num_workers=2)
    assert np.array_equal(pooled, expected)
    assert np.array_equal(embedded(model, data, tmp_path / "data"), expected)
    with serve(graph, num_workers=1) as server:
        with ps.connect(server.address, same_host=False) as far:
            assert np.array_equal(embedded(model, far, tmp_path / "far"), expected)
        assert np.array_equal(embedded(model, server.address, tmp_path / "address"), expected)
    parts = [serve(part, num_workers=1) for part in graph.partition(2, tmp_path / "parts")]
    try:
        with ps.connect([part.address for part in parts], num_workers=1) as store:
            assert np.array_equal(embedded(model, store, tmp_path / "store"), expected)
    finally:
        for part in parts:
            part.close()


@pytest.mark.filterwarnings("ignore:Sparse")  # torch says that its layouts are young
def test_edges_may_be_a_matrix(graph: ps.Graph, tmp_path: Path) -> None:
    ends = torch.from_numpy(graph.edge_index().copy())
    ones = torch.ones(ends.shape[1])
    data = pyg.data.Data(x=torch.from_numpy(graph.node_attribute("x").copy()), names=["a"] * NODES)
    data.adj_t = torch.sparse_coo_tensor(ends.flip(0), ones, (NODES, NODES))
    model = basic("GraphSAGE")
    np.testing.assert_allclose(embedded(model, data, tmp_path), whole(model, graph), atol=1e-5)


def test_edges_of_labels_are_not_walked(tmp_path: Path) -> None:
    """A layer sees their type, without edges."""
    model = TypedLayers()
    with typed_graph() as graph:
        expected = whole_typed(model, graph)["paper"]
        edges = {kind: graph.edge_index(kind) for kind in graph.edge_types}
        x = {name: graph.node_attribute("x", name) for name in graph.node_types}
    edges["author", "writes_positive", "paper"] = np.array([[0, 1], [1, 2]])
    with ps.Graph.from_coo(edges, COUNTS, x=x) as graph:
        found = embedded(model, graph, tmp_path, node_type="paper", batch_size=16)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_features_in_fewer_bytes_are_read_as_they_are(tmp_path: Path) -> None:
    model = basic("GraphSAGE")
    with plain_graph(features={"x": ps.quantize("int8")}) as graph:
        found = embedded(model, graph, tmp_path)
        np.testing.assert_allclose(found, whole(model, graph), atol=1e-5)


def test_the_model_is_left_as_it_was(graph: ps.Graph, tmp_path: Path) -> None:
    model = basic("GCN", dropout=0.5).train()
    model.convs[1].eval()
    embedded(model, graph, tmp_path)
    assert model.training
    assert model.convs[0].training
    assert not model.convs[1].training


def test_half_precision_stays_and_what_numpy_lacks_becomes_float32(
    graph: ps.Graph, tmp_path: Path
) -> None:
    class Cast(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, dtype: Any) -> None:
            super().__init__()
            self.dtype = dtype

        def inference_layers(self) -> Any:
            return [lambda x, edge_index: x.to(self.dtype)]

    x = graph.node_attribute("x")
    half = embedded(Cast(torch.float16), graph, tmp_path / "half")
    assert np.array_equal(half, x.astype(np.float16))
    found = embedded(Cast(torch.bfloat16), graph, tmp_path / "brain")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, x, rtol=1e-2)


# --- the file ------------------------------------------------------------------------------------


def test_parquet_has_the_numbers_of_nodes_where_there_are_no_ids(
    graph: ps.Graph, tmp_path: Path
) -> None:
    model = basic("GraphSAGE")
    path = ps.embed(model, graph, tmp_path / "nodes.parquet", batch_size=64)
    assert [each.name for each in tmp_path.iterdir()] == ["nodes.parquet"]
    table = pq.read_table(path, use_threads=False)
    assert table["id"].to_pylist() == list(range(NODES))
    rows = np.array(table["embedding"].to_pylist(), np.float32)
    assert np.array_equal(rows, embedded(model, graph, tmp_path / "npy"))


@pytest.mark.parametrize("kind", [str, int])
def test_parquet_has_the_users_ids_from_any_source(kind: Any, tmp_path: Path) -> None:
    """CONTRACT 78"""
    ids = [kind(7 * number) for number in range(NODES)]
    model = basic("GraphSAGE")

    def ids_in(data: Any, name: str) -> Any:
        path = ps.embed(model, data, tmp_path / f"{name}.parquet", batch_size=64)
        return pq.read_table(path, use_threads=False)["id"].to_pylist()

    with plain_graph(node_ids=ids) as graph:
        assert ids_in(graph, "here") == ids
        with serve(graph, num_workers=1) as server:
            with ps.connect(server.address, same_host=False) as far:
                assert ids_in(far, "far") == ids


def test_without_pyarrow_parquet_is_refused_at_once(
    graph: ps.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'penstock-gnn\[ingest\]', or give an out"):
        ps.embed(basic("GCN"), graph, tmp_path / "nodes.parquet")
    assert not [*tmp_path.iterdir()]


def test_progress_counts_nodes_of_all_layers(graph: ps.Graph, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    embedded(basic("GCN"), graph, tmp_path, progress=lambda *now: told.append(now))
    assert {total for _, total in told} == {4 * NODES}  # degrees, and three layers
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == 4 * NODES


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"out": "items.csv"}, r"out is '.*items\.csv'; expected a name that ends with"),
        ({"out": "no/items.npy"}, r"there is no folder"),
        ({"model": "GCN"}, r"model is 'GCN'; expected a module of torch"),
        ({"batch_size": 0}, r"batch_size is 0; expected a number of 1 or more"),
        ({"hops": "two"}, r"hops is 'two'"),
        ({"node_type": "paper"}, r"node_type is 'paper', but the graph has no types"),
        ({"edge_weight": "edge_wieght"}, r"edge_weight is 'edge_wieght'; .*did you mean"),
        ({"rank": 1}, r"rank is 1, but world_size is not given"),
        ({"model": torch.nn.Linear(1, 1)}, r"a Linear, which does not say how far it sees"),
        ({"model": nn.Sequential("x, e", [(nn.SGConv(6, 4), "x, e -> x")])}, r"an? SGConv, which"),
        ({"model": basic("GIN", norm="graph_norm")}, r"norms\.0, a GraphNorm whose figures"),
        ({"model": basic("GIN", norm="layer_norm")}, r"a LayerNorm whose figures .*mode='node'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    options: Any, complaint: str, graph: ps.Graph, tmp_path: Path
) -> None:
    given = {"model": basic("GCN"), "out": "nodes.npy", **options}
    with pytest.raises(ValueError, match=complaint):
        ps.embed(given.pop("model"), graph, tmp_path / given.pop("out"), **given)
    assert not [*tmp_path.iterdir()]


def test_a_graph_with_types_wants_one_of_them(tmp_path: Path) -> None:
    with typed_graph() as graph:
        for name in (None, "papers"):
            with pytest.raises(ValueError, match=r"expected one of 'author', 'paper'"):
                ps.embed(TypedLayers(), graph, tmp_path / "out.npy", node_type=name)
        with pytest.raises(ValueError, match="GCNConv, which is for graphs without types"):
            ps.embed(basic("GCN"), graph, tmp_path / "out.npy", node_type="paper", hops=1)


def test_a_graph_without_features_is_refused(tmp_path: Path) -> None:
    with plain_graph(x=None) as graph, pytest.raises(ValueError, match="have no features x"):
        ps.embed(basic("GCN"), graph, tmp_path / "out.npy")


def test_a_model_that_returns_too_little_is_told_so(graph: ps.Graph, tmp_path: Path) -> None:
    class Short(torch.nn.Module):  # type: ignore[misc, name-defined]
        def inference_layers(self) -> Any:
            return [lambda x, edge_index: x[:3]]

    with pytest.raises(ValueError, match=r"the model returned \[3, 6\]; expected a tensor with"):
        ps.embed(Short(), graph, tmp_path / "out.npy", batch_size=64)
    assert not (tmp_path / "out.npy").exists()
