"""The everyday path: PyG's arguments and batches, by any number of workers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import (
    BATCH,
    NODES,
    Data,
    HeteroData,
    digest,
    digests,
    epochs,
    everyday,
    pyg,
    small_data,
    torch,
    typed_data,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

PyGLoader = pyg.loader.NeighborLoader


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_batches_are_the_same_whoever_makes_them(workers: int) -> None:
    """CONTRACT 5: byte for byte, inline or by 1, 2, 7 workers, in every epoch."""
    data = small_data()
    with everyday(data, num_workers=0) as inline, everyday(data, num_workers=workers) as loader:
        expected = epochs(inline)
        assert epochs(loader) == expected
        assert len({name for epoch in expected for name in epoch}) == 2 * len(inline)


def test_heterogeneous_batches_are_the_same_whoever_makes_them() -> None:
    """CONTRACT 5."""
    data = typed_data()
    options = {"input_nodes": ("paper", data["paper"].train_mask)}
    with everyday(data, **options) as inline, everyday(data, num_workers=2, **options) as loader:
        assert epochs(loader) == epochs(inline)


def test_a_batch_has_what_pyg_gives_it() -> None:
    """CONTRACT 42, 43: names, and what they mean."""
    data = small_data()
    with everyday(data, shuffle=False) as loader:
        nodes = data.train_mask.nonzero().view(-1)
        for step, batch in enumerate(loader):
            seeds = nodes[step * BATCH : (step + 1) * BATCH]
            assert isinstance(batch, Data)
            assert batch.batch_size == len(seeds)
            assert torch.equal(batch.n_id[: batch.batch_size], seeds)
            assert torch.equal(batch.input_id, seeds)  # of a mask
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert torch.equal(batch.y, data.y[batch.n_id])
            assert torch.equal(batch.train_mask, data.train_mask[batch.n_id])
            assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
            assert sum(batch.num_sampled_nodes) == batch.num_nodes
            assert sum(batch.num_sampled_edges) == batch.num_edges
            assert batch.name == "small"


def test_it_takes_every_argument_that_pyg_takes_in_the_same_order() -> None:
    theirs = list(inspect.signature(PyGLoader.__init__).parameters.values())
    ours = inspect.signature(ps.NeighborLoader.__init__).parameters
    for mine, yours in zip(ours.values(), theirs[:-1], strict=False):
        assert (mine.name, mine.default) == (yours.name, yours.default)


def test_it_is_one_of_pyg_s_to_those_who_ask() -> None:
    with everyday(small_data()) as loader:
        assert isinstance(loader, PyGLoader)
        assert isinstance(loader, torch.utils.data.DataLoader)


def test_attributes_are_named_like_the_arguments() -> None:
    data = small_data()
    given = {
        "num_neighbors": [3],
        "input_nodes": torch.arange(50),
        "replace": True,
        "batch_size": 4,
        "drop_last": True,
        "num_workers": 2,
        "prefetch_factor": 3,
        "persistent_workers": True,
        "timeout": 50,
        "transform": str,
        "on_error": "substitute",
        "weight": 2.0,
    }
    with ps.NeighborLoader(data, **given) as loader:
        assert loader.data is data
        assert {name: getattr(loader, name) for name in given} == given
        for name in inspect.signature(ps.NeighborLoader.__init__).parameters:
            assert name in ("self", "options") or name in vars(loader)


def test_a_loader_made_again_of_its_attributes_gives_the_same() -> None:
    """As Lightning makes them: of whatever the signatures name, torch's included."""
    with everyday(small_data()) as loader:
        names = {
            *inspect.signature(ps.NeighborLoader.__init__).parameters,
            *inspect.signature(torch.utils.data.DataLoader.__init__).parameters,
        }
        known = vars(loader) | {"collate_fn": loader.collate_fn}
        given = {name: known[name] for name in names if name in known}
        given |= {"shuffle": False, "batch_sampler": None}  # since the sampler says it all
        with type(loader)(**given) as again:
            again.load_state_dict(loader.state_dict())
            assert digests(again) == digests(loader)


def test_its_name_its_length_and_its_dataset() -> None:
    with everyday(small_data()) as loader:
        assert str(loader) == "NeighborLoader()"
        assert loader.dataset == range(230)
        assert len(loader) == 15
        assert len(iter(loader)) == 15


