"""`PPRLoader`: the nodes that matter most to each seed, by personalised PageRank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.collate import Collate, CollatedParts, Place
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.template import store_of
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import source_of
from penstock.sampling.kinds import check
from penstock.sampling.normalize import settled
from penstock.sampling.spec import PPRSpec


class PPRLoader(Loader):
    """Give every seed the nodes that matter most to it, at any distance.

    docs/ppr.md has the arguments. Batches are `HeteroData` with edges (type of the seeds, "ppr",
    type), from seeds to the nodes that matter to them, best first, with `edge_attr` = [score, 1 /
    (1 + hop)]; `include_sampled_edges` adds the edges of the graph. A homogeneous graph gives
    `Data`, whose edges are the former.

    Args:
        data, input_nodes, options: as for `NeighborLoader`.
        edge_dir: follow in-edges ("in") or out-edges ("out").
        channels: (name, edge types, share) each, or a dict of name to (edge types, share).
    """

    def __init__(
        self,
        data: Any,
        input_nodes: Any = None,
        alpha: float = 0.5,
        eps: float = 1e-4,
        max_ppr_nodes: int = 50,
        enable_residual_topup: bool = True,
        num_neighbors_per_hop: int = 1000,
        max_fetch_iterations: int | None = None,
        channels: Any = None,
        include_sampled_edges: bool = False,
        edge_dir: str = "in",
        transform: Callable[[Any], Any] | None = None,
        custom_cls: Any = None,
        input_id: Any = None,
        **options: Any,
    ) -> None:
        if edge_dir not in ("in", "out"):
            raise ValueError(f"edge_dir is {edge_dir!r}; expected 'in' or 'out'")
        self.data, self.input_nodes, self.alpha, self.eps = data, input_nodes, alpha, eps
        self.max_ppr_nodes, self.num_neighbors_per_hop = max_ppr_nodes, num_neighbors_per_hop
        self.max_fetch_iterations, self.channels = max_fetch_iterations, channels
        self.enable_residual_topup = enable_residual_topup
        self.include_sampled_edges, self.edge_dir = include_sampled_edges, edge_dir
        self.transform, self.custom_cls, self.input_id = transform, custom_cls, input_id
        source = source_of(data, custom_cls)
        spec = settled(
            PPRSpec(
                alpha=alpha,
                eps=eps,
                max_ppr_nodes=max_ppr_nodes,
                num_neighbors_per_hop=num_neighbors_per_hop,
                max_fetch_iterations=max_fetch_iterations,
                residual_topup=bool(enable_residual_topup),
                channels=_listed(channels),
                include_sampled_edges=bool(include_sampled_edges),
                direction=edge_dir,  # type: ignore[arg-type]
            )
        )
        check(spec, source.graph)
        inputs = node_inputs(source, input_nodes, input_id=input_id)
        collate = PPRCollate(source, spec, inputs)
        wanted = options_of(options, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, wanted, collate)


class PPRCollate(Collate):
    """Adds edges that are not the graph's, and leaves out edge types without edges."""

    def _filled(self, parts: CollatedParts, others: dict[Place, Tensor]) -> Any:
        data = super()._filled(parts, others)
        for kind, ends in parts.ends.items():
            if kind not in self._template.ends:
                store_of(data, kind)["edge_index"] = ends
        if self._graph.is_hetero:
            for kind in self._graph.edge_types:
                if kind not in parts.ends and kind in data.edge_types and not data[kind]:
                    del data[kind]
        return data


def _listed(channels: Any) -> Any:
    """Return channels with the name first, as in a spec; a spec refuses anything invalid."""
    if channels is None:
        return ()
    if not isinstance(channels, Mapping):
        return channels
    walks = {
        name: walk if isinstance(walk, list | tuple) else [walk] for name, walk in channels.items()
    }
    return tuple((name, *walk) for name, walk in walks.items())
