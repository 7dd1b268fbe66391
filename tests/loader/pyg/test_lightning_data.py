"""PyG's data modules for Lightning, with our loaders: the same arguments, attributes and stages."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import digests, everyday, small_data, torch
from tests.loader.lightning_net import Net, trainer

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore"),  # Lightning's, of few workers and the like
]

OPTIONS: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 16, "seed": 7}
VAL = slice(300, 340)


def split_data() -> Any:
    data = small_data()
    data.val_mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    data.val_mask[VAL] = True
    data.test_idx = torch.arange(340, 400)
    return data


def pyg_s(name: str) -> Any:
    import torch_geometric.data.lightning

    return getattr(torch_geometric.data.lightning, name)


@pytest.mark.parametrize("name", ["LightningNodeData", "LightningLinkData"])
def test_arguments_and_attributes_are_pyg_s(name: str) -> None:
    ours, theirs = getattr(ps, name), pyg_s(name)
    assert issubclass(ours, theirs)
    assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]
    data = small_data()
    given: dict[str, Any] = {"num_neighbors": [2], "batch_size": 8, "num_workers": 2}
    expected, found = vars(theirs(data, **given)), vars(ours(data, **given))
    assert found.keys() == expected.keys()
    for attribute in ("loader", "val_dataloader", "test_dataloader", "kwargs"):
        assert found[attribute] == expected[attribute]


@pytest.mark.parametrize("source", ["data", "graph", "path"])
def test_every_stage_reads_its_own_nodes(source: str, tmp_path: Path) -> None:
    """Found in the data: as a mask, as ids, or as the splits of a graph."""
    data: Any = split_data()
    net, pred = Net(), torch.arange(50, 90)
    with ps.Graph.from_pyg(data) as graph:
        graph.save(tmp_path / "small.graph")
        sources = {"data": data, "graph": graph, "path": tmp_path / "small.graph"}
        module = ps.LightningNodeData(sources[source], input_pred_nodes=pred, **OPTIONS)
        name = {} if source == "data" else {"input_nodes": "train"}
        with everyday(sources[source], **name) as loader:
            expected = [digests(loader) for _ in range(2)]
        run = trainer()
        run.fit(net, module)
        assert net.seen == dict(enumerate(expected))
        assert len(net.tried[0]) == 3  # 40 nodes in batches of 16
        assert torch.cat(run.predict(net, module)).tolist() == list(range(40))  # positions
        tested = [batch.n_id[: batch.batch_size] for batch in module.val_dataloader()]
        assert torch.cat(tested).tolist() == [*range(400)[VAL]]
        if source == "data":
            tested = [batch.n_id[: batch.batch_size] for batch in module.test_dataloader()]
            assert torch.cat(tested).tolist() == [*range(340, 400)]
        else:  # a graph has no split of `test_idx`
            assert module.test_dataloader is None
        del module, run


def test_nodes_of_the_only_type_that_has_them_are_found() -> None:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(9, 2), torch.randn(7, 2)
    data["b"].train_mask = torch.arange(7) < 3
    data["a", "to", "b"].edge_index = torch.stack([torch.arange(7), torch.arange(7)])
    options: dict[str, Any] = {"num_neighbors": [2], "batch_size": 2}
    for source in (data, ps.Graph.from_pyg(data)):
        module = ps.LightningNodeData(source, **options)
        sizes = [batch["b"].batch_size for batch in module.train_dataloader()]
        assert sizes == [2, 1]
        if isinstance(source, ps.Graph):
            source.close()
    data["a"].train_mask = torch.arange(9) < 3
    with pytest.raises(ValueError, match=r"'train_mask' is there for 'a', 'b': say which"):
        ps.LightningNodeData(data, **options)


def test_evaluation_has_arguments_of_its_own() -> None:
    module = ps.LightningNodeData(
        split_data(), **OPTIONS, eval_loader_kwargs={"num_neighbors": [-1], "batch_size": 40}
    )
    train, val = module.train_dataloader(), module.val_dataloader()
    assert (train.num_neighbors, train.batch_size) == ([4, 3], 16)
    assert (val.num_neighbors, val.batch_size, len(val)) == ([-1], 40, 1)


def test_another_loader_s_sampler_will_do_and_pyg_s_will_not() -> None:
    from torch_geometric.sampler import NeighborSampler

    data = split_data()
    with everyday(data) as loader:
        module = ps.LightningNodeData(data, node_sampler=loader.node_sampler, batch_size=16, seed=7)
        assert digests(module.train_dataloader()) == digests(loader)
    with pytest.raises(ValueError, match=r"sampler of LightningNodeData is a NeighborSampler"):
        ps.LightningNodeData(data, node_sampler=NeighborSampler(data, [2]), batch_size=16)


def test_evaluation_has_arguments_of_its_own_beside_another_loader_s_sampler() -> None:
    data = split_data()
    with everyday(data) as loader:
        sampler = loader.node_sampler
    module = ps.LightningNodeData(
        data,
        node_sampler=sampler,
        batch_size=16,
        seed=7,
        eval_loader_kwargs={"num_neighbors": [-1]},
    )
    assert module.train_dataloader().num_neighbors is sampler.num_neighbors
    with ps.NeighborLoader(data, [-1], data.val_mask, batch_size=16, seed=7) as expected:
        assert digests(module.val_dataloader()) == digests(expected)
    with pytest.warns(UserWarning, match=r"Ignoring the arguments \['num_neighbors'\]"):
        module = ps.LightningNodeData(data, node_sampler=sampler, num_neighbors=[-1])
    assert module.train_dataloader().num_neighbors is sampler.num_neighbors


def test_times_of_inputs_go_with_another_loader_s_sampler() -> None:
    data = small_data()
    data.when = torch.arange(data.num_nodes)
    nodes, times = torch.arange(40), torch.full((40,), 200)
    options: dict[str, Any] = {"batch_size": 16, "seed": 7}
    with ps.NeighborLoader(
        data, [4], nodes, times, time_attr="when", shuffle=True, **options
    ) as loader:
        module = ps.LightningNodeData(
            data, nodes, times, node_sampler=loader.node_sampler, **options
        )
        assert digests(module.train_dataloader()) == digests(loader)


def test_edges_of_each_stage_have_their_labels_and_negatives() -> None:
    data = small_data()
    ends = data.edge_index
    module = ps.LightningLinkData(
        data,
        input_train_edges=ends[:, :64],
        input_val_edges=ends[:, 64:96],
        input_val_labels=torch.ones(32),
        num_neighbors=[3],
        neg_sampling="binary",
        batch_size=16,
        seed=7,
        num_workers=1,
    )
    options: dict[str, Any] = {"neg_sampling": "binary", "batch_size": 16, "seed": 7}
    with ps.LinkNeighborLoader(data, [3], ends[:, :64], shuffle=True, **options) as loader:
        assert digests(module.train_dataloader()) == digests(loader)
    with ps.LinkNeighborLoader(data, [3], ends[:, 64:96], torch.ones(32), **options) as loader:
        assert digests(module.val_dataloader()) == digests(loader)
    assert module.test_dataloader is None


def test_the_whole_graph_can_be_the_only_batch() -> None:
    data = split_data()
    (batch,) = ps.LightningNodeData(data, loader="full").train_dataloader()
    assert batch.num_nodes == data.num_nodes
    with ps.Graph.from_pyg(data) as graph, pytest.raises(ValueError, match="'full', but data is"):
        ps.LightningNodeData(graph, loader="full")


def test_what_cannot_be_meant_is_refused() -> None:
    data = small_data()
    with pytest.raises(ValueError, match=r"loader of LightningNodeData is 'ppr'; expected one of"):
        ps.LightningNodeData(data, loader="ppr", num_neighbors=[2])
    with pytest.raises(TypeError, match="LightningLinkData lacks num_neighbors"):
        ps.LightningLinkData(data)
