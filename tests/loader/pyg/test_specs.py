"""PyG's arguments of how to sample: what they become, and what is refused in PyG's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.loader.reading import (
    Data,
    HeteroData,
    link_spec,
    neighbor_spec,
    pyg,
    source_of,
    torch,
)

NumNeighbors = pyg.sampler.NumNeighbors
NegativeSampling = pyg.sampler.NegativeSampling
SubgraphType = pyg.sampler.base.SubgraphType

EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
CITES, WRITES, BACK = (
    ("paper", "to", "paper"),
    ("author", "to", "paper"),
    ("paper", "rev_to", "author"),
)


def plain(**attributes: Any) -> Any:
    return source_of(Data(x=torch.rand(4, 3), edge_index=EDGES, **attributes))


def typed() -> Any:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(4, 3), torch.rand(4, 3)
    data["paper"].time = torch.arange(4)
    for kind in (CITES, WRITES, BACK):
        data[kind].edge_index = EDGES
    data[CITES].since = data[WRITES].since = torch.arange(5)
    return source_of(data)


class TestNumNeighbors:
    @pytest.mark.parametrize(
        "given",
        [
            [3, -1, 0],
            (3, -1, 0),
            NumNeighbors([3, -1, 0]),
            np.array([3, -1, 0]),
            torch.tensor([3, -1, 0]),
        ],
    )
    def test_a_list_is_for_all_edge_types(self, given: Any) -> None:
        for source in (plain(), typed()):
            spec = neighbor_spec(source, given)
            assert (spec.num_neighbors, spec.by_type) == ((3, -1, 0), None)

    def test_no_hops_are_a_way_to_sample(self) -> None:
        assert neighbor_spec(plain(), []).num_neighbors == ()

    def test_a_dict_has_a_list_for_each_edge_type(self) -> None:
        given = {CITES: [1, 2], BACK: [0, 0], WRITES: [-1, 3]}
        found = neighbor_spec(typed(), given).by_type
        assert found == ((CITES, (1, 2)), (WRITES, (-1, 3)), (BACK, (0, 0)))

    def test_two_names_name_the_type_that_pyg_takes_them_for(self) -> None:
        given = {("paper", "paper"): [1], ("author", "paper"): [2], BACK: [3]}
        found = neighbor_spec(typed(), given).by_type
        assert found == ((CITES, (1,)), (WRITES, (2,)), (BACK, (3,)))

    def test_a_default_is_for_the_types_that_are_not_named(self) -> None:
        given = NumNeighbors({CITES: [5]}, default=[2])
        assert neighbor_spec(typed(), given).by_type == (
            (CITES, (5,)),
            (WRITES, (2,)),
            (BACK, (2,)),
        )

    def test_one_object_serves_several_graphs(self) -> None:
        """PyG's remembers the types it was first asked for."""
        given = NumNeighbors({CITES: [5]}, default=[2])
        assert given.get_values([CITES]) == {CITES: [5]}
        assert len(neighbor_spec(typed(), given).by_type or ()) == 3

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({("paper", "to", "film"): [1]}, "Not all edge types specified in 'num_neighbors'"),
            ({CITES: [1]}, "Missing number of neighbors for edge type"),
            (
                {CITES: [1], WRITES: [1, 2], BACK: [1]},
                "Number of hops must be the same across all edge types",
            ),
            (5, "num_neighbors is 5; expected an integer for each hop"),
            ([1.5], r"num_neighbors is \[1.5\]; expected an integer for each hop"),
            ([1, -2], r"num_neighbors.*-2"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, given: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            neighbor_spec(typed(), given)

    def test_lists_by_type_need_types(self) -> None:
        with pytest.raises(ValueError, match="but this graph has only one: give a list"):
            neighbor_spec(plain(), {CITES: [1]})


class TestNeighbors:
    @pytest.mark.parametrize("given", ["bidirectional", SubgraphType.bidirectional])
    def test_subgraph_types_are_enums_or_words(self, given: Any) -> None:
        assert neighbor_spec(plain(), [1], subgraph_type=given).subgraph_type == "bidirectional"

    def test_another_word_is_refused_in_pygs_words(self) -> None:
        with pytest.raises(ValueError, match="'all' is not a valid SubgraphType"):
            neighbor_spec(plain(), [1], subgraph_type="all")

    def test_undirected_means_induced_with_pygs_warning(self) -> None:
        with pytest.warns(UserWarning, match="'directed' argument in 'MyLoader' is deprecated"):
            spec = neighbor_spec(plain(), [1], directed=False, asked_by="MyLoader")
        assert spec.subgraph_type == "induced"

    def test_trees_have_no_induced_subgraphs(self) -> None:
        with pytest.raises(ValueError, match="'disjoint' sampling not supported"):
            neighbor_spec(plain(), [1], subgraph_type="induced", disjoint=True)

    def test_options_are_handed_on(self) -> None:
        source = plain(w=torch.rand(5))
        spec = neighbor_spec(source, [1], replace=True, disjoint=True, weight_attr="w")
        assert (spec.replace, spec.disjoint, spec.weight_attr) == (True, True, "w")
        spec = neighbor_spec(typed(), [1], time_attr="time", temporal_strategy="last")
        assert (spec.time_attr, spec.temporal_strategy) == ("time", "last")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"time_attr": "age"}, "time attribute 'age' is neither a node-level or edge-level"),
            ({"time_attr": "time", "temporal_strategy": "first"}, "No valid temporal strategy"),
            ({"weight_attr": "w"}, "Tried to collect 'w' but did not find any occurrences"),
            ({"time_attr": "time", "weight_attr": "since"}, "temporal sampling not yet supported"),
        ],
    )
    def test_attributes_that_do_not_do_are_refused(self, options: Any, words: str) -> None:
        kind = KeyError if "weight_attr" in options and "time_attr" not in options else ValueError
        with pytest.raises(kind, match=words):
            neighbor_spec(typed(), [1], **options)

    def test_a_time_of_nodes_and_of_edges_is_refused_in_pygs_words(self) -> None:
        data = HeteroData()
        data["paper"].both = torch.arange(4)
        data[CITES].edge_index, data[CITES].both = EDGES, torch.arange(5)
        data["paper"].num_nodes = 4
        with pytest.raises(ValueError, match="'both' holds both node-level and edge-level"):
            neighbor_spec(source_of(data), [1], time_attr="both")

    def test_weights_of_stores_are_refused_as_pyg_does(self) -> None:
        data = HeteroData()
        data["paper"].x, data[CITES].edge_index = torch.rand(4, 3), EDGES
        with pytest.raises(NotImplementedError, match="'weight_attr' argument not yet supported"):
            neighbor_spec(source_of((data, data)), [1], weight_attr="w")


