"""Links by PyG's arguments, with and without negatives, by any number of workers."""

from __future__ import annotations

import inspect
from itertools import islice
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import BATCH, NODES, digests, epochs, pyg, small_data, torch, typed_data

pytestmark = pytest.mark.usefixtures("no_leaks")

PyGLoader = pyg.loader.LinkNeighborLoader
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def links(data: Any, **options: Any) -> Any:
    wanted: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": BATCH, "seed": 7}
    if isinstance(data, pyg.data.Data):
        wanted |= {"edge_label_index": data.edge_index[:, :100], "shuffle": True}
    return ps.LinkNeighborLoader(data, **(wanted | options))


@pytest.mark.parametrize("negatives", [None, "binary", "triplet"])
def test_batches_are_the_same_whoever_makes_them(negatives: Any) -> None:
    """CONTRACT 5."""
    data = small_data()
    options = {"neg_sampling": negatives}
    with links(data, **options) as inline, links(data, num_workers=2, **options) as loader:
        assert epochs(loader) == epochs(inline)


def test_it_takes_every_argument_that_pyg_takes_in_the_same_order() -> None:
    theirs = list(inspect.signature(PyGLoader.__init__).parameters.values())
    ours = inspect.signature(ps.LinkNeighborLoader.__init__).parameters
    for mine, yours in zip(ours.values(), theirs[:-1], strict=False):
        assert (mine.name, mine.default) == (yours.name, yours.default)


def test_its_name_its_length_and_its_dataset() -> None:
    with links(small_data()) as loader:
        assert isinstance(loader, PyGLoader)
        assert str(loader) == "LinkNeighborLoader()"
        assert loader.dataset == range(100)
        assert len(loader) == 7
        for name in inspect.signature(ps.LinkNeighborLoader.__init__).parameters:
            assert name in ("self", "options") or name in vars(loader)


def test_a_batch_has_its_links_in_local_ids() -> None:
    """CONTRACT 46."""
    data = small_data()
    with links(data, shuffle=False) as loader:
        for step, batch in enumerate(loader):
            given = data.edge_index[:, step * BATCH : min((step + 1) * BATCH, 100)]
            assert torch.equal(batch.n_id[batch.edge_label_index], given)
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert batch.input_id.tolist() == list(range(100))[step * BATCH : (step + 1) * BATCH]
            assert "edge_label" not in batch


def test_all_edges_are_links_if_none_are_given() -> None:
    data = small_data()
    with links(data, edge_label_index=None, shuffle=False, batch_size=1000) as loader:
        assert loader.dataset == range(data.num_edges)
        found = torch.cat([batch.n_id[batch.edge_label_index] for batch in loader], dim=1)
        assert torch.equal(found, data.edge_index)


