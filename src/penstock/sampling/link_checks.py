"""What of links is refused, before anything is sampled; in PyG's words where PyG refuses it."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from penstock.graph import EdgeType, Graph
from penstock.sampling.spec import LinkSpec

_MODES: Final = ("none", "binary", "triplet")
# Negatives per edge, a bound that no use comes near.
_MOST: Final = 2**16


def check_link(spec: LinkSpec, graph: Graph) -> None:
    """ValueError unless links of this graph can be sampled so."""
    if spec.negatives not in _MODES:
        raise ValueError(f"negatives is {spec.negatives!r}; expected one of {', '.join(_MODES)}")
    if spec.negatives == "none":
        if spec.strict:
            raise ValueError(
                "strict is set, and there are no negatives to check: negatives is 'none'"
            )
        if spec.amount != 1.0:
            raise ValueError(
                f"amount is {spec.amount}, and there are no negatives to draw: negatives is 'none'"
            )
        return
    _check_amount(spec)
    attribute = spec.neighbors.time_attr
    for name in graph.node_types if attribute is not None else ():
        times = graph.node_attributes(name).get(attribute or "")
        if times is not None and (
            not times.dtype.startswith(("int", "uint")) or len(times.shape) != 1
        ):
            raise ValueError(
                f"time_attr {attribute!r} of {name!r} is {times.dtype}{list(times.shape)}; "
                "expected one integer for each node"
            )


def check_columns(spec: LinkSpec, columns: Collection[str]) -> None:
    """ValueError unless what comes with the edges, by name, goes with a spec."""
    if ("time" in columns) != (spec.neighbors.time_attr is not None):
        given, named = "time" in columns, spec.neighbors.time_attr is not None
        raise ValueError(
            "Received conflicting 'edge_label_time' and 'time_attr' arguments: "
            f"'edge_label_time' is {'set' if given else 'not set'} "
            f"while 'time_attr' is {'set' if named else 'not set'}. "
            "Both arguments must be provided for temporal sampling. "
            "('edge_label_time' is columns['time'] here.)"
        )
    if spec.negatives == "triplet" and "label" in columns:
        raise ValueError(
            "'edge_label' needs to be undefined for 'triplet'-based negative sampling: "
            "'src_index', 'dst_pos_index' and 'dst_neg_index' tell edges and negatives apart "
            "('edge_label' is columns['label'] here)"
        )


def check_ends(graph: Graph, kind: EdgeType) -> None:
    """ValueError unless the edges of this type, which the graph need not have, have their ends."""
    for end in (kind[0], kind[2]):
        if end not in graph.node_types:
            there = ", ".join(map(repr, graph.node_types))
            raise ValueError(f"edge_type is {kind!r}; this graph has the node types {there}")


def _check_amount(spec: LinkSpec) -> None:
    amount = spec.amount
    if not 0 < amount < math.inf:
        raise ValueError(f"The attribute 'amount' needs to be positive (got {amount})")
    if amount > _MOST:
        raise ValueError(f"amount is {amount}; an edge can have up to {_MOST} negatives")
    if spec.negatives == "triplet" and amount != math.ceil(amount):
        raise ValueError(
            "The attribute 'amount' needs to be an integer with 'triplet' negative sampling "
            f"(got {amount})."
        )
