"""What makes no sense is refused at the door, by name: nothing of it reaches a worker.

Specs and feeds are made as they come from a socket: decoded, so their types are right and their
values are anything.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import EdgeType, Graph
from penstock.graph.schema import EDGE
from penstock.sampling.inputs import Given
from penstock.sampling.kinds import check, prepare, seconds_of
from penstock.sampling.spec import BuiltInSpec, Feed, Spec
from penstock.wire.frames import SlotTooSmall, private_memory
from penstock.workers.station import Station, slot_bytes_for
from tests.sampling.graphs import CITES, HOUSES, WRITES, Array, library
from tests.sampling.worlds import SOME

TYPES = {
    "neighbor": {"type": "neighbor", "num_neighbors": [2, 1]},
    "link": {"type": "link", "neighbors": {"type": "neighbor", "num_neighbors": [1]}},
    "subgraph": {"type": "subgraph"},
    "ablp": {
        "type": "ablp",
        "neighbors": {"type": "neighbor", "num_neighbors": [1]},
        "supervision": [CITES],
        "positive": [CITES],
    },
    "ppr": {"type": "ppr"},
    "walk": {"type": "walk", "walk_length": 3},
    "hgt": {"type": "hgt", "num_samples": [2, 2]},
}


def decoded(kind: str, **values: Any) -> BuiltInSpec:
    """A spec as it comes over the wire."""
    packed = msgspec.msgpack.encode(TYPES[kind] | values)
    spec: BuiltInSpec = msgspec.msgpack.decode(packed, type=Spec)
    return spec


def typeless() -> Graph:
    """Attributes with every reason not to be sampled by."""
    rng = np.random.default_rng(0)
    return Graph.from_coo(
        rng.integers(0, 20, (2, 60)),
        20,
        x=rng.random((20, 2)),
        node_time=rng.integers(0, 9, 20),
        edge_weight=rng.random(60),
        edge_time=rng.integers(0, 9, 60),
        node_attrs={"both": np.arange(20), "real": rng.random(20), "n_id": np.arange(20)},
        edge_attrs={
            "both2": np.arange(60),
            "wide": rng.random((60, 2)),
            "flag": rng.random(60) < 1,
        },
    )


HUGE = 2**64 - 1
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
    ("ablp", {"supervision": [EDGE, EDGE], "positive": [EDGE, EDGE]}, r"supervision\[1\]"),
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
    ("hgt", {"num_samples": [], "by_type": []}, "num_samples"),
]
NOTHING: EdgeType = ("nobody", "knows", "these")
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
    ("ablp", {"supervision": [CITES, CITES], "positive": None}, r"supervision\[1\]"),
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
    ("ppr", {"channels": [["a", [CITES], 0.5], ["a", [WRITES], 0.5]]}, r"channels\[1\]"),
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
        check(spec, typeless())


@pytest.mark.parametrize(("kind", "values", "named"), OF_TYPES)
def test_a_spec_that_makes_no_sense_of_types_is_refused_by_name(
    kind: str, values: dict[str, Any], named: str
) -> None:
    """CONTRACT 61: names the type, the hop and the value."""
    spec = decoded(kind, **values)
    with pytest.raises(ValueError, match=named):
        check(spec, library())


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


# --- what is let through works -------------------------------------------------------------------

numbers = st.sampled_from([-1, 0, 1, 2, 5, 2**31, 2**62, 2**63 - 1, HUGE])
floats = st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0, 1e-3, -1.0, 1e-300, 1e300, math.inf, math.nan])
words = st.sampled_from(
    ["", "x", "time", "edge_weight", "edge_time", "edge_attr", "n_id", "é", "a/b"]
)
kinds = st.sampled_from([EDGE, WRITES, CITES, HOUSES, NOTHING])
lists = st.lists(numbers, max_size=3)
names = st.none() | st.lists(words, max_size=2)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "neighbor": {
        "num_neighbors": lists,
        "by_type": st.none() | st.lists(st.tuples(kinds, lists), max_size=3),
        "replace": st.booleans(),
        "direction": st.sampled_from(["in", "out"]),
        "node_caps": lists,
        "disjoint": st.booleans(),
        "subgraph_type": st.sampled_from(["directional", "bidirectional", "induced"]),
        "weight_attr": st.none() | words,
        "time_attr": st.none() | words,
        "temporal_strategy": st.sampled_from(["uniform", "last"]),
        "with_edge_ids": st.booleans(),
        "node_attributes": names,
        "edge_attributes": names,
    },
    "link": {
        "negatives": st.sampled_from(["none", "binary", "triplet"]),
        "amount": floats,
        "strict": st.booleans(),
    },
    "subgraph": {
        "num_hops": st.sampled_from([-1, 0, 2, 300, 2**31, HUGE]),
        "direction": st.sampled_from(["in", "out"]),
        "with_edge_ids": st.booleans(),
    },
    "ablp": {
        "supervision": st.lists(kinds, max_size=2),
        "positive": st.none() | st.lists(kinds, max_size=2),
        "negative": st.none() | st.lists(kinds, max_size=2),
        "max_labels": st.none() | numbers,
    },
    "ppr": {
        "alpha": floats,
        "eps": floats,
        "max_ppr_nodes": st.sampled_from([-1, 0, 1, 50, 2**39, HUGE]),
        "num_neighbors_per_hop": numbers,
        "max_fetch_iterations": st.none() | numbers,
        "residual_topup": st.booleans(),
        "channels": st.lists(st.tuples(words, st.lists(kinds, max_size=2), floats), max_size=2),
        "include_sampled_edges": st.booleans(),
        "direction": st.sampled_from(["in", "out"]),
    },
    "walk": {
        "walk_length": st.sampled_from([-1, 0, 1, 4, 2**31, HUGE]),
        "walks_per_node": st.sampled_from([-1, 0, 1, 3, 2**31, HUGE]),
        "p": floats,
        "q": floats,
        "path": st.none() | st.lists(kinds, max_size=2),
        "direction": st.sampled_from(["in", "out"]),
        "edge_attributes": names,
    },
    "hgt": {
        "num_samples": lists,
        "by_type": st.none() | st.lists(st.tuples(words, lists), max_size=3),
        "with_edge_ids": st.booleans(),
    },
}
GRAPHS = {False: typeless(), True: library()}


@SOME
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional")
@given(st.data(), st.booleans())
def test_a_spec_is_refused_at_once_or_works(kind: str, data: st.DataObject, hetero: bool) -> None:
    """CONTRACT 61: a ValueError when it is looked at, or batches without any."""
    graph = GRAPHS[hetero]
    fields = data.draw(st.lists(st.sampled_from(list(FIELDS[kind])), max_size=3, unique=True))
    spec = decoded(kind, **{field: data.draw(FIELDS[kind][field], field) for field in fields})
    try:
        check(spec, graph)
    except ValueError:
        return
    feed, ids, columns = inputs_for(kind, spec, graph)
    prepare(spec, graph)
    assert math.isfinite(seconds_of(spec, graph, 2, feed.edge_type or feed.node_type or ""))
    room = slot_bytes_for(spec, graph, feed)
    assert 0 < room <= 1 << 30
    station = Station(graph)
    station.open_backend(1, spec)
    station.open_channel(1, 1, feed, Given(ids, columns))
    try:
        station.sample(1, 0, 0, private_memory(min(room, 1 << 20)))
    except SlotTooSmall as small:
        station.sample(1, 0, 0, private_memory(small.needed))


def inputs_for(kind: str, spec: Any, graph: Graph) -> tuple[Feed, Array | None, dict[str, Array]]:
    """Two inputs that go with a spec."""
    columns: dict[str, Array] = {}
    neighbors = spec if kind == "neighbor" else getattr(spec, "neighbors", None)
    if neighbors is not None and neighbors.time_attr is not None:
        columns["time"] = np.array([4, 5])
    if kind == "link":
        of = CITES if graph.is_hetero else EDGE
        feed = Feed(num_inputs=2, batch_size=2, edge_type=of)
        return feed, np.array([[0, 1], [2, 3]]), columns
    of_type: str | None = "paper" if graph.is_hetero else None
    if kind == "ablp":
        of_type = spec.supervision[0][0] or None
        columns |= {
            f"positive/{n}": np.array([[0, -1], [1, 0]]) for n in range(len(spec.supervision))
        }
    if kind == "walk" and spec.path:
        of_type = spec.path[0][0 if spec.direction == "out" else 2]
    return Feed(num_inputs=2, batch_size=2, node_type=of_type), None, columns
