"""The exceptions that Penstock defines.

Bad arguments raise a plain `ValueError`; these are for failures that the caller did not cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any


class PenstockError(Exception):
    """The base class of every exception that Penstock defines.

    `details` holds additional data, beyond the message, if the error came from another process.
    """

    details: Mapping[str, Any] = MappingProxyType({})


class GraphFormatError(PenstockError):
    """A folder is not a graph that this version can read; names the file and what is wrong."""


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
        """Return an error that names the first list that is too short.

        Args:
            needs: The sizes that the batch has, under "nodes" and "edges".
            rooms: The capacities of each list of the buffer, by the name of the list.
        """
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
    """A sampler could not make a batch: it raised, or returned something that is not a batch."""


class WorkerDied(PenstockError):
    """A batch lost a worker `max_attempts` times; the message contains the whole report."""


class HubGone(PenstockError):
    """The hub is gone and could not be started or reached again."""


class ServerGone(HubGone):
    """A server on another host could not be reached again; names it and the number of tries."""


class Overloaded(PenstockError):
    """A hub is at its limit of connections, channels or memory; names the setting."""


class ChannelClosed(PenstockError):
    """The channel was closed, here or by the hub; nothing more can be read from it."""


class ProtocolError(PenstockError):
    """The other end of a connection sent a message that is not valid here."""


class AccessDenied(PenstockError):
    """A server refused this client: it has no key or token, or none that the server knows."""
