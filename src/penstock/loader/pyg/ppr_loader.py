"""`PPRLoader`: the nodes that matter most to each seed, by personalised PageRank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Unpack

from torch import Tensor

from penstock.graph import EdgeType
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.collate import Collate, CollatedParts, Place
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.options import flag, options_of
from penstock.loader.pyg.specs import direction
from penstock.loader.pyg.template import store_of
from penstock.loader.pyg.typed import Batches, Column, DataT, InputNodes, MadeT, Transform
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import source_of
from penstock.option_types import LoaderKeywords
from penstock.sampling.kinds import check
from penstock.sampling.normalize import settled
from penstock.sampling.spec import PPRSpec


@shows_options
class PPRLoader(Batches[DataT, MadeT], Loader):  # type: ignore[misc]
    """Give every seed the nodes that matter most to it, at any distance.

    Batches are `HeteroData` with edges (type of the seeds, "ppr", type), from seeds to the nodes
    that matter to them, best first, with `edge_attr` = [score, 1 / (1 + hop)]. A homogeneous graph
    gives `Data`, whose edges are these. docs/ppr.md has the algorithm.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path.
        input_nodes: The nodes to start from, as for `NeighborLoader`.
        alpha: The probability that a walk stops at each step: higher keeps closer to the seed.
        eps: Residuals below `alpha * eps * degree` are not pushed: smaller is finer and slower.
        max_ppr_nodes: How many nodes of each type a seed gets, at most.
        enable_residual_topup: Whether residuals count as well, so that nodes without a score can
            fill places that are left.
        num_neighbors_per_hop: How many neighbours of a node are looked at for each edge type, at
            most.
        max_fetch_iterations: How many rounds may look at nodes not looked at before. None: no
            limit.
        channels: Several walks, each along edge types of its own: (name, edge types, share of the
            nodes) each, or a dict of name to (edge types, share).
        include_sampled_edges: Whether to add the edges of the graph that were looked at.
        edge_dir: Follow in-edges ("in") or out-edges ("out"). None: in-edges, or those that a part
            of a graph was cut by. Batches have every edge as it is in the graph, sources above.
        transform: Called with each batch in this process; what it returns is given instead.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.

    Raises:
        ValueError: An argument is not valid; the error names it, the position and the value.
        TypeError: There is no such option.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> import penstock as ps
        >>> around = torch.arange(100)  # a ring
        >>> data = Data(x=torch.rand(100, 8), edge_index=torch.stack([around, around.roll(1)]))
        >>> with ps.PPRLoader(data, batch_size=10, max_ppr_nodes=3, seed=0) as loader:
        ...     batch = next(iter(loader))
        >>> batch.edge_index.shape, batch.edge_attr.shape
        (torch.Size([2, 30]), torch.Size([30, 2]))
    """

    def __init__(
        self,
        data: DataT,
        input_nodes: InputNodes = None,
        alpha: float = 0.5,
        eps: float = 1e-4,
        max_ppr_nodes: int = 50,
        enable_residual_topup: bool = True,
        num_neighbors_per_hop: int = 1000,
        max_fetch_iterations: int | None = None,
        channels: Any = None,
        include_sampled_edges: bool = False,
        edge_dir: Literal["in", "out"] | None = None,
        transform: Transform[MadeT] | None = None,
        custom_cls: Callable[[], Any] | None = None,
        input_id: Column = None,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        self.data, self.input_nodes, self.alpha, self.eps = data, input_nodes, alpha, eps
        self.max_ppr_nodes, self.num_neighbors_per_hop = max_ppr_nodes, num_neighbors_per_hop
        self.max_fetch_iterations, self.channels = max_fetch_iterations, channels
        self.enable_residual_topup = enable_residual_topup
        self.include_sampled_edges, self.edge_dir = include_sampled_edges, edge_dir
        self.transform, self.custom_cls, self.input_id = transform, custom_cls, input_id
        source = source_of(data, custom_cls, part_only=options.get("part_only", False))
        spec = settled(
            PPRSpec(
                alpha=alpha,
                eps=eps,
                max_ppr_nodes=max_ppr_nodes,
                num_neighbors_per_hop=num_neighbors_per_hop,
                max_fetch_iterations=max_fetch_iterations,
                residual_topup=flag("enable_residual_topup", enable_residual_topup),
                channels=_listed(channels),
                include_sampled_edges=flag("include_sampled_edges", include_sampled_edges),
                direction=direction(source.graph, edge_dir),
            )
        )
        check(spec, source.graph)
        inputs = node_inputs(source, input_nodes, input_id=input_id)
        collate = PPRCollate(source, spec, inputs)
        wanted = options_of({**options}, type(self).__name__, source.hub)
        Loader.__init__(self, source, spec, inputs, wanted, collate)


class PPRCollate(Collate):
    """Adds edges that are not the graph's, and leaves out edge types without edges."""

    def _turn(self, ends: dict[EdgeType, Tensor]) -> None:
        if self._graph.is_hetero:  # the edges of others are from seeds to what matters to them
            super()._turn(ends)

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
