"""Which weights and times a sampler accepts: PyG's words for what PyG refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.graph.derived import ByTime, OutEdges, WeightSums
from penstock.sampling import NeighborSampler
from penstock.sampling.criteria import Criteria
from penstock.sampling.neighbor import NeighborKind
from penstock.sampling.spec import NeighborSpec

RATES = ("user", "rates", "item")
LIKED = ("item", "liked_by", "user")


def line(**options: Any) -> Graph:
    return Graph.from_coo([[1, 2], [0, 0]], 3, **options)


def shop(**options: Any) -> Graph:
    edges = {RATES: [[0, 1, 1, 2], [0, 0, 1, 1]], LIKED: [[0, 1], [2, 0]]}
    return Graph.from_coo(edges, num_nodes={"user": 3, "item": 2}, **options)


def refused(graph: Graph, message: str, **options: Any) -> None:
    """By the sampler, and by the check that comes before anything is made."""
    with pytest.raises(ValueError, match=message):
        NeighborSampler(graph, [1], **options)
    bare: dict[str, Any] = {"node_attributes": (), "edge_attributes": ()}
    with pytest.raises(ValueError, match=message):
        NeighborKind().check(NeighborSpec(num_neighbors=(1,), **bare, **options), graph)


def test_a_weight_that_no_edges_have() -> None:
    graph = line(edge_attr=[[1.0], [2.0]], edge_weight=[1, 2])
    message = "weight_attr is 'cost', which no edges have; they have: 'edge_attr', 'edge_weight'"
    refused(graph, message, weight_attr="cost")
    refused(line(), "they have: none", weight_attr="cost")


def test_a_weight_of_nodes_is_none_of_edges() -> None:
    refused(line(node_attrs={"cost": [1, 2, 3]}), "no edges have", weight_attr="cost")


@pytest.mark.parametrize("values", [[[1.0], [2.0]], [True, False]])
def test_weights_that_are_no_numbers(values: list[Any]) -> None:
    graph = line(edge_attrs={"cost": values})
    refused(graph, r"The weight attribute 'cost' is .* expected numbers", weight_attr="cost")


def test_a_time_that_nobody_has() -> None:
    message = (
        "The time attribute 'when' is neither a node-level or edge-level attribute; "
        "nodes have: 'x'; edges have: 'edge_time'"
    )
    refused(line(x=[[1.0]] * 3, edge_time=[1, 2]), message, time_attr="when")


def test_a_time_that_both_nodes_and_edges_have() -> None:
    graph = line(node_attrs={"when": [1, 2, 3]}, edge_attrs={"when": [1, 2]})
    message = "The time attribute 'when' holds both node-level and edge-level information"
    refused(graph, message, time_attr="when")


def test_a_time_that_a_node_type_and_an_edge_type_have() -> None:
    graph = shop(node_attrs={"user": {"when": [1, 2, 3]}}, edge_attrs={LIKED: {"when": [1, 2]}})
    refused(graph, "holds both node-level and edge-level", time_attr="when")


@pytest.mark.parametrize("times", [[0.5, 1.5, 2.5], [[1], [2], [3]], [True, False, True]])
def test_times_that_are_no_whole_numbers(times: list[Any]) -> None:
    graph = line(node_attrs={"when": np.array(times)})
    refused(graph, r"The time attribute 'when' is .*; expected int64 or int32", time_attr="when")


def test_fractions_of_time_name_their_type() -> None:
    graph = shop(node_attrs={"user": {"when": [1, 2, 3]}, "item": {"when": [0.5, 1.0]}})
    refused(graph, r"'when' of 'item' is float64 \[2\]", time_attr="when")


def test_weights_together_with_times() -> None:
    graph = line(edge_weight=[1, 2], node_time=[1, 2, 3], edge_time=[1, 2])
    message = "Biased node temporal sampling not yet supported"
    refused(graph, message, weight_attr="edge_weight", time_attr="time")
    message = "Biased edge temporal sampling not yet supported"
    refused(graph, message, weight_attr="edge_weight", time_attr="edge_time")


def test_a_strategy_that_nobody_knows() -> None:
    message = "No valid temporal strategy found: temporal_strategy is 'first'"
    with pytest.raises(ValueError, match=message):
        NeighborSampler(line(), [1], temporal_strategy="first")


def test_an_unknown_direction() -> None:
    with pytest.raises(ValueError, match="direction is 'up'"):
        Criteria.of(line(), "up")  # type: ignore[arg-type]


# --- seeds and their times ------------------------------------------------------------------------


def test_edge_times_need_times_of_the_seeds() -> None:
    sampler = NeighborSampler(line(edge_time=[1, 2]), [1], time_attr="edge_time")
    with pytest.raises(ValueError, match="Seed time needs to be specified"):
        sampler.sample(np.array([0]))


def test_seeds_of_a_type_without_time_need_times() -> None:
    graph = shop(node_attrs={"user": {"when": [1, 2, 3]}})
    sampler = NeighborSampler(graph, [1], time_attr="when")
    with pytest.raises(ValueError, match="nodes of 'item' have no 'when' themselves"):
        sampler.sample({"item": np.array([0])})
    assert sampler.sample({"user": np.array([0])}).trees is not None


def test_times_of_seeds_where_time_does_not_count() -> None:
    message = "Received conflicting 'times' and 'time_attr' arguments"
    with pytest.raises(ValueError, match=message):
        NeighborSampler(line(), [1]).sample(np.array([0]), times=np.array([1]))


def test_times_by_a_type_that_is_not_there() -> None:
    sampler = NeighborSampler(shop(edge_time={RATES: [1] * 4}), [1], time_attr="edge_time")
    with pytest.raises(ValueError, match="times name node type 'shop'"):
        sampler.sample({"item": np.array([0])}, times={"shop": np.array([1])})


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_seed_that_is_no_node_is_not_asked_for_its_time(bad: int) -> None:
    sampler = NeighborSampler(line(node_time=[1, 2, 3]), [1], time_attr="time")
    with pytest.raises(ValueError, match=rf"seeds\[0\]\[1\] is {bad}; expected 0 <= id < 3"):
        sampler.sample(np.array([0, bad]))


# --- what must be made first ----------------------------------------------------------------------


def test_plain_sampling_along_in_edges_needs_nothing() -> None:
    assert NeighborKind().needs(NeighborSpec(num_neighbors=(1,)), shop()) == []


def test_weights_are_needed_of_the_types_that_have_them() -> None:
    graph = shop(edge_weight={RATES: [1, 2, 3, 4]})
    spec = NeighborSpec(num_neighbors=(1,), weight_attr="edge_weight", direction="out")
    sums = WeightSums(RATES, "edge_weight", "out")
    assert NeighborKind().needs(spec, graph) == [OutEdges(RATES), sums, OutEdges(LIKED)]


def test_the_order_of_time_is_needed_of_the_types_that_lead_to_it() -> None:
    graph = shop(node_attrs={"user": {"when": [1, 2, 3]}})
    spec = NeighborSpec(num_neighbors=(1,), time_attr="when")
    assert NeighborKind().needs(spec, graph) == [ByTime(RATES, "when", True, "in")]


def test_a_sampler_makes_nothing_more_than_it_said_it_needs() -> None:
    graph = shop(edge_time={RATES: [1, 2, 3, 4]})
    spec = NeighborSpec(num_neighbors=(1,), time_attr="edge_time", direction="out")
    for derived in NeighborKind().needs(spec, graph):
        graph.derived(derived)
    made = set(graph.arrays)
    NeighborSampler(graph, [1], time_attr="edge_time", direction="out")
    assert set(graph.arrays) == made


def test_more_hops_and_harder_choices_cost_more() -> None:
    graph = shop(edge_weight={RATES: [1, 2, 3, 4]})
    one = NeighborKind().draws(NeighborSpec(num_neighbors=(1,)), graph, 10, "user")
    two = NeighborKind().draws(NeighborSpec(num_neighbors=(1, 1)), graph, 10, "user")
    by_type = ((RATES, (1, 1)), (LIKED, (1, 1)))
    same = NeighborKind().draws(NeighborSpec(by_type=by_type), graph, 10, "user")
    hard = NeighborKind().draws(
        NeighborSpec(num_neighbors=(1,), weight_attr="edge_weight"), graph, 10, "user"
    )
    assert 10 < one < two == same
    assert one < hard