@pytest.mark.parametrize(
    ("nodes", "ids", "input_id"),
    [
        (None, range(NODES), range(NODES)),
        ([5, 3, 5], [5, 3, 5], [0, 1, 2]),
        (range(10, 13), [10, 11, 12], [0, 1, 2]),
        (torch.tensor([9, 4], dtype=torch.int32), [9, 4], [0, 1]),
        (torch.arange(NODES) % 100 == 7, [7, 107, 207, 307], [7, 107, 207, 307]),
    ],
    ids=["all", "list", "range", "tensor", "mask"],
)
def test_input_nodes_may_be_said_in_any_way(nodes: Any, ids: Any, input_id: Any) -> None:
    with ps.NeighborLoader(small_data(), [2], nodes, batch_size=NODES, num_workers=0) as loader:
        (batch,) = loader
        assert batch.n_id[: batch.batch_size].tolist() == list(ids)
        assert batch.input_id.tolist() == list(input_id)


def test_an_input_id_of_one_s_own_is_what_batches_show() -> None:
    options = {"input_nodes": [5, 3], "input_id": torch.tensor([70, 80])}
    with ps.NeighborLoader(small_data(), [2], batch_size=2, **options) as loader:
        (batch,) = loader
        assert batch.input_id.tolist() == [70, 80]
        assert loader([1]).input_id.tolist() == [80]


def test_every_type_is_there_also_where_nothing_was_reached() -> None:
    """CONTRACT 44."""
    data = typed_data()
    options = {"input_nodes": "paper", "num_neighbors": [2]}
    with everyday(data, **options) as loader:
        for batch in loader:
            assert isinstance(batch, HeteroData)
            assert batch.node_types == data.node_types
            assert batch.edge_types == data.edge_types
            assert batch["topic"].x.shape == (0, 2)
            assert batch["paper"].batch_size == len(batch["paper"].input_id)


def test_fanouts_by_type_leave_out_what_they_say() -> None:
    data = typed_data()
    fanouts = {kind: [0] for kind in data.edge_types}
    fanouts["author", "writes", "paper"] = [-1]
    with ps.NeighborLoader(data, fanouts, "paper", batch_size=120) as loader:
        (batch,) = loader
        assert batch["author", "writes", "paper"].num_edges == 300
        assert batch["paper", "cites", "paper"].num_edges == 0


@pytest.mark.parametrize(
    ("fanouts", "message"),
    [
        ({("paper", "likes", "paper"): [1]}, "Not all edge types specified"),
        (
            {("paper", "cites", "paper"): [1]},
            "Missing number of neighbors for edge type",
        ),
        (
            {
                ("paper", "cites", "paper"): [1],
                ("author", "writes", "paper"): [1, 1],
                ("paper", "about", "topic"): [1],
            },
            "hops must be the same across all",
        ),
    ],
)
def test_fanouts_that_make_no_sense_are_refused_in_pyg_s_words(fanouts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ps.NeighborLoader(typed_data(), fanouts, "paper")


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
def test_the_type_of_the_subgraph_tells_whether_hops_are_counted(subgraph_type: str) -> None:
    with everyday(small_data(), subgraph_type=subgraph_type) as loader:
        for batch in loader:
            counted = subgraph_type == "directional"
            assert ("num_sampled_nodes" in batch) == counted
            assert ("num_sampled_edges" in batch) == counted


def test_directed_is_taken_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="deprecated"):
        loader = everyday(small_data(), directed=False)
    with loader, everyday(small_data(), subgraph_type="induced") as induced:
        assert digests(loader) == digests(induced)


def test_edges_that_are_said_to_be_sorted_give_the_same() -> None:
    data = small_data()
    order = data.edge_index[1].argsort(stable=True)
    data.edge_index, data.edge_attr = data.edge_index[:, order], data.edge_attr[order]
    with everyday(data, is_sorted=True) as trusted, everyday(data) as loader:
        assert digests(trusted) == digests(loader)


def test_fanouts_may_be_an_object_of_pyg_s() -> None:
    data = typed_data()
    fanouts = pyg.sampler.NumNeighbors({("paper", "cites", "paper"): [2, 1]}, default=[0, 0])
    with ps.NeighborLoader(data, fanouts, "paper", batch_size=8) as loader:
        for batch in loader:
            assert batch["author", "writes", "paper"].num_edges == 0
        assert len(loader.node_sampler.num_neighbors) == 2


