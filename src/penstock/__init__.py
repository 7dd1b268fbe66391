"""Penstock: a graph store with a sampling service for GNN training.

The public names live here and are loaded when first used, so that `import penstock` costs a
worker or a command line next to nothing. This module must not import anything beyond the standard
library and `penstock.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import (
    BatchTooLarge,
    ChannelClosed,
    GraphFormatError,
    HubGone,
    Overloaded,
    PenstockError,
    ProtocolError,
    SamplingError,
    WorkerDied,
)

if TYPE_CHECKING:
    from penstock.client.backend import SharedDistSamplingBackend
    from penstock.client.batch import Batch
    from penstock.client.hub_process import HubProcess
    from penstock.client.joined import JoinedHub, connect
    from penstock.graph import Graph, SharedArray
    from penstock.loader.ablp_loader import ABLPLoader
    from penstock.loader.hgt_loader import HGTLoader
    from penstock.loader.link_neighbor_loader import LinkNeighborLoader
    from penstock.loader.neighbor_loader import NeighborLoader
    from penstock.loader.ppr_loader import PPRLoader
    from penstock.sampling.spec import (
        ABLPSpec,
        CustomSpec,
        HGTSpec,
        LinkSpec,
        NeighborSpec,
        PPRSpec,
        SubgraphSpec,
        WalkSpec,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "ABLPLoader",
    "ABLPSpec",
    "Batch",
    "BatchTooLarge",
    "ChannelClosed",
    "CustomSpec",
    "Graph",
    "GraphFormatError",
    "HGTLoader",
    "HGTSpec",
    "HubGone",
    "HubProcess",
    "JoinedHub",
    "LinkNeighborLoader",
    "LinkSpec",
    "NeighborLoader",
    "NeighborSpec",
    "Overloaded",
    "PPRLoader",
    "PPRSpec",
    "PenstockError",
    "ProtocolError",
    "SamplingError",
    "SharedArray",
    "SharedDistSamplingBackend",
    "SubgraphSpec",
    "WalkSpec",
    "WorkerDied",
    "__version__",
    "connect",
]

# Public name -> module that defines it.
_LOADED_ON_USE = {
    "ABLPLoader": "penstock.loader.ablp_loader",
    "ABLPSpec": "penstock.sampling.spec",
    "Batch": "penstock.client.batch",
    "CustomSpec": "penstock.sampling.spec",
    "Graph": "penstock.graph",
    "HGTLoader": "penstock.loader.hgt_loader",
    "HGTSpec": "penstock.sampling.spec",
    "HubProcess": "penstock.client.hub_process",
    "JoinedHub": "penstock.client.joined",
    "LinkNeighborLoader": "penstock.loader.link_neighbor_loader",
    "LinkSpec": "penstock.sampling.spec",
    "NeighborLoader": "penstock.loader.neighbor_loader",
    "NeighborSpec": "penstock.sampling.spec",
    "PPRLoader": "penstock.loader.ppr_loader",
    "PPRSpec": "penstock.sampling.spec",
    "SharedArray": "penstock.graph",
    "SharedDistSamplingBackend": "penstock.client.backend",
    "SubgraphSpec": "penstock.sampling.spec",
    "WalkSpec": "penstock.sampling.spec",
    "connect": "penstock.client.joined",
}


if not TYPE_CHECKING:  # a type checker would take this to mean that every name exists

    def __getattr__(name: str) -> object:
        home = _LOADED_ON_USE.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value  # later uses do not come through here
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
