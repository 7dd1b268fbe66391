"""`serve`: serves a graph or a partition to ranks on any host.

A server is one process with a private hub as its child, a `DistServer` that answers calls, and an
event loop that connects remote ranks to both. The server is an ordinary client of its hub, so the
hub sees only what was checked here.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self, Unpack

import msgspec

from penstock.client.dist.dataset import ServedDataset
from penstock.client.hub.hub_process import HubProcess
from penstock.client.keywords import arguments_of, check_names
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.option_types import PoolKeywords
from penstock.options import Limits, PoolOptions
from penstock.rpc.deadline import positive_seconds
from penstock.rpc.endpoint import EndpointSpec
from penstock.server.dist.dist_server import DistServer
from penstock.server.dist.outline import outline_of
from penstock.server.dist.rpc import DistServerSession
from penstock.server.dist.samplers import names_of
from penstock.server.dist.seeds import StrPath
from penstock.server.ops.process_stats import process_stats
from penstock.server.ops.statistics import ServerStatistics
from penstock.server.transport.access import Access, read_tokens
from penstock.server.transport.event_loop import EventLoop
from penstock.server.transport.peers import StorePeers
from penstock.server.transport.registrations import Registrations
from penstock.server.transport.state import ServerState
from penstock.server.transport.threads import CallThreads, Threads, Wakeup
from penstock.wire.host import this_host
from penstock.wire.messages import PROTOCOL, Welcome
from penstock.wire.transport.tcp import TcpListener

LEASE_S: Final = 5.0
# Registrations mostly wait for the hub. Calls wait for batches; as many wait at once as there are
# ranks that fetch. Threads are started only when they are needed.
REGISTERING_THREADS: Final = 4
ANSWERING_THREADS: Final = 512
CLOSE_S: Final = 15.0  # seconds the event loop may take to end


class Server:
    """A running server. Made by `serve`; ends with `close()`, or with its `with` block.

    Args:
        store: The `DistServer` that answers calls.
        hub: The hub that samples.
        loop: The event loop that ranks are connected to.
        ends: What `close` ends, in reverse order.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.serve(graph, num_workers=1) as server:
        ...     print(server.check_ready(), server.statistics().channels)
        None 0
    """

    def __init__(
        self, store: DistServer, hub: HubProcess, loop: EventLoop, ends: ExitStack
    ) -> None:
        self.store = store
        self.hub = hub
        self._loop = loop
        self._ends = ends
        self._closing = threading.Lock()
        self.closed = threading.Event()
        self._owner = os.getpid()

    @property
    def address(self) -> str:
        """Return the address that ranks connect to, with the real port."""
        return self._loop.address

    @property
    def boot(self) -> str:
        """Return the id of this start of the server; it differs after every start."""
        return self._loop.boot

    def statistics(self) -> ServerStatistics:
        """Return a snapshot of the sessions and this process. The hub has statistics of its own."""
        counted = self.store.input_registration.channels.taken
        return replace(self._loop.statistics(), channels=counted, process=process_stats())

    def overview(self) -> dict[str, Any]:
        """Return all statistics, those of the hub included, as plain data."""
        return {
            "server": msgspec.to_builtins(self.statistics()),
            "store": self.store.statistics(),
            "hub": self.hub.statistics(),
        }

    def trouble(self) -> str | None:
        """Return why the server can never serve again, or None while it can."""
        if self.closed.is_set():
            return "the server was closed"
        if not self._loop.is_alive():
            return f"the event loop has failed: {self._loop.failure}"
        try:
            self.hub.check_hope()
        except HubGone as error:
            return str(error)
        return None

    def check_ready(self) -> str | None:
        """Return why no rank can be served right now, or None if one can."""
        if (trouble := self.trouble()) is not None:
            return trouble
        if self.hub.pid is None:
            return "the hub is being started"
        return "the server is leaving" if self._loop.leaving else None

    def drain(self, grace: float = 30.0, reason: str = "it was asked to end") -> bool:
        """Accept no more ranks, and give connected ones `grace` seconds to leave.

        Args:
            grace: Seconds to wait for them.
            reason: What they are told.

        Returns:
            Whether all ranks have left.
        """
        self._loop.drain(reason, grace)
        return self._loop.empty.wait(grace)

    def reload_certificates(self) -> None:
        """Read the certificate files again; connected ranks are not affected.

        If the files are invalid, an error is logged and the old certificate stays in use.
        """
        self._loop.reload_certificates()

    def close(self) -> None:
        """End the server, its hub and its workers. Idempotent, and takes a bounded time."""
        if os.getpid() != self._owner:
            return  # a forked child: the server belongs to the parent
        with self._closing:
            self._ends.close()
            self.closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Server at {self.address}, {self.hub!r}>"


def serve(
    data: Graph | StrPath,
    address: str = "tcp://127.0.0.1:0",
    *,
    num_workers: int | Literal["auto"] = "auto",
    lease: float = LEASE_S,
    limits: Limits | None = None,
    store: Sequence[str] = (),
    store_ca: StrPath | None = None,
    store_server_name: str | None = None,
    certificate: StrPath | None = None,
    key: StrPath | None = None,
    client_ca: StrPath | None = None,
    tokens: Mapping[str, str] | StrPath | None = None,
    allow_plaintext: bool = False,
    allow_anyone: bool = False,
    proxies: Sequence[str] = (),
    samplers: Sequence[str | type[Any]] = (),
    files: Sequence[StrPath] = (),
    unix: str | None = None,
    listener: socket.socket | None = None,
    part_only: bool = False,
    store_options: Mapping[str, Any] | None = None,
    **options: Unpack[PoolKeywords],
) -> Server:
    """Serve a graph, or a part of one, at `address`; return when ranks can connect.

    Args:
        data: A graph, a part of one, or the folder of either.
        address: Where to listen, `tcp://host:port`; port 0 means any free one. Addresses beyond
            loopback need a certificate and one of tokens, client_ca or `allow_anyone`; or
            `allow_plaintext`.
        num_workers: How many workers the hub runs.
        lease: Seconds without a sign of life after which the server closes a rank's channel.
        limits: How much the server takes on.
        store: The addresses of the servers of all parts and replicas of this graph, this one
            included, as ranks reach them. They may be started in any order; one that is started
            later with a longer list tells those that run.
        store_ca: The authority that has signed the certificates of the other servers; by default
            `client_ca`, or the file that PENSTOCK_CA names.
        store_server_name: The name in the certificates of the other servers, if it is not that of
            their hosts.
        certificate: Certificate file (PEM). With it all traffic uses TLS, and the address is
            `tls://…`.
        key: The certificate's private key (PEM).
        client_ca: Admit only clients whose certificate this authority has signed.
        tokens: Tokens by name, or a file of them; a rank must know one of them.
        allow_plaintext: Allow an address beyond loopback without a certificate.
        allow_anyone: With a certificate, allow an address beyond loopback without tokens and
            client_ca.
        proxies: Hosts through which many ranks connect; no rank there waits because another one was
            refused.
        samplers: User samplers that ranks may ask for: "module:Class", or the class.
        files: Folders below which input files may be read.
        unix: Address where ranks on this host find the hub; by default a unique name.
        listener: A socket that listens at `address` already, such as systemd passes one; the server
            takes it over.
        part_only: Whether ranks may sample a part of a graph without its neighbours in other parts.
            Otherwise a part answers questions about its nodes and edges, and all parts are sampled
            together, as a store.
        store_options: Further options of `DistServer`: request_timeout, max_labels, …
        **options: How the hub runs its pool: see `penstock.option_types.PoolKeywords`, or
            docs/options.md.

    Returns:
        The running server; `server.address` has the real port.

    Raises:
        ValueError: An argument is not valid, or the address is not allowed without further ones.
        HubGone: The hub could not be started.
        OSError: The address cannot be listened at.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.serve(graph, num_workers=1) as server:
        ...     with ps.connect(server.address) as data:
        ...         with ps.NeighborLoader(data, [2], "train", batch_size=2, seed=0) as loader:
        ...             print([batch.n_id.tolist() for batch in loader])
        [[0, 2, 1]]
    """
    check_names(options, "option", PoolOptions, beside=arguments_of(serve))
    access = Access.of(
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        tokens=tokens,
        allow_plaintext=allow_plaintext,
        allow_anyone=allow_anyone,
    )
    where = access.address(address)
    positive_seconds(lease, "lease")
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise ValueError(f"limits is {limits!r}; expected penstock.Limits(…)")
    if part_only and store:
        raise ValueError("part_only is given with store: a store samples across all of its parts")
    names = names_of(samplers)
    pool: PoolKeywords = {"max_arena_bytes": limits.max_arena_bytes, **options}
    with ExitStack() as ends:  # closed in reverse order: the event loop first
        held = _held(data, ends)
        wakeup, registering, answering = _threads(ends)
        sampled = ServedDataset(held, part_only=part_only).sampled
        hub = HubProcess(sampled, num_workers, address=unix, **pool)
        ends.callback(hub.close)  # closed before the threads that may be waiting for it
        hub.start()
        given = {"samplers": names, "input_folders": files, **(store_options or {})}
        served = DistServer(held, hub, limits=limits, part_only=part_only, **given)
        ends.callback(served.close)
        listening = TcpListener(where, listener)
        ends.callback(listening.close)
        welcome = _welcome(served.dataset, hub, listening.address, lease)
        credentials = _credentials(
            certificate, key, store_ca or client_ca, store_server_name, tokens
        )
        peers = StorePeers(welcome, access.peers(store), credentials)
        state = ServerState(
            listener=listening,
            access=access,
            limits=limits,
            registrations=_registrations(served, hub, limits, names, files),
            rpc_sessions=partial(DistServerSession, served),
            welcome=welcome,
            peers=peers,
            registering=registering,
            answering=answering,
            proxies=frozenset(proxies),
        )
        loop = _started_loop(state, wakeup, ends)
        ends.callback(peers.stop)
        peers.start(lambda named: wakeup.call(lambda: state.name_peers(named)))
        return Server(served, hub, loop, ends.pop_all())


def _held(data: Graph | StrPath, ends: ExitStack) -> Graph:
    """Return the graph to serve; register its close if it was opened here."""
    if isinstance(data, Graph):
        return data
    if not isinstance(data, str | os.PathLike):
        raise ValueError(f"data is {data!r}; expected a Graph, or the path of one that is saved")
    held = Graph.open(data)
    ends.callback(held.close)
    return held


def _threads(ends: ExitStack) -> tuple[Wakeup, Threads, CallThreads]:
    """Start the thread pools for work the event loop must not wait for, and their `Wakeup`."""
    wakeup = Wakeup()
    ends.callback(wakeup.close)
    ends.callback(wakeup.run)  # run callbacks of work that no session waits for any more
    registering = Threads("penstock-register", REGISTERING_THREADS, wakeup)
    answering = CallThreads(ANSWERING_THREADS, wakeup)
    ends.callback(answering.close)
    ends.callback(registering.close)
    return wakeup, registering, answering


def _registrations(
    store: DistServer,
    hub: HubProcess,
    limits: Limits,
    samplers: Sequence[str],
    files: Sequence[StrPath],
) -> Registrations:
    """Return what registers the channels of loaders; it shares its budgets with the store."""
    input_registration = store.input_registration
    return Registrations(
        hub=hub,
        dataset=store.dataset,
        limits=limits,
        budget=input_registration.inputs,
        channels=input_registration.channels,
        samplers=frozenset(samplers),
        folders=tuple(files),
    )


def _started_loop(state: ServerState, wakeup: Wakeup, ends: ExitStack) -> EventLoop:
    loop = EventLoop(state, wakeup)
    ends.callback(loop.join, CLOSE_S)
    ends.callback(loop.stop, "it was closed")
    loop.start()
    return loop


def _credentials(
    certificate: StrPath | None,
    key: StrPath | None,
    ca: StrPath | None,
    server_name: str | None,
    tokens: Mapping[str, str] | StrPath | None,
) -> EndpointSpec:
    """Return how this server connects to others of its store: by what it asks of its clients."""
    if tokens is not None and not isinstance(tokens, Mapping):
        tokens = read_tokens(Path(tokens))
    ca, certificate, key = (None if path is None else str(path) for path in (ca, certificate, key))
    return EndpointSpec(
        address="",
        ca=ca,
        certificate=certificate,
        key=key,
        server_name=server_name,
        token=next(iter((tokens or {}).values()), None),
        name="server",
    )


def _welcome(dataset: ServedDataset, hub: HubProcess, address: str, lease: float) -> Welcome:
    return Welcome(
        protocol=PROTOCOL,
        boot=uuid.uuid4().hex,
        pid=os.getpid(),
        host=this_host(),
        address=address,
        outline=outline_of(dataset.sampled),
        partition=dataset.note(),
        # The server of a part checks what ranks ask for; they do not go round it.
        unix=hub.address if dataset.part is None else None,
        lease=lease,
    )