def test_batches_may_be_of_a_class_of_one_s_own() -> None:
    class Mine(HeteroData):
        pass

    data = typed_data()
    with everyday((data, data), input_nodes="paper", custom_cls=Mine) as loader:
        assert all(type(batch) is Mine for batch in loader)


def test_with_replacement_every_node_gives_as_many_as_asked() -> None:
    data = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
    with ps.NeighborLoader(data, [7], [0], replace=True) as loader:
        (batch,) = loader
        assert batch.num_edges == 7
        assert batch.num_nodes <= 3


def test_disjoint_trees_have_a_batch_vector() -> None:
    with everyday(small_data(), disjoint=True) as loader:
        for batch in loader:
            assert batch.batch[: batch.batch_size].tolist() == list(range(batch.batch_size))
            source, destination = batch.edge_index
            assert torch.equal(batch.batch[source], batch.batch[destination])


def test_no_weight_no_edge() -> None:
    data = small_data()
    data.weight = (torch.arange(data.num_edges) % 2).float()
    with everyday(data, weight_attr="weight") as loader:
        for batch in loader:
            assert (batch.weight > 0).all()


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_nothing_is_later_than_its_seed(strategy: str) -> None:
    data = small_data()
    data.time = torch.arange(NODES)
    options = {"time_attr": "time", "temporal_strategy": strategy}
    with everyday(data, **options) as loader:
        for batch in loader:
            seeds = batch.time[: batch.batch_size]
            assert (batch.time <= seeds[batch.batch]).all()


def test_the_seeds_times_may_be_given() -> None:
    data = small_data()
    data.time = torch.arange(NODES)
    nodes, times = torch.arange(20, 40), torch.full((20,), 10)
    options = {"input_nodes": nodes, "input_time": times, "time_attr": "time", "shuffle": False}
    with everyday(data, **options) as loader:
        for batch in loader:
            assert (batch.seed_time == 10).all()
            assert (batch.time[batch.batch_size :] <= 10).all()


def test_times_without_an_attribute_are_refused_in_pyg_s_words() -> None:
    with pytest.raises(ValueError, match="conflicting 'input_time' and 'time_attr'"):
        everyday(small_data(), input_time=torch.arange(230))


def test_a_graph_gives_what_its_data_gives() -> None:
    data = small_data()
    nodes = data.train_mask.nonzero().view(-1)
    with ps.Graph.from_pyg(data) as graph:
        options = {"input_nodes": nodes}
        with everyday(data, **options) as of_data, everyday(graph, **options) as of_graph:
            for one, other in zip(of_data, of_graph, strict=True):
                assert torch.equal(one.n_id, other.n_id)
                assert torch.equal(one.edge_index, other.edge_index)
                assert torch.equal(one.x, other.x)


def test_a_hub_gives_what_its_graph_gives() -> None:
    data = small_data()
    nodes = data.train_mask.nonzero().view(-1)
    with ps.Graph.from_pyg(data) as graph, ps.HubProcess(graph, 1) as hub:
        with everyday(graph, input_nodes=nodes) as inline:
            expected = digests(inline)
        with everyday(hub, input_nodes=nodes) as loader:
            assert digests(loader) == expected
            assert loader.num_workers == 1
        for workers in (None, 0, 3):  # the pool's size is its owner's affair
            with everyday(hub.address, input_nodes=nodes, num_workers=workers) as loader:
                assert digests(loader) == expected
                assert loader.statistics().num_workers == (0 if workers == 0 else 1)


def test_stores_give_what_their_data_gives() -> None:
    data = typed_data()
    options = {"input_nodes": "paper"}
    with everyday(data, **options) as whole, everyday((data, data), **options) as stores:
        for one, other in zip(whole, stores, strict=True):
            for name in ("paper", "author"):
                assert torch.equal(one[name].x, other[name].x)
                assert torch.equal(one[name].n_id, other[name].n_id)


def test_another_loader_s_sampler_samples_as_that_one_does() -> None:
    data = small_data()
    with everyday(data, replace=True) as first:
        with everyday(data, neighbor_sampler=first.node_sampler) as second:
            assert digests(second) == digests(first)


def test_a_sampler_of_pyg_s_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"neighbor_sampler is a object, .* PyG's own code"):
        everyday(small_data(), neighbor_sampler=object())


