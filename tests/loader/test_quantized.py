"""Attributes stored in a smaller type: batches have them as they are read, from any source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import Graph
from penstock.server.serving import serve
from tests.loader.device.sources import SOURCES, source_named
from tests.loader.device.standin import StandIn, stand_in_for_cuda
from tests.loader.epochs import digests, torch
from tests.loader.pools import pools_kept

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES, EDGES, WIDTH = 400, 3200, 60
TYPES = ("int8", "float16", "bfloat16")
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
STORED = {"int8": 1, "float16": 2, "bfloat16": 2}


def coded(dtype: str = "int8", **options: Any) -> Graph:
    """A graph whose rows of nodes and edges are stored in a smaller type, but for one column."""
    random = np.random.default_rng(3)
    how = ps.quantize(dtype)
    given = {
        "x": random.normal(size=(NODES, WIDTH)).astype("float32"),
        "y": random.integers(0, 4, NODES),
        "edge_attr": random.normal(size=(EDGES, 2)),
        "node_attrs": {"age": random.normal(size=NODES), "plain": random.normal(size=(NODES, 3))},
        "train": random.permutation(NODES)[:240],
        "features": {"x": how, "edge_attr": how, "age": how},
    }
    return Graph.from_coo(random.integers(0, NODES, (2, EDGES)), NODES, **(given | options))


def typed() -> Graph:
    """Papers and authors, and topics that nobody ever reaches."""
    random = np.random.default_rng(4)
    edges = {
        WRITES: np.stack([random.integers(0, 40, 300), random.integers(0, 120, 300)]),
        CITES: random.integers(0, 120, (2, 600)),
        ("paper", "about", "topic"): np.stack([random.integers(0, 120, 9), np.arange(9) % 5]),
    }
    x = {
        name: random.normal(size=(count, 4)).astype("float32")
        for name, count in {"author": 40, "paper": 120, "topic": 5}.items()
    }
    features: Any = {"x": ps.quantize("int8"), (CITES, "edge_attr"): ps.quantize("float16")}
    weights = {CITES: random.normal(size=600).astype("float32")}
    return Graph.from_coo(edges, x=x, edge_attr=weights, features=features)


def check_rows(batch: Any, graph: Graph) -> None:
    """Compare each row with what the graph's own answers are."""
    nodes, edges = batch.n_id.cpu().numpy(), batch.e_id.cpu().numpy()
    for name, ids in {"x": nodes, "age": nodes, "plain": nodes, "edge_attr": edges}.items():
        of_edges = name == "edge_attr"
        read = graph.edge_attribute(name) if of_edges else graph.node_attribute(name)
        found = batch[name].cpu().numpy()
        assert found.dtype == read.dtype
        assert np.array_equal(found, read[ids])


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with coded() as graph, pools_kept(graph):
        yield graph


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    gpu = StandIn()
    stand_in_for_cuda(monkeypatch, gpu)
    return gpu


def loader_of(graph: Any, **options: Any) -> Any:
    wanted = {"batch_size": 16, "shuffle": True, "seed": 7}
    return ps.NeighborLoader(graph, [4, 3], "train", **(wanted | options))


@pytest.mark.parametrize("dtype", TYPES)
def test_batches_have_rows_as_they_are_read(dtype: str) -> None:
    with coded(dtype) as graph, loader_of(graph) as loader:
        for batch in loader:
            assert batch.x.dtype == batch.edge_attr.dtype == batch.age.dtype == torch.float32
            check_rows(batch, graph)


@pytest.mark.parametrize("source", SOURCES)
def test_batches_are_the_same_from_every_source(
    graph: Graph, source: str, tmp_path: Path, gpu: StandIn
) -> None:
    """CONTRACT 5 and 75"""
    with source_named(source, graph, tmp_path) as make:
        with make(seed=3) as plain:
            for number, batch in enumerate(plain):
                if not number:
                    check_rows(batch, graph)
        expected = digests(ps.NeighborLoader(graph, [4, 3], "train", **OPTIONS))
        with make(seed=3) as loader:
            assert digests(loader) == expected
        with make(seed=3, device="cuda") as loader:
            assert digests(loader) == expected


OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}


# --- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "kept",
    [{"device": "cuda"}, {"features": "cuda"}, {"device": "cuda", "feature_cache": 9000}],
    ids=["none", "all", "some"],
)
def test_a_gpu_decodes_rows_to_the_same_bytes(
    gpu: StandIn, dtype: str, kept: dict[str, Any]
) -> None:
    """CONTRACT 75"""
    with coded(dtype) as graph:
        with loader_of(graph) as plain:
            expected = [digests(plain) for _ in range(2)]
        # Workers know nothing of codecs, so one type that comes from them will do.
        with loader_of(graph, num_workers=int(dtype == "int8"), **kept) as loader:
            assert [digests(loader) for _ in range(2)] == expected


@pytest.mark.parametrize("dtype", TYPES)
def test_a_gpu_is_sent_what_is_stored(gpu: StandIn, dtype: str) -> None:
    with coded(dtype) as small, coded(features=None) as large:
        with loader_of(small, device="cuda") as loader:
            rows = sum(batch.x.numel() for batch in loader)
            sent = loader.statistics().device.bytes
        with loader_of(large, device="cuda") as loader:
            assert sum(batch.x.numel() for batch in loader) == rows
            saved = loader.statistics().device.bytes - sent
    assert saved >= rows * (4 - STORED[dtype])


def test_tables_have_rows_as_they_are_stored(gpu: StandIn, graph: Graph) -> None:
    with loader_of(graph, features="cuda") as loader:
        next(iter(loader))
        # x and age in a byte each, y and plain in eight.
        assert loader.statistics().device.features == NODES * (WIDTH + 1 + 8 + 3 * 8)


