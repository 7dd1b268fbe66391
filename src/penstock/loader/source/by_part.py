"""The inputs of a loader by the parts of their graph, for `order="part"`.

Which part an input is in follows from the partition book alone: servers, replicas and where they
are make no difference. A link is in the part of its destination, or of its source if the graph was
cut so that no part has all in-edges of a node.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.graph.view import GraphView
from penstock.kernels.arrays import Array, Ids
from penstock.loader.source.inputs import Inputs, LinkInputs
from penstock.store.graph import StoreGraph


def by_part(inputs: Inputs) -> tuple[Inputs, Ids | None]:
    """Return inputs part after part, as groups, and the positions they had before.

    None in place of positions: they are in that order already. Inputs of one part keep their order.

    Raises:
        ValueError: The graph has no parts.
    """
    graph = inputs.graph
    if graph.part is not None:  # by itself: all inputs are its own, which is checked elsewhere
        groups = [0] * graph.part.of
        groups[graph.part.number] = inputs.num
        return replace(inputs, groups=tuple(groups)), None
    if not isinstance(graph, StoreGraph):
        raise ValueError(_no_parts(graph))
    parts = _parts_of(inputs, graph)
    groups = np.bincount(parts, minlength=graph.num_parts).tolist()
    if (parts[1:] >= parts[:-1]).all():
        return replace(inputs, groups=tuple(groups)), None
    places = np.argsort(parts, kind="stable")
    return replace(inputs.at(places), groups=tuple(groups)), places


def _parts_of(inputs: Inputs, graph: StoreGraph) -> Array:
    """Return the part of each input."""
    if not isinstance(inputs, LinkInputs):
        return graph.node_book(inputs.node_type).partition_of(inputs.all_ids())
    end = 1 if graph.serves("in") else 0
    node_type = None if inputs.edge_type is None else inputs.edge_type[2 * end]
    return graph.node_book(node_type).partition_of(inputs.all_ends()[end])


def _no_parts(graph: GraphView) -> str:
    where = "" if graph.address is None else f" at {graph.address}"
    return (
        f"order is 'part', but the graph{where} is whole: it has no parts. Leave order out, or cut "
        "the graph (Graph.partition, penstock partition) and connect to the servers of its parts"
    )
