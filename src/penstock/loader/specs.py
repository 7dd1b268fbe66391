"""PyG's arguments of how to sample, as specs; refused in PyG's words."""

from __future__ import annotations

from typing import Any

from penstock.loader.sources import Source
from penstock.sampling.spec import LinkSpec, NeighborSpec


def neighbor_spec(
    source: Source,
    num_neighbors: Any,
    *,
    replace: bool = False,
    subgraph_type: Any = "directional",
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    time_attr: str | None = None,
    weight_attr: str | None = None,
    directed: bool = True,
    asked_by: str = "NeighborLoader",  # the class, for PyG's warning about `directed`
) -> NeighborSpec:
    raise NotImplementedError


def link_spec(
    source: Source,
    neighbors: NeighborSpec,
    *,
    neg_sampling: Any = None,
    neg_sampling_ratio: float | None = None,
) -> LinkSpec:
    raise NotImplementedError


def negatives_of(neg_sampling: Any, neg_sampling_ratio: float | None) -> Any:
    """PyG's NegativeSampling or None: what `loader.neg_sampling` is."""
    raise NotImplementedError