def test_a_page_locked_batch_has_rows_as_they_are_read(
    gpu: StandIn, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    with loader_of(graph, pin_memory=True, num_workers=1) as loader:
        check_rows(next(iter(loader)), graph)


# --- other ways to ask ---------------------------------------------------------------------------


def test_types_have_codecs_of_their_own(gpu: StandIn) -> None:
    options = {"batch_size": 16, "input_nodes": ("paper", None), "seed": 7}
    with typed() as graph:
        with ps.NeighborLoader(graph, [4, 3], **options) as plain:
            expected = digests(plain)
            for batch in plain:
                for name in ("author", "paper"):
                    ids = batch[name].n_id.numpy()
                    assert np.array_equal(batch[name].x, graph.node_attribute("x", name)[ids])
                ids = batch[CITES].e_id.numpy()
                read = graph.edge_attribute("edge_attr", CITES)[ids]
                assert np.array_equal(batch[CITES].edge_attr, read)
                assert batch["topic"].x.shape == (0, 4)
                assert batch["topic"].x.dtype == torch.float32
        for kept in ({"device": "cuda"}, {"features": "cuda"}):
            with ps.NeighborLoader(graph, [4, 3], **options, **kept) as loader:
                assert digests(loader) == expected


def test_rows_that_are_joined_here_are_decoded_once(graph: Graph) -> None:
    with loader_of(graph, transform_sampler_output=lambda out: out) as loader:
        check_rows(next(iter(loader)), graph)
        check_rows(loader([3, 4]), graph)


def test_links_have_rows_as_they_are_read(graph: Graph) -> None:
    edges = graph.edge_index()[:, :100]
    with ps.LinkNeighborLoader(graph, [4, 3], edges, neg_sampling="binary") as loader:
        check_rows(next(iter(loader)), graph)


def test_ranked_neighbours_have_rows_as_they_are_read() -> None:
    with coded() as graph, ps.PPRLoader(graph, input_nodes="train", batch_size=16) as loader:
        batch = next(iter(loader))
        assert np.array_equal(batch.x, graph.node_attribute("x")[batch.n_id])


def test_all_rows_are_read_decoded(graph: Graph) -> None:
    with loader_of(graph) as loader:
        assert loader.data.x.dtype == torch.float32
        assert np.array_equal(loader.data.x, graph.node_attribute("x"))
        assert np.array_equal(loader.data.edge_attr, graph.edge_attribute("edge_attr"))


class OwnRows:
    """A sampler with rows of its own, read as users read them."""

    input_kind = "node"

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def sample(self, seeds: Any, **_: Any) -> dict[str, Any]:
        rows = self._graph.node_features("x").gather(seeds)
        none = np.empty((2, 0), np.int64)
        return {"n_id": seeds, "edge_index": none, "e_id": none[0], "twice": 2 * rows}


def test_a_users_sampler_reads_float32(graph: Graph) -> None:
    options = {"input_nodes": "train", "batch_size": 16}
    with ps.CustomLoader(graph, OwnRows, **options) as loader:
        batch = next(iter(loader))
    assert np.array_equal(batch.twice, 2 * batch.x)
    assert np.array_equal(batch.x, graph.node_attribute("x")[batch.n_id])


def test_batches_of_a_backend_have_rows_as_they_are_stored(graph: Graph) -> None:
    spec = ps.NeighborSpec(num_neighbors=(2,))
    with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        backend.register_input("mine", "train", batch_size=2)
        backend.start_new_epoch_sampling("mine", epoch=0)
        batch = backend.next_batch("mine")
    codec = graph.node_codec("x")
    assert codec is not None
    assert batch["x"].dtype == np.int8
    assert np.array_equal(codec.decode(batch["x"]), graph.node_attribute("x")[batch["n_id"]])


def test_a_server_answers_in_float32_and_sends_what_is_stored(graph: Graph) -> None:
    """CONTRACT 38"""
    x = graph.node_attribute("x")
    with serve(graph, num_workers=1) as server, ps.connect(server.address) as there:
        assert np.array_equal(there.get_node_feature(index=[3, 5]), x[[3, 5]])
        assert np.array_equal(there.get_node_attribute("age"), graph.node_attribute("age"))
        stored = there.get_node_attribute("x", index=[3, 5], stored=True)
        assert stored.dtype == torch.int8
        assert there.get_node_feature_info() == (WIDTH, "float32")
        found = there.get_edge_attribute("edge_attr", index=[7])
        assert np.array_equal(found, graph.edge_attribute("edge_attr")[[7]])
        assert np.array_equal(there.graph.node_features("x").gather(np.array([9])), x[[9]])


def test_a_stores_cache_has_rows_as_they_are_stored(graph: Graph, tmp_path: Path) -> None:
    """CONTRACT 70"""
    with loader_of(graph) as plain:
        expected = digests(plain)
    servers = [serve(part, num_workers=1) for part in graph.partition(2, tmp_path / "parts")]
    try:
        addresses = [server.address for server in servers]
        with ps.connect(addresses, num_workers=1, cache=100 * (WIDTH + 1 + 8 + 24)) as store:
            with loader_of(store) as loader:
                assert digests(loader) == expected
                assert store.hub_statistics()["moved"]["hits"] > 0
            read = graph.node_attribute("x")[[3, 390]]
            assert np.array_equal(store.get_node_feature(index=[3, 390]), read)
            assert np.array_equal(store.graph.node_features("x").gather(np.array([3, 390])), read)
    finally:
        for server in servers:
            server.close()
