"""A larger graph at real servers over TCP: the batches of the whole, inline and by workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from benchmarks.rmat import rmat_edges
from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.hub.hub import Hub
from penstock.graph import Graph
from penstock.sampling.spec import (
    ABLPSpec,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    SubgraphSpec,
    WalkSpec,
)
from tests.client.test_every_kind import EDGE, Case, run
from tests.store.servers import StoreProcesses

pytestmark = [
    pytest.mark.usefixtures("no_leaks_in_all"),
    pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning"),
]

NODES, EDGES = 20_000, 200_000
RNG = np.random.default_rng(3)
HOPS = NeighborSpec(num_neighbors=(10, 5))
SEEDS = RNG.permutation(NODES)[:300]
PAIRS = RNG.integers(0, NODES, (2, 200))
TIMES = {"time": RNG.integers(0, 1000, 300)}


def hops(**options: Any) -> NeighborSpec:
    return NeighborSpec(num_neighbors=(10, 5), **options)


def of(spec: Any, inputs: Any = SEEDS, **options: Any) -> Case:
    return Case(spec, inputs, **({"batch_size": 100} | options))


CASES = {
    "uniform": of(HOPS),
    "a split by name, all neighbours": of(NeighborSpec(num_neighbors=(-1,)), "train"),
    "replacing": of(hops(replace=True)),
    "weighted": of(hops(weight_attr="edge_weight")),
    "by time of edges": of(hops(time_attr="edge_time"), columns=TIMES),
    "by time of nodes": of(hops(time_attr="time"), columns=TIMES),
    "disjoint": of(hops(disjoint=True)),
    "induced": of(hops(subgraph_type="induced")),
    "bidirectional": of(hops(subgraph_type="bidirectional")),
    "links, binary": of(LinkSpec(neighbors=HOPS, negatives="binary", strict=True), PAIRS),
    "links, triplet": of(
        LinkSpec(neighbors=HOPS, negatives="triplet", amount=2, exclude="self"), PAIRS
    ),
    "anchors": of(ABLPSpec(neighbors=HOPS, supervision=(EDGE,), positive=(EDGE,), max_labels=5)),
    "anchors, PPR": of(
        ABLPSpec(neighbors=PPRSpec(max_ppr_nodes=10), supervision=(EDGE,), positive=(EDGE,)),
        SEEDS[:40],
        batch_size=20,
    ),
    "PPR": of(PPRSpec(max_ppr_nodes=20), SEEDS[:60], batch_size=20),
    "walks": of(WalkSpec(walk_length=5, p=0.5, q=2.0), SEEDS[:60], batch_size=20),
    "HGT": of(HGTSpec(num_samples=(50, 50)), SEEDS[:60], batch_size=20),
    "subgraphs": of(SubgraphSpec(num_hops=1), SEEDS[:20], batch_size=10),
}
# These are read by workers from every store, the others from one alone: workers are started for
# each, and whose servers they ask is no matter of the kind of batches.
BY_WORKERS = {"uniform", "weighted", "links, triplet", "anchors"}
# (parts, servers of each part, how the graph is cut)
STORES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "1 part, twice": (1, 2, {"method": "range"}),
    "2 parts, each twice": (2, 2, {"method": "hash"}),
    "4 parts, whole topology": (4, 1, {"method": "given", "topology": "whole"}),
    "5 parts": (5, 1, {"method": "given", "edges": "both"}),
}


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    rng = np.random.default_rng(4)
    with Graph.from_coo(
        rmat_edges(NODES, EDGES),
        NODES,
        x=rng.random((NODES, 8), np.float32),
        y=rng.integers(0, 9, NODES),
        node_time=rng.integers(0, 1000, NODES),
        edge_weight=rng.random(EDGES),
        edge_time=rng.integers(0, 1000, EDGES),
        edge_attr=rng.random((EDGES, 2), np.float32),
        train=rng.permutation(NODES)[:250],
    ) as graph:
        yield graph


@pytest.fixture(scope="module", params=STORES)
def store(
    request: pytest.FixtureRequest, whole: Graph, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreProcesses]:
    parts, replicas, options = STORES[request.param]
    folder = tmp_path_factory.mktemp("rmat")
    with StoreProcesses(cut(whole, folder, parts, **options), replicas) as servers:
        yield servers


def cut(graph: Graph, folder: Path, parts: int, method: Any, **options: Any) -> list[Path]:
    if method == "given":  # one part has next to nothing
        rng = np.random.default_rng(parts)
        numbers = {
            name: np.where(
                np.arange(size) == size // 2, parts - 1, rng.integers(0, max(parts - 1, 1), size)
            )
            for name in graph.node_types
            for size in [graph.num_nodes(name)]
        }
        method = numbers if graph.is_hetero else numbers[""]
    return list(graph.partition(parts, folder / "parts", method, **options))


_known: dict[tuple[int, int], tuple[Graph, list[tuple[int, int, str]]]] = {}


def expected(graph: Graph, case: Case) -> list[tuple[int, int, str]]:
    """The batches of the whole graph in this process; the same for every store."""
    key = id(graph), id(case)
    if key not in _known:  # with the graph, so that no other one gets its id
        _known[key] = graph, read(graph, case, num_workers=0)
    return _known[key][1]


def read(source: Graph | Hub, case: Case, **options: Any) -> list[tuple[int, int, str]]:
    with SharedDistSamplingBackend(source, case.spec, **options) as backend:
        backend.init_backend()
        return run(backend, case)


@pytest.fixture(scope="module")
def data(store: StoreProcesses) -> Iterator[Any]:
    """Of one address, the last: the others are found. One part alone is no store: two servers."""
    wanted = store.addresses if store.replicas == len(store.servers) else store.addresses[-1:]
    with ps.connect(wanted, num_workers=2) as found:
        found.provider.start()
        yield found


@pytest.mark.parametrize("name", CASES)
def test_servers_give_the_batches_of_the_whole(
    whole: Graph, store: StoreProcesses, data: Any, name: str
) -> None:
    """CONTRACT 65, 66: put together in this process, and by workers of a hub."""
    case = CASES[name]
    assert read(data.graph, case, num_workers=0) == expected(whole, case)
    if name in BY_WORKERS or (data.graph.num_parts, store.replicas) == (2, 2):
        assert read(data.provider, case) == expected(whole, case)
    assert len(set(expected(whole, case))) >= 4


def test_all_servers_are_found_by_one_address(store: StoreProcesses, data: Any) -> None:
    """CONTRACT 66: and each of them is asked, replicas too."""
    assert set(data.address.split(",")) == set(store.addresses)
    read(data.graph, CASES["uniform"], num_workers=0)
    asked = {each.address: each.calls for each in data.servers.statistics().servers}
    assert set(asked) == set(store.addresses)
    assert all(asked.values()), asked
