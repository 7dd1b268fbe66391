"""`serve`: a graph, or a part of one, for ranks anywhere.

A server is one process with a private hub as its child, a `DistServer` that answers calls, and an
event loop through which remote ranks come to both. It is a client of its hub like any other, so
that nothing a stranger says reaches the hub but what was checked here.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, Self, Unpack

import msgspec

from penstock.client.deadline import positive_seconds
from penstock.client.hub.hub_process import HubProcess
from penstock.client.naming import name_of
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.graph.partition.partition import Partition, is_partition
from penstock.option_types import PoolKeywords
from penstock.options import Limits
from penstock.server.dist.dataset import ServedDataset
from penstock.server.dist.dist_server import DistServer
from penstock.server.dist.outline import outline_of
from penstock.server.dist.rpc import DistServerSession
from penstock.server.dist.seeds import StrPath
from penstock.server.ops.process_stats import process_stats
from penstock.server.ops.statistics import ServerStatistics
from penstock.server.transport.access import Access
from penstock.server.transport.event_loop import EventLoop
from penstock.server.transport.registrations import Registrations
from penstock.server.transport.state import ServerState
from penstock.server.transport.threads import CallThreads, Threads, Wakeup
from penstock.wire.host import this_host
from penstock.wire.messages import PROTOCOL, Welcome
from penstock.wire.transport.tcp import TcpListener

LEASE_S: Final = 5.0
# Registrations mostly wait for the hub. Calls wait for batches, as many at once as there are ranks
# that fetch; threads are started when they are needed.
REGISTERING_THREADS: Final = 4
ANSWERING_THREADS: Final = 512
CLOSE_S: Final = 15.0  # that the event loop may take to end


class Server:
    """A running server. Made by `serve`; ends with `close()`, or with its `with` block."""

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
        """Where ranks find it, with its real port."""
        return self._loop.address

    @property
    def boot(self) -> str:
        """Differs after every start."""
        return self._loop.boot

    def statistics(self) -> ServerStatistics:
        """A snapshot of the sessions and this process; the hub has its own."""
        counted = self.store.intake.channels.taken
        return replace(self._loop.statistics(), channels=counted, process=process_stats())

    def overview(self) -> dict[str, Any]:
        """All there is to see, the hub's numbers included, as plain data."""
        return {
            "server": msgspec.to_builtins(self.statistics()),
            "store": self.store.statistics(),
            "hub": self.hub.statistics(),
        }

    def trouble(self) -> str | None:
        """Why nobody can be served any more; None while all is well."""
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
        """Why no rank can be served now; None if one can."""
        if (trouble := self.trouble()) is not None:
            return trouble
        if self.hub.pid is None:
            return "the hub is being started"
        return "the server is leaving" if self._loop.leaving else None

    def drain(self, grace: float = 30.0, reason: str = "it was told to end") -> bool:
        """Takes nobody in, and gives those who are there so many seconds; whether all have left."""
        self._loop.drain(reason, grace)
        return self._loop.empty.wait(grace)

    def reload_certificates(self) -> None:
        """Reads the certificate's files again; no rank that is connected notices.

        If they make no sense, an error is logged, and all stays as it was.
        """
        self._loop.reload_certificates()

    def close(self) -> None:
        """Ends the server, its hub and its workers. Idempotent, within a bound."""
        if os.getpid() != self._owner:
            return  # it is the parent's
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
    data: Graph | Partition | StrPath,
    address: str = "tcp://127.0.0.1:0",
    *,
    num_workers: int | Literal["auto"] = "auto",
    lease: float = LEASE_S,
    limits: Limits | None = None,
    peers: Sequence[str] = (),
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
    store_options: Mapping[str, Any] | None = None,
    **options: Unpack[PoolKeywords],
) -> Server:
    """Serves a graph, or a part of one, at `address`; returns when ranks can come.

    data              a graph, a `Partition`, or the folder of either
    address           where to listen, tcp://host:port; port 0: any that is free. Beyond loopback
                      only with a certificate and tokens, client_ca or `allow_anyone`; or with
                      `allow_plaintext`
    certificate, key  files in PEM: with them all is encrypted (TLS), and the address is tls://…
    client_ca         lets in only those whose certificate this authority has signed
    tokens            words of which a rank must know one: by name, or a file of them
    proxies           hosts through which many ranks come: none waits because another was refused
    lease             seconds without a sign of life after which a rank's channel is let go of
    limits            how much the server takes on
    peers             the servers of all parts, in order
    samplers          the users' samplers that may be asked for: "module:Class", or the class
    files             folders below which files of inputs may be read
    unix              where ranks on this host find the hub; else a name that nobody else has
    store_options     what `DistServer` takes beside: request_timeout, max_labels, …
    num_workers and all others: how the pool is run
    """
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
    limits = limits or Limits()
    names = tuple(name if isinstance(name, str) else name_of(name) for name in samplers)
    pool: PoolKeywords = {"max_arena_bytes": limits.max_arena_bytes, **options}
    with ExitStack() as ends:  # let go of in the opposite order: the event loop first
        held = _held(data, ends)
        wakeup, registering, answering = _threads(ends)
        hub = HubProcess(ServedDataset(held).graph, num_workers, address=unix, **pool)
        ends.callback(hub.close)  # before those who may be waiting for it
        hub.start()
        given = {"samplers": names, "input_folders": files, **(store_options or {})}
        store = DistServer(held, hub, limits=limits, **given)
        ends.callback(store.close)
        listener = TcpListener(where)
        ends.callback(listener.close)
        state = ServerState(
            listener=listener,
            access=access,
            limits=limits,
            registrations=_registrations(store, hub, limits, names, files),
            rpc_sessions=partial(DistServerSession, store),
            welcome=_welcome(store.dataset, hub, listener.address, lease, tuple(peers)),
            registering=registering,
            answering=answering,
            proxies=frozenset(proxies),
        )
        loop = _started_loop(state, wakeup, ends)
        return Server(store, hub, loop, ends.pop_all())


