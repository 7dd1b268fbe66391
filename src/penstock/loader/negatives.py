"""PyG's `NegativeSampling`, however it is given."""

from __future__ import annotations

from typing import Any

from torch_geometric.sampler import NegativeSampling

from penstock.graph import EdgeType, Graph
from penstock.loader.tensors import array_of


def negatives_of(neg_sampling: Any, neg_sampling_ratio: float | None = None) -> Any:
    """A `NegativeSampling`, of one, a dict or a tuple; of a ratio a binary one; or None."""
    if neg_sampling_ratio is not None and neg_sampling_ratio != 0.0:
        return NegativeSampling("binary", neg_sampling_ratio)
    return NegativeSampling.cast(neg_sampling)


def check_weights(graph: Graph, kind: EdgeType, negatives: Any) -> dict[str, Any]:
    """The weights of nodes to draw by, as tables; ValueError unless each node has one.

    Of triplets only destinations are drawn; weights of sources mean nothing then, as in PyG.
    """
    tables = {}
    for name, end in (("src_weight", kind[0]), ("dst_weight", kind[2])):
        weight = getattr(negatives, name)
        if weight is None or (name == "src_weight" and negatives.is_triplet()):
            continue
        tables[name] = array_of(weight)
        if tables[name].size != graph.num_nodes(end):
            raise ValueError(
                "The 'weight' attribute in 'NegativeSampling' needs to match the number of nodes "
                f"{graph.num_nodes(end)} (got {tables[name].size}): {name}"
            )
    return tables
