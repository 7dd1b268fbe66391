"""Loaders do not show the edges to predict if they are told so, and warn where times would."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import pyg, torch

Data, HeteroData = pyg.data.Data, pyg.data.HeteroData

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


@pytest.fixture
def data() -> Any:
    make = torch.Generator().manual_seed(0)
    edges = torch.randint(60, (2, 400), generator=make)
    both = torch.cat([edges, edges.flip(0)], 1)
    return Data(x=torch.rand(60, 2), edge_index=both, time=torch.arange(800), num_nodes=60)


def pairs(ends: Any) -> set[tuple[int, int]]:
    return set(map(tuple, ends.T.tolist()))


@pytest.mark.parametrize("exclude", ["self", "reverse"])
@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
def test_no_link_is_among_the_edges_of_its_batch(
    data: Any, exclude: Any, subgraph_type: str
) -> None:
    with ps.LinkNeighborLoader(
        data,
        [5, 5],
        data.edge_index[:, :200],
        neg_sampling="binary",
        strict=True,
        exclude=exclude,
        subgraph_type=subgraph_type,
        batch_size=50,
        seed=0,
    ) as loader:
        for batch in loader:
            labelled = batch.n_id[batch.edge_label_index]
            links, seen = pairs(labelled[:, :50]), pairs(batch.n_id[batch.edge_index])
            assert not links & seen
            if exclude == "reverse":
                assert not pairs(labelled[:, :50].flip(0)) & seen
            assert not pairs(labelled[:, 50:]) & pairs(data.edge_index), "strict"


def test_fan_outs_stay_full(data: Any) -> None:
    """Every node that has 3 other in-edges gives 3."""
    with ps.LinkNeighborLoader(
        data, [3], data.edge_index[:, :40], exclude="self", batch_size=40, seed=0
    ) as loader:
        batch = next(iter(loader))
    links = pairs(batch.n_id[batch.edge_label_index])
    for place, node in enumerate(batch.n_id[: batch.num_sampled_nodes[0]].tolist()):
        sources = data.edge_index[0, data.edge_index[1] == node].tolist()
        left = [source for source in sources if (source, node) not in links]
        assert int((batch.edge_index[1] == place).sum()) == min(3, len(left))


def test_without_exclude_the_links_are_sampled_as_by_pyg(data: Any) -> None:
    with ps.LinkNeighborLoader(data, [-1], data.edge_index[:, :40], batch_size=40) as loader:
        batch = next(iter(loader))
    links = pairs(batch.n_id[batch.edge_label_index])
    assert links <= pairs(batch.n_id[batch.edge_index])


def test_times_of_the_links_own_edges_are_warned_of(data: Any) -> None:
    del data.x
    given: dict[str, Any] = {"time_attr": "time", "edge_label_time": data.time[:20]}
    ends = data.edge_index[:, :20]
    with pytest.warns(UserWarning, match=r"edge_label_time\[0\] is 0.*exclude='self'"):
        ps.LinkNeighborLoader(data, [5], ends, **given)
    with pytest.warns(UserWarning, match="exclude='self'"):
        ps.LinkNeighborLoader(data, [5], time_attr="time", edge_label_time=data.time)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.LinkNeighborLoader(data, [5], ends, exclude="self", **given)
        ps.LinkNeighborLoader(data, [5], ends, time_attr="time", edge_label_time=data.time[:20] - 1)


def test_what_is_not_there_to_exclude_or_check_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="exclude is 'edge'; expected 'self' or 'reverse', or"):
        ps.LinkNeighborLoader(data, [5], exclude="edge")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="strict is True, and there are no negatives"):
        ps.LinkNeighborLoader(data, [5], strict=True)
    types = HeteroData()
    types["user"].num_nodes, types["item"].num_nodes = 2, 2
    types[BUYS].edge_index = torch.zeros(2, 1, dtype=torch.long)
    with pytest.raises(ValueError, match="no type has its ends swapped"):
        ps.LinkNeighborLoader(types, [5], BUYS, exclude="reverse")


def test_anchors_have_times() -> None:
    data = HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = 3, 2
    data[BUYS].edge_index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    data[BUYS].when = torch.tensor([1, 2, 3])
    options: dict[str, Any] = {
        "supervision": BUYS,
        "positive": torch.tensor([[0], [1], [1]]),
        "time_attr": "when",
        "batch_size": 3,
    }
    times = torch.tensor([2, 9, 9])
    with ps.ABLPLoader(data, [-1], anchor_time=times, **options) as loader:
        batch = next(iter(loader))
    assert batch["user"].seed_time.tolist() == [2, 9, 9]
    # Item 0 is seen at time 2, without the purchase by its anchor.
    assert batch[BUYS].e_id.tolist() == [1]
    with pytest.raises(ValueError, match="time_attr is given and anchor_time is not"):
        ps.ABLPLoader(data, [-1], **options)


@pytest.mark.parametrize("name", ["PPRLoader", "HGTLoader"])
def test_loaders_that_know_no_times_say_so_by_name(name: str, data: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} got an unexpected .*'time_attr'"):
        getattr(ps, name)(data, *([[5], None] if name == "HGTLoader" else []), time_attr="time")
