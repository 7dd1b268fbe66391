"""Layer-wise inference over all nodes, and what else PyG reads from `loader.data`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.loader.pyg import graph_data
from penstock.server.serving import serve
from penstock.testing.digests import digest_of
from tests.loader.epochs import pyg, torch
from tests.loader.servers import BUYS, ITEMS, NODES, USERS, plain_graph, typed_graph

SOURCES = ("graph", "saved", "near", "far", "address")
ALL: dict[str, Any] = {"num_neighbors": [-1], "batch_size": 64}


@pytest.fixture(scope="module")
def graph() -> Iterator[Any]:
    with plain_graph() as made:
        yield made


@pytest.fixture(scope="module")
def sources(graph: Any, tmp_path_factory: Any) -> Iterator[dict[str, Any]]:
    """The same graph, wherever loaders find one."""
    path = tmp_path_factory.mktemp("saved") / "plain.graph"
    graph.save(path)
    with ExitStack() as stack:
        server = stack.enter_context(serve(graph, num_workers=1))
        far = stack.enter_context(ps.connect(server.address, same_host=False))
        near = stack.enter_context(ps.connect(server.address))
        yield dict(zip(SOURCES, (graph, path, near, far, server.address), strict=True))


@pytest.fixture(params=SOURCES)
def source(request: Any, sources: dict[str, Any]) -> Any:
    return sources[request.param]


def as_data(graph: Any) -> Any:
    """The graph as PyG has it."""
    return pyg.data.Data(
        x=torch.from_numpy(graph.node_attribute("x").copy()),
        edge_index=torch.from_numpy(graph.edge_index().copy()),
    )


def whole(model: Any, data: Any) -> Any:
    with torch.no_grad():
        return model(data.x, data.edge_index)


@pytest.mark.parametrize("cache", [False, True])
def test_inference_is_a_full_forward_pass_from_any_source(
    source: Any, graph: Any, cache: bool
) -> None:
    model = pyg.nn.GraphSAGE(6, 8, num_layers=3, out_channels=4).eval()
    with ps.NeighborLoader(source, **ALL) as loader:
        found = model.inference(loader, "cpu", "cpu", progress_bar=cache, cache=cache)
    assert torch.allclose(found, whole(model, as_data(graph)), atol=1e-5)


@pytest.mark.parametrize("name", ["GIN", "GAT", "GCN"])
def test_inference_is_that_of_pygs_own_data(name: str, graph: Any) -> None:
    """GCN as well, whose norms are those of the batch, in PyG's inference as in ours."""
    model, data = getattr(pyg.nn, name)(6, 8, num_layers=2, out_channels=4).eval(), as_data(graph)
    with ps.NeighborLoader(graph, **ALL) as loader, ps.NeighborLoader(data, **ALL) as plain:
        found, expected = model.inference(loader), model.inference(plain)
    assert torch.equal(found, expected)
    assert name == "GCN" or torch.allclose(found, whole(model, data), atol=1e-5)


def test_a_gcn_with_norms_of_its_own_gives_the_full_forward_pass(graph: Any) -> None:
    """Edges are weighed by degrees once, and weights come with the batches of a layer."""
    data = as_data(graph)
    weights = pyg.nn.conv.gcn_conv.gcn_norm(data.edge_index, None, NODES)
    weighed = pyg.data.Data(x=data.x, edge_index=weights[0], edge_weight=weights[1])
    conv = pyg.nn.GCNConv(6, 4, normalize=False).eval()
    made = ps.Graph.from_coo(weighed.edge_index, NODES, x=data.x, edge_weight=weighed.edge_weight)
    with torch.no_grad(), made, ps.NeighborLoader(made, **ALL) as loader:
        x = loader.data.x
        found = [
            conv(x[batch.n_id], batch.edge_index, batch.edge_weight)[: batch.batch_size]
            for batch in loader
        ]
        expected = conv(data.x, weighed.edge_index, weighed.edge_weight)
    assert torch.allclose(torch.cat(found), expected, atol=1e-5)


def test_data_have_what_pyg_reads_of_all_nodes_and_edges(source: Any, graph: Any) -> None:
    with ps.NeighborLoader(source, **ALL) as loader:
        for data in (loader.data, copy.copy(loader.data)):
            assert data.num_nodes == len(loader.dataset) == NODES
            assert data.num_edges == graph.num_edges()
            assert data.num_features == data.num_node_features == 6
            assert torch.equal(data.x, torch.from_numpy(graph.node_attribute("x").copy()))
            assert torch.equal(data["y"], torch.from_numpy(graph.node_attribute("y").copy()))
            assert data.half.dtype == torch.bfloat16
            assert torch.equal(
                data.edge_attr[7], torch.from_numpy(graph.edge_attribute("edge_attr")[7].copy())
            )
            assert data.names == ["a", "b"]
            assert "x" in data
            assert "z" not in data
            assert not hasattr(data, "z")
            assert {"x", "y", "time", "half", "edge_attr", "edge_index"} <= set(data.keys())