class TestNegatives:
    def spec(self, **options: Any) -> Any:
        return link_spec(plain(), neighbor_spec(plain(), [1]), **options)

    def test_none_are_drawn_unless_asked_for(self) -> None:
        assert self.spec().negatives == "none"
        assert self.spec(neg_sampling_ratio=0.0).negatives == "none"

    def test_a_ratio_means_binary(self) -> None:
        spec = self.spec(neg_sampling_ratio=1.5)
        assert (spec.negatives, spec.amount) == ("binary", 1.5)

    @pytest.mark.parametrize(
        "given",
        [
            NegativeSampling("triplet", 2),
            {"mode": "triplet", "amount": 2},
            ("triplet", 2),
            {"mode": "triplet", "amount": 2.0},
        ],
    )
    def test_they_are_given_in_any_way_that_pyg_takes(self, given: Any) -> None:
        spec = self.spec(neg_sampling=given)
        assert (spec.negatives, spec.amount) == ("triplet", 2.0)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            (("binary", 0), "'amount' needs to be positive"),
            (("triplet", 1.5), "'amount' needs to be an integer"),
            (("both", 1), "'both' is not a valid NegativeSamplingMode"),
        ],
    )
    def test_what_pyg_refuses_is_refused(self, given: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            self.spec(neg_sampling=given)
