"""What PyG has around its loaders takes ours of graphs and of servers, too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import everyday, small_data, torch, typed_data
from tests.loader.test_consumers import (
    CachedLoader,
    PrefetchLoader,
    ZipLoader,
    papers,
    typed_layers,
)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[dict[str, Any]]:
    """The same graphs as Penstock's own, here and at servers."""
    plain, typed = ps.Graph.from_pyg(small_data()), ps.Graph.from_pyg(typed_data())
    with (
        plain,
        typed,
        ps.serve(plain, num_workers=1) as server,
        ps.serve(typed, num_workers=1) as other,
        ps.connect(server.address, same_host=False) as far,
        ps.connect(other.address, same_host=False) as far_typed,
    ):
        yield {"graph": (plain, typed), "server": (far, far_typed)}


CONSUMERS = {
    "cached": CachedLoader,
    "prefetched": lambda loader: PrefetchLoader(loader, device=torch.device("cpu")),
    "cached twice": lambda loader: CachedLoader(CachedLoader(loader)),
}


@pytest.mark.parametrize("where", ["graph", "server"])
@pytest.mark.parametrize("around", CONSUMERS.values(), ids=CONSUMERS)
def test_consumers_take_loaders_of_graphs_and_servers(
    elsewhere: dict[str, Any], where: str, around: Any
) -> None:
    mask = small_data().train_mask
    with (
        everyday(small_data()) as expected,
        everyday(elsewhere[where][0], input_nodes=mask) as loader,
    ):
        consumer = around(loader)
        assert len(consumer) == len(expected)
        for batch, other in zip(consumer, expected, strict=True):
            assert torch.equal(batch.n_id, other.n_id)
            assert torch.equal(batch.x, other.x)
            assert torch.equal(batch.edge_index, other.edge_index)


@pytest.mark.parametrize("where", ["graph", "server"])
def test_loaders_of_graphs_and_servers_can_be_zipped(elsewhere: dict[str, Any], where: str) -> None:
    source, data = elsewhere[where][0], small_data()
    one = everyday(source, input_nodes=range(50))
    other = ps.LinkNeighborLoader(source, [2], edge_label_index=data.edge_index[:, :40])
    with one, other:
        steps = list(ZipLoader([one, other], batch_size=10))
        assert len(steps) == 4
        for nodes, links in steps:
            assert torch.equal(nodes.x, data.x[nodes.n_id])
            assert links.edge_label_index.shape == (2, 10)


@pytest.mark.filterwarnings("ignore:There exist node types")
@pytest.mark.parametrize("where", ["graph", "server"])
def test_layers_over_graphs_and_servers_can_be_trimmed(
    elsewhere: dict[str, Any], where: str
) -> None:
    source, layers = elsewhere[where][1], typed_layers(typed_data())
    with everyday(source, input_nodes="paper", num_neighbors=[3, 2]) as loader:
        for batch in islice(loader, 2):
            whole, trimmed = (papers(layers, batch, trimmed=each) for each in (False, True))
            assert torch.allclose(whole, trimmed, atol=1e-5)
