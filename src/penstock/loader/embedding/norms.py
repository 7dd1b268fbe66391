"""Lets `GCNConv` weigh edges by the degrees that nodes have in the whole graph.

A batch has all neighbours of its own nodes, but not of theirs, so degrees counted in a batch would
be too small. They are counted once, for all nodes, by a step of its own; then each `GCNConv` is
given edges with weights of the whole graph, and told not to weigh them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, LayerNorm
from torch_geometric.utils import add_remaining_self_loops, scatter

# Convolutions that look further than one hop, or weigh by degrees in ways of their own.
_FAR: Final = frozenset(
    {
        "APPNP",
        "ARMAConv",
        "ChebConv",
        "ClusterGCNConv",
        "DNAConv",
        "DirGNNConv",
        "DynamicEdgeConv",
        "EGConv",
        "FAConv",
        "GCN2Conv",
        "GPSConv",
        "GravNetConv",
        "HypergraphConv",
        "LGConv",
        "MixHopConv",
        "PDNConv",
        "SGConv",
        "SSGConv",
        "TAGConv",
        "WLConvContinuous",
    }
)
# Norms whose figures are those of all nodes together.
_OF_ALL: Final = frozenset({"GraphNorm", "GraphSizeNorm", "MeanSubtractionNorm", "PairNorm"})


def check_local(model: nn.Module) -> None:
    """Raise `ValueError` for a layer whose result for a node needs more than its neighbours."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind in _FAR:
            raise ValueError(
                f"model has {name or 'itself'}, a {kind}, which needs more than the neighbours of "
                "a node: a batch does not have what it would see of the whole graph"
            )
        of_all = kind in _OF_ALL or (isinstance(module, LayerNorm) and module.mode == "graph")
        if of_all or (kind == "InstanceNorm" and not module.track_running_stats):
            raise ValueError(
                f"model has {name or 'itself'}, a {kind} whose figures are those of all nodes "
                "together, and a batch has some: use BatchNorm, or LayerNorm with mode='node'"
            )
        if isinstance(module, GCNConv) and module.normalize and module.flow != "source_to_target":
            raise ValueError(f"model has {name}, a GCNConv against the direction of edges")


class Degrees:
    """The degrees of all nodes, as the `GCNConv`s of a model count them.

    There is a column for each way in which they do: with loops of weight 1 or 2, or without.
    """

    def __init__(self, model: nn.Module) -> None:
        self.convs = [
            each for each in model.modules() if isinstance(each, GCNConv) and each.normalize
        ]
        self._ways = list(dict.fromkeys(map(_way, self.convs)))
        self._now: Tensor | None = None

    def count(self, nodes: int, edge_index: Tensor, weight: Tensor | None) -> Tensor:
        """Return the degrees of a batch's nodes, of which its own come first."""
        columns = []
        for fill in self._ways:
            edges, weights = _with_loops(edge_index, weight, fill, nodes)
            columns.append(scatter(weights, edges[1], 0, nodes, reduce="sum"))
        return torch.stack(columns, 1)

    @contextmanager
    def given(self, degrees: Tensor) -> Iterator[None]:
        """Let convolutions weigh by these degrees, a row for each node of a batch."""
        self._now = degrees
        try:
            yield
        finally:
            self._now = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the model's convolutions ask for degrees here."""
        hooks = [
            each.register_forward_pre_hook(self._weigh, with_kwargs=True) for each in self.convs
        ]
        try:
            for each in self.convs:
                each.normalize = False
            yield
        finally:
            for hook, each in zip(hooks, self.convs, strict=True):
                hook.remove()
                each.normalize = True

    def _weigh(self, conv: Any, args: Any, given: Any) -> Any:
        x, edge_index, weight = _bound(*args, **given)
        if self._now is None or len(x) != len(self._now):
            raise ValueError(
                "a GCNConv was called with other nodes than those of a batch: give "
                "normalize=False, and weights of edges that are normalised before"
            )
        fill = _way(conv)
        edges, weights = _with_loops(edge_index, weight, fill, len(x))
        root = self._now[:, self._ways.index(fill)].to(x.dtype).pow(-0.5)
        root = root.masked_fill(root.isinf(), 0)
        return (x, edges, root[edges[0]] * weights * root[edges[1]]), {}


def _bound(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
    return x, edge_index, edge_weight


def _way(conv: Any) -> float:
    """Return the weight of the loops that a convolution adds."""
    return (2.0 if conv.improved else 1.0) if conv.add_self_loops else 0.0


def _with_loops(
    edge_index: Tensor, weight: Tensor | None, fill: float, nodes: int
) -> tuple[Tensor, Tensor]:
    """Return edges with loops; as in PyG, all edges weigh 1 if no weights are given."""
    if fill:
        edge_index, weight = add_remaining_self_loops(edge_index, weight, fill, nodes)
    if weight is None:
        weight = torch.ones(edge_index.shape[1], device=edge_index.device)
    return edge_index, weight
