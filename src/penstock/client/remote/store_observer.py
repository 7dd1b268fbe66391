"""Looks at all servers of a store, including those that do not answer.

    observer = StoreObserver(["tcp://a:7070"])
    look = observer.look()
    [server.state for server in look.servers]     # ["serving", "no answer", "serving"]

Who samples from a store needs a server for every part (`store.servers`); who watches one wants to
see what is missing. So nothing here waits for a server to come, or fails because one is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import msgspec

from penstock.errors import AccessDenied, PenstockError, ServerGone
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.rpc_client import RpcClient
from penstock.wire import payload
from penstock.wire.messages import PartitionNote

# Threads that ask servers at once.
_AT_ONCE: Final = 32
_ANSWERING: Final = ("serving", "leaving")


class ServerLook(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one moment.

    Attributes:
        address: Where it is.
        part: The number of its part; None if it has not answered yet.
        of: The number of parts of its graph.
        replica: Its number among the servers that have this part, from 0.
        replicas: How many servers have this part.
        state: "serving", "leaving", "another store", "no answer", or "refused": we are not let in.
        trouble: Why it does not answer, or which store it is of; empty if all is well.
        statistics: What `server_statistics` gives; None if it does not answer.
    """

    address: str
    part: int | None
    of: int
    replica: int
    replicas: int
    state: str
    trouble: str
    statistics: dict[str, Any] | None


class StoreLook(msgspec.Struct, frozen=True, kw_only=True):
    """A store at one moment.

    Attributes:
        num_parts: How many parts its graph has.
        version: The version of the whole graph.
        topology: Whether servers have the edges of their part ("parts") or all ("whole").
        missing: The parts that no server answers for.
        servers: All servers that are known, by part.
    """

    num_parts: int
    version: str
    topology: str
    missing: tuple[int, ...]
    servers: tuple[ServerLook, ...]


class StoreObserver:
    """Finds the servers of a store from some of them, and looks at all. For one thread.

    Args:
        addresses: Some of its servers; one that answers suffices.
        timeout: Seconds that a server has to answer.
        **access: Credentials, as for `Endpoint.at`.
    """

    def __init__(self, addresses: Sequence[str], timeout: float = 10.0, **access: Any) -> None:
        self._access = access
        self._timeout = timeout
        self._known: dict[str, _Observed] = {}
        for address in addresses:
            self._add(Endpoint.at(address, **access))
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="penstock-look")

    def look(self) -> StoreLook:
        """Ask every server, and those that they name, how it is.

        Raises:
            ServerGone: No server has ever answered; names the addresses and what went wrong.
        """
        asked: list[_Observed] = []
        while new := [each for each in self._known.values() if each not in asked]:
            deadlines = [Deadline(self._timeout)] * len(new)
            for peers in self._threads.map(_Observed.ask, new, deadlines):
                self._add_peers(peers)
            asked += new
        first = next((each.note for each in asked if each.note is not None), None)
        if first is None:
            told = ", ".join(f"{each.address} ({each.trouble})" for each in asked)
            raise ServerGone(f"no server answers: {told}")
        return _summed_up(first, list(_distinct(asked)))

    def close(self) -> None:
        """Disconnect from all servers. Idempotent."""
        for each in self._known.values():
            each.close()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, endpoint: Endpoint) -> None:
        self._known.setdefault(endpoint.address, _Observed(endpoint))

    def _add_peers(self, addresses: Iterable[str]) -> None:
        """Add servers that another one names; it may name them wrongly."""
        for address in addresses:
            try:
                self._add(Endpoint.at(address, **self._access))
            except ValueError:
                continue


class _Observed:
    """One server: its connection, while there is one, and what it said last."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.note: PartitionNote | None = None  # of its latest Welcome
        self.boot = ""
        self.statistics: dict[str, Any] | None = None
        self.trouble = ""
        self.is_refused = False
        self._client: RpcClient | None = None

    @property
    def address(self) -> str:
        return self.endpoint.address

    def ask(self, deadline: Deadline) -> list[str]:
        """Get its statistics, or note why that fails; return the servers that it names."""
        self.statistics, self.trouble, self.is_refused = None, "", False
        try:
            client = self._connected(deadline)
            self.statistics, _ = client.call("server_statistics", {}, payload.NOTHING, deadline)
            peers, _ = client.call("get_store_servers", {}, payload.NOTHING, deadline)
            return [str(each) for each in peers]
        except (OSError, PenstockError) as error:
            self.trouble = str(error) or type(error).__name__
            self.is_refused = isinstance(error, AccessDenied)
            self.close()
            return []

    def _connected(self, deadline: Deadline) -> RpcClient:
        if self._client is None or self._client.is_over():
            self.close()
            connection = RemoteConnection.open(self.endpoint, deadline, driven=True)
            self._client = RpcClient(connection)
            self.note, self.boot = connection.welcome.partition, connection.welcome.boot
        return self._client

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def state(self, first: PartitionNote) -> tuple[str, str]:
        """Return how it is, as a server of the store that `first` is of, and what is wrong."""
        if self.statistics is None:
            return "refused" if self.is_refused else "no answer", self.trouble
        assert self.note is not None
        if _store(self.note) != _store(first):
            return "another store", (
                f"it has part {self.note.number} of {self.note.of} of version {self.note.version} "
                f"(cut {self.note.cut})"
            )
        return ("leaving" if self.statistics["draining"] else "serving"), ""


def _store(note: PartitionNote) -> tuple[int, str, str]:
    return note.of, note.version, note.cut


def _distinct(observed: Sequence[_Observed]) -> Iterator[_Observed]:
    """Yield each server once, also if several addresses lead to it."""
    boots: set[str] = set()
    for each in observed:
        if each.statistics is None or each.boot not in boots:
            yield each
        boots.add(each.boot)


def _summed_up(first: PartitionNote, observed: Sequence[_Observed]) -> StoreLook:
    of_part: dict[int | None, list[_Observed]] = {}
    for each in observed:
        of_part.setdefault(_part(each, first), []).append(each)
    by_part = sorted(of_part, key=lambda part: (part is None, part))
    servers = tuple(
        _look(each, first, part, replica, len(of_part[part]))
        for part in by_part
        for replica, each in enumerate(of_part[part])
    )
    answering = {each.part for each in servers if each.state in _ANSWERING}
    return StoreLook(
        num_parts=first.of,
        version=first.version,
        topology=first.topology,
        missing=tuple(part for part in range(first.of) if part not in answering),
        servers=servers,
    )


def _part(observed: _Observed, first: PartitionNote) -> int | None:
    """Return which part of this store a server has; None if it is not known, or of another."""
    note = observed.note
    return None if note is None or _store(note) != _store(first) else note.number


def _look(
    observed: _Observed, first: PartitionNote, part: int | None, replica: int, replicas: int
) -> ServerLook:
    state, trouble = observed.state(first)
    return ServerLook(
        address=observed.address,
        part=part,
        of=first.of,
        replica=replica,
        replicas=replicas,
        state=state,
        trouble=trouble,
        statistics=observed.statistics,
    )