@pytest.mark.parametrize("amount", [1, 2.5])
def test_binary_negatives_have_label_0(amount: float) -> None:
    """CONTRACT 46."""
    with links(small_data(), neg_sampling={"mode": "binary", "amount": amount}) as loader:
        for batch in loader:
            given = len(batch.input_id)
            negatives = -int(-given * amount // 1)
            assert batch.edge_label.tolist() == [1.0] * given + [0.0] * negatives
            assert batch.edge_label.dtype == torch.float
            assert batch.edge_label_index.shape == (2, given + negatives)


def test_the_old_word_for_binary_negatives_is_known() -> None:
    data = small_data()
    with links(data, neg_sampling_ratio=1.0) as old, links(data, neg_sampling="binary") as new:
        assert digests(old) == digests(new)


@pytest.mark.parametrize("least", [0, 1])
def test_labels_make_room_for_negatives(least: int) -> None:
    """CONTRACT 46: shifted by one if the least is 0, whichever batch that is in."""
    label = least + torch.arange(100) % 5
    options = {"edge_label": label, "neg_sampling": "binary", "shuffle": False}
    with links(small_data(), **options) as loader:
        for batch in loader:
            given = len(batch.input_id)
            assert torch.equal(batch.edge_label[:given], label[batch.input_id] + 1 - least)
            assert (batch.edge_label[given:] == 0).all()
            assert batch.edge_label.dtype == label.dtype
        adhoc = loader([3, 4])
        assert adhoc.edge_label[:2].tolist() == (label[[3, 4]] + 1 - least).tolist()


@pytest.mark.parametrize("amount", [1, 3])
def test_triplets_have_destinations_that_are_none(amount: int) -> None:
    """CONTRACT 46."""
    data = small_data()
    wanted = {"mode": "triplet", "amount": amount}
    with links(data, neg_sampling=wanted, shuffle=False) as loader:
        for batch in loader:
            given = data.edge_index[:, batch.input_id]
            assert torch.equal(batch.n_id[batch.src_index], given[0])
            assert torch.equal(batch.n_id[batch.dst_pos_index], given[1])
            shape = (len(batch.input_id),) if amount == 1 else (len(batch.input_id), amount)
            assert batch.dst_neg_index.shape == shape


def test_negatives_follow_weights() -> None:
    weight = torch.zeros(NODES)
    weight[[7, 9]] = 1.0
    wanted = pyg.sampler.NegativeSampling("triplet", 2, src_weight=None, dst_weight=weight)
    with links(small_data(), neg_sampling=wanted) as loader:
        for batch in loader:
            assert set(batch.n_id[batch.dst_neg_index].flatten().tolist()) <= {7, 9}


def test_labels_of_triplets_are_refused_in_pyg_s_words() -> None:
    with pytest.raises(ValueError, match="'edge_label' needs to be undefined for 'triplet'"):
        links(small_data(), edge_label=torch.ones(100), neg_sampling="triplet")


@pytest.mark.parametrize("given", [{"time_attr": "time"}, {"edge_label_time": torch.arange(100)}])
def test_times_go_with_an_attribute_and_the_other_way_round(given: Any) -> None:
    data = small_data()
    data.time = torch.arange(NODES)
    with pytest.raises(ValueError, match="Both arguments must be provided for temporal"):
        links(data, **given)


def test_nothing_is_later_than_its_link() -> None:
    data = small_data()
    data.time = torch.arange(NODES)
    times = torch.full((100,), 200)
    options = {"time_attr": "time", "edge_label_time": times, "neg_sampling": "binary"}
    with links(data, **options) as loader:
        for batch in islice(loader, 3):
            assert (batch.edge_label_time == 200).all()
            ends = batch.edge_label_index.flatten()
            found = torch.ones(batch.num_nodes, dtype=torch.bool)
            found[ends] = False
            assert (batch.time[found] <= 200).all()


@pytest.mark.parametrize("kind", [CITES, WRITES])
def test_links_of_an_edge_type(kind: Any) -> None:
    data = typed_data()
    given = data[kind].edge_index[:, :40]
    options = {"edge_label_index": (kind, given), "neg_sampling": "binary"}
    with links(data, **options) as loader:
        for batch in loader:
            count = len(batch[kind].input_id)
            source, destination = batch[kind].edge_label_index[:, :count]
            assert torch.equal(batch[kind[0]].n_id[source], given[0, batch[kind].input_id])
            assert torch.equal(batch[kind[2]].n_id[destination], given[1, batch[kind].input_id])
            assert len(batch[kind].edge_label) == 2 * count


def test_triplets_of_an_edge_type_lie_on_the_node_stores() -> None:
    data = typed_data()
    with links(data, edge_label_index=WRITES, neg_sampling="triplet", num_workers=1) as loader:
        for batch in islice(loader, 3):
            assert "src_index" in batch["author"]
            assert {"dst_pos_index", "dst_neg_index"} <= set(batch["paper"].keys())
            assert "edge_label_index" not in batch[WRITES]


def test_its_inputs_are_there_as_pyg_has_them() -> None:
    data = small_data()
    with links(data, edge_label=torch.arange(100)) as loader:
        assert torch.equal(loader.input_data.row, data.edge_index[0, :100])
        assert torch.equal(loader.input_data.label, torch.arange(100))
        assert loader.link_sampler.num_neighbors.num_hops == 2


def test_a_position_is_gone_on_from() -> None:
    data = small_data()
    options = {"neg_sampling": "binary"}
    with links(data, **options) as loader, links(data, **options) as other:
        expected = digests(loader)
        other.load_state_dict(loader.state_dict() | {"epoch": 0, "delivered": 4})
        assert digests(other) == expected[4:]
