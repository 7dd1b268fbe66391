"""Layers with budgets: PyG's arguments and batches, by any number of workers."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.epochs import (
    Data,
    HeteroData,
    digest,
    digests,
    epochs,
    pyg,
    small_data,
    through_json,
    torch,
    typed_data,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

PyGLoader = pyg.loader.HGTLoader
BATCH = 8
SAMPLES = [6, 4]


def everyday(data: Any, **options: Any) -> Any:
    wanted = {"num_samples": SAMPLES, "batch_size": BATCH, "shuffle": True, "seed": 7}
    if "input_nodes" not in options:
        wanted["input_nodes"] = ("paper", data["paper"].train_mask)
    return ps.HGTLoader(data, **(wanted | options))


def among(data: Any, batch: Any, kind: Any) -> list[int]:
    """The edges of the graph whose both ends are in a batch. No node here has more than 50."""
    upper, lower = data[kind].edge_index
    inside = np.isin(upper, batch[kind[0]].n_id) & np.isin(lower, batch[kind[2]].n_id)
    return np.flatnonzero(inside).tolist()  # type: ignore[no-any-return]


def test_batches_are_the_same_whoever_makes_them() -> None:
    """CONTRACT 5."""
    data = typed_data()
    with everyday(data) as inline, everyday(data, num_workers=2) as loader:
        expected = epochs(inline)
        assert epochs(loader) == expected
        assert len({name for epoch in expected for name in epoch}) == 2 * len(inline)


def test_a_batch_has_what_pyg_gives_it() -> None:
    """Seeds first, as many of each type as asked for at most, and all edges among them."""
    data = typed_data()
    data["paper", "cites", "paper"].edge_attr = torch.arange(600)
    nodes = data["paper"].train_mask.nonzero().view(-1)
    with everyday(data, shuffle=False) as loader:
        for step, batch in enumerate(loader):
            seeds = nodes[step * BATCH : (step + 1) * BATCH]
            assert isinstance(batch, HeteroData)
            assert batch["paper"].batch_size == len(seeds)
            assert torch.equal(batch["paper"].n_id[: len(seeds)], seeds)
            assert torch.equal(batch["paper"].input_id, seeds)  # of a mask
            for name, most in (("paper", len(seeds) + 10), ("author", 10), ("topic", 0)):
                assert batch[name].num_nodes <= most
                assert len(batch[name].n_id.unique()) == batch[name].num_nodes
                assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
            assert batch["author"].num_nodes == 10
            for kind in data.edge_types:
                upper, lower = batch[kind].edge_index
                ends = torch.stack([batch[kind[0]].n_id[upper], batch[kind[2]].n_id[lower]])
                assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])
                assert sorted(batch[kind].e_id.tolist()) == among(data, batch, kind)
            cites = batch["paper", "cites", "paper"]
            assert torch.equal(cites.edge_attr, cites.e_id)
            assert "num_sampled_nodes" not in batch["paper"]


def test_layers_reach_no_further_than_there_are_layers() -> None:
    """A chain: of 0 ← 1 ← 2 ← 3, two layers reach 2."""
    data = HeteroData()
    data["a"].num_nodes = 4
    data["a", "to", "a"].edge_index = torch.tensor([[1, 2, 3], [0, 1, 2]])
    with everyday(data, num_samples=[5, 5], input_nodes=("a", [0])) as loader:
        (batch,) = loader
        assert batch["a"].n_id.tolist() == [0, 1, 2]
        assert batch["a", "to", "a"].e_id.tolist() == [0, 1]


def test_a_type_that_no_edges_lead_to_is_there_without_rows() -> None:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(10, 3), torch.rand(4, 2)
    data["paper", "cites", "paper"].edge_index = torch.randint(10, (2, 30))
    with everyday(data, num_samples=[2], input_nodes="paper", batch_size=2) as loader:
        for batch in loader:
            assert set(batch.node_types) == {"paper", "author"}
            assert batch["author"].x.shape == (0, 2)
            assert batch["author"].num_nodes == 0


def test_each_type_may_have_its_own_numbers() -> None:
    samples = {"paper": [0, 0], "author": [3, 2], "topic": [1, 1]}
    with everyday(typed_data(), num_samples=samples) as loader:
        for batch in loader:
            assert batch["paper"].num_nodes == batch["paper"].batch_size
            assert batch["author"].num_nodes == 5


def test_a_homogeneous_graph_will_do() -> None:
    data = small_data()
    with everyday(data, input_nodes=[3, 8]) as loader:
        (batch,) = loader
        assert isinstance(batch, Data)
        assert batch.num_nodes == 2 + sum(SAMPLES)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_it_takes_every_argument_that_pyg_takes_in_the_same_order() -> None:
    theirs = list(inspect.signature(PyGLoader.__init__).parameters.values())
    ours = inspect.signature(ps.HGTLoader.__init__).parameters
    for mine, yours in zip(ours.values(), theirs[:-1], strict=False):
        assert (mine.name, mine.default) == (yours.name, yours.default)


def test_it_is_one_of_pyg_s_to_those_who_ask() -> None:
    with everyday(typed_data()) as loader:
        assert isinstance(loader, PyGLoader)
        assert isinstance(loader, torch.utils.data.DataLoader)
        assert str(loader) == "HGTLoader()"
        assert loader.dataset == range(60)
        assert loader.input_data.input_type == "paper"
        assert loader.input_data.node.tolist() == list(range(0, 120, 2))
        assert loader.node_sampler.num_samples is loader.num_samples
        assert loader.node_sampler.edge_permutation is None


def test_what_the_sampler_puts_out_can_be_changed_before_features_are_joined() -> None:
    def without_citations(out: Any) -> Any:
        kind = ("paper", "cites", "paper")
        out.row[kind], out.col[kind], out.edge[kind] = (out.edge[kind][:0],) * 3
        return out

    with everyday(typed_data(), transform_sampler_output=without_citations) as loader:
        for batch in loader:
            assert batch["paper", "cites", "paper"].num_edges == 0
            assert batch["author", "writes", "paper"].num_edges > 0
            assert batch["paper"].x.size(0) == batch["paper"].num_nodes


@pytest.mark.parametrize("per_worker", [True, False])
def test_a_batch_out_of_turn_is_one_wherever_it_is_filtered(per_worker: bool) -> None:
    data = typed_data()
    with (
        everyday(data, filter_per_worker=per_worker) as loader,
        everyday(data, filter_per_worker=None) as usual,
    ):
        batch = loader([12, 3])
        assert batch["paper"].n_id[:2].tolist() == [24, 6]
        assert digest(batch) == digest(usual([12, 3]))


def test_it_goes_on_where_it_was_with_another_number_of_workers() -> None:
    data = typed_data()
    with everyday(data) as one, everyday(data, num_workers=2) as two:
        expected = epochs(one, 2)[1]
        one.set_epoch(1)
        for step, _ in enumerate(one, 1):
            if step == 3:
                break
        two.load_state_dict(through_json(one.state_dict()))
        assert digests(two) == expected[3:]


def test_a_loader_made_again_of_its_attributes_gives_the_same() -> None:
    with everyday(typed_data(), transform=lambda batch: batch) as loader:
        names = set(inspect.signature(ps.HGTLoader.__init__).parameters) - {"self", "options"}
        given = {name: vars(loader)[name] for name in names}
        with ps.HGTLoader(**given, batch_size=BATCH, shuffle=True, seed=7) as again:
            assert digests(again) == digests(loader)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"num_samples": 5}, "num_samples is 5; expected an integer for each layer"),
        ({"num_samples": [1.5]}, "num_samples is .*an integer for each layer"),
        ({"num_samples": [-1]}, r"num_samples\[0\]"),
        (
            {"num_samples": {"paper": [1]}},
            "Not all node types specified: num_samples lacks 'author'",
        ),
        ({"num_samples": {"paper": 1, "author": 1, "topic": 1}}, r"num_samples\['paper'\] is 1"),
        ({"num_samples": {"venue": [1]}}, "num_samples names node type 'venue'"),
        (
            {"num_samples": {"paper": [1], "author": [1, 2], "topic": [1]}},
            "Number of layers must be the same",
        ),
        ({"input_nodes": None}, "input_nodes lacks a node type"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_loader_is_made(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        everyday(typed_data(), **given)


def test_numbers_by_type_are_refused_where_there_are_no_types() -> None:
    with pytest.raises(ValueError, match="this graph has only one: give a list"):
        everyday(small_data(), num_samples={"paper": [1]}, input_nodes=None)
