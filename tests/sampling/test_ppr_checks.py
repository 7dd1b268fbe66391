"""What is refused of a PPR spec, at once and by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import Graph
from penstock.sampling.ppr import PPRSampler, check_ppr
from penstock.sampling.spec import PPRSpec
from tests.sampling.graphs import CITES, WRITES, library, web


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha is 0; expected a number"),
        ({"eps": -1.0}, "eps is -1.0"),
        ({"max_ppr_nodes": -5}, "max_ppr_nodes is -5"),
        ({"max_ppr_nodes": "many"}, "max_ppr_nodes is 'many'"),
        ({"num_neighbors_per_hop": 0}, "num_neighbors_per_hop is 0"),
        ({"max_fetch_iterations": -2}, "max_fetch_iterations is -2"),
        ({"direction": "up"}, "direction is 'up'; expected 'in' or 'out'"),
        ({"node_attributes": ("z",)}, "node_attributes names 'z'"),
        ({"channels": (("a", (("x", "y", "z"),), 1.0),)}, r"channels\[0\] \('a'\) names edge type"),
        ({"channels": (("a", (), 1.0),)}, "has no edge types to follow"),
        ({"channels": (("a", (CITES, CITES), 1.0),)}, "names an edge type twice"),
        ({"channels": (("a", (CITES,), 0.4),)}, "sum to 0.4; expected 1.0"),
        ({"channels": (("a", (CITES,), 1.5),)}, "is 1.5; expected a number"),
        ({"channels": (("a", (CITES,), 1.0), ("b", (CITES,), 0.0))}, "is 0; expected a positive"),
        (
            {"channels": (("a", (CITES,), 0.5), ("a", (WRITES,), 0.5))},
            r"channels has 'a' twice",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    for act in (check_ppr, lambda spec, graph: PPRSampler(graph, spec)):
        with pytest.raises(ValueError, match=message):
            act(PPRSpec(**options), library())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": (("a", (CITES,), 1.0),)}, "a homogeneous graph has but one"),
        ({"include_sampled_edges": True}, "include_sampled_edges needs a heterogeneous graph"),
    ],
)
def test_what_needs_types_is_refused_without(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_ppr(PPRSpec(**options), web())


def test_an_edge_type_with_the_name_of_the_links_is_refused() -> None:
    graph = Graph.from_coo({("a", "ppr", "b"): np.array([[0], [0]])}, num_nodes={"a": 1, "b": 1})
    with pytest.raises(ValueError, match="the graph has an edge type"):
        check_ppr(PPRSpec(), graph)


def test_channels_that_share_edge_types_are_fine() -> None:
    channels = (("a", (CITES,), 0.5), ("b", (CITES, WRITES), 0.5))
    check_ppr(PPRSpec(channels=channels), library())


def test_defaults_are_fine_for_any_graph() -> None:
    check_ppr(PPRSpec(), web())
    check_ppr(PPRSpec(), library())
