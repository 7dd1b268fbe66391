"""A server's data for torch: ids, labels, features, and the source of batches.

    data = penstock.connect("tcp://host:7070")
    loader = penstock.NeighborLoader(data, [10, 10], input_nodes="train", batch_size=1024)

Batches are the same, byte for byte, as those of a loader that has the graph itself. On the server's
own host they come through shared memory, without an option for it.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Sequence
from typing import Any, Final, Literal, Self, TypedDict, Unpack, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.client.dist_calls import QUERIES, DistQueries
from penstock.client.hub.hub import Provider
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.client.remote.hub import RemoteHub
from penstock.client.remote.same_host import hub_on_this_host
from penstock.graph.dtypes import storage_dtype
from penstock.graph.user_ids import OnMissing, UserIdArray
from penstock.graph.view import GraphView
from penstock.loader.pyg.tensors import array_of, tensor_over
from penstock.rpc.deadline import Deadline, positive_seconds
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import PATIENCE_S, RemoteServer
from penstock.store.names import StoreName, is_name, resolve
from penstock.wire.messages import PartitionNote
from penstock.wire.requests import ABLPInput, ArrayT, ShapeT
from penstock.wire.rpc_schema import Verb, mirrored
from penstock.wire.transport.tls import StrPath

# The environment variable that names the servers of a store.
STORE_VARIABLE: Final = "PENSTOCK_STORE"
_EVER_S: Final = 1e9


@mirrored(QUERIES, {ArrayT: Tensor, ShapeT: torch.Size})
class RemoteDistDataset(DistQueries[Tensor, torch.Size]):
    """What a server holds. Made by `penstock.connect`; loaders take it as `data`.

    It has the calls of `DistServer`, by the same names; arrays are tensors here. `server` has all
    of its methods, with NumPy arrays. `provider` is the source of batches. `graph` is a full graph
    on the server's own host; elsewhere it knows the graph's types and sizes, and holds none of its
    arrays.

    Args:
        store: The connection to the server.
        provider: The source of batches.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.serve(graph, num_workers=1) as server:
        ...     with ps.init_compute_process(server.address) as data:
        ...         print(data.get_node_ids("train"), data.graph.num_edges())
        tensor([0, 2]) 3
    """

    # The name that led to the servers, where it was one; it is closed with this.
    resolved: StoreName | None = None

    def __init__(self, store: RemoteServer, provider: Provider) -> None:
        self.provider: Provider | None = provider
        self.server = RemoteDistServer(store)
        self._store = store

    @property
    def address(self) -> str:
        """The server's address."""
        return self._store.endpoint.address

    @property
    def graph(self) -> GraphView:
        """The graph: mapped on the server's own host, else its types and sizes."""
        assert self.provider is not None  # only a store can do without
        return self.provider.graph

    @property
    def partition(self) -> PartitionNote:
        """Which part of a graph the server holds."""
        return self._store.welcome.partition

    @property
    def is_on_this_host(self) -> bool:
        """Return whether batches come through shared memory."""
        return self.graph.address is None

    # --- users' ids --------------------------------------------------------------------------

    def ids(self, node_type: str | None = None, index: Any = None) -> UserIdArray:
        """Return the ids by which users know nodes; see `Graph.ids`.

        Args:
            node_type: The node type; None for a homogeneous graph.
            index: The numbers of the nodes; None for all that the server has.
        """
        return self.graph.ids(node_type, index)

    def lookup(
        self, node_type: str | None = None, ids: Any = None, *, on_missing: OnMissing = "raise"
    ) -> Tensor:
        """Return the numbers of the nodes with these ids; see `Graph.lookup`.

        Args:
            node_type: The node type; None for a homogeneous graph.
            ids: The ids: strings, or integers, as the type has them.
            on_missing: "raise" an error for ids that no node has, or "skip" them.
        """
        return tensor_over(self.graph.lookup(node_type, ids, on_missing=on_missing))

    def names(self, batch: Any) -> Any:
        """Return the ids by which users know the nodes of a batch; see `Graph.names`.

        Args:
            batch: What a loader gave.
        """
        return self.graph.names(batch)

    def ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        """Return the answer to a call, given all its arguments by name; arrays become tensors."""
        for name in verb.arrays:
            arguments[name] = None if arguments[name] is None else array_of(arguments[name])
        return _as_torch(verb, getattr(self.server, verb.name)(**arguments))

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Disconnect from the server. Loaders must be closed separately. Idempotent."""
        if self.provider is not None:
            self.provider.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a RemoteDistDataset cannot be pickled: send its address, and call "
            "penstock.connect(address) over there"
        )

    def __repr__(self) -> str:
        way = "by shared memory" if self.is_on_this_host else "by TCP"
        return f"RemoteDistDataset({self.address!r}, {way})"


class ConnectKeywords(TypedDict, total=False):
    """The keywords of `connect`, for those who pass them on."""

    ca: StrPath | None
    certificate: StrPath | None
    key: StrPath | None
    server_name: str | None
    token: str | None
    same_host: bool
    timeout: float | None
    patience: float
    name: str
    num_workers: int | Literal["auto"]
    cache: int | str | None
    part_only: bool


def connect(
    address: str | Sequence[str] | None = None,
    *,
    ca: StrPath | None = None,
    certificate: StrPath | None = None,
    key: StrPath | None = None,
    server_name: str | None = None,
    token: str | None = None,
    same_host: bool = True,
    timeout: float | None = 30.0,
    patience: float = PATIENCE_S,
    name: str = "",
    num_workers: int | Literal["auto"] = "auto",
    cache: int | str | None = None,
    part_only: bool = False,
) -> RemoteDistDataset:
    """Connect to the server at `address`, "tcp://host:port" or "tls://host:port", or to a store.

    "ray:NAME" is a store that `penstock up` has brought up: it brings its own credentials.

    A server that has one part of a graph belongs to a store: then all of its servers are found.

    Args:
        address: where the server listens; of a store, any of its servers, or several. None: what
            the environment's PENSTOCK_STORE names, with commas between addresses.
        ca: PEM file of the authority that must have signed the server's certificate; by default an
            authority that this system trusts.
        certificate: our own, a PEM file, for servers that admit known clients only.
        key: the private key of our certificate, a PEM file.
        server_name: the name in the server's certificate, if it is not that in the address.
        token: for servers that require one.
        same_host: use shared memory if the server is on this host.
        timeout: seconds to wait for the server now.
        patience: seconds to wait for a server that was lost; then `ServerGone`.
        name: name of this client, for people.
        num_workers: of a store: how many workers on this host put batches together.
        cache: of a store: bytes on this host for rows that are read often, such as "4GB".
        part_only: do not look for other parts: the server's own part is all that is asked for.
    """
    addresses = addresses_of(address)
    name = name or socket.gethostname()
    if named := [each for each in addresses if is_name(each)]:
        given = {"ca": ca, "certificate": certificate, "key": key}
        given |= {"server_name": server_name, "token": token}
        _check_alone(named[0], addresses, given, part_only=part_only)
        keywords = {"name": name, "patience": patience, "num_workers": num_workers, "cache": cache}
        return _named_store(named[0], timeout, **keywords)
    access = {"ca": ca, "certificate": certificate, "key": key}
    known = {"server_name": server_name, "token": token, "name": name, "patience": patience}
    here = {"num_workers": num_workers, "cache": cache}
    if len(addresses) > 1:
        return _store(addresses, timeout, **access, **known, **here)
    endpoint = Endpoint.at(
        addresses[0],
        ca=ca,
        certificate=certificate,
        key=key,
        server_name=server_name,
        token=token,
        name=name,
    )
    store, deadline = (
        RemoteServer(endpoint, positive_seconds(patience, "patience")),
        Deadline(timeout),
    )
    try:
        if store.connect(deadline).partition.of > 1 and not part_only:
            store.close()
            return _store(addresses, timeout, **access, **known, **here)
        provider = hub_on_this_host(store, deadline) if same_host else None
        return RemoteDistDataset(store, provider or RemoteHub(store))
    except BaseException:
        store.close()
        raise


def _store(addresses: Sequence[str], timeout: float | None, **options: Any) -> RemoteDistDataset:
    from penstock.loader.source.store_dataset import connect_store

    limit = _EVER_S if timeout is None else timeout
    return connect_store(addresses, timeout=limit, **options)


def _check_alone(
    name: str, addresses: Sequence[str], given: dict[str, Any], *, part_only: bool
) -> None:
    """Raise ValueError if something was given beside a name that says it all."""
    if len(addresses) > 1:
        raise ValueError(f"address is {','.join(addresses)!r}; expected {name!r} alone")
    for keyword in (word for word, value in given.items() if value is not None):
        raise ValueError(f"{keyword} is given, but {name!r} brings its own credentials")
    if part_only:
        raise ValueError(f"part_only is given, but {name!r} is a store: give a server's address")


def _named_store(text: str, timeout: float | None, **options: Any) -> RemoteDistDataset:
    resolved = resolve(text, timeout)
    try:
        dataset = _store(
            resolved.addresses,
            timeout,
            address_file=resolved.address_file,
            **resolved.access,
            **options,
        )
    except BaseException:
        resolved.close()
        raise
    dataset.resolved = resolved
    return dataset


def addresses_of(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the addresses that a user names, as a list or with commas between them.

    Raises:
        ValueError: There are none.
    """
    if given is None:
        given = os.environ.get(STORE_VARIABLE, "")
        if not given:
            raise ValueError(
                f"address is missing: expected one, or the environment's {STORE_VARIABLE}"
            )
    parts = given.split(",") if isinstance(given, str) else list(given)
    addresses = tuple(str(each).strip() for each in parts)
    if not addresses or not all(addresses):
        raise ValueError(f"address is {given!r}; expected an address, or several")
    return addresses


