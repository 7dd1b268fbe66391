"""Turn what a user passes as `data` into a graph and a template for batches.

`Data`, `HeteroData` and pairs of stores become a graph in shared memory, one for each content; a
saved graph is opened by its path; a `Graph`, a hub, a server, and the address of one exist already.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_geometric.data import Data, HeteroData

from penstock.client.hub.hub import Provider
from penstock.graph.view import GraphView
from penstock.loader.pyg.graph_data import GraphData
from penstock.loader.pyg.pyg_data import read_data
from penstock.loader.pyg.stores import is_pair, read_stores
from penstock.loader.pyg.template import Template, template_of
from penstock.loader.source.graph_cache import graph_at, graph_of
from penstock.loader.source.hubs import joined
from penstock.loader.source.remote_dataset import RemoteDistDataset


@dataclass(frozen=True, eq=False)
class DataSource:
    """A graph, the hub that serves it (None: none yet), and the template of its batches.

    `is_pair`: made of a feature store and a graph store.
    """

    graph: GraphView
    hub: Provider | None
    template: Template
    is_pair: bool = False

    @property
    def is_hetero(self) -> bool:
        return self.graph.is_hetero


def source_of(
    data: Any, custom_cls: Callable[[], Any] | None = None, *, time_attr: str | None = None
) -> DataSource:
    """Return the source for `data`. Loaders of the same content share one graph.

    Args:
        data: anything that a loader takes as `data`.
        custom_cls: makes the batches of data that have no class of their own.
        time_attr: is fetched from stores, whose other features stay with them.
    """
    if isinstance(data, DataSource):
        return data
    if isinstance(data, GraphData):
        data = data._given
    if isinstance(data, Data | HeteroData):
        draft, template = read_data(data)
        return DataSource(graph_of(draft), None, template)
    if is_pair(data):
        draft, template = read_stores(data[0], data[1], custom_cls, time_attr)
        return DataSource(graph_of(draft), None, template, is_pair=True)
    if isinstance(data, str) and "://" in data:
        data = joined(data)
    elif isinstance(data, str | os.PathLike):
        data = graph_at(data)
    if isinstance(data, RemoteDistDataset):
        data = data.provider
    if isinstance(data, Provider):
        return DataSource(data.graph, data, template_of(data.graph, custom_cls))
    if isinstance(data, GraphView):
        return DataSource(data, None, template_of(data, custom_cls))
    raise ValueError(
        f"Expected a 'Data', 'HeteroData', or a tuple of 'FeatureStore' and 'GraphStore' "
        f"(got '{type(data)}'); a penstock Graph, the path of a saved one, a hub, a server, or an "
        "address will do as well"
    )


def no_workers(graph: GraphView) -> str:
    """Return the error text for making batches here of a graph that is elsewhere."""
    return (
        f"num_workers is 0, but the graph is at {graph.address}: leave it out, and the "
        "server's workers make the batches"
    )
