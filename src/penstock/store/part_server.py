"""One server of a store, as a reader knows it: where it is, its part, and the connection to it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.rpc.endpoint import Endpoint, EndpointSpec
from penstock.rpc.rpc_client import RpcClient
from penstock.rpc.tries import Tries


@dataclass(frozen=True, slots=True)
class PartServerStatistics:
    """One server of a store, as a reader has used it.

    Attributes:
        address: Where it is.
        part: The part that it has; None if that is not known yet.
        state: "connected", "lost", "refused", or "same" if it is a server that another address
            leads to as well.
        calls: How many calls it was asked.
        unanswered: How many of them are not answered, including those that were given up.
        bytes_in: Bytes that came from it.
        bytes_out: Bytes that were sent to it.
        losses: How often its connection was lost.
        hedges: How many calls it was asked because another server was late.
        hedges_won: How many of these it answered first.
        trouble: What the last attempt to connect failed with.
    """

    address: str
    part: int | None
    state: str
    calls: int
    unanswered: int
    bytes_in: int
    bytes_out: int
    losses: int
    hedges: int
    hedges_won: int
    trouble: str


class PartServer:
    """One server: where it is, and the client of its connection while there is one.

    Guarded by the lock of `StoreServers`.
    """

    def __init__(self, spec: EndpointSpec, endpoint: Endpoint, part: int | None = None) -> None:
        self.spec = spec
        self.endpoint = endpoint
        self.part = part
        self.client: RpcClient | None = None
        self.boot = ""
        self.is_alias = False  # it is the server that another address leads to as well
        self.tries = Tries()
        self.is_tried = False  # a thread tries to connect
        self.has_moved = False  # nobody is at this address any more
        self.refusal: Exception | None = None  # why trying again makes no sense
        self.late_at = -1  # the number of answers at the time that one was late
        self.calls = self.losses = self.hedges = self.hedges_won = 0
        self._bytes_before = (0, 0)

    @property
    def address(self) -> str:
        return self.endpoint.address

    @property
    def is_unheard(self) -> bool:
        """Whether it is tried for the first time, and nothing has come of it yet."""
        return self.is_tried and self.client is None and not (self.tries.count or self.is_alias)

    def is_late(self, client: RpcClient) -> bool:
        """Whether it has answered nothing since an answer was late."""
        return self.late_at == client.calls.answered

    def note_late(self, client: RpcClient) -> None:
        self.late_at = client.calls.answered

    def drop(self) -> RpcClient | None:
        """Forget the client, and return it."""
        client, self.client = self.client, None
        if client is not None:
            self._bytes_before = self._bytes(client)
            self.late_at = -1
        return client

    def _bytes(self, client: RpcClient | None) -> tuple[int, int]:
        moved = (0, 0) if client is None else client.connection.bytes_moved
        return self._bytes_before[0] + moved[0], self._bytes_before[1] + moved[1]

    @property
    def state(self) -> str:
        if self.client is not None:
            return "connected"
        if self.refusal is not None:
            return "refused"
        return "same" if self.is_alias else "lost"

    def told(self) -> str:
        """The address, and what attempts to connect to it came to."""
        if self.is_alias and self.refusal is None and not self.tries.count:
            return f"{self.address} (the same server)"
        if self.refusal is not None:
            return f"{self.address} ({self.refusal})"
        times = f"{self.tries.count} attempt" + ("s" if self.tries.count != 1 else "")
        return f"{self.address} ({times}, the last: {self.tries.last or 'under way'})"

    def statistics(self) -> PartServerStatistics:
        client = self.client
        bytes_in, bytes_out = self._bytes(client)
        return PartServerStatistics(
            address=self.address,
            part=self.part,
            state=self.state,
            calls=self.calls,
            unanswered=0 if client is None else len(client.calls.sent),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            losses=self.losses,
            hedges=self.hedges,
            hedges_won=self.hedges_won,
            trouble=str(self.refusal or self.tries.last or ""),
        )
