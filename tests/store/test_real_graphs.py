"""Real graphs in parts at real servers: citations and pages, with their public splits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import Graph
from penstock.sampling.spec import ABLPSpec, LinkSpec, NeighborSpec, PPRSpec, WalkSpec
from penstock.store.handles import open_parts
from tests.client.test_every_kind import EDGE, Case
from tests.store.servers import StoreProcesses
from tests.store.test_over_tcp import cut, expected, read

DATA = Path(__file__).parents[2].parent / "shared" / "data"
# (parts at servers, how the graph is cut)
GRAPHS: dict[str, tuple[int, dict[str, Any]]] = {
    "cora": (2, {"method": "range"}),
    "citeseer": (2, {"method": "hash", "topology": "whole"}),
    "facebook": (4, {"method": "given", "edges": "both"}),
}
HOPS = NeighborSpec(num_neighbors=(10, 5))
CASES = {
    "hops": Case(HOPS, "train", batch_size=64),
    "all neighbours": Case(NeighborSpec(num_neighbors=(-1, -1)), "train", batch_size=64),
    "links": Case(
        LinkSpec(neighbors=HOPS, negatives="binary", strict=True, exclude="reverse"),
        np.stack([np.arange(90), np.arange(90)[::-1]]),
        batch_size=32,
    ),
    "PPR": Case(PPRSpec(max_ppr_nodes=20), "train", batch_size=64),
    "anchors": Case(
        ABLPSpec(neighbors=HOPS, supervision=(EDGE,), positive=(EDGE,)), "train", batch_size=64
    ),
    "walks": Case(WalkSpec(walk_length=4, direction="in"), "train", batch_size=64),
}

pytestmark = [
    pytest.mark.usefixtures("no_leaks_in_all"),
    pytest.mark.skipif(not DATA.is_dir(), reason="there is no ../shared/data"),
]


def opened(name: str) -> Graph:
    if name == "facebook":
        edges = np.loadtxt(DATA / "facebook_edges.csv", np.int64, delimiter=",", skiprows=1).T
        num_nodes = int(edges.max()) + 1
        both = np.concatenate([edges, edges[::-1]], axis=1)
        x = np.random.default_rng(0).random((num_nodes, 16), np.float32)
        return Graph.from_coo(both, num_nodes, x=x, train=np.arange(0, num_nodes, 150))
    with np.load(DATA / f"{name}.npz") as stored:
        x = np.zeros(stored["x_shape"], np.float32)
        rows = np.repeat(np.arange(len(x)), np.diff(stored["x_indptr"]))
        x[rows, stored["x_indices"]] = stored["x_data"]
        splits = {split: stored[f"{split}_idx"] for split in ("train", "val", "test")}
        return Graph.from_coo(stored["edge_index"], len(x), x=x, y=stored["y"], **splits)


@pytest.fixture(scope="module", params=GRAPHS)
def graph_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(graph_name: str) -> Iterator[Graph]:
    with opened(graph_name) as graph:
        yield graph


@pytest.fixture(scope="module")
def data(graph_name: str, whole: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    parts, options = GRAPHS[graph_name]
    paths = cut(whole, tmp_path_factory.mktemp("real"), parts, **options)
    with StoreProcesses(paths) as store, ps.connect(store.addresses[0], num_workers=2) as found:
        found.provider.start()
        yield found


@pytest.mark.parametrize("name", CASES)
def test_real_graphs_in_parts_give_the_batches_of_the_whole(
    whole: Graph, data: Any, name: str
) -> None:
    """CONTRACT 65: 2 and 4 parts at as many servers, inline and by workers."""
    case = CASES[name]
    assert read(data.graph, case, num_workers=0) == expected(whole, case)
    assert read(data.provider, case) == expected(whole, case)
    assert len(set(expected(whole, case))) >= 4


@pytest.mark.parametrize("topology", ["parts", "whole"])
def test_real_graphs_in_seven_parts_give_the_batches_of_the_whole(
    whole: Graph, topology: str, tmp_path: Path
) -> None:
    """CONTRACT 65: in this process."""
    paths = cut(whole, tmp_path, 7, "given", topology=topology, edges="both")
    with open_parts([str(path) for path in paths]) as parts:
        for case in CASES.values():
            assert read(parts, case, num_workers=0) == expected(whole, case)


def test_real_graphs_in_parts_have_the_splits_and_rows_of_the_whole(
    whole: Graph, data: Any
) -> None:
    """CONTRACT 68: in the public order."""
    for split in whole.splits():
        assert data.get_node_ids(split).tolist() == whole.split(split).tolist()
    ids = np.arange(whole.num_nodes())[::-7].copy()
    found = data.get_node_feature(index=ids).numpy()
    np.testing.assert_array_equal(found, whole.node_attribute("x")[ids])
    np.testing.assert_array_equal(data.get_edge_index().numpy(), whole.edge_index())
