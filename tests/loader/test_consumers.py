"""What PyG has around its loaders takes ours: zips, caches, prefetchers, samplers, whole models."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import (
    BATCH,
    digest,
    digests,
    everyday,
    pyg,
    small_data,
    torch,
    typed_data,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

CachedLoader, PrefetchLoader = pyg.loader.CachedLoader, pyg.loader.PrefetchLoader
ImbalancedSampler, ZipLoader = pyg.loader.ImbalancedSampler, pyg.loader.ZipLoader


# --- zips ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_worker", [None, True, False])
def test_a_zip_of_loaders_gives_a_batch_of_each(per_worker: bool | None) -> None:
    data = small_data()
    one = everyday(data, input_nodes=range(50), filter_per_worker=per_worker)
    other = everyday(data, input_nodes=range(60, 110), filter_per_worker=per_worker)
    zipped = ZipLoader([one, other], batch_size=BATCH, filter_per_worker=per_worker)
    assert str(zipped) == "ZipLoader(loaders=[NeighborLoader(), NeighborLoader()])"
    assert len(zipped) == 4
    for step, (a, b) in enumerate(zipped):
        assert a.n_id[: a.batch_size].tolist() == list(range(50))[step * BATCH :][:BATCH]
        assert b.n_id[0] == 60 + step * BATCH
        assert torch.equal(a.x, data.x[a.n_id])


def test_nodes_and_links_can_be_zipped() -> None:
    data = small_data()
    nodes = everyday(data, input_nodes=range(40))
    links = ps.LinkNeighborLoader(data, [2], edge_label_index=data.edge_index[:, :40])
    zipped = ZipLoader((nodes, links), batch_size=10)
    assert len(list(zipped)) == 4
    for batch, pairs in zipped:
        assert batch.batch_size == 10
        assert pairs.edge_label_index.shape == (2, 10)


def test_the_shortest_ends_a_zip() -> None:
    data = small_data()
    one, other = (everyday(data, input_nodes=range(count)) for count in (50, 20))
    assert len(list(ZipLoader([one, other], batch_size=10))) == 2


# --- caches --------------------------------------------------------------------------------------


def test_a_cache_gives_the_first_epoch_again_until_it_is_cleared() -> None:
    with everyday(small_data()) as loader:
        cached = CachedLoader(loader, transform=lambda batch: batch)
        assert len(cached) == len(loader) == 15
        first = digests(cached)
        assert digests(cached) == first
        cached.clear()
        assert digests(cached) != first


def test_a_cache_holds_more_batches_than_there_are_slots() -> None:
    """CONTRACT 23: those that are kept are copied before they hold up anybody."""
    with everyday(small_data(), num_workers=1, prefetch=2) as loader, everyday(small_data()) as one:
        cached = CachedLoader(loader)
        assert digests(cached) == digests(one)
        assert digests(cached) == digests(cached)


def test_a_prefetcher_gives_the_same_in_the_same_order() -> None:
    with everyday(small_data()) as one, everyday(small_data(), num_workers=1) as other:
        prefetcher = PrefetchLoader(other, device=torch.device("cpu"))
        assert str(prefetcher) == "PrefetchLoader(NeighborLoader())"
        assert len(prefetcher) == 15
        assert digests(prefetcher) == digests(one)
        assert digests(prefetcher) == digests(one)


# --- samplers ------------------------------------------------------------------------------------


def unbalanced() -> Any:
    """One node in ten is of class 1."""
    data = small_data()
    data.y = (torch.arange(data.num_nodes) % 10 == 0).long()
    return data


@pytest.mark.parametrize(
    "sampler",
    [
        ImbalancedSampler,
        lambda data: ImbalancedSampler(data.y, num_samples=400),
        lambda data: ImbalancedSampler(data, input_nodes=torch.ones(400, dtype=torch.bool)),
    ],
    ids=["data", "labels", "nodes"],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_classes_come_equally_often(sampler: Any, workers: int) -> None:
    data = unbalanced()
    torch.manual_seed(3)
    options = {"input_nodes": None, "shuffle": None, "num_neighbors": [2], "num_workers": workers}
    with everyday(data, sampler=sampler(data), **options) as loader:
        labels = torch.cat([batch.y[: batch.batch_size] for batch in loader])
    assert len(labels) == 400
    assert 120 < int(labels.sum()) < 280


# --- models --------------------------------------------------------------------------------------


def test_the_seeds_have_the_output_they_have_in_the_whole_graph() -> None:
    data = small_data()
    model = pyg.nn.GCN(6, 8, num_layers=2, normalize=False).eval()
    whole = model(data.x, data.edge_index)
    with everyday(data, num_neighbors=[-1, -1]) as loader:
        for batch in islice(loader, 4):
            found = model(batch.x, batch.edge_index)[: batch.batch_size]
            assert torch.allclose(found, whole[batch.n_id[: batch.batch_size]], atol=1e-4)


def typed_layers(data: Any) -> list[Any]:
    """Two layers, each with a convolution for each edge type."""
    return [
        pyg.nn.HeteroConv({kind: pyg.nn.SAGEConv((-1, -1), 5) for kind in data.edge_types})
        for _ in range(2)
    ]


def papers(layers: list[Any], batch: Any, *, trimmed: bool) -> Any:
    """What comes out for papers. Types that no edges lead to stay as they are."""
    x, edges = batch.x_dict, batch.edge_index_dict
    hops = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
    for number, layer in enumerate(layers):
        if trimmed:
            x, edges, _ = pyg.utils.trim_to_layer(number, *hops, x, edges)
        x = {**x, **layer(x, edges)}
    return x["paper"][: batch["paper"].batch_size]


@pytest.mark.filterwarnings("ignore:There exist node types")
def test_typed_layers_can_be_trimmed() -> None:
    data = typed_data()
    layers = typed_layers(data)
    with everyday(data, input_nodes="paper", num_neighbors=[3, 2]) as loader:
        for batch in islice(loader, 3):
            whole, trimmed = (papers(layers, batch, trimmed=each) for each in (False, True))
            assert torch.allclose(whole, trimmed, atol=1e-5)


@pytest.mark.parametrize("workers", [0, 1])
def test_inference_goes_layer_by_layer_over_all_nodes(workers: int) -> None:
    data = small_data()
    model = pyg.nn.GraphSAGE(6, 8, num_layers=2, out_channels=3).eval()
    options = {"num_neighbors": [-1], "input_nodes": None, "shuffle": False}
    expected = model(data.x, data.edge_index)
    with everyday(data, **options, num_workers=workers) as loader:
        for cache in (False, True):
            found = model.inference(loader, device="cpu", progress_bar=False, cache=cache)
            assert torch.allclose(found, expected, atol=1e-5)


def test_a_copy_of_a_batch_is_one_s_own() -> None:
    """Scripts clone batches, and take what is theirs to another device."""
    with everyday(small_data(), num_workers=1) as loader:
        batch = next(iter(loader))
        before, copied = digest(batch), batch.clone()
        copied.x.zero_()
        assert digest(batch) == before
        assert digest(batch.to("cpu").contiguous()) == before
