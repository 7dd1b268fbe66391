"""What matters most to each seed: by brute force on small graphs, by any number of workers."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.epochs import (
    Data,
    HeteroData,
    digests,
    epochs,
    small_data,
    through_json,
    torch,
    typed_data,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
ABOUT = ("paper", "about", "topic")
TYPES = ("paper", "author", "topic")
BATCH = 8
ALL = 10_000


def everyday(data: Any, **options: Any) -> Any:
    nodes = None if isinstance(data, Data) else ("paper", data["paper"].train_mask)
    wanted = {"input_nodes": nodes, "batch_size": BATCH, "shuffle": True, "seed": 7}
    return ps.PPRLoader(data, **(wanted | {"max_ppr_nodes": 10} | options))


def exact(num_nodes: int, edges: Any, alpha: float) -> Any:
    """[seed, node]: the probability that a walk along in-edges stops there."""
    sources, destinations = edges
    counts = np.zeros((num_nodes, num_nodes))
    np.add.at(counts, (destinations, sources), 1)
    degrees = counts.sum(axis=1, keepdims=True)
    steps = np.divide(counts, degrees, out=np.zeros_like(counts), where=degrees > 0)
    return alpha * np.linalg.inv(np.eye(num_nodes) - (1 - alpha) * steps)


def as_one(data: Any) -> tuple[dict[str, int], int, Any]:
    """A heterogeneous graph without types: where each type begins, all nodes, all edges."""
    begins, total = {}, 0
    for name in data.node_types:
        begins[name], total = total, total + data[name].num_nodes
    edges = [
        data[kind].edge_index.numpy() + np.array([[begins[kind[0]]], [begins[kind[2]]]])
        for kind in data.edge_types
    ]
    return begins, total, np.concatenate(edges, axis=1)


def rows_of(batch: Any, kind: Any = None) -> list[tuple[int, int, float, float]]:
    """Of each edge: the seed and the node, as ids of the graph, the score and the nearness."""
    store = batch if kind is None else batch[kind]
    seeds, nodes = (batch, batch) if kind is None else (batch[kind[0]], batch[kind[2]])
    upper, lower = store.edge_index
    ends = zip(seeds.n_id[upper].tolist(), nodes.n_id[lower].tolist(), strict=True)
    return [(*pair, *said[:2]) for pair, said in zip(ends, store.edge_attr.tolist(), strict=True)]


@pytest.mark.parametrize("typed", [False, True], ids=["homogeneous", "typed"])
def test_batches_are_the_same_whoever_makes_them(typed: bool) -> None:
    """CONTRACT 5: also where the neighbours that are looked at are drawn."""
    data = typed_data() if typed else small_data()
    options = {"include_sampled_edges": typed, "num_neighbors_per_hop": 3}
    with everyday(data, **options) as inline, everyday(data, num_workers=2, **options) as loader:
        expected = epochs(inline)
        assert epochs(loader) == expected
        assert len({name for epoch in expected for name in epoch}) == 2 * len(inline)


def test_scores_are_those_of_the_definition() -> None:
    """CONTRACT 48: of a homogeneous graph the edges are `edge_index`, seeds above."""
    data, alpha = small_data(), 0.3
    scores = exact(data.num_nodes, data.edge_index.numpy(), alpha)
    options = {"alpha": alpha, "eps": 1e-9, "max_ppr_nodes": 20, "input_nodes": [5, 17, 5]}
    with everyday(data, shuffle=False, **options) as loader:
        (batch,) = loader
        assert isinstance(batch, Data)
        assert batch.n_id[: batch.batch_size].tolist() == [5, 17, 5]
        assert torch.bincount(batch.edge_index[0]).tolist() == [20, 20, 20]
        for place, seed in enumerate([5, 17, 5]):
            found = batch.edge_attr[batch.edge_index[0] == place, 0].numpy()
            assert np.allclose(found, np.sort(scores[seed])[::-1][:20], atol=2e-6)
        for seed, node, score, _ in rows_of(batch):
            assert abs(score - scores[seed, node]) < 2e-6


def test_scores_over_several_types_are_those_of_the_graph_as_one() -> None:
    """CONTRACT 48: (seeds' type, "ppr", type) has the best of each type, and nearness."""
    data, alpha = typed_data(), 0.4
    begins, total, edges = as_one(data)
    scores = exact(total, edges, alpha)
    with everyday(data, alpha=alpha, eps=1e-9) as loader:
        for batch in loader:
            assert isinstance(batch, HeteroData)
            for name in TYPES:
                kind = ("paper", "ppr", name)
                rows = rows_of(batch, kind)
                assert batch[kind].edge_attr.dtype == torch.float32
                assert batch[kind].edge_index.dtype == torch.int64
                for seed, node, score, near in rows:
                    assert abs(score - scores[begins["paper"] + seed, begins[name] + node]) < 2e-6
                    assert (near == 1.0) == (name == "paper" and seed == node)
            assert torch.bincount(batch["paper", "ppr", "author"].edge_index[0]).max() <= 10


def test_a_batch_has_no_edges_of_the_graph_unless_they_are_asked_for() -> None:
    with everyday(typed_data()) as loader:
        for batch in loader:
            assert batch.edge_types == [("paper", "ppr", name) for name in TYPES]
            assert all("edge_index" in store for store in batch.edge_stores)
            batch.validate()


def test_what_belongs_to_an_edge_type_as_a_whole_stays() -> None:
    data = typed_data()
    data[CITES].source = "the library"
    with everyday(data) as loader:
        batch = next(iter(loader))
        assert batch[CITES].source == "the library"
        assert "edge_index" not in batch[CITES]
        assert WRITES not in batch.edge_types


def test_sampled_edges_are_edges_of_the_graph_among_its_nodes() -> None:
    data = typed_data()
    data[CITES].edge_attr = torch.arange(600)
    with everyday(data, include_sampled_edges=True) as loader:
        for batch in loader:
            for kind in (CITES, WRITES, ABOUT):
                upper, lower = batch[kind].edge_index
                ends = torch.stack([batch[kind[0]].n_id[upper], batch[kind[2]].n_id[lower]])
                assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])
            assert batch[CITES].num_edges > 0
            assert torch.equal(batch[CITES].edge_attr, batch[CITES].e_id)


