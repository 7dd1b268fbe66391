"""The servers of the store that this server belongs to, as it names them to ranks.

The list is given when the server starts (`store=`), and grows: a server that is started later
announces itself to those in its own list, and to all that they name. An address is added only when
the server there was reached, by its certificate if there is one, and has a part of the same graph,
cut in the same way. So whoever can make calls cannot lead ranks to a stranger.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.client.dist_calls import TRANSPORT, TransportCalls
from penstock.errors import Overloaded, PenstockError, ProtocolError
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import EndpointSpec
from penstock.rpc.rpc_client import RpcClient
from penstock.rpc.server import ATTEMPT_S
from penstock.wire.messages import PartitionNote, Welcome
from penstock.wire.payload import NOTHING
from penstock.wire.transport import tcp
from penstock.wire.values import unpack

log = logging.getLogger(__name__)

ANNOUNCE: Final = TransportCalls.announce.__name__
STORE_SERVERS: Final = TransportCalls.get_store_servers.__name__
VERBS: Final = frozenset({ANNOUNCE, STORE_SERVERS})
# The most servers of a store.
MOST_SERVERS: Final = 4096
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0


class StorePeers:
    """The list of servers. Any thread may use it.

    Args:
        welcome: What this server says to ranks.
        store: The addresses that it was given; none if it belongs to no store.
        credentials: How it connects to other servers; the address is replaced.
    """

    def __init__(self, welcome: Welcome, store: Sequence[str], credentials: EndpointSpec) -> None:
        self._welcome = welcome
        self._credentials = credentials
        self._changed: Callable[[tuple[str, ...]], None] = lambda addresses: None
        self._lock = threading.Lock()
        self._reaching = threading.Lock()
        self._is_given = bool(store)
        self._stopped = threading.Event()
        self._addresses = dict.fromkeys(store)
        self._own = self._own_address()
        if self._is_given and self._own is not None:
            self._addresses[self._own] = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers of the store that are known, this one included; none without a store."""
        return tuple(self._addresses)

    def answer(self, verb: str, arguments: Any) -> list[str]:
        """Answer one of `VERBS`."""
        taken = unpack(arguments, {}, TRANSPORT[verb].takes)
        return self.announce(taken.address) if verb == ANNOUNCE else list(self.addresses)  # type: ignore[attr-defined]

    def announce(self, address: str) -> list[str]:
        """Add a server of the store, and return all of them.

        Raises:
            PenstockError: This server belongs to no store, or the other one to another store.
            ConnectionError: No server answers at the address.
        """
        if not self._is_given:
            raise PenstockError("this server belongs to no store (setting: store)")
        where = self._endpoint_address(address)
        if where not in self._addresses:
            if len(self._addresses) >= MOST_SERVERS:
                raise Overloaded(f"the store has {MOST_SERVERS} servers, and no more are taken")
            if not self._reaching.acquire(timeout=ATTEMPT_S):
                raise Overloaded("other servers are being announced")
            try:
                self._reach(where).close()
            finally:
                self._reaching.release()
            log.warning("the store has one more server, at %s", where)
            self._add([where])
        return list(self.addresses)

    # --- telling others ----------------------------------------------------------------------

    def start(self, changed: Callable[[tuple[str, ...]], None]) -> None:
        """Have a thread announce this server to the others, until each of them has heard of it.

        `changed` is told the new list, whenever it grows, in any thread.
        """
        self._changed = changed
        if self._is_given:
            threading.Thread(target=self._tell_all, name="penstock-announce", daemon=True).start()

    def stop(self) -> None:
        """Have the thread end soon. Idempotent; never waits."""
        self._stopped.set()

    def _tell_all(self) -> None:
        self._find_itself()
        untold, told, pause = deque(self.addresses), set(self.addresses), _FIRST_PAUSE_S
        while untold and not self._stopped.is_set():
            left: deque[str] = deque()
            while untold and not self._stopped.is_set():
                address = untold.popleft()
                try:
                    named = self._tell(address)
                except (OSError, Overloaded) as error:
                    log.info("%s does not hear of this server yet: %s", address, error)
                    left.append(address)
                except PenstockError as error:
                    log.warning("%s is no server of this store: %s", address, error)
                else:
                    untold.extend(each for each in named if each not in told)
                    told.update(named)
            untold = left
            if untold:
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _find_itself(self) -> None:
        """Find out which address of the list is this server's, if that does not say it itself."""
        port = tcp.Address.parse(self._welcome.address).port
        for address in self.addresses if self._own is None else ():
            if tcp.Address.parse(address).port != port or self._stopped.is_set():
                continue
            try:
                connection = self._reach(address)
            except (OSError, PenstockError):
                continue
            if connection.welcome.boot == self._welcome.boot:
                self._own = address
            connection.close()
        if self._own is None:
            log.warning(
                "others cannot be told where this server is, because it listens at %s: have its "
                "own address in its list (setting: store)",
                self._welcome.address,
            )

    def _tell(self, address: str) -> list[str]:
        """Announce this server to another one; return the servers that the other one knows."""
        connection = self._reach(address)
        if connection.welcome.boot == self._welcome.boot:  # this server, by another address
            connection.close()
            return []
        client = RpcClient(connection)
        try:
            named = connection.welcome.partition.peers
            if self._own is not None:
                deadline = Deadline(2 * ATTEMPT_S)  # the other one connects to this one meanwhile
                named = client.call(ANNOUNCE, {"address": self._own}, NOTHING, deadline)[0]
        finally:
            client.close()
        known = [self._endpoint_address(str(each)) for each in named]
        self._add(known)
        return known

    # --- who they are ------------------------------------------------------------------------

    def _own_address(self) -> str | None:
        """Return the address at which others find this server; None if it is not known."""
        own = tcp.Address.parse(self._welcome.address)
        return None if own.host in tcp.ANYWHERE else str(own)

    def _reach(self, address: str) -> RemoteConnection:
        """Return a connection to a server of this store; raise if it belongs to another one."""
        spec = msgspec.structs.replace(self._credentials, address=address)
        connection = RemoteConnection.open(spec.endpoint(), Deadline(ATTEMPT_S), driven=True)
        try:
            self._check(connection.welcome, address)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, welcome: Welcome, address: str) -> None:
        ours, theirs = self._welcome.partition, welcome.partition
        if _store_of(ours) != _store_of(theirs):
            raise PenstockError(
                f"the server at {address} has {_told(theirs)}; this one has {_told(ours)}"
            )

    def _endpoint_address(self, address: str) -> str:
        """Return an address as it is named to ranks: with the scheme that this store uses."""
        if not isinstance(address, str):
            raise ProtocolError(f"an address is {type(address).__name__}; expected text")
        parsed = tcp.Address.parse(address)
        scheme = tcp.Address.parse(self._welcome.address).scheme
        return str(tcp.Address(scheme, parsed.host, parsed.port))

    def _add(self, addresses: Sequence[str]) -> None:
        with self._lock:
            new = [each for each in addresses if each not in self._addresses]
            if not new:
                return
            self._addresses |= dict.fromkeys(new[: MOST_SERVERS - len(self._addresses)])
        self._changed(self.addresses)


def _store_of(note: PartitionNote) -> tuple[int, str, str]:
    return note.of, note.version, note.cut


def _told(note: PartitionNote) -> str:
    return f"part {note.number} of {note.of} of version {note.version or '?'} (cut {note.cut})"