# What this process has connected to with `init_compute_process`.
_here: weakref.WeakSet[RemoteDistDataset] = weakref.WeakSet()


def init_compute_process(
    address: str | Sequence[str] | None = None, **options: Unpack[ConnectKeywords]
) -> RemoteDistDataset:
    """Begin a rank of a training job: connect to the server, as `connect` does.

    Ranks are not counted and do not wait for each other. A rank that begins this way ends with
    `shutdown_compute_process`, or simply exits.

    Args:
        address: "tcp://host:port" or "tls://host:port"; of a store, one or several. None: the
            environment's PENSTOCK_STORE.
        **options: As for `penstock.connect`.

    Returns:
        What the server holds.

    Raises:
        ServerGone: No server answers within `timeout` seconds.
        AccessDenied: The server refused this client.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.serve(graph, num_workers=1) as server:
        ...     data = ps.init_compute_process(server.address, name="rank 0")
        ...     print(data.get_node_ids("train"))
        ...     ps.shutdown_compute_process()
        tensor([0, 2])
    """
    dataset = connect(address, **options)
    _here.add(dataset)
    return dataset


def shutdown_compute_process(*datasets: RemoteDistDataset) -> None:
    """End a rank: disconnect from these servers, or from all it began with. Idempotent.

    The server goes on, and other ranks are not affected. Loaders must be closed before.

    Args:
        *datasets: What `init_compute_process` returned. None of them: all.

    Examples:
        >>> import penstock as ps
        >>> ps.shutdown_compute_process()  # there is nothing to end here
    """
    for dataset in datasets or tuple(_here):
        _here.discard(dataset)
        dataset.close()


def _as_torch(verb: Verb, found: Any) -> Any:
    match found:
        case np.ndarray():
            return _tensor(found)
        case ABLPInput():
            return ABLPInput(*(None if each is None else _tensor(each) for each in found))
        case tuple() if ShapeT in get_args(verb.result):  # or None
            return torch.Size(found)
    return found


def _tensor(found: npt.NDArray[Any]) -> Tensor:
    if not found.flags.writeable:  # of the graph itself, where a store answers in this process
        found = found.copy()
    is_bfloat16 = found.dtype == storage_dtype("bfloat16")
    return tensor_over(found, "bfloat16" if is_bfloat16 else None)
