"""Turn what a user passes as `data` into a graph and a template for batches.

`Data`, `HeteroData` and pairs of stores become a graph in shared memory, one for each content; a
saved graph is opened by its path; a `Graph`, a hub, a server, and the address of one exist already.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch_geometric.data import Data, HeteroData

from penstock.client.hub.hub import Provider
from penstock.graph import Graph
from penstock.graph.schema import PartNote
from penstock.graph.view import GraphView
from penstock.loader.pyg.graph_data import GraphData
from penstock.loader.pyg.options import flag
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
    data: Any,
    custom_cls: Callable[[], Any] | None = None,
    *,
    time_attr: str | None = None,
    part_only: bool | None = None,
) -> DataSource:
    """Return the source for `data`. Loaders of the same content share one graph.

    Args:
        data: anything that a loader takes as `data`.
        custom_cls: makes the batches of data that have no class of their own.
        time_attr: is fetched from stores, whose other features stay with them.
        part_only: whether a part of a graph is sampled by itself, or refused. None: it is not to be
            sampled, and may be a part.
    """
    if isinstance(data, DataSource):
        return data
    alone = part_only is not None and flag("part_only", part_only)
    found = _source(data, custom_cls, time_attr, alone)
    if part_only is None or found.graph.part is None:
        return found
    return _of_part(found, found.graph.part, alone)


def _of_part(source: DataSource, part: PartNote, part_only: bool) -> DataSource:
    """Return the source of a part by itself; ValueError unless that is all, or what is wanted."""
    graph, is_here = source.graph, source.hub is None
    if part.of > 1 and not part_only and not (is_here and part.alone):
        where = "" if graph.address is None else f" at {graph.address}"
        raise ValueError(
            f"data is {part} of a graph{where}: neighbours in other parts would be missing. "
            "Connect to the servers of all parts (penstock.connect), or give part_only=True to "
            "sample within this part"
        )
    if isinstance(graph, Graph) and is_here:
        return replace(source, graph=graph.within())
    if part.of > 1 and not part.alone:
        raise ValueError(
            f"part_only is True, but {part} is held by others: start the server with "
            "part_only=True (--part-only), or the hub with the part's within()"
        )
    return source


def _source(
    data: Any, custom_cls: Callable[[], Any] | None, time_attr: str | None, part_only: bool
) -> DataSource:
    if isinstance(data, GraphData):
        data = data._given
    if isinstance(data, Data | HeteroData):
        draft, template = read_data(data)
        return DataSource(graph_of(draft), None, template)
    if is_pair(data):
        draft, template = read_stores(data[0], data[1], custom_cls, time_attr)
        return DataSource(graph_of(draft), None, template, is_pair=True)
    if isinstance(data, str) and "://" in data:
        data = joined(data, part_only=part_only)
    elif isinstance(data, str | os.PathLike):
        data = graph_at(data)
    if isinstance(data, RemoteDistDataset):
        data = data.graph if data.provider is None else data.provider
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
