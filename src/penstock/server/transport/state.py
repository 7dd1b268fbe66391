"""The state that the event loop, the message handlers and the sessions of a server share.

All of it belongs to the loop's thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.options import Limits
from penstock.server.dist.rpc import RpcSessions
from penstock.server.limits import Budget
from penstock.server.transport.access import Access
from penstock.server.transport.peers import StorePeers
from penstock.server.transport.poller import Poller
from penstock.server.transport.registrations import Registrations
from penstock.server.transport.session import Session
from penstock.server.transport.threads import CallThreads, Threads
from penstock.wire.framing import encode
from penstock.wire.messages import Welcome
from penstock.wire.transport.tcp import TcpListener


@dataclass(eq=False)
class ServerState:
    """The server's components, its settings, its sessions and its counters."""

    listener: TcpListener
    access: Access
    limits: Limits
    registrations: Registrations
    rpc_sessions: RpcSessions
    welcome: Welcome
    peers: StorePeers
    registering: Threads
    answering: CallThreads
    proxies: frozenset[str] = frozenset()
    poller: Poller = field(default_factory=Poller)
    sessions: set[Session] = field(default_factory=set)
    touched: set[Session] = field(default_factory=set)  # sessions the loop must look at again
    leaving: str | None = None  # why no new sessions and channels are accepted
    opened: int = 0
    refused: int = 0
    turned_away: int = 0  # connections that were closed before they had a session
    leases_lost: int = 0
    # Totals of the sessions that have ended.
    batches_before: int = 0
    calls_before: int = 0
    bytes_in_before: int = 0
    bytes_out_before: int = 0

    def __post_init__(self) -> None:
        limits = self.limits
        self.call_budget = Budget("bytes", limits.max_calls_bytes, "max_calls_bytes")
        self.answer_budget = Budget("bytes", limits.max_answers_bytes, "max_answers_bytes")
        self.partial_budget = Budget("bytes", limits.max_partial_bytes, "max_partial_bytes")
        self.name_peers(self.peers.addresses)

    @property
    def only_answers(self) -> bool:
        """Whether clients can hold nothing here: they read one of several parts of a graph."""
        outline = self.welcome.outline
        return outline is not None and outline.is_one_of_several

    def name_peers(self, addresses: tuple[str, ...]) -> None:
        """Name these servers of the store to ranks that connect from now on."""
        partition = msgspec.structs.replace(self.welcome.partition, peers=addresses)
        self.welcome = msgspec.structs.replace(self.welcome, partition=partition)
        self.welcome_bytes = encode(self.welcome)
