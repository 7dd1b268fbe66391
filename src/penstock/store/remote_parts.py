"""The parts of a graph at servers: asked over the network, any replica of each."""

from __future__ import annotations

from typing import Any

from penstock.store.calls import STORE_VERBS
from penstock.store.part_call import PartCall
from penstock.store.rows_target import RowsTarget
from penstock.store.servers import StoreHandle, StoreServers
from penstock.wire.rpc_schema import Verb
from penstock.wire.values import pack, unpack


class _Call:
    """A question on its way."""

    def __init__(self, verb: Verb, call: PartCall) -> None:
        self._verb = verb
        self._call = call

    def result(self) -> Any:
        """Wait for the answer, and return it."""
        value, arrays = self._call.result()
        return self._verb.form.together(unpack(value, arrays, self._verb.gives))

    def abandon(self) -> None:
        """Give the question up."""
        self._call.abandon()


class RemoteParts:
    """Somebody for each part, at servers. Thread-safe."""

    def __init__(self, servers: StoreServers) -> None:
        self.servers = servers

    @classmethod
    def of(cls, handle: StoreHandle) -> RemoteParts:
        """Return the parts at the servers that a handle names; they are connected to when asked."""
        return cls(StoreServers.of(handle))

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return self.servers.num_parts

    def begin(
        self, part: int, verb: str, into: RowsTarget | None = None, **arguments: Any
    ) -> _Call:
        """Ask about a part, and return without waiting for the answer; see `parts.Parts`."""
        known = STORE_VERBS[verb]
        plain, arrays = pack(arguments)
        sinks = None if into is None else into.sink
        return _Call(known, self.servers.begin(part, verb, plain, arrays, sinks))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.servers.close()
