"""Rows that a GPU keeps: batches are the same, and fewer bytes are moved."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.loader.pyg.options import options_of
from penstock.store.handles import open_parts
from tests.loader.device.standin import StandIn, stand_in_for_cuda
from tests.loader.epochs import NODES, digests, everyday, small_data, torch, typed_data
from tests.loader.pools import pools_kept

pytestmark = pytest.mark.usefixtures("no_leaks")

WIDTH = 100
ROW = 4 * WIDTH + 8 + 1  # of x, y and train_mask
both = pytest.mark.parametrize("workers", [0, 2])
# Of 400 nodes: few of them, most of them, and more room than there are.
some = pytest.mark.parametrize("rows", [1, 40, 300, 1000])


@pytest.fixture(params=[None, 1], ids=["late", "by chance"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    gpu = StandIn(request.param)
    stand_in_for_cuda(monkeypatch, gpu)
    return gpu


def wide_data() -> Any:
    data = small_data()
    make = torch.Generator().manual_seed(8)
    data.x = torch.randn(NODES, WIDTH, generator=make)
    return data


@pytest.fixture(scope="module", autouse=True)
def _pool() -> Iterator[None]:
    with pools_kept(wide_data()):
        yield


def loader_of(data: Any, **options: Any) -> Any:
    return everyday(data, input_nodes=None, **options)


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    """Two epochs of batches that stay here."""
    with loader_of(wide_data()) as plain:
        return [digests(plain) for _ in range(2)]


# --- all rows ------------------------------------------------------------------------------------


@both
def test_batches_are_the_same_if_the_device_has_all_rows(
    gpu: StandIn, expected: list[list[str]], workers: int
) -> None:
    """CONTRACT 75"""
    with loader_of(wide_data(), features="cuda", num_workers=workers) as loader:
        assert [digests(loader) for _ in range(2)] == expected
        found = loader.statistics().device
    assert found.features == NODES * ROW
    assert found.row_bytes > 0
    assert found.row_bytes_moved == 0
    assert found.bytes < found.row_bytes  # neither through slots


@pytest.mark.parametrize(
    "kept", [{"features": "cuda"}, {"device": "cuda", "feature_cache": NODES * ROW}]
)
def test_slots_are_free_before_garbage_is_collected(gpu: StandIn, kept: dict[str, Any]) -> None:
    """Otherwise batches would be copied out of their slots, and copied once more to the device."""
    with loader_of(wide_data(), num_workers=2, **kept) as loader:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                for batch in loader:
                    del batch
        finally:
            gc.enable()
        found = loader.statistics()
    assert found.batches == 3 * len(loader)
    assert found.copied == 0
    if "features" in kept:
        assert found.device.staged == 0


def test_types_have_tables_of_their_own(gpu: StandIn) -> None:
    options = {"input_nodes": ("paper", None)}
    with everyday(typed_data(), **options) as plain:
        expected = digests(plain)
    for kept in ({"features": "cuda"}, {"device": "cuda", "feature_cache": 30 * 16}):
        with everyday(typed_data(), **options, **kept) as loader:
            assert digests(loader) == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_rows_of_any_dtype_are_kept(gpu: StandIn, dtype: Any) -> None:
    data = wide_data()
    data.x = (data.x * 10).to(dtype)
    with loader_of(data) as plain:
        expected = [batch.x for batch in plain]
    for kept in ({"features": "cuda"}, {"device": "cuda", "feature_cache": 40 * WIDTH}):
        with loader_of(data, **kept) as loader:
            for batch, x in zip(loader, expected, strict=True):
                assert batch.x.dtype == dtype
                assert torch.equal(batch.x, x)


def test_loaders_of_a_graph_share_the_rows(gpu: StandIn) -> None:
    with (
        loader_of(wide_data(), features="cuda") as one,
        loader_of(wide_data(), features="cuda", batch_size=50) as other,
    ):
        next(iter(one))
        next(iter(other))
        kept = [each._transfer._features._tables["", "x"].rows for each in (one, other)]
        assert kept[0] is kept[1]
        del kept


def test_too_little_memory_is_told_before_anything_is_moved(gpu: StandIn) -> None:
    gpu.free = NODES * ROW
    with (
        loader_of(wide_data(), features="cuda") as loader,
        pytest.raises(ValueError, match="to spare: give feature_cache="),
    ):
        next(iter(loader))
    with (
        loader_of(wide_data(), device="cuda", feature_cache="1GB") as loader,
        pytest.raises(ValueError, match=r"feature_cache takes 159\.8KB of cpu"),
    ):
        next(iter(loader))
    assert gpu.copied == 0


def test_a_budget_is_no_more_than_all_rows_take(gpu: StandIn) -> None:
    gpu.free = 2 * NODES * ROW
    with loader_of(wide_data(), device="cuda", feature_cache="20GB") as loader:
        next(iter(loader))
        assert loader.statistics().device.features == NODES * ROW


def test_a_closed_loader_keeps_no_rows(gpu: StandIn) -> None:
    loader = loader_of(wide_data(), features="cuda")
    next(iter(loader))
    loader.close()
    assert loader.statistics().device.features == 0


# --- some rows -----------------------------------------------------------------------------------


@both
@some
def test_batches_are_the_same_if_the_device_has_some_rows(
    gpu: StandIn, expected: list[list[str]], workers: int, rows: int
) -> None:
    """CONTRACT 75"""
    options = {"device": "cuda", "feature_cache": rows * ROW, "num_workers": workers}
    with loader_of(wide_data(), **options) as loader:
        assert [digests(loader) for _ in range(2)] == expected
        found = loader.statistics().device
    assert found.features == min(rows, NODES) * ROW
    assert (found.row_bytes_moved == 0) == (rows >= NODES)
    assert found.row_bytes_moved < found.row_bytes


def test_the_rows_that_are_read_most_are_kept(gpu: StandIn) -> None:
    """Nearly as few rows move as with the best choice for the very batches."""
    make = torch.Generator().manual_seed(3)
    # A few nodes are most nodes' neighbours.
    heads = (NODES * torch.rand(20 * NODES, generator=make) ** 4).long()
    data = wide_data()
    data.edge_index = torch.stack([heads, torch.randint(0, NODES, heads.shape, generator=make)])
    del data.edge_attr
    rows = NODES // 10
    with loader_of(data, device="cuda", feature_cache=rows * ROW) as loader:
        reads = np.zeros(NODES)
        for _ in range(4):
            for batch in loader:
                reads[np.unique(batch.n_id)] += 1
        found = loader.statistics().device
    best = np.sort(reads)[::-1][:rows].sum() / reads.sum()
    assert 1 - found.row_bytes_moved / found.row_bytes > best - 0.03


def test_links_and_walks_along_out_edges_have_their_rows(gpu: StandIn) -> None:
    data = wide_data()
    data.x[0] = 0  # a graph of its own, which goes, and takes its out-edges along
    links: Any = {"neg_sampling": "binary", "shuffle": True, "seed": 3, "batch_size": 16}
    with ps.LinkNeighborLoader(data, [4, 3], data.edge_index[:, :100], **links) as plain:
        expected = digests(plain)
    kept: Any = {"device": "cuda", "feature_cache": 40 * ROW}
    with ps.LinkNeighborLoader(data, [4, 3], data.edge_index[:, :100], **kept, **links) as loader:
        assert digests(loader) == expected
    with loader_of(data, edge_dir="out") as plain:
        expected = digests(plain)
    with loader_of(data, edge_dir="out", **kept) as loader:
        assert digests(loader) == expected


def test_batches_of_unequal_sizes_have_their_rows(gpu: StandIn) -> None:
    options = {"batch_sampler": [[1, 2, 3], [4], list(range(50))], "batch_size": 1}
    with loader_of(wide_data(), shuffle=None, **options) as plain:
        expected = digests(plain)
    for kept in ({"features": "cuda"}, {"device": "cuda", "feature_cache": 40 * ROW}):
        with loader_of(wide_data(), shuffle=None, **options, **kept) as loader:
            assert digests(loader) == expected


def test_a_transform_sees_the_rows(gpu: StandIn) -> None:
    def transform(batch: Any) -> Any:
        batch.sums = batch.x.sum(1)
        return batch

    data = wide_data()
    with loader_of(data, features="cuda", transform=transform) as loader:
        for batch in loader:
            assert torch.equal(batch.sums, data.x[batch.n_id].sum(1))


# --- rows that are elsewhere ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("cut") / "parts"
    with ps.Graph.from_pyg(wide_data()) as graph:
        folders = graph.partition(2, path)
    with open_parts([str(folder) for folder in folders]) as found:
        yield found


def test_a_servers_and_a_stores_rows_are_kept(
    gpu: StandIn, expected: list[list[str]], parts: Any
) -> None:
    with (
        ps.Graph.from_pyg(wide_data()) as graph,
        ps.serve(graph, num_workers=1) as server,
        ps.connect(server.address, same_host=False) as far,
    ):
        with loader_of(graph) as plain:
            expected = digests(plain)
        for data, options in ((far, {}), (parts, {"num_workers": 0})):
            for kept in ({"features": "cuda"}, {"device": "cuda", "feature_cache": 300 * ROW}):
                with loader_of(data, **options, **kept) as loader:
                    assert digests(loader) == expected
                    found = loader.statistics().device
                    assert found.row_bytes > found.row_bytes_moved
    gc.collect()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": "cuda", "feature_cache": "1MB"}, "give features to keep all rows"),
        ({"feature_cache": "1MB"}, "batches arrive here: give device='cuda'"),
        ({"feature_cache": "1MB", "device": "cpu"}, "batches arrive on cpu"),
        ({"features": "cpu"}, "keeps rows on a GPU"),
        ({"features": "cuda:1", "device": "cuda:0"}, "only where batches arrive"),
        ({"features": "cud"}, "did you mean 'cuda'"),
        ({"device": "gpu"}, "did you mean 'cuda'"),
        ({"feature_cache": "much", "device": "cuda"}, "feature_cache is 'much'"),
        ({"features": "cuda", "transform_sampler_output": lambda out: out}, "leave out one"),
    ],
)
def test_what_cannot_be_is_refused(gpu: StandIn, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        loader_of(small_data(), **options)


@pytest.mark.parametrize(
    ("device", "features", "there"),
    [(None, "cuda:1", "cuda:1"), ("cuda:1", "cuda", "cuda:1"), ("cuda", 1, "cuda:1")],
)
def test_the_gpu_of_features_and_batches_is_named_once(
    gpu: StandIn, device: Any, features: Any, there: str
) -> None:
    found = options_of({"device": device, "features": features}, "NeighborLoader", None)
    assert found.torch_device == torch.device(there)


def test_a_part_alone_has_no_rows_of_the_whole(gpu: StandIn, tmp_path: Path) -> None:
    with ps.Graph.from_pyg(wide_data()) as graph:
        folders = graph.partition(2, tmp_path / "parts")
    with ps.Graph.open(folders[0]) as part, pytest.raises(ValueError, match="part 0"):
        ps.NeighborLoader(part, [2], part_only=True, features="cuda")


def test_without_a_gpu_features_say_so() -> None:
    """CONTRACT 76"""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="features is 'cuda', but torch finds no GPU"):
        loader_of(small_data(), features="cuda")
