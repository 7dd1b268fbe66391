"""Specs as people write them: what stands for tuples, and what is said of what stands for none."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import numpy as np
import pytest

from penstock.sampling.kinds import check
from penstock.sampling.normalize import settled
from penstock.sampling.spec import (
    ABLPSpec,
    BuiltInSpec,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    SubgraphSpec,
    WalkSpec,
)
from tests.sampling.graphs import CITES, HOUSES, WRITES, library

HOPS = NeighborSpec()


class Ways(Enum):
    OUT = "out"


def spec_with(kind: type[Any], **values: Any) -> Any:
    """Fields of whatever type."""
    return kind(**values)


WRONG: list[tuple[BuiltInSpec, str]] = [
    (spec_with(NeighborSpec, direction="both"), "direction is 'both'; expected 'in' or 'out'"),
    (
        spec_with(NeighborSpec, num_neighbors=3),
        "num_neighbors is 3; expected one fan-out per hop, such as (15, 10, 5)",
    ),
    (
        spec_with(NeighborSpec, num_neighbors={3, 4}),
        "num_neighbors is {3, 4}; expected one fan-out per hop, such as (15, 10, 5)",
    ),
    (
        spec_with(NeighborSpec, num_neighbors={CITES: [3]}),
        "num_neighbors is {('paper', 'cites', 'paper'): [3]}; expected one fan-out per hop, such "
        "as (15, 10, 5): by_type has those of each type",
    ),
    (
        spec_with(NeighborSpec, num_neighbors=(1, "2")),
        "num_neighbors[1] is '2'; num_neighbors is to be one fan-out per hop, such as (15, 10, 5)",
    ),
    (
        spec_with(NeighborSpec, subgraph_type="whole"),
        "subgraph_type is 'whole'; expected 'directional', 'bidirectional' or 'induced'",
    ),
    (spec_with(NeighborSpec, replace="no"), "replace is 'no'; expected True or False"),
    (
        spec_with(NeighborSpec, weight_attr=3),
        "weight_attr is 3; expected the name of an edge attribute, or None",
    ),
    (
        spec_with(NeighborSpec, node_attributes="x"),
        "node_attributes is 'x'; expected names of attributes, such as ('x',), or None for all",
    ),
    (
        spec_with(NeighborSpec, by_type={("a", "b"): [1]}),
        "by_type[0][0] is ('a', 'b'); by_type is to be fan-outs for each edge type, such as "
        "{('user', 'buys', 'item'): (10, 5)}",
    ),
    (
        spec_with(HGTSpec, by_type=[1]),
        "by_type[0] is 1; by_type is to be numbers for each node type, such as "
        "{'user': (512, 256)}",
    ),
    (spec_with(LinkSpec, neighbors=[3]), "neighbors is [3]; expected a NeighborSpec"),
    (
        spec_with(LinkSpec, neighbors=spec_with(NeighborSpec, node_caps=3)),
        "neighbors.node_caps is 3; expected one number per hop, such as (1000, 5000)",
    ),
    (spec_with(LinkSpec, neighbors=HOPS, amount="2"), "amount is '2'; expected a number"),
    (
        spec_with(ABLPSpec, neighbors=HOPS, supervision=("user", "buys", "item")),
        "supervision[0] is 'user'; supervision is to be edge types, such as "
        "(('user', 'buys', 'item'),)",
    ),
    (spec_with(SubgraphSpec, num_hops=1.5), "num_hops is 1.5; expected an integer"),
    (
        spec_with(PPRSpec, max_fetch_iterations="x"),
        "max_fetch_iterations is 'x'; expected an integer, or None",
    ),
    (spec_with(WalkSpec, walk_length=True), "walk_length is True; expected an integer"),
    (
        spec_with(HGTSpec, num_samples=7),
        "num_samples is 7; expected one number per layer, such as (512, 256)",
    ),
]


@pytest.mark.parametrize(("spec", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_field_of_another_kind_is_named_with_its_value_and_what_is_expected(
    spec: BuiltInSpec, words: str
) -> None:
    """CONTRACT 61."""
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        settled(spec)


def test_a_long_value_is_told_in_part() -> None:
    with pytest.raises(ValueError, match=r"^direction is 'x{199}…; expected 'in' or 'out'$"):
        settled(spec_with(NeighborSpec, direction="x" * 5000))


WRITTEN: list[tuple[BuiltInSpec, BuiltInSpec]] = [
    (
        spec_with(NeighborSpec, num_neighbors=[3, 2], node_caps=np.array([9, 9])),
        NeighborSpec(num_neighbors=(3, 2), node_caps=(9, 9)),
    ),
    (
        spec_with(NeighborSpec, by_type={CITES: [3, 2], WRITES: (1, np.int64(1))}),
        NeighborSpec(by_type=((CITES, (3, 2)), (WRITES, (1, 1)))),
    ),
    (
        spec_with(NeighborSpec, direction=Ways.OUT, node_attributes=["x"], replace=np.True_),
        NeighborSpec(direction="out", node_attributes=("x",), replace=True),
    ),
    (
        spec_with(LinkSpec, neighbors=spec_with(NeighborSpec, num_neighbors=[np.int32(1)])),
        LinkSpec(neighbors=NeighborSpec(num_neighbors=(1,))),
    ),
    (
        spec_with(ABLPSpec, neighbors=HOPS, supervision=[list(CITES)], positive=[CITES]),
        ABLPSpec(neighbors=HOPS, supervision=(CITES,), positive=(CITES,)),
    ),
    (
        spec_with(PPRSpec, alpha=np.float32(0.5), channels=[["a", [CITES], 1]]),
        PPRSpec(alpha=0.5, channels=(("a", (CITES,), 1.0),)),
    ),
    (
        spec_with(WalkSpec, path=[CITES], walk_length=np.int64(4)),
        WalkSpec(path=(CITES,), walk_length=4),
    ),
    (
        spec_with(HGTSpec, by_type={"paper": [5], "author": [5], "venue": [5]}),
        HGTSpec(by_type=(("paper", (5,)), ("author", (5,)), ("venue", (5,)))),
    ),
]


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_lists_mappings_and_numpys_numbers_are_what_they_stand_for(
    written: BuiltInSpec, meant: BuiltInSpec
) -> None:
    found = settled(written)
    assert found == meant
    assert repr(found) == repr(meant)  # 1 equals 1.0, and a list in a tuple could hide
    assert settled(meant) == meant


def test_what_is_written_so_is_checked_as_what_it_stands_for() -> None:
    fanouts = {CITES: [3], WRITES: [2], HOUSES: [1]}
    check(spec_with(NeighborSpec, by_type=fanouts), library())
    with pytest.raises(ValueError, match="Not all edge types specified"):
        check(spec_with(NeighborSpec, by_type={CITES: [3]}), library())
