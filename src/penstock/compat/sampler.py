"""`pyg_lib.sampler`: pyg-lib's functions of that name, made of Penstock's kernels.

They are for programs that call pyg-lib itself, and for PyG, which inspects their arguments to see
what can be sampled. PyG samples through `torch.ops.pyg`, which `pyg_lib.install` sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from penstock.compat import operators
from penstock.compat.operators import Counts, EdgeType, neighbor_sample
from penstock.compat.walks import random_walk

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["hetero_neighbor_sample", "neighbor_sample", "random_walk"]

ByEdgeType: TypeAlias = "dict[EdgeType, Tensor]"
_Value = TypeVar("_Value")


def hetero_neighbor_sample(
    rowptr_dict: Mapping[EdgeType, Tensor],
    col_dict: Mapping[EdgeType, Tensor],
    seed_dict: Mapping[str, Tensor],
    num_neighbors_dict: Mapping[EdgeType, Sequence[int]],
    node_time_dict: Mapping[str, Tensor] | None = None,
    edge_time_dict: Mapping[EdgeType, Tensor] | None = None,
    seed_time_dict: Mapping[str, Tensor] | None = None,
    edge_weight_dict: Mapping[EdgeType, Tensor] | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[
    ByEdgeType,
    ByEdgeType,
    dict[str, Tensor],
    ByEdgeType | None,
    dict[str, Counts],
    dict[EdgeType, Counts],
]:
    """Run `neighbor_sample` by type: return rows, columns, nodes, edge ids, and counts per hop."""
    ends = [end for kind in rowptr_dict for end in (kind[0], kind[2])]
    rows, cols, nodes, edge_ids, num_nodes, num_edges = operators.hetero_neighbor_sample(
        list(dict.fromkeys([*ends, *seed_dict])),
        list(rowptr_dict),
        _joined(rowptr_dict),
        _joined(col_dict),
        seed_dict,
        _joined(num_neighbors_dict),
        node_time_dict,
        None if edge_time_dict is None else _joined(edge_time_dict),
        seed_time_dict,
        None if edge_weight_dict is None else _joined(edge_weight_dict),
        csc,
        replace,
        directed,
        disjoint,
        temporal_strategy,
        return_edge_id,
    )
    kinds = {"__".join(kind): kind for kind in rowptr_dict}
    return (
        {kinds[name]: found for name, found in rows.items()},
        {kinds[name]: found for name, found in cols.items()},
        nodes,
        None if edge_ids is None else {kinds[name]: ids for name, ids in edge_ids.items()},
        num_nodes,
        {kinds[name]: counts for name, counts in num_edges.items()},
    )


def _joined(by_type: Mapping[EdgeType, _Value]) -> dict[str, _Value]:
    return {"__".join(kind): value for kind, value in by_type.items()}