def test_attributes_of_nodes_come_along_and_edge_attr_is_what_is_said_of_the_edges() -> None:
    data = small_data()
    data.edge_weight = torch.rand(data.num_edges)
    with everyday(data) as loader:
        for batch in loader:
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert torch.equal(batch.y, data.y[batch.n_id])
            assert batch.edge_attr.shape == (batch.edge_index.size(1), 2)
            assert "edge_weight" not in batch
            assert batch.name == "small"


def test_out_edges_are_followed_where_told() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    found = {}
    for edge_dir in ("in", "out"):
        with everyday(data, edge_dir=edge_dir, input_nodes=[1], eps=1e-9) as loader:
            (batch,) = loader
            found[edge_dir] = rows_of(batch)
    assert found == {
        "in": [(1, 1, 0.5, 1.0), (1, 0, 0.25, 0.5)],
        "out": [(1, 1, 0.5, 1.0), (1, 2, 0.25, 0.5)],
    }


@pytest.mark.filterwarnings("ignore:data has no edges")
def test_isolated_nodes_matter_to_themselves() -> None:
    with everyday(Data(x=torch.rand(3, 2)), shuffle=False) as loader:
        (batch,) = loader
        assert rows_of(batch) == [(node, node, 0.5, 1.0) for node in range(3)]


def test_options_reach_the_sampler() -> None:
    """CONTRACT 48: rounds, nodes, top-up, neighbours looked at."""
    data, seeds = small_data(), {"input_nodes": [3], "eps": 1e-4, "max_ppr_nodes": ALL}

    def rows(**options: Any) -> list[tuple[int, int, float, float]]:
        with everyday(data, **(seeds | options)) as loader:
            (batch,) = loader
            return rows_of(batch)

    usual = rows()
    assert min(near for *_, near in usual) < 0.5
    assert min(near for *_, near in rows(max_fetch_iterations=1)) == 0.5
    assert len(rows(max_ppr_nodes=3)) == 3
    assert len(rows(enable_residual_topup=False)) < len(usual)
    assert sum(near == 0.5 for *_, near in rows(num_neighbors_per_hop=2)) <= 2


