"""The errors Penstock raises on its own account.

Bad arguments are plain `ValueError`; these are for things that go wrong outside the caller's hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any


class PenstockError(Exception):
    """Root of every error that is Penstock's own.

    `details` has what is known beyond the words, of an error that came from another process.
    """

    details: Mapping[str, Any] = MappingProxyType({})


class GraphFormatError(PenstockError):
    """A folder on disk is not a graph this version can read; names the file and what is wrong."""


class BatchTooLarge(PenstockError):
    """A batch does not fit the memory it was given; `nodes` and `edges` say how much it needs."""

    def __init__(self, message: str, nodes: Sequence[int], edges: Sequence[int]) -> None:
        super().__init__(message)
        self.nodes = list(nodes)
        self.edges = list(edges)

    @classmethod
    def for_lists(
        cls, needs: Mapping[str, Sequence[int]], rooms: Mapping[str, Sequence[int]]
    ) -> BatchTooLarge:
        """Names the first of the lists given that is too short."""
        for name, room in rooms.items():
            what = "nodes" if name.endswith(("nodes", "trees")) else "edges"
            for number, (need, have) in enumerate(zip(needs[what], room, strict=True)):
                if need > have:
                    message = f"{name}[{number}] has room for {have} {what}; the batch has {need}"
                    return cls(message, needs["nodes"], needs["edges"])
        return cls("the batch does not fit", needs["nodes"], needs["edges"])

    def __reduce__(self) -> tuple[type[BatchTooLarge], tuple[str, list[int], list[int]]]:
        return type(self), (str(self), self.nodes, self.edges)


class SamplingError(PenstockError):
    """A sampler could not make a batch: it raised, or gave back something that is no batch."""


class WorkerDied(PenstockError):
    """A worker died with a batch as often as it may; the message tells the whole story."""


class HubGone(PenstockError):
    """The hub is gone and could not be started or reached again."""


class ServerGone(HubGone):
    """A server on another host is gone and could not be reached again; names it, and the tries."""


class Overloaded(PenstockError):
    """A hub has as much as it may have, of connections, channels or memory; names the setting."""


class ChannelClosed(PenstockError):
    """The channel was closed, here or by the hub; nothing more can be read from it."""


class ProtocolError(PenstockError):
    """The other side of a connection said something that makes no sense here."""


class AccessDenied(PenstockError):
    """A server does not let this one in: no key, no token, or none that it knows."""
