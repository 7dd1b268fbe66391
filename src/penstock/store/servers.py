"""The servers of a store: finds them, knows which part each one has, and asks any of them.

    servers = StoreServers.find(["tcp://a:7070"], patience=30.0)
    calls = [servers.begin(part, "draw", {…}, {"nodes": nodes[part]}) for part in (0, 1)]
    answers = [call.result() for call in calls]

A question about a part may be asked of any server that has it, and may be repeated: it changes
nothing. So the loss of a server is made up for by another one with the same part; without one, a
call waits until the server is back. An answer that is late is asked of another server, too, and the
first one counts.

Connections are driven: threads that wait for answers receive them, from all servers at once. A lost
server is tried by a thread of its own, for half a minute, and for as long as somebody waits; after
that now and then, while calls are made. While nobody calls, nothing runs here but the heartbeats.

Where a name was resolved to the addresses, a file has them as they are now. Then the file says
which servers there are, and addresses that servers had before they moved are forgotten.

This module must not know which verbs there are, and what they ask for.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeAlias

import msgspec
import numpy.typing as npt

from penstock.errors import (
    AccessDenied,
    ChannelClosed,
    HubGone,
    Overloaded,
    PenstockError,
    ProtocolError,
    ServerGone,
)
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline, positive_seconds
from penstock.rpc.endpoint import Endpoint, EndpointSpec
from penstock.rpc.outline import check_same
from penstock.rpc.reception import GroupReception
from penstock.rpc.rpc_client import Answered, ArraySink, RpcClient
from penstock.rpc.server import ATTEMPT_S, PATIENCE_S
from penstock.store.address_file import read_addresses
from penstock.store.lateness import Lateness
from penstock.store.part_call import PartCall
from penstock.store.part_server import PartServer, PartServerStatistics
from penstock.store.policy import Choice, load_of, pauses
from penstock.wire import payload
from penstock.wire.messages import Outline, Welcome
from penstock.wire.transport.tls import StrPath

log = logging.getLogger(__name__)

Array: TypeAlias = npt.NDArray[Any]

# The call by which a server names the servers of its store.
PEERS: Final = "get_store_servers"
# Seconds that `find` waits for all parts.
TIMEOUT_S: Final = 30.0
# While calls are made, servers that were added or have come back are looked for so often.
LOOK_AROUND_S: Final = 30.0
# The most servers of a store: a list that grows beyond that is no list of servers.
MOST_SERVERS: Final = 4096
# While somebody waits for a part that no known server has, they are looked for so often.
_LOOK_AGAIN_S: Final = 0.5
# And a file of addresses, which costs nothing, is read so often.
_READ_AGAIN_S: Final = 0.05
# Seconds that `find` waits for the first word of servers without which every part has one.
_FIRST_WORD_S: Final = 1.0
_NEVER: Final = Deadline(None)
# Errors of an attempt to connect that another attempt may not have.
_PERHAPS_LATER: Final = (OSError, HubGone, Overloaded)
_NOBODY: Final = (
    "nobody is known to have it: give the addresses of all servers, or start them with --store"
)


class StoreHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A store as plain data: another process can ask the same servers.

    Attributes:
        servers: Its servers.
        parts: The part that each of them has; -1 where that is not known yet.
        num_parts: How many parts there are.
        version: The version of the whole graph.
        cut: How it was cut: parts with the same one fit together.
        patience: Seconds that a call waits for a lost server to come back.
        address_file: The file that has the addresses as they are now; empty if there is none.
    """

    servers: tuple[EndpointSpec, ...]
    parts: tuple[int, ...]
    num_parts: int
    version: str
    cut: str
    patience: float = PATIENCE_S
    address_file: str = ""


@dataclass(frozen=True, slots=True)
class StoreServersStatistics:
    """All servers of a store, as a reader has used them.

    Attributes:
        servers: Each server.
        calls: How many calls were begun.
        waits: How many calls had to wait because no server of their part was there.
        waited: For how many seconds in all.
        medians: The median of the latest waits for an answer in seconds, by verb.
    """

    servers: tuple[PartServerStatistics, ...]
    calls: int
    waits: int
    waited: float
    medians: dict[str, float]


