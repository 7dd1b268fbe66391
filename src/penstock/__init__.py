"""Penstock: a graph store with a sampling service for GNN training.

The public names live here and are loaded when first used, so that `import penstock` costs a
worker or a command line next to nothing. This module must not import anything beyond the standard
library and `penstock.errors`.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

from penstock.errors import (
    AccessDenied,
    BatchTooLarge,
    ChannelClosed,
    GraphFormatError,
    HubGone,
    Overloaded,
    PenstockError,
    ProtocolError,
    SamplingError,
    ServerGone,
    WorkerDied,
)
from penstock.errors import suggestion as _suggestion

if _typing.TYPE_CHECKING:
    from penstock.client.backend import SharedDistSamplingBackend
    from penstock.client.channel.batch import Batch
    from penstock.client.hub.hub_process import HubProcess
    from penstock.client.hub.joined import JoinedHub
    from penstock.core.slices import ServerSlice, compute_server_assignments
    from penstock.graph import Graph, SharedArray
    from penstock.graph.quantization import quantize
    from penstock.graph.user_ids import ids
    from penstock.ingest.build import build
    from penstock.loader.embedding.embed import embed
    from penstock.loader.pyg.ablp_loader import ABLPLoader
    from penstock.loader.pyg.custom_loader import CustomLoader
    from penstock.loader.pyg.hgt_loader import HGTLoader
    from penstock.loader.pyg.lightning_data import LightningLinkData, LightningNodeData
    from penstock.loader.pyg.link_neighbor_loader import LinkNeighborLoader
    from penstock.loader.pyg.neighbor_loader import NeighborLoader
    from penstock.loader.pyg.ppr_loader import PPRLoader
    from penstock.loader.source.remote_dataset import (
        ConnectKeywords,
        RemoteDistDataset,
        init_compute_process,
        shutdown_compute_process,
    )
    from penstock.options import Limits
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
    from penstock.server.dist.dist_server import DistServer
    from penstock.server.ops.lifecycle import get_server, init_server, wait_and_shutdown_server
    from penstock.server.serving import Server, serve
    from penstock.wire.requests import (
        FetchABLPInputRequest,
        FetchNodesRequest,
        InitSamplingBackendRequest,
        RegisterBackendRequest,
        SamplerInput,
        WorkerOptions,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "ABLPLoader",
    "ABLPSpec",
    "AccessDenied",
    "Batch",
    "BatchTooLarge",
    "ChannelClosed",
    "CustomLoader",
    "CustomSpec",
    "DistServer",
    "FetchABLPInputRequest",
    "FetchNodesRequest",
    "Graph",
    "GraphFormatError",
    "HGTLoader",
    "HGTSpec",
    "HubGone",
    "HubProcess",
    "InitSamplingBackendRequest",
    "JoinedHub",
    "LightningLinkData",
    "LightningNodeData",
    "Limits",
    "LinkNeighborLoader",
    "LinkSpec",
    "NeighborLoader",
    "NeighborSpec",
    "Overloaded",
    "PPRLoader",
    "PPRSpec",
    "PenstockError",
    "ProtocolError",
    "RegisterBackendRequest",
    "RemoteDistDataset",
    "SamplerInput",
    "SamplingError",
    "Server",
    "ServerGone",
    "ServerSlice",
    "SharedArray",
    "SharedDistSamplingBackend",
    "SubgraphSpec",
    "WalkSpec",
    "WorkerDied",
    "WorkerOptions",
    "__version__",
    "build",
    "compute_server_assignments",
    "connect",
    "embed",
    "get_server",
    "ids",
    "init_compute_process",
    "init_server",
    "quantize",
    "serve",
    "shutdown_compute_process",
    "wait_and_shutdown_server",
]

# Public name -> module that defines it.
_LOADED_ON_USE = {
    "ABLPLoader": "penstock.loader.pyg.ablp_loader",
    "ABLPSpec": "penstock.sampling.spec",
    "Batch": "penstock.client.channel.batch",
    "CustomLoader": "penstock.loader.pyg.custom_loader",
    "CustomSpec": "penstock.sampling.spec",
    "DistServer": "penstock.server.dist.dist_server",
    "FetchABLPInputRequest": "penstock.wire.requests",
    "FetchNodesRequest": "penstock.wire.requests",
    "Graph": "penstock.graph",
    "HGTLoader": "penstock.loader.pyg.hgt_loader",
    "HGTSpec": "penstock.sampling.spec",
    "HubProcess": "penstock.client.hub.hub_process",
    "InitSamplingBackendRequest": "penstock.wire.requests",
    "JoinedHub": "penstock.client.hub.joined",
    "LightningLinkData": "penstock.loader.pyg.lightning_data",
    "LightningNodeData": "penstock.loader.pyg.lightning_data",
    "Limits": "penstock.options",
    "LinkNeighborLoader": "penstock.loader.pyg.link_neighbor_loader",
    "LinkSpec": "penstock.sampling.spec",
    "NeighborLoader": "penstock.loader.pyg.neighbor_loader",
    "NeighborSpec": "penstock.sampling.spec",
    "PPRLoader": "penstock.loader.pyg.ppr_loader",
    "PPRSpec": "penstock.sampling.spec",
    "RegisterBackendRequest": "penstock.wire.requests",
    "RemoteDistDataset": "penstock.loader.source.remote_dataset",
    "SamplerInput": "penstock.wire.requests",
    "Server": "penstock.server.serving",
    "ServerSlice": "penstock.core.slices",
    "SharedArray": "penstock.graph",
    "SharedDistSamplingBackend": "penstock.client.backend",
    "SubgraphSpec": "penstock.sampling.spec",
    "WalkSpec": "penstock.sampling.spec",
    "WorkerOptions": "penstock.wire.requests",
    "build": "penstock.ingest.build",
    "compute_server_assignments": "penstock.core.slices",
    "embed": "penstock.loader.embedding.embed",
    "get_server": "penstock.server.ops.lifecycle",
    "ids": "penstock.graph.user_ids",
    "init_compute_process": "penstock.loader.source.remote_dataset",
    "init_server": "penstock.server.ops.lifecycle",
    "quantize": "penstock.graph.quantization",
    "serve": "penstock.server.serving",
    "shutdown_compute_process": "penstock.loader.source.remote_dataset",
    "wait_and_shutdown_server": "penstock.server.ops.lifecycle",
}


# The options of `connect`: those of `ConnectKeywords`, which costs too much to import here.
_CONNECTING: _typing.Final = (
    "timeout",
    "ca",
    "certificate",
    "key",
    "server_name",
    "token",
    "same_host",
    "patience",
    "name",
    "num_workers",
    "cache",
    "part_only",
)


@_typing.overload
def connect(  # type: ignore[overload-overlap]  # only a server has other keywords than this one
    address: str, *, timeout: float | None = 30.0
) -> JoinedHub | RemoteDistDataset: ...
@_typing.overload
def connect(
    address: str | _typing.Sequence[str] | None = None,
    **options: _typing.Unpack[ConnectKeywords],
) -> RemoteDistDataset: ...
def connect(
    address: str | _typing.Sequence[str] | None = None, **options: _typing.Any
) -> JoinedHub | RemoteDistDataset:
    """Connect to the hub or the server at an address, or to a store of several servers.

    Args:
        address: "unix://…", the `address` of a hub or a loader on this host; or "tcp://host:port"
            of a server (`penstock serve`), or "tls://host:port" if the connection is encrypted. Of
            a store, which has a graph in parts: one of its servers, or several, as a list or with
            commas between them; or "ray:NAME", if `penstock up` has brought it up. None: what the
            environment's PENSTOCK_STORE names.
        **options: `timeout`: seconds to wait for an answer now (30; None: no limit). For a server
            also: `ca`, `certificate`, `key` and `server_name` for TLS, `token`, `same_host` (False:
            no shared memory), `patience` (seconds to wait for a server that was lost) and `name`
            (of this client, for people); for a store `num_workers` (that put batches together on
            this host), `cache` (bytes on this host for rows that are read often, such as "4GB"),
            and `part_only` (True: ask a server for its own part alone);
            `penstock.loader.source.remote_dataset.connect` says more.

    Returns:
        A `JoinedHub` for a unix address, a `RemoteDistDataset` for the others. A type checker
            cannot read the address: where it matters, `assert isinstance(data, RemoteDistDataset)`,
            or call `init_compute_process`, which is for servers alone.

    Raises:
        HubGone: No hub answers; `ServerGone` if it is a server that does not.
        AccessDenied: The server refused this client.
        TypeError: There is no such option.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.serve(graph, num_workers=1) as server:
        ...     with ps.connect(server.address) as data:
        ...         with ps.NeighborLoader(data, [2], "train", batch_size=2, seed=0) as loader:
        ...             print([batch.n_id.tolist() for batch in loader])
        [[0, 2, 1]]
    """
    _check_connecting(address, options)
    is_remote = not isinstance(address, str) or address.startswith(("tcp://", "tls://", "ray:"))
    home = "penstock.loader.source.remote_dataset" if is_remote else "penstock.client.hub.joined"
    connected: JoinedHub | RemoteDistDataset = _importlib.import_module(home).connect(
        address, **options
    )
    return connected


def _check_connecting(address: object, options: _typing.Iterable[str]) -> None:
    if isinstance(address, list | tuple):
        for each in address:
            _check_address(each, ("tcp", "tls"))
    elif address is not None:
        _check_address(address, ("unix", "tcp", "tls"))
    for name in options:
        if name not in _CONNECTING:
            near = _suggestion(name, _CONNECTING)
            raise TypeError(f"connect got an unexpected keyword argument {name!r}{near}")


def _check_address(address: object, schemes: tuple[str, ...]) -> None:
    if not isinstance(address, str):
        raise ValueError(f"address is {address!r}; expected an address, as text")
    if address.startswith("ray:") and not address.startswith("ray://"):
        return
    scheme, there, _ = address.partition("://")
    if not there or scheme not in schemes:
        near = _suggestion(scheme, schemes)
        unix = "'unix://@name', 'unix:///path/to/socket', " if "unix" in schemes else ""
        raise ValueError(
            f"address is {address!r}; expected {unix}'tcp://host:port' or 'tls://host:port'{near}"
        )


if not _typing.TYPE_CHECKING:  # a type checker would take this to mean that every name exists

    def __getattr__(name: str) -> object:
        home = _LOADED_ON_USE.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(_importlib.import_module(home), name)
        globals()[name] = value  # later uses find the name and do not call this function
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