def test_a_transform_comes_last() -> None:
    def transform(batch: Any) -> Any:
        batch.twice = 2 * batch.x
        return batch

    with everyday(small_data(), transform=transform) as loader:
        for batch in loader:
            assert torch.equal(batch.twice, 2 * batch.x)
        assert "twice" in loader([0])


def test_a_sampler_s_output_is_transformed_before_features_are_joined() -> None:
    def seeds_only(out: Any) -> Any:
        count = out.num_sampled_nodes[0]
        out.node = out.node[:count]
        out.row, out.col, out.edge = out.row[:0], out.col[:0], out.edge[:0]
        return out

    data = small_data()
    with everyday(data, transform_sampler_output=seeds_only) as loader:
        for batch in loader:
            assert batch.num_nodes == batch.batch_size
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert batch.num_edges == 0


def test_a_batch_may_be_kept_and_changed() -> None:
    """CONTRACT 23: every batch of an epoch, with as few slots as there can be."""
    data = small_data()
    with everyday(data, num_workers=1, prefetch=1) as loader:
        kept = list(loader)
        names = digests(kept)
        for batch in kept:
            batch.x += 1
        loader.set_epoch(0)
        again = list(loader)
        assert digests(again) == names
        for one, other in zip(kept, again, strict=True):
            assert torch.equal(one.x, other.x + 1)


def test_batches_outlive_their_loader() -> None:
    with everyday(small_data(), num_workers=1) as loader:
        kept = list(loader)
        names = digests(kept)
    del loader
    assert digests(kept) == names


def test_loader_of_an_index_samples_out_of_turn() -> None:
    data = small_data()
    with everyday(data, input_nodes=torch.arange(100, 200)) as loader:
        expected = digests(loader)
        loader.set_epoch(0)
        seen = []
        for batch in loader:
            seen.append(digest(batch))
            adhoc = loader([3, 1, -1])
            assert adhoc.n_id[:3].tolist() == [103, 101, 199]
            assert adhoc.input_id.tolist() == [3, 1, 99]
            assert torch.equal(adhoc.x, data.x[adhoc.n_id])
        assert seen == expected  # which does not depend on it


def test_out_of_turn_batches_are_drawn_anew_each_time_and_the_same_in_every_run() -> None:
    streams = []
    for _ in range(2):
        with everyday(small_data(), num_neighbors=[2, 2]) as loader:
            streams.append([digest(loader(range(8))) for _ in range(3)])
    assert streams[0] == streams[1]
    assert len(set(streams[0])) == 3


@pytest.mark.parametrize("index", [[400], [-231]])
def test_a_place_that_is_not_there_is_an_index_error(index: list[int]) -> None:
    with everyday(small_data()) as loader, pytest.raises(IndexError, match="place < 230"):
        loader(index)


@pytest.mark.parametrize("apart", [True, False])
def test_sampling_and_joining_can_be_had_apart(apart: bool) -> None:
    with everyday(small_data(), filter_per_worker=not apart) as loader:
        out = loader.collate_fn([0, 1])
        if apart:
            assert isinstance(out, pyg.sampler.SamplerOutput)
            out = loader.filter_fn(out)
        assert isinstance(out, Data)
        assert out.batch_size == 2


def test_no_hops_are_the_seeds_alone() -> None:
    with ps.NeighborLoader(small_data(), [], [4, 2], batch_size=2) as loader:
        (batch,) = loader
        assert batch.n_id.tolist() == [4, 2]
        assert batch.num_edges == 0


@pytest.mark.parametrize(("workers", "shuffle"), [(0, False), (0, True), (1, True)])
def test_no_inputs_are_an_epoch_without_batches(workers: int, shuffle: bool) -> None:
    """CONTRACT 11."""
    options = {"input_nodes": [], "num_workers": workers, "shuffle": shuffle}
    with everyday(small_data(), **options) as loader:
        assert len(loader) == 0
        assert list(loader) == []
        assert list(loader) == []


def test_a_last_batch_that_is_short_can_be_dropped() -> None:
    with everyday(small_data(), drop_last=True) as loader:
        assert len(loader) == 14
        assert [batch.batch_size for batch in loader] == [BATCH] * 14


def test_its_inputs_are_there_as_pyg_has_them() -> None:
    with everyday(small_data(), input_nodes=[7, 8]) as loader:
        assert loader.input_data.node.tolist() == [7, 8]
        assert loader.input_data.input_type is None
