"""Label edge types: edges to be predicted, which samplers must not walk.

The labels of (s, r, d) are edges (s, r + "_positive", d) and (s, r + "_negative", d). An edge type
with such a name is a label type where the graph has (s, r, d) as well: a relation called
"is_positive" in a graph without "is" is a relation like any other. Reverses that PyG's
`ToUndirected` makes, (d, "rev_" + r + "_positive", s), are found by the same rule. Knows types by
name, and nothing about specs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from penstock.graph.schema import EdgeType

Sign = Literal["positive", "negative"]
SIGNS: Final[tuple[Sign, Sign]] = ("positive", "negative")

_told: set[tuple[EdgeType, ...]] = set()


def label_type(supervision: EdgeType, sign: Sign) -> EdgeType:
    """Return the edge type that holds the labels of a supervision edge type, by name."""
    source, relation, destination = supervision
    return source, f"{relation}_{sign}", destination


def is_label_type(kind: EdgeType, edge_types: Collection[EdgeType]) -> bool:
    """Return whether an edge type holds labels of another one of these."""
    source, relation, destination = kind
    bases = [relation.removesuffix(f"_{sign}") for sign in SIGNS]
    return any(base != relation and (source, base, destination) in edge_types for base in bases)


def label_edge_types(edge_types: Collection[EdgeType]) -> tuple[EdgeType, ...]:
    """Return the edge types that hold labels: not walked, unless they are asked for."""
    return tuple(kind for kind in edge_types if is_label_type(kind, edge_types))


def tell_once(left_out: tuple[EdgeType, ...]) -> None:
    """Log, once in a process for the same types, that these are not walked."""
    if left_out and left_out not in _told:
        import logging  # where there is something to tell only: a worker starts without it

        _told.add(left_out)
        logging.getLogger(__name__).warning(
            "label edge types are not walked, since they are to be predicted: %s. Where they are "
            "relations like others, ask for them: docs/sampling.md says how",
            ", ".join(map(repr, left_out)),
        )