class _Store(NamedTuple):
    """What all servers of a store have in common."""

    num_parts: int
    version: str
    cut: str

    def __str__(self) -> str:
        graph = f"version {self.version}" if self.version else "unknown version"
        cut = f" (cut {self.cut})" if self.cut else ""
        return f"{self.num_parts} parts of a graph of {graph}{cut}"


class _OtherStore(ServerGone):
    """A server belongs to another store."""


class StoreServers:
    """All servers of a store. Any thread may call, and close it.

    Made by `find`, or by `of` from the handle of a store that another process has found.
    """

    def __init__(
        self, patience: float, known: _Store | None = None, address_file: str = ""
    ) -> None:
        self.patience = patience
        self.address_file = address_file
        self.reception = GroupReception()
        self.lateness = Lateness()
        self._known = known
        self._first: EndpointSpec | None = None  # whose credentials are everybody's
        self._outlines: dict[int, Outline] = {}  # by part
        self._servers: dict[str, PartServer] = {}  # by address
        self._endpoints: dict[EndpointSpec, Endpoint] = {}  # those that credentials were read for
        self._live: tuple[tuple[PartServer, ...], ...] = ((),) * (known.num_parts if known else 0)
        self._waiting = 0  # how many wait for a server
        self._is_finding = False
        self._is_looking = 0  # how many threads look for further servers
        self._look_at = time.monotonic() + LOOK_AROUND_S
        self._choice = Choice()
        self._turn = 0  # whose peers are asked for next
        self._calls = self._waits = 0
        self._waited = 0.0
        # Reentrant, because a signal handler may call meanwhile.
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._owner = os.getpid()

    @classmethod
    def of(cls, handle: StoreHandle) -> Self:
        """Return the servers of a store that another process has found.

        They are connected to when they are first asked.

        Args:
            handle: The other process's `handle()`.
        """
        store = _Store(handle.num_parts, handle.version, handle.cut)
        made = cls(handle.patience, store, handle.address_file)
        for spec, part in zip(handle.servers, handle.parts, strict=True):
            made._add(spec, None if part < 0 else part)
        return made

    @classmethod
    def find(
        cls,
        addresses: Sequence[str],
        *,
        ca: StrPath | None = None,
        certificate: StrPath | None = None,
        key: StrPath | None = None,
        server_name: str | None = None,
        token: str | None = None,
        name: str = "",
        patience: float = PATIENCE_S,
        timeout: float = TIMEOUT_S,
        address_file: str = "",
    ) -> Self:
        """Find all servers of a store, of which some addresses are known; one suffices.

        Servers may come up in any order: this waits until every part has one.

        Args:
            addresses: Where servers of the store listen.
            ca: The file of the CA to trust.
            certificate: The file of our own certificate.
            key: The file of its private key.
            server_name: The name in the servers' certificates, if it is not that of their hosts.
            token: Sent to the servers.
            name: Our name, for people to read.
            patience: Seconds that a call waits for a lost server to come back.
            timeout: Seconds to wait until every part has a server.
            address_file: The file of an `AddressFile` that has the addresses as they are now.

        Raises:
            ValueError: An argument is not valid, or the servers do not belong to one store.
            ServerGone: Some parts have no server in time; names them and the addresses tried.
            AccessDenied: The servers do not let us in.
        """
        given = (addresses,) if isinstance(addresses, str) else tuple(addresses)
        if not given:
            raise ValueError("addresses is empty; expected at least one address of the store")
        found = cls(positive_seconds(patience, "patience"), address_file=address_file)
        first = EndpointSpec(
            address=given[0],
            ca=_path(ca),
            certificate=_path(certificate),
            key=_path(key),
            server_name=server_name,
            token=token,
            name=name,
        )
        for address in given:
            found._add(msgspec.structs.replace(first, address=address))
        try:
            found._wait_for_all(Deadline(positive_seconds(timeout, "timeout")))
        except BaseException:
            found.close()
            raise
        return found

    # --- what it is --------------------------------------------------------------------------

    @property
    def num_parts(self) -> int:
        """How many parts the store has."""
        return self._identity.num_parts

    @property
    def version(self) -> str:
        """The version of the whole graph."""
        return self._identity.version

    @property
    def cut(self) -> str:
        """How the graph was cut; equal for all servers."""
        return self._identity.cut

    @property
    def _identity(self) -> _Store:
        assert self._known is not None
        return self._known

    def outlines(self) -> list[Outline]:
        """Return what each part says about itself: its types, and the form of its arrays.

        Waits for a server of each part, at most as long as patience lasts; `ServerGone`.
        """
        for part in range(self.num_parts):
            if part not in self._outlines:
                self.wait_for_part(part, Deadline(self.patience), _NEVER)
        return [self._outlines[part] for part in range(self.num_parts)]

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all servers that are known."""
        return tuple(self._servers)

    def handle(self) -> StoreHandle:
        """Return the store as plain data, for another process."""
        with self._changed:
            servers = [each for each in self._servers.values() if not each.is_alias]
            return StoreHandle(
                servers=tuple(each.spec for each in servers),
                parts=tuple(-1 if each.part is None else each.part for each in servers),
                num_parts=self.num_parts,
                version=self.version,
                cut=self.cut,
                patience=self.patience,
                address_file=self.address_file,
            )

    def statistics(self) -> StoreServersStatistics:
        """Return a snapshot."""
        with self._changed:
            return StoreServersStatistics(
                servers=tuple(each.statistics() for each in self._servers.values()),
                calls=self._calls,
                waits=self._waits,
                waited=self._waited,
                medians=self.lateness.medians(),
            )

    # --- calls -------------------------------------------------------------------------------

    def begin(
        self,
        part: int,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        into: Callable[[], ArraySink] | None = None,
    ) -> PartCall:
        """Ask a server of a part, without waiting for the answer, or for a server that is lost.

        Args:
            part: The part.
            verb: The name of the call. It must change nothing, since it may be made repeatedly.
            arguments: Its arguments, plain data.
            arrays: Its arrays by name. They are not copied, and must not change before the answer
                is there.
            into: Makes what takes the arrays of an answer as they come; called for each server
                that is asked.

        Returns:
            The call, whose `result` waits.
        """
        self._check_open()
        if not 0 <= part < len(self._live):
            raise ValueError(f"part is {part}: the store has {len(self._live)} parts")
        packed = payload.pack(arrays) if arrays else payload.NOTHING
        call = PartCall(self, part, verb, dict(arguments or {}), packed, into)
        self._calls += 1
        if time.monotonic() >= self._look_at:
            self._look_around_in_time()
        if not call.ask():
            self._seek_early()
        return call

    def call(
        self,
        part: int,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        timeout: float | None = None,
    ) -> Answered:
        """Ask a server of a part, and return its answer: `begin` and `result`."""
        return self.begin(part, verb, arguments, arrays).result(timeout)

    def close(self) -> None:
        """Close all connections; whoever waits is told. Idempotent; never waits."""
        if os.getpid() != self._owner:
            return
        with self._changed:
            self._closed = True
            clients = [server.drop() for server in self._servers.values()]
            self._live = ((),) * len(self._live)
            self._changed.notify_all()
        for client in clients:
            if client is not None:
                client.close()
        self.reception.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StoreServers: {self._known or 'unknown'} at {', '.join(self._servers)}>"

    # --- for calls: which server, and what became of it --------------------------------------

    def choose(
        self, part: int, kind: Hashable, without: Sequence[PartServer]
    ) -> tuple[PartServer, RpcClient] | None:
        """Return the connected server of a part that a question of this kind is best asked of."""
        live = self._live[part]
        if len(live) == 1:
            (server,) = live
            client = server.client
            return None if client is None or server in without else (server, client)
        candidates = [
            (server, client)
            for server in live
            if (client := server.client) is not None and server not in without
        ]
        return self._choice.among(candidates, kind, self._load, lambda each: each[0].pace)

    def _load(self, candidate: tuple[PartServer, RpcClient]) -> int | None:
        """Return how loaded a server is; None if it cannot be asked."""
        server, client = candidate
        if client.is_over(look=False):  # by silence, while nobody waited for it
            self.note_loss(server, client, client.calls.error())
            return None
        unanswered, is_leaving = len(client.calls.sent), client.connection.is_leaving
        if is_leaving and not unanswered:  # it need not wait for us
            self.note_loss(server, client, ConnectionResetError("it is leaving"))
            return None
        return load_of(unanswered, is_late=server.is_late(client), is_leaving=is_leaving)

    def late_at(self, part: int, verb: str, since: float, asked: int) -> float | None:
        """Return when another server should be asked, too; None if there is no other one."""
        if len(self._live[part]) <= asked:
            return None
        return since + self.lateness.late_after(verb)

    def note_call(self, server: PartServer, *, as_hedge: bool) -> None:
        """Count a call that a server was asked."""
        server.calls += 1
        if as_hedge:
            server.hedges += 1
            log.info("%s is asked, too: another server of its part is late", server.address)

    def note_answer(self, server: PartServer, verb: str, seconds: float, is_hedge: bool) -> None:
        """Note how long an answer was waited for, and whether it came from a second server."""
        self.lateness.note(verb, seconds)
        server.hedges_won += is_hedge

    def note_loss(self, server: PartServer, client: RpcClient, error: Exception) -> None:
        """Note that a server's connection has ended, and try to connect again in the background."""
        with self._changed:
            if server.client is client:
                server.drop()
                server.losses += 1
                server.tries.failed(error)
                self._note_live()
                if not self._closed:
                    assert server.part is not None
                    others = len(self._live[server.part])
                    log.warning(
                        "the server of part %d at %s was lost (%s); %s",
                        server.part,
                        server.address,
                        error,
                        f"{others} more have it" if others else "no other has it",
                    )
                    self._try(server)
        client.close()

    def wait_for_part(self, part: int, patience: Deadline, deadline: Deadline) -> bool:
        """Wait until a server of a part is connected; return False at the deadline.

        Raises:
            ServerGone: Patience has ended, or no server that is known can come back.
        """
        began, until = time.monotonic(), patience.or_sooner(deadline)
        with self._changed:
            self._waiting += 1
            self._waits += 1
            try:
                self._seek()
                while not self._live[part]:
                    self._check_open()
                    if patience.passed or not (self.address_file or self._may_come()):
                        raise self._gone([part], "patience")
                    if deadline.passed:
                        return False
                    self._wait_a_while(until)
                return True
            finally:
                self._waiting -= 1
                self._waited += time.monotonic() - began

    # --- finding -----------------------------------------------------------------------------

    def _wait_for_all(self, deadline: Deadline) -> None:
        with self._changed:
            self._is_finding, given = True, list(self._servers.values())
            try:
                for server in given:
                    self._try(server)
                while self._known is None or not all(self._live):
                    self._check_fit(given)
                    missing = [part for part, live in enumerate(self._live) if not live]
                    if deadline.passed or not (self.address_file or self._may_come()):
                        self._check_fit(self._servers.values())
                        raise self._refused() or self._gone(missing, "timeout")
                    self._wait_a_while(deadline)
                # A stranger among them is told of, also if the others would do without it.
                first = Deadline(_FIRST_WORD_S).or_sooner(deadline)
                while any(each.is_unheard for each in given) and not first.passed:
                    self._changed.wait(first.remaining)
                self._check_fit(given)
            finally:
                self._is_finding = False

    def _wait_a_while(self, deadline: Deadline) -> None:
        """Wait until something has changed; if nothing does, ask again which servers there are."""
        if self.address_file:
            self._changed.wait(Deadline(_READ_AGAIN_S).or_sooner(deadline).remaining)
            self._read_addresses()
        elif not self._changed.wait(Deadline(_LOOK_AGAIN_S).or_sooner(deadline).remaining):
            self._look_around(all_of_them=True)

    def _check_fit(self, servers: Iterable[PartServer]) -> None:
        for server in servers:
            if isinstance(server.refusal, _OtherStore):
                raise ValueError(f"addresses do not belong to one store: {server.refusal}")

    def _refused(self) -> Exception | None:
        """Return why we are not let in, if that is what all servers that are not there say."""
        refusals = [each.refusal for each in self._servers.values() if each.client is None]
        if refusals and all(isinstance(each, AccessDenied) for each in refusals):
            return refusals[0]
        return None

    def _gone(self, missing: Sequence[int], setting: str) -> ServerGone:
        away = [server for server in self._servers.values() if server.client is None]
        tried = [server for server in away if server.part is None or server.part in missing] or away
        if self._known is None:
            what = "no server of the store answers"
        elif len(missing) == 1:
            what = f"part {missing[0]} of {self.num_parts} has no server"
        else:
            what = f"parts {', '.join(map(str, missing))} of {self.num_parts} have no server"
        told = ", ".join(server.told() for server in tried) or _NOBODY
        return ServerGone(
            f"{what} (setting: {setting}). Tried: {told}. Whoever starts a server with the same "
            "part at one of these addresses can have everything go on"
        )

    def _seek(self) -> None:
        """Try all servers that are not connected, and ask the others which servers there are.

        A server may come back with another part than it had, so all of them are tried.
        """
        self._read_addresses()
        for server in list(self._servers.values()):
            client = server.client
            if client is not None and client.is_over():
                self.note_loss(server, client, client.calls.error())
            elif client is None:
                server.refusal = None
                self._try(server)
        if any(self._live):
            self._look_around(all_of_them=True)

    def _seek_early(self) -> None:
        """Begin to seek servers, so that other parts can be asked meanwhile."""
        with self._changed:
            if not self._may_come():
                self._seek()

    def _may_come(self) -> bool:
        """Return whether an attempt is under way that may find a server."""
        return self._is_looking > 0 or any(each.is_tried for each in self._servers.values())

    def _add(self, spec: EndpointSpec, part: int | None = None) -> PartServer | None:
        """Add a server by its address, unless it is known."""
        scheme = spec.address.partition("://")[0]
        shared = msgspec.structs.replace(spec, address=scheme)
        if (known := self._endpoints.get(shared)) is not None:  # its certificates were read already
            endpoint = known.moved_to(spec.address)
        else:
            endpoint = self._endpoints[shared] = spec.endpoint()
        with self._changed:
            self._first = self._first or spec
            if endpoint.address in self._servers or len(self._servers) >= MOST_SERVERS:
                return None
            added = self._servers[endpoint.address] = PartServer(spec, endpoint, part)
            return added

    def _add_peers(self, peers: Sequence[str]) -> None:
        """Add the servers that are named to us, with our credentials, and try them."""
        assert self._first is not None
        for address in peers:
            try:
                added = self._add(msgspec.structs.replace(self._first, address=address))
            except ValueError as error:
                log.warning("a server of the store names an address that is none: %s", error)
                continue
            if added is not None:
                self._try(added)

    # --- connecting, in threads of its own ---------------------------------------------------

    def _try(self, server: PartServer, seconds: float = LOOK_AROUND_S) -> None:
        """Have a thread try to connect to a server for a while, unless one does."""
        with self._changed:
            if not (server.is_tried or self._closed or server.client is not None):
                server.is_tried = True
                until = Deadline(min(seconds, self.patience))
                self._start(partial(self._keep_trying, server, until), "connect")

    def _start(self, work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=f"penstock-{name}", daemon=True).start()

    def _keep_trying(self, server: PartServer, until: Deadline) -> None:
        """Try to connect, until that succeeds or makes no sense; or until then, if nobody waits."""
        try:
            for pause in pauses():
                if self._closed or server.has_moved:
                    return
                try:
                    self._connect(server)
                    return
                except _PERHAPS_LATER as error:
                    if isinstance(error, _OtherStore):
                        raise
                    server.tries.failed(error)
                with self._changed:
                    if server.tries.count == 1:
                        self._changed.notify_all()
                    if until.passed and not self._is_needed:
                        return
                    self._changed.wait_for(lambda: self._closed, pause)
        except Exception as error:  # trying again makes no sense
            if not self._closed:
                log.warning("the server at %s cannot be used: %s", server.address, error)
            with self._changed:
                server.refusal = error
        finally:
            with self._changed:
                server.is_tried = False
                is_usable = not (server.is_alias or server.has_moved or server.refusal)
                if is_usable and self._is_needed:  # who has begun to wait, or it was lost again
                    self._try(server)
                self._changed.notify_all()

    @property
    def _is_needed(self) -> bool:
        """Return whether anybody waits for a server."""
        return self._is_finding or self._waiting > 0

    def _connect(self, server: PartServer) -> None:
        connection = RemoteConnection.open(server.endpoint, Deadline(ATTEMPT_S), driven=True)
        try:
            with self._changed:
                self._admit(server, connection)
        except BaseException:
            connection.close()
            raise

    def _admit(self, server: PartServer, connection: RemoteConnection) -> None:
        """Take a server in: its part has one more from now on."""
        welcome = connection.welcome
        self._check_open()
        if server.has_moved:
            raise ServerGone(f"the store has no server at {server.address} any more")
        self._check_same(server, welcome)
        server.part, server.boot = welcome.partition.number, welcome.boot
        server.tries.succeeded()
        server.is_alias = any(
            other.client is not None and other.boot == welcome.boot
            for other in self._servers.values()
            if other is not server
        )
        if server.is_alias:
            connection.close()
        else:
            server.client = RpcClient(connection, self.reception)
            self.reception.add(connection)
            self._note_live()
            if server.losses:
                log.warning("the server of part %d at %s is back", server.part, server.address)
        if not self.address_file:
            self._add_peers(welcome.partition.peers)
        self._changed.notify_all()

    def _check_same(self, server: PartServer, welcome: Welcome) -> None:
        """Raise `_OtherStore` unless a server's part belongs to this store."""
        note, outline, address = welcome.partition, welcome.outline, server.address
        if outline is None or not 0 <= note.number < note.of:
            raise ProtocolError(f"the server at {address} names no graph")
        found = _Store(note.of, note.version or outline.version or "", note.cut)
        if self._known is None:
            self._known = found
            self._live = ((),) * found.num_parts
        elif found != self._known:
            raise _OtherStore(
                f"the server at {address} has one of {found}; this store has {self._known}"
            )
        before = self._outlines.setdefault(note.number, outline)
        try:
            check_same(before, outline, address)
        except ServerGone as error:
            raise _OtherStore(str(error)) from None

    def _note_live(self) -> None:
        self._live = tuple(
            tuple(
                server
                for server in self._servers.values()
                if server.client is not None and server.part == part
            )
            for part in range(len(self._live))
        )

    # --- looking around ----------------------------------------------------------------------

    def _look_around_in_time(self) -> None:
        """Look for servers that were added or have come back, now that calls are being made."""
        with self._changed:
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + LOOK_AROUND_S
                for server in list(self._servers.values()):
                    if not (server.is_alias or server.refusal is not None):
                        self._try(server, 0.0)
                self._look_around(all_of_them=False)

    def _look_around(self, *, all_of_them: bool) -> None:
        """Have a thread ask connected servers, or one of them, which servers there are.

        Where there is a file of addresses, that says it, for as long as its writer lives.
        """
        if self._read_addresses():
            return
        live = [server.client for server in self._servers.values() if server.client is not None]
        self._turn += 1
        asked = live if all_of_them else live[self._turn % max(1, len(live)) :][:1]
        if asked and not self._is_looking and not self._closed:
            self._is_looking += 1
            self._start(partial(self._ask_for_peers, asked), "look")

    def _ask_for_peers(self, clients: Sequence[RpcClient | None]) -> None:
        deadline = Deadline(ATTEMPT_S)
        try:
            for client in clients:
                try:
                    assert client is not None
                    peers, _ = client.call(PEERS, {}, payload.NOTHING, deadline)
                except (OSError, PenstockError) as error:
                    log.info("a server does not say which others there are: %s", error)
                    continue
                with self._changed:
                    self._add_peers([str(each) for each in peers])
        finally:
            with self._changed:
                self._is_looking -= 1
                self._changed.notify_all()

    def _read_addresses(self) -> bool:
        """Add the servers that the file names, and forget lost ones that it names no more.

        Return whether there is such a file.
        """
        named = read_addresses(self.address_file) if self.address_file else ()
        if not named:
            return False
        with self._changed:
            if self._closed:
                return True
            for address, server in list(self._servers.items()):
                if address not in named and server.client is None:
                    server.has_moved = True  # whoever tries to connect to it stops
                    del self._servers[address]
            self._add_peers(named)
            return True

    def _check_open(self) -> None:
        if self._closed:
            raise ChannelClosed("the store was closed")
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"the connections to the store belong to process {self._owner}, and do not survive "
                "a fork: connect here; or start processes by 'spawn'"
            )


def _path(given: StrPath | None) -> str | None:
    return None if given is None else os.fspath(given)
