"""What people check of PyG's loaders, of ours: shapes, ids, attributes, hops, weights and times."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.epochs import Data, HeteroData, everyday, pyg, small_data, torch, typed_data

pytestmark = pytest.mark.usefixtures("no_leaks")

KINDS = ["directional", "bidirectional", "induced"]
CITES = ("paper", "cites", "paper")
PATH = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])  # 0 -> 1 -> 2 -> 3 -> 4


# --- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("per_worker", [None, True, False])
def test_every_row_is_that_of_its_id(kind: str, dtype: Any, per_worker: bool | None) -> None:
    data = small_data()
    data.edge_index = data.edge_index.to(dtype)
    options = {"subgraph_type": kind, "filter_per_worker": per_worker, "input_nodes": None}
    with everyday(data, **options) as loader:
        assert str(loader) == "NeighborLoader()"
        assert len(loader) == 25
        for batch in loader:
            assert batch.edge_index.dtype == dtype
            assert batch.n_id.shape == (batch.num_nodes,)
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert batch.edge_index.min() >= 0
            assert batch.edge_index.max() < batch.num_nodes
            assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
            ends = batch.n_id[batch.edge_index.long()]
            given = data.edge_index[:, batch.e_id]
            back = kind == "bidirectional"
            same = (ends == given).all(0) | (back & (ends == given.flip(0)).all(0))
            assert bool(same.all())


def test_bidirectional_batches_are_undirected() -> None:
    with everyday(small_data(), subgraph_type="bidirectional") as loader:
        for batch in loader:
            assert pyg.utils.is_undirected(batch.edge_index)


def test_induced_batches_have_all_edges_among_their_nodes() -> None:
    data = small_data()
    with everyday(data, subgraph_type="induced") as loader:
        for batch in loader:
            found = pyg.utils.subgraph(batch.n_id, data.edge_index, return_edge_mask=True)
            expected = found[2].nonzero().view(-1)
            assert torch.equal(batch.e_id.sort().values, expected)


def test_all_neighbours_are_the_k_hop_subgraph() -> None:
    data = small_data()
    with everyday(data, num_neighbors=[-1, -1]) as loader:
        for batch in loader:
            seeds = batch.n_id[: batch.batch_size]
            nodes, _, _, mask = pyg.utils.k_hop_subgraph(seeds, 2, data.edge_index)
            assert torch.equal(batch.n_id.sort().values, nodes)
            assert set(batch.e_id.tolist()) <= set(mask.nonzero().view(-1).tolist())


def test_hops_are_counted() -> None:
    data = Data(x=torch.arange(5.0), edge_index=PATH)
    with ps.NeighborLoader(data, [1, 1, 1, 1], torch.tensor([3, 4]), batch_size=2) as loader:
        (batch,) = loader
    assert batch.num_sampled_nodes == [2, 1, 1, 1, 0]
    assert batch.num_sampled_edges == [2, 1, 1, 0]


def test_hops_of_each_type_are_counted() -> None:
    with everyday(typed_data(), input_nodes="paper") as loader:
        for batch in loader:
            for name in batch.node_types:
                hops = batch[name].num_sampled_nodes
                assert (len(hops), sum(hops)) == (3, batch[name].num_nodes)
            for kind in batch.edge_types:
                hops = batch[kind].num_sampled_edges
                assert (len(hops), sum(hops)) == (2, batch[kind].num_edges)


def test_stores_have_what_pyg_s_have_and_no_more() -> None:
    with everyday(typed_data(), input_nodes="paper") as loader:
        batch = next(iter(loader))
    common = {"x", "n_id", "num_sampled_nodes"}
    assert set(batch["author"].keys()) == common
    said = {"train_mask", "input_id", "batch_size"}
    assert set(batch["paper"].keys()) == common | said
    assert set(batch[CITES].keys()) == {"edge_index", "e_id", "num_sampled_edges"}


def test_features_in_a_file_come_as_tensors(tmp_path: Any) -> None:
    there = np.memmap(tmp_path / "x.npy", np.float32, "w+", shape=(400, 6))
    there[:] = np.arange(2400).reshape(400, 6)
    data = small_data()
    data.x = there
    with everyday(data, num_workers=1) as loader:
        for batch in loader:
            assert isinstance(batch.x, torch.Tensor)
            assert torch.equal(batch.x, torch.from_numpy(np.asarray(there))[batch.n_id])
    data.x = None
    there._mmap.close()


def test_weight_0_is_never_drawn_and_the_others_are() -> None:
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    weight = torch.tensor([0.0, 1.0, 0.0, 1.0])
    data = Data(x=torch.arange(5.0), edge_index=edge_index, edge_weight=weight)
    nodes = torch.zeros(64, dtype=torch.long)
    options = {"weight_attr": "edge_weight", "seed": 2, "disjoint": True}
    with ps.NeighborLoader(data, [1], nodes, batch_size=64, **options) as loader:
        (batch,) = loader
    assert set(batch.e_id.tolist()) == {1, 3}


def test_edges_are_no_later_than_their_seed() -> None:
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    data = Data(x=torch.arange(5.0), edge_index=edge_index, edge_time=torch.tensor([1, 2, 3, 4]))
    seeds, times = torch.tensor([0, 0]), torch.tensor([2, 3])
    options = {"time_attr": "edge_time", "input_time": times, "batch_size": 1}
    with ps.NeighborLoader(data, [-1], seeds, **options) as loader:
        assert [sorted(batch.edge_time.tolist()) for batch in loader] == [[1, 2], [1, 2, 3]]
    options["temporal_strategy"] = "last"
    with ps.NeighborLoader(data, [1], seeds, **options) as loader:
        assert [batch.edge_time.tolist() for batch in loader] == [[2], [3]]
    with pytest.raises(ValueError, match="Seed time needs to be specified"):
        ps.NeighborLoader(data, [1], seeds, time_attr="edge_time")


def test_workers_are_found_where_torch_has_them() -> None:
    with everyday(small_data(), num_workers=2) as loader:
        core = min(os.sched_getaffinity(0))
        with loader.enable_cpu_affinity([[core], [core]]):
            workers = loader._get_iterator().iterator._workers
            assert [worker.cpu_affinity() for worker in workers] == [[core], [core]]


# --- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [None, 1.0])
@pytest.mark.parametrize("per_worker", [True, False])
def test_links_and_their_labels(kind: str, ratio: float | None, per_worker: bool) -> None:
    data = small_data()
    label_index = data.edge_index[:, :200]
    options = {"subgraph_type": kind, "neg_sampling_ratio": ratio, "batch_size": 20}
    options |= {"filter_per_worker": per_worker, "seed": 0, "edge_label_index": label_index}
    if ratio is None:
        options["edge_label"] = torch.arange(200) % 2
    with ps.LinkNeighborLoader(data, [3, 2], **options) as loader:
        assert str(loader) == "LinkNeighborLoader()"
        assert len(loader) == 10
        for batch in loader:
            ends = batch.n_id[batch.edge_label_index]
            assert torch.equal(ends[:, :20], label_index[:, batch.input_id])
            if ratio is None:
                assert torch.equal(batch.edge_label, batch.input_id % 2)
            else:
                assert batch.edge_label.tolist() == [1.0] * 20 + [0.0] * 20


@pytest.mark.filterwarnings("ignore:data has no edges")
def test_links_of_nodes_without_edges() -> None:
    data = Data(x=torch.rand(100, 3))
    label_index = torch.randint(100, (2, 40))
    options = {"edge_label_index": label_index, "batch_size": 20}
    with ps.LinkNeighborLoader(data, [], **options) as loader:
        for batch in loader:
            assert torch.equal(batch.x, data.x[batch.n_id])
            ends = batch.n_id[batch.edge_label_index]
            assert torch.equal(ends, label_index[:, batch.input_id])


@pytest.mark.filterwarnings("ignore:data has no edges")
def test_links_of_types_without_edges() -> None:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(100, 3), torch.rand(50, 2)
    label_index = torch.stack([torch.randint(100, (40,)), torch.randint(50, (40,))])
    options = {"edge_label_index": (("paper", "author"), label_index), "batch_size": 20}
    with ps.LinkNeighborLoader(data, [], **options) as loader:
        assert len(loader) == 2
        for batch in loader:
            found = batch["paper", "author"].edge_label_index
            assert torch.equal(batch["paper"].n_id[found[0]], label_index[0][batch_ids(batch)])
            assert torch.equal(batch["author"].n_id[found[1]], label_index[1][batch_ids(batch)])


def batch_ids(batch: Any) -> Any:
    return batch["paper", "author"].input_id


def test_links_within_a_type_share_its_nodes() -> None:
    data = typed_data()
    options = {"edge_label_index": CITES, "batch_size": 50}
    with ps.LinkNeighborLoader(data, [2], **options) as loader:
        for batch in loader:
            ends = batch["paper"].n_id[batch[CITES].edge_label_index]
            assert torch.equal(ends, data[CITES].edge_index[:, batch[CITES].input_id])


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("amount", [1, 2])
def test_triplets_by_shape_and_place(disjoint: bool, timed: bool, amount: int) -> None:
    data = small_data()
    options: dict[str, Any] = {"disjoint": disjoint, "neg_sampling": ("triplet", amount)}
    if timed:
        data.time = torch.arange(400)
        options |= {"time_attr": "time", "edge_label_time": torch.full((60,), 399)}
    options |= {"edge_label_index": data.edge_index[:, :60], "batch_size": 20}
    with ps.LinkNeighborLoader(data, [2], **options) as loader:
        for batch in loader:
            negatives = (20,) if amount == 1 else (20, amount)
            assert batch.src_index.shape == batch.dst_pos_index.shape == (20,)
            assert batch.dst_neg_index.shape == negatives
            pairs = torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
            assert torch.equal(pairs, data.edge_index[:, batch.input_id])
            assert ("batch" in batch) == (disjoint or timed)
            if timed:
                assert bool((batch.time <= batch.seed_time[batch.batch]).all())
