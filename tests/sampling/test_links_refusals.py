"""What of links is refused, in PyG's words where it refuses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.sampling.links import LinkSeedBuilder, check_link
from penstock.sampling.spec import LinkSpec, NeighborSpec
from tests.sampling.graphs import library, web
from tests.sampling.linking import request_of, spec_of, started

EDGES = np.array([[3, 5], [5, 3]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negatives": "both"}, "negatives is 'both'; expected one of none, binary, triplet"),
        ({"negatives": "binary", "amount": 0}, r"'amount' needs to be positive .*got 0\)"),
        ({"negatives": "binary", "amount": -1.5}, r"'amount' needs to be positive .*got -1.5\)"),
        ({"negatives": "binary", "amount": float("nan")}, "'amount' needs to be positive"),
        ({"negatives": "binary", "amount": float("inf")}, "'amount' needs to be positive"),
        ({"negatives": "triplet", "amount": 1.5}, r"needs to be an integer .*\(got 1.5\)"),
        ({"strict": True}, "strict is set, and there are no negatives to check"),
    ],
)
def test_negatives_that_make_no_sense_are_refused_at_once(
    options: dict[str, Any], message: str
) -> None:
    spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=(1,)), **options)
    with pytest.raises(ValueError, match=message):
        check_link(spec, web())
    with pytest.raises(ValueError, match=message):
        LinkSeedBuilder(web(), spec)


def test_labels_of_triplets_are_refused() -> None:
    request = request_of(EDGES, columns={"label": np.ones(2)})
    with pytest.raises(ValueError, match="'edge_label' needs to be undefined for 'triplet'-based"):
        started(web(), spec_of(1, negatives="triplet"), request)


def test_times_without_an_attribute_are_refused() -> None:
    request = request_of(EDGES, columns={"time": np.ones(2, int)})
    message = "'edge_label_time' is set while 'time_attr' is not set. Both arguments must be"
    with pytest.raises(ValueError, match=message):
        started(web(), spec_of(1), request)


def test_an_attribute_without_times_is_refused() -> None:
    graph = Graph.from_coo([[0], [1]], 9, node_time=np.arange(9))
    message = "'edge_label_time' is not set while 'time_attr' is set"
    with pytest.raises(ValueError, match=message):
        started(graph, spec_of(1, time_attr="time"), request_of(EDGES))


def test_times_that_are_no_integers_are_refused_for_negatives() -> None:
    graph = Graph.from_coo([[0], [1]], 9, node_time=np.arange(9) / 2)
    with pytest.raises(ValueError, match=r"time_attr 'time' of '' is float64\[9\]; expected one"):
        check_link(spec_of(1, negatives="binary", time_attr="time"), graph)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_weights_that_do_not_fit_are_refused_by_name(mode: str) -> None:
    for sums, message in (
        (np.arange(3), r"dst_weight of '': sums must be int64 of shape \[200\]"),
        (np.zeros(200, int), "dst_weight of '': sums end with 0"),
        (np.arange(200)[::-1].copy(), "dst_weight of '': sums must be running sums"),
    ):
        request = request_of(EDGES, tables={"dst_weight": sums})
        with pytest.raises(ValueError, match=message):
            started(web(), spec_of(1, negatives=mode), request)


def test_an_end_that_is_no_node_is_refused() -> None:
    with pytest.raises(ValueError, match=r"destinations\[1\] is 200; expected 0 <= id < 200"):
        started(web(), spec_of(1, negatives="binary"), request_of([[0, 1], [1, 200]]))


def test_an_edge_type_between_types_that_are_not_there_is_refused() -> None:
    kind = ("paper", "is by", "somebody")
    with pytest.raises(ValueError, match="this graph has the node types 'paper', 'author'"):
        started(library(), spec_of(1), request_of(EDGES, kind))