def test_attributes_are_one_s_own_and_those_of_the_graph_stay(graph: Any) -> None:
    with ps.NeighborLoader(graph, **ALL) as loader:
        x = loader.data.x
        assert loader.data.x is x  # kept here, so not copied again
        x.zero_()
        assert next(iter(loader)).x[0].tolist() == graph.node_attribute("x")[0].tolist() != [0] * 6
        with pytest.raises(AttributeError, match=r"x cannot be set: .*transform"):
            loader.data.x = x
        with pytest.raises(AttributeError, match="x cannot be deleted"):
            del loader.data.x


def test_a_server_is_asked_for_some_rows_at_a_time_and_once_while_they_are_kept(
    sources: dict[str, Any], graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_data, "_CHUNK_BYTES", 1000)
    with ps.NeighborLoader(sources["far"], **ALL) as loader:
        x = loader.data.x
        assert torch.equal(x, torch.from_numpy(graph.node_attribute("x").copy()))
        assert loader.data.x is x


def test_data_of_a_loader_will_do_for_another(sources: dict[str, Any]) -> None:
    """And loaders that are made again of their attributes find what was given."""
    for name, data in sources.items():
        with ps.NeighborLoader(data, [3], "train", seed=1) as loader:
            assert vars(loader)["data"] is data
            with ps.NeighborLoader(copy.copy(loader.data), [3], "train", seed=1) as other:
                same = zip(loader, other, strict=True)
                assert all(digest_of(one) == digest_of(two) for one, two in same), name


def test_what_was_given_can_still_be_asked(sources: dict[str, Any]) -> None:
    with ps.NeighborLoader(sources["far"], **ALL) as loader:
        train = sources["far"].get_node_ids("train")
        assert torch.equal(loader.data.get_node_ids("train"), train)
    with ps.NeighborLoader(sources["saved"], **ALL) as loader:
        assert loader.data.splits().keys() == {"train"}


def test_types_have_data_of_their_own() -> None:
    with typed_graph() as graph, ps.NeighborLoader(graph, [2], "user") as loader:
        data = loader.data
        assert (data["user"].num_nodes, data["item"].num_nodes) == (USERS, ITEMS)
        assert data["user"].num_features == 3
        assert torch.equal(
            data["item"].x, torch.from_numpy(graph.node_attribute("x", "item").copy())
        )
        assert data.x_dict.keys() == {"user", "item"}
        assert data[BUYS].num_edges == data[BUYS].edge_index.shape[1] == graph.num_edges(BUYS)
        assert data.edge_index_dict.keys() == set(graph.edge_types)
        with pytest.raises(AttributeError, match="no attribute 'z'; there are x"):
            data["user"]["z"]
        with pytest.raises(AttributeError, match="no attribute 'edge_index'; there are x"):
            data["user"]["edge_index"]
        assert data.node_types == graph.node_types


def test_types_of_a_connection_are_those_of_its_graph() -> None:
    with (
        typed_graph() as graph,
        serve(graph, num_workers=1) as server,
        ps.connect(server.address) as data,
        ps.NeighborLoader(data, [1], BUYS[2]) as loader,
    ):
        assert loader.data.metadata() == graph.metadata()
        assert loader.data.node_types == graph.node_types
        assert loader.data.get_node_types() == list(graph.node_types)


def test_pygs_data_stay_what_they_are() -> None:
    with plain_graph() as graph:
        data = as_data(graph)
        with ps.NeighborLoader(data, [2]) as loader:
            assert loader.data is data


def test_a_part_has_no_features_of_all_nodes(tmp_path: Any) -> None:
    with plain_graph() as graph:
        part, _ = graph.partition(2, tmp_path / "parts")
    with (
        serve(part, num_workers=1, part_only=True) as server,
        ps.connect(server.address, same_host=False, part_only=True) as data,
        ps.NeighborLoader(data, **ALL, part_only=True) as loader,
        pytest.raises(PenstockError, match="this is part 0 of 2, and ids are those of the whole"),
    ):
        loader.data["x"]
