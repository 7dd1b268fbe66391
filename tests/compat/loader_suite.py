"""What PyG's own tests of loaders look at, in our words, for our classes and for PyG's.

    python -m tests.compat.loader_suite [CASE ...]

Runs every case with Penstock's loaders ("ours"), and with PyG's own over our kernels, installed
without ("pyg") and with `induced=True` ("induced"); prints what failed each time. In a process of
its own, since `install` is for a whole process. PyG's distribution contains no tests; these follow
its documentation.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.compat import pyg_lib

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    import numpy as np
    import torch
    import torch_geometric
    import torch_geometric.nn as nn
    from torch_geometric import loader as pyg_loaders
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import CachedLoader, ImbalancedSampler, PrefetchLoader, ZipLoader
    from torch_geometric.sampler import NegativeSampling, NumNeighbors, SamplerOutput
    from torch_geometric.testing import MyFeatureStore, MyGraphStore
    from torch_geometric.utils import subgraph, trim_to_layer

MODULE: Any = ps  # whose loaders are looked at
CITES, WRITES, WRITTEN = (
    ("paper", "to", "paper"),
    ("author", "to", "paper"),
    ("paper", "to", "author"),
)
CASES: dict[str, Callable[[], None]] = {}


def case(check: Callable[[], None]) -> Callable[[], None]:
    CASES[check.__name__] = check
    return check


def ends(sources: int, destinations: int, count: int, dtype: Any = torch.int64) -> Any:
    upper = torch.randint(sources, (count,), dtype=dtype)
    return torch.stack([upper, torch.randint(destinations, (count,), dtype=dtype)])


def homogeneous(dtype: Any = torch.int64) -> Any:
    torch.manual_seed(12345)
    edges = ends(100, 100, 500, dtype)
    return Data(x=torch.arange(100), edge_index=edges, edge_attr=torch.arange(500))


def heterogeneous() -> Any:
    torch.manual_seed(12345)
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.arange(100), torch.arange(100, 300)
    for kind, sizes in ((CITES, (100, 100)), (WRITTEN, (100, 200)), (WRITES, (200, 100))):
        data[kind].edge_index = ends(*sizes, 600)
        data[kind].edge_attr = torch.arange(600)
    return data


def nodes(data: Any, num_neighbors: Any, input_nodes: Any = None, **given: Any) -> Any:
    return MODULE.NeighborLoader(data, num_neighbors, input_nodes, **given)


def links(data: Any, num_neighbors: Any, **given: Any) -> Any:
    return MODULE.LinkNeighborLoader(data, num_neighbors, **given)


def raises(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call()


# --- nodes ---------------------------------------------------------------------------------------


def homogeneous_of(dtype: Any, subgraph_type: str) -> None:
    data = homogeneous(dtype)
    loader = nodes(data, [5, 5], batch_size=20, subgraph_type=subgraph_type)
    assert str(loader) == "NeighborLoader()"
    assert len(loader) == 5
    for number, batch in enumerate(loader):
        assert isinstance(batch, Data)
        assert batch.edge_index.dtype == dtype
        assert batch.n_id.dtype == dtype or subgraph_type == "bidirectional", batch.n_id.dtype
        assert batch.n_id.shape == (batch.num_nodes,)
        assert batch.e_id.shape == (batch.num_edges,)
        assert batch.x[:20].tolist() == list(range(20 * number, 20 * number + 20))
        assert torch.equal(batch.x, data.x[batch.n_id.long()])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id.long()])
        found, original = batch.n_id[batch.edge_index.long()], data.edge_index[:, batch.e_id.long()]
        if subgraph_type == "bidirectional":
            found, original = found.sort(dim=0).values, original.sort(dim=0).values
        assert torch.equal(found.long(), original.long())
        if subgraph_type == "induced":
            whole, _ = subgraph(batch.n_id.long(), data.edge_index.long())
            assert batch.num_edges == whole.shape[1]


for _type in ("directional", "bidirectional", "induced"):
    for _dtype in (torch.int64, torch.int32):
        CASES[f"homogeneous_{_type}_{str(_dtype)[6:]}"] = lambda dtype=_dtype, kind=_type: (
            homogeneous_of(dtype, kind)
        )


@case
def heterogeneous_basic() -> None:
    data = heterogeneous()
    loader = nodes(data, [10, 10], "paper", batch_size=20)
    assert len(loader) == 5
    for batch in loader:
        assert batch.node_types == data.node_types
        assert set(batch.edge_types) == set(data.edge_types)
        assert batch["paper"].batch_size == 20 == batch["paper"].input_id.numel()
        for kind in batch.edge_types:
            store = batch[kind]
            source, _, destination = kind
            row, col = store.edge_index
            found = torch.stack([batch[source].n_id[row], batch[destination].n_id[col]])
            assert torch.equal(found, data[kind].edge_index[:, store.e_id])
            assert torch.equal(store.edge_attr, data[kind].edge_attr[store.e_id])
        assert {len(hops) for hops in batch.num_sampled_nodes_dict.values()} == {3}
        assert {len(hops) for hops in batch.num_sampled_edges_dict.values()} == {2}


@case
def heterogeneous_induced() -> None:
    data = heterogeneous()
    for batch in nodes(data, [5, 5], "paper", batch_size=20, subgraph_type="induced"):
        row, col = data[WRITES].edge_index
        inside = torch.isin(row, batch["author"].n_id) & torch.isin(col, batch["paper"].n_id)
        assert batch[WRITES].num_edges == int(inside.sum())


@case
def fan_outs_by_type() -> None:
    data = heterogeneous()
    uneven = {CITES: [-1], WRITTEN: [-1, -1], WRITES: [-1, -1]}
    words = "hops must be the same across all"
    raises(ValueError, words, lambda: next(iter(nodes(data, uneven, "paper"))))
    numbers = NumNeighbors({CITES: [0, 0]}, default=[3, 3])
    batch = next(iter(nodes(data, numbers, "paper", batch_size=20)))
    assert batch[CITES].num_edges == 0
    assert batch[WRITES].num_edges > 0


@case
def all_neighbors_give_the_output_of_the_whole_graph() -> None:
    data = homogeneous()
    data.x, data.w = torch.randn(100, 8), torch.rand(500)
    conv = [nn.GraphConv(8, 16), nn.GraphConv(16, 4)]
    seeds = torch.arange(5, 8)

    def model(of: Any) -> Any:
        hidden = conv[0](of.x, of.edge_index, of.w).relu()
        return conv[1](hidden, of.edge_index, of.w)

    batch = next(iter(nodes(data, [-1, -1], seeds, batch_size=3)))
    torch.testing.assert_close(model(batch)[:3], model(data)[seeds])
    x, edge_index = batch.x, batch.edge_index
    for layer in range(2):
        x, edge_index, w = trim_to_layer(
            layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index, batch.w
        )
        x = conv[layer](x, edge_index, w)
        x = x.relu() if layer == 0 else x
    torch.testing.assert_close(x[:3], model(data)[seeds])


@case
def all_neighbors_of_types_give_the_output_of_the_whole_graph() -> None:
    data = heterogeneous()
    data["paper"].x, data["author"].x = torch.randn(100, 4), torch.randn(200, 4)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.SAGEConv(4, 4)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index).relu()

    model = nn.to_hetero(Net(), data.metadata())
    batch = next(iter(nodes(data, [-1], ("paper", torch.arange(7)), batch_size=7)))
    expected = model(data.x_dict, data.edge_index_dict)["paper"][:7]
    found = model(batch.x_dict, batch.edge_index_dict)["paper"][:7]
    torch.testing.assert_close(found, expected)


@case
def times_of_nodes() -> None:
    data = heterogeneous()
    data["paper"].time, data["author"].time = torch.arange(100, 0, -1), torch.arange(200)
    for batch in nodes(data, [-1, -1], "paper", time_attr="time", batch_size=4):
        seeds = batch["paper"].time[:4]
        for name in ("paper", "author"):
            assert (batch[name].time <= seeds[batch[name].batch]).all()


@case
def times_of_edges_and_of_inputs() -> None:
    data = homogeneous()
    data.edge_time = torch.arange(500)
    times = torch.arange(100) * 5
    for strategy in ("uniform", "last"):
        loader = nodes(
            data, [3, 3], input_time=times, time_attr="edge_time", temporal_strategy=strategy
        )
        batch = next(iter(loader))
        assert torch.equal(batch.seed_time, times[:1])
        assert (batch.edge_time <= batch.seed_time).all()
    words = "'input_time' and 'time_attr'"
    raises(ValueError, words, lambda: nodes(data, [3], input_time=times))


@case
def weights() -> None:
    data = homogeneous()
    data.w = (torch.arange(500) % 2).float()
    for batch in nodes(data, [3, 3], weight_attr="w", batch_size=20):
        assert (batch.w == 1).all()


@case
def trees() -> None:
    data = homogeneous()
    for batch in nodes(data, [3, 3], disjoint=True, batch_size=8):
        assert batch.batch.shape == batch.n_id.shape
        assert batch.batch[: batch.batch_size].tolist() == list(range(batch.batch_size))
        row, col = batch.edge_index
        assert torch.equal(batch.batch[row], batch.batch[col])


@case
def with_replacement() -> None:
    data = homogeneous()
    for batch in nodes(data, [7], replace=True, batch_size=20):
        degrees = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)[:20]
        assert set(degrees.tolist()) <= {0, 7}


@case
def inputs_of_every_form() -> None:
    data = homogeneous()
    mask = torch.arange(100) % 3 == 0
    by_mask = [batch.input_id for batch in nodes(data, [1], mask, batch_size=10)]
    assert torch.equal(torch.cat(by_mask), mask.nonzero().flatten())
    for given in ([5, 3, 8], (5, 3, 8), torch.tensor([5, 3, 8])):
        batch = next(iter(nodes(data, [1], given, batch_size=3)))
        assert batch.n_id[:3].tolist() == [5, 3, 8]
        assert batch.input_id.tolist() == [0, 1, 2]
    loader = nodes(data, [1], torch.arange(10), batch_size=5, input_id=torch.arange(100, 110))
    assert next(iter(loader)).input_id.tolist() == list(range(100, 105))


@case
def stores_of_ones_own() -> None:
    data, features, graph = heterogeneous(), MyFeatureStore(), MyGraphStore()
    for name in data.node_types:
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for kind in data.edge_types:
        size = (data[kind[0]].num_nodes, data[kind[2]].num_nodes)
        edges = tuple(data[kind].edge_index)
        graph.put_edge_index(edges, edge_type=kind, layout="coo", size=size)
    given: dict[str, Any] = {"input_nodes": ("paper", range(100)), "batch_size": 20}
    mine, theirs = nodes((features, graph), [-1, -1], **given), nodes(data, [-1, -1], **given)
    for one, other in zip(mine, theirs, strict=True):
        for name in data.node_types:
            assert torch.equal(one[name].x.sort()[0], other[name].x.sort()[0])
        for kind in data.edge_types:
            assert one[kind].edge_index.shape == other[kind].edge_index.shape


@case
def what_is_called_by_hand() -> None:
    data = homogeneous()
    loader = nodes(data, [-1], batch_size=10, filter_per_worker=False)
    out = loader.collate_fn([3, 4])
    assert isinstance(out, SamplerOutput)
    assert loader.filter_fn(out).n_id[:2].tolist() == [3, 4]
    batch = loader([3, 4])
    assert isinstance(batch, Data)
    assert batch.batch_size == 2
    seen = []

    def look(out: Any) -> Any:
        seen.append(type(out))
        return out

    loader = nodes(
        data, [2], transform=lambda one: one.num_nodes, transform_sampler_output=look, batch_size=50
    )
    assert all(isinstance(one, int) for one in loader)
    assert seen == [SamplerOutput] * 2


@case
def methods_of_a_subclass() -> None:
    class Mine(MODULE.NeighborLoader):  # type: ignore[misc]
        def filter_fn(self, out: Any) -> Any:
            data = super().filter_fn(out)
            data.mine = len(out.node)
            return data

        def collate_fn(self, index: Any) -> Any:
            out = super().collate_fn(index)
            out.index = list(map(int, index))
            return out

    for batch in Mine(homogeneous(), [2], batch_size=25):
        assert batch.mine == batch.num_nodes
        assert batch.index == batch.input_id.tolist()


@case
def workers_that_are_not_there() -> None:
    loader = nodes(homogeneous(), [2], batch_size=10)

    def pin() -> None:
        with loader.enable_cpu_affinity():
            pass

    raises(ValueError, "should be used with at least one worker", pin)


@case
def rows_that_are_mapped() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = np.memmap(f"{folder}/x.npy", np.float32, "w+", shape=(100, 3))
        rows[:] = np.arange(300).reshape(100, 3)
        data = homogeneous()
        data.x = rows
        for batch in nodes(data, [2], batch_size=50):
            assert isinstance(batch.x, torch.Tensor)
            assert batch.x[:, 0].tolist() == (3.0 * batch.n_id).tolist()


@case
def loaders_over_loaders() -> None:
    data = homogeneous()
    data.y = (torch.arange(100) % 10 == 0).long()
    zipped = ZipLoader([nodes(data, [2]), nodes(data, [1], range(60))], batch_size=20)
    assert [(one.batch_size, other.batch_size) for one, other in zipped] == [(20, 20)] * 3
    cached = CachedLoader(nodes(data, [2], batch_size=20, shuffle=True))
    first, again = [[batch.n_id.tolist() for batch in cached] for _ in range(2)]
    assert first == again
    prefetched = PrefetchLoader(nodes(data, [2], batch_size=20), device="cpu")
    assert [batch.batch_size for batch in prefetched] == [20] * 5
    torch.manual_seed(1)
    drawn = nodes(data, [1], batch_size=20, sampler=ImbalancedSampler(data.y))
    share = torch.cat([batch.y[: batch.batch_size] for batch in drawn]).float().mean()
    assert 0.3 < share < 0.7


# --- links ---------------------------------------------------------------------------------------


@case
def links_without_negatives() -> None:
    data = homogeneous()
    wanted = data.edge_index[:, :60]
    loader = links(
        data, [2, 2], edge_label_index=wanted, edge_label=torch.arange(60), batch_size=20
    )
    assert str(loader) == "LinkNeighborLoader()"
    found, labels = [], []
    for batch in loader:
        found.append(batch.n_id[batch.edge_label_index])
        labels.append(batch.edge_label)
        assert batch.input_id.numel() == 20
    assert torch.equal(torch.cat(found, 1), wanted)
    assert torch.cat(labels).tolist() == list(range(60))


@case
def links_with_binary_negatives() -> None:
    data = homogeneous()
    for ratio in (1.0, 0.5, 2.0):
        loader = links(
            data,
            [2],
            neg_sampling={"mode": "binary", "amount": ratio},
            batch_size=20,
            edge_label_index=data.edge_index[:, :20],
        )
        batch = next(iter(loader))
        assert batch.edge_label.tolist() == [1.0] * 20 + [0.0] * int(20 * ratio)
    old = links(data, [2], neg_sampling_ratio=1.0, batch_size=20)
    assert len(next(iter(old)).edge_label) == 40
    label = torch.arange(500) % 3
    loader = links(data, [2], neg_sampling="binary", edge_label=label, batch_size=500)
    batch = next(iter(loader))
    assert torch.equal(batch.edge_label[:500], label + 1)
    assert (batch.edge_label[500:] == 0).all()


@case
def links_with_triplets() -> None:
    data = homogeneous()
    for amount in (1, 2):
        loader = links(data, [2], neg_sampling=NegativeSampling("triplet", amount), batch_size=20)
        batch = next(iter(loader))
        assert batch.src_index.shape == batch.dst_pos_index.shape == (20,)
        assert batch.dst_neg_index.shape == ((20,) if amount == 1 else (20, amount))
        assert "edge_label_index" not in batch
        pairs = torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
        assert torch.equal(pairs, data.edge_index[:, batch.input_id])
    words = "'edge_label' needs to be undefined"
    raises(
        ValueError,
        words,
        lambda: links(data, [2], neg_sampling="triplet", edge_label=torch.ones(500)),
    )


@case
def links_of_types_with_times() -> None:
    data = heterogeneous()
    data["paper"].time, data["author"].time = torch.arange(100), torch.arange(200)
    count = data[WRITES].num_edges
    loader = links(
        data,
        [2, 2],
        edge_label_index=WRITES,
        edge_label_time=torch.arange(count),
        time_attr="time",
        neg_sampling=NegativeSampling("binary"),
        batch_size=30,
    )
    batch = next(iter(loader))
    assert batch[WRITES].edge_label_index.shape == (2, 60)
    for name in ("paper", "author"):
        assert batch[name].batch.shape == batch[name].n_id.shape
    words = "'edge_label_time' and 'time_attr'"
    raises(ValueError, words, lambda: links(data, [2], edge_label_index=WRITES, time_attr="time"))


@case
def links_of_a_type_that_is_not_walked() -> None:
    data = heterogeneous()
    likes = ("author", "likes", "paper")
    given = torch.stack([torch.arange(20), torch.arange(20)])
    batch = next(iter(links(data, [2], edge_label_index=(likes, given), batch_size=20)))
    found = batch[likes].edge_label_index
    assert batch["author"].n_id[found[0]].tolist() == list(range(20))


# --- nothing else changes ------------------------------------------------------------------------


@case
def layers_and_transforms_do_as_before() -> None:
    """They would use torch_sparse, if they took it for installed."""
    from torch_geometric.transforms import ToSparseTensor

    edges = torch.stack([torch.arange(300) % 100, (torch.arange(300) * 7 + 1) % 100])
    data = Data(num_nodes=100, edge_index=edges, edge_attr=torch.arange(300)).coalesce()
    assert not data.has_self_loops()
    x = torch.randn(100, 8)
    adj = ToSparseTensor()(data.clone()).adj_t
    assert adj.layout == torch.sparse_csr
    for conv in (
        nn.GCNConv(8, 4),
        nn.SAGEConv(8, 4),
        nn.GraphConv(8, 4),
        nn.GINConv(nn.MLP([8, 4])),
    ):
        torch.testing.assert_close(conv(x, data.edge_index), conv(x, adj), atol=1e-4, rtol=1e-4)
    relations = nn.RGCNConv(8, 4, num_relations=2)(x, data.edge_index, data.edge_attr % 2)
    assert relations.shape == (100, 4)
    index = torch_geometric.EdgeIndex(data.edge_index, sparse_size=(100, 100)).sort_by("row")[0]
    torch.testing.assert_close(index.matmul(x), index.to_dense() @ x, atol=1e-4, rtol=1e-4)
    assert not torch_geometric.typing.WITH_TORCH_SPARSE
    raises(ImportError, "requires 'torch-sparse'", torch_geometric.typing.SparseTensor)
    lines = nn.HeteroDictLinear({"a": 8, "b": 8}, 4)({"a": x, "b": x})
    assert lines["b"].shape == (100, 4)


def failed_cases() -> dict[str, str]:
    failed = {}
    for name in sys.argv[1:] or CASES:
        try:
            CASES[name]()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
    return failed


def main() -> None:
    global MODULE
    failed = {"ours": failed_cases()}
    MODULE = pyg_loaders
    for way in ("pyg", "induced"):
        pyg_lib.install(induced=way == "induced")
        failed[way] = failed_cases()
        pyg_lib.uninstall()
    print(json.dumps(failed))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
