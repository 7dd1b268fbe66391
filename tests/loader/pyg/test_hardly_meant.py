"""Arguments that Python would take and that can hardly be meant: refused, or warned of."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.reading import Data, HeteroData, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES = 6
EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
MASK = torch.tensor([1, 0, 1, 0, 0, 0])


def data(**attributes: Any) -> Any:
    return Data(**{"x": torch.rand(NODES, 2), "edge_index": EDGES, **attributes})


def typed() -> Any:
    found = HeteroData()
    found["a"].x, found["b"].x = torch.rand(NODES, 2), torch.rand(NODES, 2)
    found["a", "to", "b"].edge_index = EDGES
    return found


class TestBooleans:
    def test_a_value_that_is_no_boolean_is_refused_by_name(self) -> None:
        names = (
            "shuffle drop_last pin_memory persistent_workers in_order replace disjoint directed "
            "is_sorted filter_per_worker"
        )
        for name in names.split():
            for value in ("yes", "False", 2, [], 1.0, np.array([True, False])):
                given: dict[str, Any] = {name: value}
                with pytest.raises(ValueError, match=f"^{name} is ") as error:
                    ps.NeighborLoader(data(), [2], **given)
                assert str(error.value) == f"{name} is {value!r}; expected True or False"

    @pytest.mark.parametrize(
        ("loader", "name"),
        [
            (lambda **given: ps.PPRLoader(data(), **given), "include_sampled_edges"),
            (lambda **given: ps.PPRLoader(data(), **given), "enable_residual_topup"),
            (lambda **given: ps.HGTLoader(typed(), [2], "a", **given), "is_sorted"),
            (lambda **given: ps.LinkNeighborLoader(data(), [2], **given), "replace"),
            (lambda **given: ps.ABLPLoader(data(), [2], positive=EDGES.T, **given), "disjoint"),
        ],
    )
    def test_every_loader_refuses_them(self, loader: Any, name: str) -> None:
        with pytest.raises(ValueError, match=f"^{name} is 'no'; expected True or False"):
            loader(**{name: "no"})

    @pytest.mark.parametrize("value", [True, 1, np.True_, torch.tensor(True)])
    def test_what_means_true_is_taken(self, value: Any) -> None:
        with ps.NeighborLoader(data(), [1], shuffle=value, drop_last=value, batch_size=4) as loader:
            assert len(loader) == 1

    def test_no_word_about_the_order_is_no_shuffling(self) -> None:
        with ps.NeighborLoader(data(), [1], shuffle=None, batch_size=NODES) as loader:
            assert next(iter(loader)).n_id.tolist() == list(range(NODES))


class TestMasksOfIntegers:
    @pytest.mark.parametrize("mask", [MASK, MASK.byte(), MASK.numpy(), MASK.tolist()])
    def test_loaders_warn_and_read_ids_as_pyg_does(self, mask: Any) -> None:
        with pytest.warns(
            UserWarning, match=r"input_nodes has a 0 or a 1 for each of the 6"
        ) as told:
            loader = ps.NeighborLoader(data(), [1], mask, batch_size=NODES)
        assert told[0].filename == __file__
        with loader:
            assert next(iter(loader)).n_id[:NODES].tolist() == MASK.tolist()

    def test_so_it_is_with_types_and_with_anchors(self) -> None:
        with pytest.warns(UserWarning, match="input_nodes has a 0 or a 1"):
            ps.NeighborLoader(typed(), [1], ("a", MASK))
        labels = torch.zeros(NODES, 1, dtype=torch.long)
        with pytest.warns(UserWarning, match="anchors has a 0 or a 1"):
            ps.ABLPLoader(data(), [1], MASK, positive=labels)

    def test_backends_and_splits_warn_too(self) -> None:
        with pytest.warns(UserWarning, match="train has a 0 or a 1"):
            graph = ps.Graph.from_coo(EDGES, NODES, train=MASK)
        spec = ps.NeighborSpec(num_neighbors=(1,))
        with graph, ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
            with pytest.warns(UserWarning, match="sampler_input has a 0 or a 1"):
                backend.register_input("all", MASK.numpy(), batch_size=2)

    @pytest.mark.parametrize("nodes", [MASK.bool(), MASK[:4], torch.arange(NODES), MASK + 1])
    def test_masks_of_bool_and_other_ids_are_fine(self, nodes: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ps.NeighborLoader(data(), [1], nodes)


class TestData:
    @pytest.mark.parametrize(
        "make", [lambda given: ps.NeighborLoader(given, [1], [0]), ps.Graph.from_pyg]
    )
    def test_labels_of_some_of_the_nodes_are_warned_of(self, make: Any) -> None:
        with pytest.warns(UserWarning, match=r"data\.y has 3 rows, and there are 6 nodes") as told:
            make(data(y=torch.arange(3)))
        assert told[0].filename == __file__

    @pytest.mark.parametrize("y", [torch.arange(NODES), torch.tensor([3]), torch.tensor(3), None])
    def test_labels_of_nodes_or_of_the_graph_are_fine(self, y: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ps.NeighborLoader(data(y=y), [1], [0])

    @pytest.mark.parametrize(
        "make", [lambda given: ps.NeighborLoader(given, [1], [0]), ps.Graph.from_pyg]
    )
    @pytest.mark.parametrize("edges", [None, torch.empty(2, 0, dtype=torch.long)])
    def test_data_without_edges_are_warned_of(self, edges: Any, make: Any) -> None:
        with pytest.warns(UserWarning, match="data has no edges"):
            make(data(edge_index=edges))

    def test_one_type_without_edges_is_fine(self) -> None:
        given = typed()
        given["b", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ps.NeighborLoader(given, [1], "a")
        given["a", "to", "b"].edge_index = torch.empty(2, 0, dtype=torch.long)
        with pytest.warns(UserWarning, match="data has no edges"):
            ps.NeighborLoader(given, [1], "a")