def test_channels_follow_their_edge_types_and_are_told_apart() -> None:
    """CONTRACT 48: as a list or by name; three columns for each."""
    data = typed_data()
    listed = [("cited", [CITES], 0.5), ("written", [CITES, WRITES], 0.5)]
    named = {name: (kinds, share) for name, kinds, share in listed}
    with everyday(data, channels=listed) as one, everyday(data, channels=named) as two:
        assert digests(two) == digests(one)
        batch = next(iter(one))
        assert batch["paper", "ppr", "paper"].edge_attr.size(1) == 2 + 2 * 3
        first = batch["paper", "ppr", "author"].edge_attr[:, 2:5]
        assert len(first) > 0
        assert first.abs().sum() == 0  # citations lead to no author
    with everyday(data, channels={"cited": ([CITES], 1)}) as loader:
        assert all(batch["paper", "ppr", "author"].num_edges == 0 for batch in loader)


def test_a_batch_out_of_turn_has_scores_too() -> None:
    with everyday(typed_data(), input_nodes="paper") as loader:
        batch = loader([12, 3])
        assert batch["paper"].n_id[:2].tolist() == batch["paper"].input_id.tolist() == [12, 3]
        best = {row[0]: row[1] for row in reversed(rows_of(batch, ("paper", "ppr", "paper")))}
        assert best == {12: 12, 3: 3}


def test_it_goes_on_where_it_was_with_another_number_of_workers() -> None:
    data, options = typed_data(), {"num_neighbors_per_hop": 3}
    with everyday(data, **options) as one, everyday(data, num_workers=2, **options) as two:
        expected = epochs(one, 2)[1]
        one.set_epoch(1)
        for step, _ in enumerate(one, 1):
            if step == 3:
                break
        two.load_state_dict(through_json(one.state_dict()))
        assert digests(two) == expected[3:]


def test_a_loader_made_again_of_its_attributes_gives_the_same() -> None:
    with everyday(typed_data(), alpha=0.2, transform=lambda batch: batch) as loader:
        names = set(inspect.signature(ps.PPRLoader.__init__).parameters) - {"self", "options"}
        given = {name: vars(loader)[name] for name in names}
        with ps.PPRLoader(**given, batch_size=BATCH, shuffle=True, seed=7) as again:
            assert digests(again) == digests(loader)
        assert str(loader) == "PPRLoader()"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"alpha": 0}, "alpha is 0"),
        ({"alpha": "most"}, "alpha is 'most'; expected a number"),
        ({"eps": -1.0}, "eps is -1"),
        ({"max_ppr_nodes": -1}, "max_ppr_nodes"),
        ({"num_neighbors_per_hop": 0.5}, "num_neighbors_per_hop is 0.5"),
        ({"max_fetch_iterations": -1}, "max_fetch_iterations"),
        ({"edge_dir": "both"}, "edge_dir is 'both'; expected 'in' or 'out'"),
        ({"channels": "cites"}, "channels is 'cites'; expected a name, edge types and a share"),
        ({"channels": {"a": ([CITES], 0.5)}}, "sum to 0.5; expected 1.0"),
        ({"channels": {"a": ([("paper", "to", "paper")], 1)}}, "which the graph has not"),
        ({"channels": [CITES]}, "channels is to be a name, edge types and a share for each"),
        ({"channels": {"a": 1}}, "channels is to be a name, edge types and a share for each"),
        ({"input_nodes": None}, "input_nodes lacks a node type"),
        ({"input_nodes": ("paper", [120])}, r"input_nodes\[0\] is 120; expected 0 <= id < 120"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_loader_is_made(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        everyday(typed_data(), **given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"include_sampled_edges": True}, "include_sampled_edges needs a heterogeneous graph"),
        ({"channels": [("a", [CITES], 1.0)]}, "channels are of edge types"),
    ],
)
def test_what_needs_types_is_refused_where_there_are_none(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        everyday(small_data(), **given)


def test_an_unknown_argument_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="PPRLoader got an unexpected keyword argument 'epsilon'"):
        everyday(small_data(), epsilon=0.1)