def _held(data: Graph | Partition | StrPath, ends: ExitStack) -> Graph | Partition:
    """What is served; if it was opened here, it is closed here."""
    if isinstance(data, Graph | Partition):
        return data
    held = Partition.open(data) if is_partition(data) else Graph.open(data)
    ends.callback(held.close)
    return held


def _threads(ends: ExitStack) -> tuple[Wakeup, Threads, CallThreads]:
    """Threads for what the event loop must not wait for, and how they tell it what came of it."""
    wakeup = Wakeup()
    ends.callback(wakeup.close)
    ends.callback(wakeup.run)  # what came of work that nobody waits for any more
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
    """Channels of loaders, counted together with those of the store."""
    intake = store.intake
    return Registrations(
        hub=hub,
        id_map=intake.id_map,
        limits=limits,
        budget=intake.inputs,
        channels=intake.channels,
        samplers=frozenset(samplers),
        folders=tuple(files),
    )


def _started_loop(state: ServerState, wakeup: Wakeup, ends: ExitStack) -> EventLoop:
    loop = EventLoop(state, wakeup)
    ends.callback(loop.join, CLOSE_S)
    ends.callback(loop.stop, "it was closed")
    loop.start()
    return loop


def _welcome(
    dataset: ServedDataset, hub: HubProcess, address: str, lease: float, peers: tuple[str, ...]
) -> Welcome:
    return Welcome(
        protocol=PROTOCOL,
        boot=uuid.uuid4().hex,
        pid=os.getpid(),
        host=this_host(),
        address=address,
        outline=outline_of(dataset.graph),
        partition=dataset.note(peers),
        # The hub knows a part by its own numbers; only the server speaks those of the whole.
        unix=hub.address if dataset.part is None else None,
        lease=lease,
    )
