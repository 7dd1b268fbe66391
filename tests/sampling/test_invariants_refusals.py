"""What makes no sense is refused at the door, by name: nothing of it reaches a worker.

Specs and feeds are made as they come from a socket: decoded, so their types are right and their
values are anything.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.graph.schema import EDGE
from penstock.sampling.kinds import check
from penstock.sampling.spec import BuiltInSpec, HGTSpec, LinkSpec, NeighborSpec, PPRSpec
from tests.sampling.from_wire import GRAPHS, HUGE, NOTHING, TYPES, decoded
from tests.sampling.graphs import CITES, HOUSES, WRITES

# The kind, what is said, and a word of the refusal: the field, or PyG's name for it.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("neighbor", {"num_neighbors": [-2]}, r"num_neighbors\[0\] is -2"),
    ("neighbor", {"num_neighbors": [1, HUGE]}, r"num_neighbors\[1\] is 18446744073709551615"),
    ("neighbor", {"num_neighbors": [1] * 100_000}, "num_neighbors"),
    ("neighbor", {"num_neighbors": [2**40], "replace": True}, "num_neighbors"),
    ("neighbor", {"num_neighbors": [1], "by_type": [[EDGE, [1]]]}, "num_neighbors and by_type"),
    ("neighbor", {"num_neighbors": [], "by_type": [[CITES, [1]]]}, "cites"),
    ("neighbor", {"num_neighbors": [], "by_type": []}, "num_neighbors"),
    (
        "neighbor",
        {"num_neighbors": [], "by_type": [[EDGE, [1]], [EDGE, [2]]]},
        "by_type|num_neighbors",
    ),
    ("neighbor", {"node_caps": [-2]}, r"node_caps\[0\] is -2"),
    ("neighbor", {"node_caps": [1, HUGE]}, r"node_caps\[1\]"),
    ("neighbor", {"node_caps": [1, 2, 3]}, "node_caps has 3 numbers; there are 2 hops"),
    (
        "neighbor",
        {"temporal_strategy": "last"},
        "temporal_strategy is 'last', and there is no time",
    ),
    ("neighbor", {"node_attributes": ["nope"]}, "node_attributes names 'nope'"),
    ("neighbor", {"node_attributes": ["n_id"]}, "node_attributes names 'n_id'"),
    ("neighbor", {"edge_attributes": ["x"]}, "edge_attributes names 'x'"),
    ("neighbor", {"weight_attr": "nope"}, "weight_attr is 'nope'"),
    ("neighbor", {"weight_attr": ""}, "weight_attr is ''"),
    ("neighbor", {"weight_attr": "wide"}, "weight attribute 'wide'"),
    ("neighbor", {"weight_attr": "flag"}, "weight attribute 'flag'"),
    ("neighbor", {"time_attr": "nope"}, "time attribute 'nope'"),
    ("neighbor", {"time_attr": "real"}, "time attribute 'real'"),
    ("neighbor", {"time_attr": "x"}, "time attribute 'x'"),
    ("neighbor", {"time_attr": "time", "weight_attr": "edge_weight"}, "weight_attr"),
    ("neighbor", {"subgraph_type": "induced", "disjoint": True}, "disjoint"),
    ("neighbor", {"subgraph_type": "induced", "time_attr": "time"}, "disjoint"),
    ("link", {"negatives": "none", "strict": True}, "strict"),
    ("link", {"negatives": "none", "amount": 3.0}, "amount is 3.0, and there are no negatives"),
    ("link", {"negatives": "binary", "amount": math.nan}, "amount"),
    ("link", {"negatives": "binary", "amount": math.inf}, "amount"),
    ("link", {"negatives": "binary", "amount": -1.0}, "amount"),
    ("link", {"negatives": "binary", "amount": 0}, "amount"),
    ("link", {"negatives": "binary", "amount": 2.0**31}, "amount"),
    ("link", {"negatives": "triplet", "amount": 1.5}, "amount"),
    ("link", {"neighbors": {"type": "neighbor", "num_neighbors": [-5]}}, "num_neighbors"),
    ("link", {"neighbors": {"type": "neighbor", "time_attr": "nope"}}, "time attribute 'nope'"),
    ("subgraph", {"num_hops": -1}, "num_hops is -1"),
    ("subgraph", {"num_hops": HUGE}, "num_hops"),
    ("subgraph", {"node_attributes": ["nope"]}, "node_attributes names 'nope'"),
    ("ablp", {"supervision": []}, "supervision is empty"),
    ("ablp", {"supervision": [CITES]}, r"supervision\[0\]"),
    ("ablp", {"supervision": [EDGE, EDGE], "positive": [EDGE, EDGE]}, "supervision"),
    ("ablp", {"supervision": [EDGE], "positive": []}, "positive has 0"),
    ("ablp", {"supervision": [EDGE], "positive": [CITES]}, r"positive\[0\]"),
    ("ablp", {"supervision": [EDGE], "positive": [EDGE], "negative": [CITES]}, r"negative\[0\]"),
    ("ablp", {"supervision": [EDGE], "positive": [EDGE], "max_labels": -1}, "max_labels"),
    ("ablp", {"supervision": [EDGE], "positive": [EDGE], "max_labels": HUGE}, "max_labels"),
    ("ppr", {"alpha": math.nan}, "alpha"),
    ("ppr", {"alpha": 0.0}, "alpha"),
    ("ppr", {"alpha": 1.5}, "alpha"),
    ("ppr", {"eps": math.nan}, "eps"),
    ("ppr", {"eps": 0.0}, "eps"),
    ("ppr", {"eps": -1.0}, "eps"),
    ("ppr", {"eps": math.inf}, "eps"),
    ("ppr", {"max_ppr_nodes": -1}, "max_ppr_nodes"),
    ("ppr", {"max_ppr_nodes": HUGE}, "max_ppr_nodes"),
    ("ppr", {"num_neighbors_per_hop": 0}, "num_neighbors_per_hop"),
    ("ppr", {"num_neighbors_per_hop": HUGE}, "num_neighbors_per_hop"),
    ("ppr", {"max_fetch_iterations": -1}, "max_fetch_iterations"),
    ("ppr", {"max_fetch_iterations": HUGE}, "max_fetch_iterations"),
    ("ppr", {"channels": [["a", [EDGE], 1.0]]}, "channels"),
    ("ppr", {"include_sampled_edges": True}, "include_sampled_edges"),
    ("walk", {"walk_length": 0}, "walk_length"),
    ("walk", {"walk_length": HUGE}, "walk_length"),
    ("walk", {"walk_length": 2**31 - 1}, "walk_length"),
    ("walk", {"walks_per_node": 0}, "walks_per_node"),
    ("walk", {"walks_per_node": 2**31 - 1}, "walks_per_node"),
    ("walk", {"p": math.nan}, "p is nan"),
    ("walk", {"p": 0.0}, "p is 0"),
    ("walk", {"q": -1.0}, "q is -1"),
    ("walk", {"q": math.inf}, "q is inf"),
    ("walk", {"q": 5e-324}, "q is"),
    ("walk", {"path": []}, "path"),
    ("walk", {"path": [EDGE]}, "path"),
    ("walk", {"edge_attributes": ["edge_weight"]}, "edge_attributes"),
    ("hgt", {"num_samples": [-1]}, r"num_samples\[0\] is -1"),
    ("hgt", {"num_samples": [1, HUGE]}, r"num_samples\[1\]"),
    ("hgt", {"num_samples": [1], "by_type": [["", [1]]]}, "num_samples and by_type"),
    ("hgt", {"num_samples": [], "by_type": [["nope", [1]]]}, "nope"),
    ("hgt", {"num_samples": [], "by_type": [["", [1]], ["", [2]]]}, "by_type|num_samples"),
    ("hgt", {"num_samples": [], "by_type": []}, "by_type lacks ''"),
]
OF_TYPES: list[tuple[str, dict[str, Any], str]] = [
    ("neighbor", {"num_neighbors": [], "by_type": [[WRITES, [1]], [CITES, [1]]]}, "houses"),
    ("neighbor", {"num_neighbors": [], "by_type": [[NOTHING, [1]]]}, "nobody"),
    (
        "neighbor",
        {
            "num_neighbors": [],
            "by_type": [[k, [1] * (1 + (k == CITES))] for k in (WRITES, CITES, HOUSES)],
        },
        "Number of hops",
    ),
    (
        "neighbor",
        {"num_neighbors": [], "by_type": [[k, [1, -7]] for k in (WRITES, CITES, HOUSES)]},
        r"writes.*\[1\] is -7",
    ),
    ("ablp", {"supervision": [CITES, CITES], "positive": None}, "supervision"),
    ("ablp", {"supervision": [CITES, WRITES], "positive": None}, r"supervision\[1\]"),
    ("ablp", {"positive": [WRITES]}, r"positive\[0\]"),
    ("ablp", {"neighbors": {"type": "neighbor", "subgraph_type": "induced"}}, "subgraph_type"),
    (
        "ablp",
        {
            "neighbors": {
                "type": "neighbor",
                "num_neighbors": [1],
                "by_type": [[k, [1]] for k in (WRITES, CITES, HOUSES)],
            }
        },
        "num_neighbors and by_type",
    ),
    ("ablp", {"neighbors": {"type": "neighbor", "num_neighbors": [-9]}}, "-9"),
    ("ppr", {"channels": [["a", [CITES], 0.5]]}, "channels"),
    ("ppr", {"channels": [["a", [], 1.0]]}, r"channels\[0\]"),
    ("ppr", {"channels": [["a", [NOTHING], 1.0]]}, r"channels\[0\]"),
    ("ppr", {"channels": [["a", [CITES], math.nan]]}, r"channels\[0\]"),
    ("ppr", {"channels": [["a", [CITES], -1.0], ["b", [CITES], 2.0]]}, r"channels\[0\]"),
    ("ppr", {"channels": [["a", [CITES], 0.5], ["a", [WRITES], 0.5]]}, "channels"),
    ("ppr", {"channels": [["a", [CITES, CITES], 1.0]]}, r"channels\[0\]"),
    ("walk", {}, "path"),
    ("walk", {"path": []}, "path"),
    ("walk", {"path": [NOTHING]}, r"path\[0\]"),
    ("walk", {"path": [CITES, HOUSES]}, "metapath"),
    ("walk", {"path": [WRITES]}, "walk_length"),
    ("walk", {"path": [CITES], "p": 2.0}, "p is 2"),
    ("hgt", {"num_samples": [], "by_type": [["paper", [1]]]}, "author"),
    (
        "hgt",
        {"num_samples": [], "by_type": [["paper", [1]], ["author", [1]], ["venue", [1, 2]]]},
        "layers",
    ),
]


@pytest.mark.parametrize(("kind", "values", "named"), REFUSED)
def test_a_spec_that_makes_no_sense_is_refused_by_name(
    kind: str, values: dict[str, Any], named: str
) -> None:
    """CONTRACT 61: when the backend is made, not when the first batch fails."""
    spec = decoded(kind, **values)
    with pytest.raises(ValueError, match=named):
        check(spec, GRAPHS[False])


@pytest.mark.parametrize(("kind", "values", "named"), OF_TYPES)
def test_a_spec_that_makes_no_sense_of_types_is_refused_by_name(
    kind: str, values: dict[str, Any], named: str
) -> None:
    """CONTRACT 61: names the type, the hop and the value."""
    spec = decoded(kind, **values)
    with pytest.raises(ValueError, match=named):
        check(spec, GRAPHS[True])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("neighbor", {"num_neighbors": 5}),
        ("neighbor", {"num_neighbors": [1.5]}),
        ("neighbor", {"num_neighbors": [None]}),
        ("neighbor", {"num_neighbors": [[1]]}),
        ("neighbor", {"by_type": [[["a", "b"], [1]]]}),
        ("neighbor", {"by_type": {"a": [1]}}),
        ("neighbor", {"replace": 1}),
        ("neighbor", {"direction": "up"}),
        ("neighbor", {"subgraph_type": "whole"}),
        ("neighbor", {"temporal_strategy": "first"}),
        ("neighbor", {"node_attributes": "x"}),
        ("link", {"neighbors": None}),
        ("link", {"neighbors": TYPES["hgt"]}),
        ("link", {"negatives": "some"}),
        ("link", {"amount": "1"}),
        ("subgraph", {"num_hops": 1.5}),
        ("subgraph", {"direction": ""}),
        ("ablp", {"supervision": None}),
        ("ablp", {"supervision": [["a", "b"]]}),
        ("ablp", {"max_labels": "all"}),
        ("ppr", {"alpha": True}),
        ("ppr", {"channels": [["a", [CITES]]]}),
        ("walk", {"walk_length": 2.5}),
        ("walk", {"path": [["a", "b", "c", "d"]]}),
        ("hgt", {"by_type": [[1, [1]]]}),
        ("hgt", {"type": "unheard of"}),
    ],
)
def test_what_is_no_spec_is_not_decoded_as_one(kind: str, values: dict[str, Any]) -> None:
    """CONTRACT 61: of the wrong type, or of the wrong length."""
    with pytest.raises(msgspec.ValidationError):
        decoded(kind, **values)


ANYTHING = [
    *(None, 5, -1, 2**70, 1.5, math.nan, True, "x", [1], {"a": 1}, object(), np.arange(2)),
    *(("a",), (None,), ("",), ((1,),), ((EDGE, (1,)),)),
]


@pytest.mark.parametrize("value", ANYTHING, ids=lambda value: re.sub(" at 0x.*>", ">", repr(value)))
@pytest.mark.parametrize("kind", TYPES)
def test_whatever_a_field_is_set_to_in_python_is_a_value_error_or_fine(
    kind: str, value: Any
) -> None:
    """CONTRACT 61: nobody decodes what is written in Python, and it may be of any type."""
    positive = {"positive": None, "supervision": [EDGE]} if kind == "ablp" else {}
    whole = decoded(kind, **positive)
    for field in whole.__struct_fields__:
        with contextlib.suppress(ValueError):
            check(msgspec.structs.replace(whole, **{field: value}), GRAPHS[False])


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (NeighborSpec(num_neighbors=5), "num_neighbors"),  # type: ignore[arg-type]
        (NeighborSpec(num_neighbors=(1, "2")), r"num_neighbors\[1\]"),  # type: ignore[arg-type]
        (NeighborSpec(num_neighbors=(1,), replace="no"), "replace"),  # type: ignore[arg-type]
        (NeighborSpec(num_neighbors=(1,), node_caps=3), "node_caps"),  # type: ignore[arg-type]
        (LinkSpec(neighbors={"num_neighbors": [1]}), "neighbors"),  # type: ignore[arg-type]
        (PPRSpec(alpha="0.5"), "alpha"),  # type: ignore[arg-type]
        (HGTSpec(num_samples=7), "num_samples"),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_the_wrong_type_is_named(spec: BuiltInSpec, named: str) -> None:
    """CONTRACT 61."""
    with pytest.raises(ValueError, match=named):
        check(spec, GRAPHS[False])
